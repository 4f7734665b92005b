"""The settings of an experiment, in groups as the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

from django import forms
from django.http import QueryDict

from engine.core import Claim
from engine.core.ledger import STOPPING_RULES
from engine.core.samplers import sampler_names
from engine.domain.claim_settings import usual_margin
from engine.domain.secret_draws import new_seed
from engine.domain.tags import normal_tags
from engine.models import Experiment
from engine.selectors.rubrics import why_no_judge
from labeling.forms.fields import choice_field, offer_models, say_bounds

# A new setting of an experiment comes onto the page by its name here; label and help are the model's unless
# given below.
GROUPS: dict[str, tuple[str, ...]] = {
    "about": ("name", "tags"),
    "model": ("model",),
    "generation": ("responses", "backend"),
    "structure": ("space",),
    "asking": ("question", "further_questions"),
    "answers": ("allow_tie", "allow_both_bad"),
    "guidelines": ("guidelines",),
    "judging": ("judge", "rule_preference"),
    "serving": (
        "tell_outcome",
        "leaderboard",
        "no_answer",
        "shown_thinking",
        "overlap",
        "overlap_rule",
        "equally_seen_only",
    ),
    "llm_judge": ("llm_judge", "judge_model", "rubric", "llm_budget"),
    "claim": ("claim", "budget", "money_limit"),
    "risk": ("epsilon", "delta", "strict", "missing"),
    "checks": ("practice", "gold_rate", "repeat_rate"),
    "advanced": ("sampler", "stopping", "seed"),
}

# The steps of the page, by the name that its address has: title, and groups of settings.
STEPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "policies": ("Policies", ("about", "model", "generation", "structure")),
    "tasks": ("Tasks", ()),
    "judges": ("Judges", ("judging", "asking", "answers", "guidelines", "serving", "llm_judge", "checks")),
    "stop": ("Stop and start", ("claim", "risk", "advanced")),
}
NAME_MISSING = "Give the experiment a name."
_ERRORS = {
    "name": {"required": NAME_MISSING},
    "question": {"required": "Write the question to answer about each pair."},
}
LABELS = {
    "guidelines": "Guidelines for annotators",
    "further_questions": "Further questions (optional)",
    "responses": "Responses to compare",
    "space": "Assumption about the factors",
    "judge": "Who judges?",
    "rule_preference": "Of two correct responses, the rule prefers",
    "allow_tie": "Equally good",
    "allow_both_bad": "Both are bad",
    "tell_outcome": "Tell annotators the outcome",
    "leaderboard": "Leaderboard for annotators",
    "tags": "Tags",
    "equally_seen_only": "Only pairs whose two texts were seen equally often",
    "overlap": "Judgments per comparison",
    "overlap_rule": "Combining several judgments",
    "claim": "When to stop",
    "missing": "Pairs that were shown and not answered",
    "delta": "Accepted risk of a wrong claim (0.05 is 5%)",
    "strict": "The accepted risk is that of",
    "budget": "Budget: maximum number of comparisons",
    "money_limit": "Most money for responses",
    "no_answer": "Pairs in which one response is no answer",
    "shown_thinking": "Show annotators the models’ thinking",
    "judge_model": "Language model that judges",
    "epsilon": "Margin (0.05 is 5 points)",
    "sampler": "Choice of pairs",
    "stopping": "Stopping rule",
    "seed": "Random seed",
    "backend": "Backend that writes the responses",
    "model": "Model",
    "llm_judge": "Role of the language model",
    "rubric": "Rubric for the language model",
    "llm_budget": "Maximum number of comparisons to send to the language model",
    "practice": "Practice pairs at the start",
    "gold_rate": "Share of gold pairs (0.1 is 10%)",
    "repeat_rate": "Share of repeated pairs (0.1 is 10%)",
}
_HELP = {
    "name": "Annotators see it, so name no model or policy in it. At most 200 characters.",
    "question": "The question that annotators answer for each pair.",
    "guidelines": (
        "Explain when a response is better, with an example, and what to answer if both are the same. "
        "You can use Markdown."
    ),
    "claim": (
        "The dashboard shows the other claims too, and you can stop on one that holds. “Good enough” "
        "nearly always names the best policy as well, and it ends even if two policies are equally "
        "good. The last one says nothing about a winner if no policy beats all others."
    ),
    "missing": (
        "Against every claim is recommended: the accepted risk then holds whoever leaves or delays which "
        "pairs. With 2% of the pairs unanswered it takes about a fifth more comparisons. By answers alone, "
        "the risk holds only if nobody leaves a pair because of what the answer would be."
    ),
    "delta": "5% means: at most 1 in 20 such experiments claims something wrong.",
    "strict": (
        "It matters only if policies join. Each conclusion: it is wrong with at most the accepted risk, "
        "whatever happened before it and whoever wrote the new policies; the risks of several add up. "
        "The whole life: however often policies join or leave, the chance that this page ever concludes "
        "something wrong is at most the accepted risk. A tenth challenge then takes about six times the "
        "comparisons of the first. It cannot be changed after the start."
    ),
    "budget": "The experiment stops there, even without a winner. You can raise the budget later.",
    "space": (
        "If prompts and models do not act independently, because some only work together, that assumption "
        "can name a wrong winner. The page Method tests it."
    ),
    "epsilon": (
        "Good enough: no other policy is better by more than this. At 5 points no other beats the winner in "
        "more than 55 of 100 comparisons. Best: this claim has no margin; the dashboard "
        "also says which policies are good enough. Best, if there is a best: at 5 points the winner must "
        "win in more than 55 of 100. Near ties end without a winner; the usual value is 0."
    ),
    "backend": "The dashboard warns you if no worker runs this backend.",
    "model": (
        "Writes every response, unless a factor of the kind “Model” chooses. Connections are made on the "
        "page Models."
    ),
    "judge_model": "A connection of the page Models.",
    "no_answer": (
        "A response is no answer if it is empty, filtered or refused. Two such responses are always shown to "
        "people."
    ),
    "shown_thinking": "It is folded below the response. Not together with gold pairs, which have none.",
    "money_limit": (
        "In the currency of the connections. Beyond it nothing more is asked for, and nothing is lost. "
        "Empty: no limit."
    ),
    "llm_judge": (
        "It works beside people only. Its opinions do not count until you let it vote on the dashboard, "
        "which shows how well it agrees with people."
    ),
    "allow_tie": (
        "Without it, people guess between responses that are alike, which takes more comparisons. With "
        "ready-made responses leave this off if you need the proven risk."
    ),
    "allow_both_bad": "It counts like “equally good”.",
    "tell_outcome": (
        "When it is decided, their page names the policy that they preferred. Leave it off if you may reopen "
        "the experiment: people who know the outcome may judge by it."
    ),
    "leaderboard": (
        "Beside their own answers, annotators see how many pairs each person has answered, by user name. It "
        "never says what anybody answered. You can change it at any time."
    ),
    "tags": "For filters on the first page, separated by commas. You can change them at any time.",
    "overlap_rule": "Used only when a comparison is judged more than once.",
    "llm_budget": "The model is asked twice about each, once in each order.",
    "sampler": (
        "Balanced compares where evidence is missing most. The others serve as baselines and need more "
        "comparisons."
    ),
    "stopping": (
        "Certified: the accepted risk holds, however often you look. Heuristic: stops earlier, without "
        "this guarantee. Theory: stops much later."
    ),
    "seed": "Seed for the choice of pairs. Empty: a random seed. Sides and tasks do not depend on it.",
}
_CLAIMS = {
    Claim.GOOD_ENOUGH: (
        "Stop when one is good enough: no other is better by more than the margin, usually 5 points, which "
        "is to win more than 55 of 100 comparisons (recommended)"
    ),
    Claim.BEST: "Stop when one is proved best: it beats every other",
    Claim.BEST_IF_ANY: ("Stop when one is best – or none is; near ties may end without a winner"),
}
_SAMPLERS = {
    "balanced": "Balanced (recommended)",
    "tracking": "Tracking: the paper's optimal shares",
    "round_robin": "Every pair in turn",
    "random": "Any pair, at random",
    "eps_greedy": "The leader against others (epsilon-greedy)",
    "thompson": "Thompson sampling",
    "rucb": "RUCB",
}


@cache
def _samplers() -> dict[str, str]:
    """The label of each sampler by its name, those that other packages registered last."""
    # Cache it: the look at all installed packages takes 15 ms, and a new package needs a restart anyway.
    return {name: _SAMPLERS.get(name, f"{name}, of another package") for name in sampler_names()}


_STOPPING = {
    "certified": "Certified (recommended)",
    "heuristic": "Heuristic: as in the paper's experiments",
    "theory": "Theory: as in the paper's proof",
}


if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Experiment]
else:
    _ModelForm = forms.ModelForm


class RadioSelect(forms.RadioSelect):
    """Radio buttons that know each claim's usual margin, for `setup.js`."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        option["attrs"]["data-usual-margin"] = usual_margin(str(value))
        return option


_WIDGETS = {
    "model": forms.Select,
    "judge_model": forms.Select,
    "claim": RadioSelect,
    "guidelines": forms.Textarea(attrs={"rows": 5}),
    "further_questions": forms.Textarea(attrs={"rows": 3}),
    "space": forms.RadioSelect,
    "judge": forms.RadioSelect,
    "rubric": forms.Textarea(attrs={"rows": 5}),
}


class SettingsForm(_ModelForm):
    """Everything about an experiment that is one value."""

    class Meta:
        model = Experiment
        fields = tuple(name for names in GROUPS.values() for name in names)
        labels = LABELS
        help_texts = _HELP
        widgets = _WIDGETS
        error_messages = _ERRORS

    def __init__(
        self,
        data: QueryDict,
        experiment: Experiment | None,
        *,
        imported: bool,
        models: Sequence[str] = (),
        connections: Sequence[str] = (),
    ) -> None:
        """``models``: those that may write; ``connections``: those that may judge."""
        # A copy: validating writes the values into the instance, which may be shown beside its errors.
        stored = copy(experiment) if experiment else None
        super().__init__(data, instance=stored, use_required_attribute=False)
        self.fields["sampler"] = _choice(self.fields["sampler"], _samplers())
        self.fields["stopping"] = _choice(
            self.fields["stopping"], {name: _STOPPING.get(name, name) for name in STOPPING_RULES}
        )
        choice_field(self, "claim").choices = [(claim.value, text) for claim, text in _CLAIMS.items()]
        choice_field(self, "space").choices = Experiment.Space.choices
        choice_field(self, "judge").choices = Experiment.Judge.choices
        choice_field(self, "responses").choices = [
            choice for choice in Experiment.Responses.choices if choice[0] != Experiment.Responses.IMPORTED
        ]
        # Votes are allowed on the dashboard, once its agreement with people is known.
        stages = [Experiment.LLMJudge.OFF, Experiment.LLMJudge.SHADOW]
        if not connections and (reason := why_no_judge()):
            stages.remove(Experiment.LLMJudge.SHADOW)
            self.fields["llm_judge"].help_text = reason
            self.fields["llm_judge"].error_messages["invalid_choice"] = reason
        choice_field(self, "llm_judge").choices = [(stage.value, stage.label) for stage in stages]
        choice_field(self, "backend").choices = [("", "Any available worker"), *Experiment.Backend.choices]
        for name, offered, empty in (
            ("model", models, "The worker's own model"),
            ("judge_model", connections, "The judging worker's own model"),
        ):
            offer_models(self.fields[name], offered, data.get(name, ""), empty)
        self.fields["seed"].required = self.fields["seed"].show_hidden_initial = False
        self.fields["seed"].initial = None
        for field in self.fields.values():
            if isinstance(field, forms.FloatField):
                field.widget.attrs["step"] = "any"
            if isinstance(field, forms.ChoiceField):
                field.error_messages["required"] = "Choose one."
        for stored_field in Experiment._meta.fields:
            if stored_field.name in self.fields:
                say_bounds(self.fields[stored_field.name], stored_field.validators)
        if imported:
            several = experiment is not None and experiment.factors.count() > 1
            for name in (*GROUPS["generation"], *(() if several else GROUPS["structure"])):
                del self.fields[name]

    def clean_seed(self) -> int:
        seed = self.cleaned_data["seed"]
        return new_seed() if seed is None else int(seed)

    def clean_tags(self) -> str:
        return normal_tags(self.cleaned_data["tags"])

    def group(self, name: str) -> list[forms.BoundField]:
        """The fields of one group that this experiment has."""
        return [self[field] for field in GROUPS[name] if field in self.fields]

    def settings(self) -> dict[str, Any]:
        """The valid values, without the name."""
        return {name: value for name, value in self.cleaned_data.items() if name != "name"}


def _choice(field: forms.Field, labels: dict[str, str]) -> forms.ChoiceField:
    return forms.ChoiceField(label=field.label, help_text=field.help_text, choices=list(labels.items()))


def place_of(field: forms.BoundField) -> str:
    """The id of the element to go to for a field: of radio buttons the first."""
    return field.id_for_label or f"{field.auto_id}_0"

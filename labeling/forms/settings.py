"""The settings of an experiment, in groups as the page shows them."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from django import forms
from django.http import QueryDict

from engine.core.ledger import STOPPING_RULES
from engine.core.samplers import SAMPLERS
from engine.domain.blinding import new_seed
from engine.models import Experiment
from engine.selectors.rubrics import why_no_judge
from labeling.forms.fields import choice_field

# A new setting of an experiment comes onto the page by its name here; label and help are the model's unless given below.
GROUPS: dict[str, tuple[str, ...]] = {
    "about": ("name", "question", "guidelines"),
    "generation": ("responses", "backend", "model"),
    "structure": ("space",),
    "judging": ("judge", "rule_preference", "allow_tie", "allow_both_bad", "overlap", "overlap_rule"),
    "llm_judge": ("llm_judge", "rubric", "llm_budget"),
    "certainty": ("delta", "budget"),
    "checks": ("practice", "gold_rate", "repeat_rate"),
    "advanced": ("epsilon", "sampler", "stopping", "max_skips", "seed"),
}
_LABELS = {
    "guidelines": "Guidelines for annotators",
    "responses": "Which responses are compared",
    "space": "What may be assumed about how the factors act together",
    "judge": "Who judges",
    "rule_preference": "Between two right answers, the rule prefers",
    "allow_tie": "Offer “equally good”",
    "allow_both_bad": "Offer “both are bad”",
    "overlap": "Judgments per comparison",
    "overlap_rule": "Several judgments become one",
    "delta": "Risk of naming a wrong winner (δ)",
    "budget": "Budget: most comparisons",
    "epsilon": "Margin (ε)",
    "sampler": "How pairs are picked",
    "stopping": "When to stop",
    "max_skips": "Skips before a comparison is dropped",
    "seed": "Random seed",
    "backend": "What writes them",
    "model": "Which model",
    "llm_judge": "What a language model has to say",
    "rubric": "Rubric for the language model",
    "llm_budget": "Comparisons to ask it about, at most",
    "practice": "Practice pairs at the start",
    "gold_rate": "Share of gold pairs",
    "repeat_rate": "Share of repeated pairs",
}
_HELP = {
    "name": "So that you and others find it again.",
    "question": "What annotators are asked about every pair.",
    "guidelines": "What makes a response better, with an example. Markdown works.",
    "delta": "0.05 means: at most 1 in 20 such experiments names a policy that is not the best.",
    "budget": "It stops there even without a winner. More can be granted later.",
    "space": (
        "Assuming nothing is always right. Where each level helps or harms by itself, assuming so needs fewer comparisons "
        "once there are many combinations; where levels work only together, it can name a wrong winner."
    ),
    "epsilon": "A policy must win more than ½ + ε against every other one. 0 unless near ties should count as no winner.",
    "backend": "The workers that run offer one or more of these; the dashboard says if none does.",
    "model": "By the name that the worker or server knows it by. Empty: its usual one.",
    "llm_judge": (
        "Beside people only. Its opinions do not count until you have seen how far it agrees with people, "
        "and have let it vote on the dashboard."
    ),
    "rule_preference": "Only where the rule judges.",
    "allow_tie": "It counts half a win each.",
    "allow_both_bad": "It counts half a win each.",
    "overlap_rule": "Where a comparison is judged more than once.",
    "llm_budget": "It is asked twice about each, in both orders.",
    "sampler": "Balanced goes where evidence is lacking most. The others are there to be compared with; they need more comparisons.",
    "stopping": "Certified: the risk holds however often you look. Heuristic: earlier, but δ bounds nothing. Theory: much later.",
    "seed": "Seeds the choice of pairs. Leave it empty for a random one. What annotators see does not follow from it.",
}
_SAMPLERS = {
    "balanced": "Balanced (recommended)",
    "tracking": "Tracking: the paper's optimal shares",
    "round_robin": "Every pair in turn",
    "random": "Any pair, by chance",
    "eps_greedy": "The leader against others (ε-greedy)",
    "thompson": "Thompson sampling",
    "rucb": "RUCB",
}
_STOPPING = {
    "certified": "Certified (recommended)",
    "heuristic": "Heuristic: as in the paper's experiments",
    "theory": "Theory: as in the paper's proof",
}


if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Experiment]
else:
    _ModelForm = forms.ModelForm

_WIDGETS = {
    "guidelines": forms.Textarea(attrs={"rows": 5}),
    "space": forms.RadioSelect,
    "judge": forms.RadioSelect,
    "rubric": forms.Textarea(attrs={"rows": 5}),
}


class SettingsForm(_ModelForm):
    """Everything about an experiment that is one value."""

    class Meta:
        model = Experiment
        fields = tuple(name for names in GROUPS.values() for name in names)
        labels = _LABELS
        help_texts = _HELP
        widgets = _WIDGETS

    def __init__(self, data: QueryDict, experiment: Experiment | None, *, imported: bool) -> None:
        # A copy: validating writes the values into the instance, which may be shown beside its errors.
        stored = copy(experiment) if experiment else None
        super().__init__(data, instance=stored, use_required_attribute=False)
        self.fields["sampler"] = _choice(
            self.fields["sampler"], {name: _SAMPLERS.get(name, name) for name in SAMPLERS}
        )
        self.fields["stopping"] = _choice(
            self.fields["stopping"], {name: _STOPPING.get(name, name) for name in STOPPING_RULES}
        )
        choice_field(self, "space").choices = Experiment.Space.choices
        choice_field(self, "judge").choices = Experiment.Judge.choices
        choice_field(self, "responses").choices = [
            choice for choice in Experiment.Responses.choices if choice[0] != Experiment.Responses.IMPORTED
        ]
        # Votes are allowed on the dashboard, once its agreement with people is known.
        stages = [Experiment.LLMJudge.OFF, Experiment.LLMJudge.SHADOW]
        if reason := why_no_judge():
            stages.remove(Experiment.LLMJudge.SHADOW)
            self.fields["llm_judge"].help_text = reason
            self.fields["llm_judge"].error_messages["invalid_choice"] = reason
        choice_field(self, "llm_judge").choices = [(stage.value, stage.label) for stage in stages]
        choice_field(self, "backend").choices = [
            ("", "Whatever worker is there"),
            *Experiment.Backend.choices,
        ]
        self.fields["seed"].required = self.fields["seed"].show_hidden_initial = False
        self.fields["seed"].initial = None
        for field in self.fields.values():
            if isinstance(field, forms.FloatField):
                field.widget.attrs["step"] = "any"
        if imported:
            for name in (*GROUPS["generation"], "space"):
                del self.fields[name]

    def clean_seed(self) -> int:
        seed = self.cleaned_data["seed"]
        return new_seed() if seed is None else int(seed)

    def group(self, name: str) -> list[forms.BoundField]:
        """The fields of one group that this experiment has."""
        return [self[field] for field in GROUPS[name] if field in self.fields]

    def settings(self) -> dict[str, Any]:
        """The valid values, without the name."""
        return {name: value for name, value in self.cleaned_data.items() if name != "name"}


def _choice(field: forms.Field, labels: dict[str, str]) -> forms.ChoiceField:
    return forms.ChoiceField(label=field.label, help_text=field.help_text, choices=list(labels.items()))

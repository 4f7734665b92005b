"""The experiment: its question, its rules, and its state."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from engine.core import Claim, StopReason
from engine.domain.blinding import new_secret, new_seed
from engine.domain.rules import (
    CERTIFIED,
    LARGEST_MARGIN,
    LARGEST_RISK,
    SMALLEST_RISK,
    USUAL_CLAIM,
    USUAL_MARGIN,
)
from engine.models import clock

_CONCLUSIONS = {
    StopReason.CERTIFIED: "Certified winner",
    StopReason.NO_SINGLE_BEST: "No single best policy",
    StopReason.BUDGET: "Budget spent",
    StopReason.STOPPED: "Stopped by hand",
}


class Experiment(models.Model):
    """One search for the best of K policies by pairwise comparisons."""

    class State(models.TextChoices):
        DRAFT = "draft", "Draft"
        RUNNING = "running", "Running"
        PAUSED = "paused", "Paused"
        CONCLUDED = "concluded", "Concluded"

    class Judge(models.TextChoices):
        HUMAN = "human", "People"
        RULE = "rule", "Rule (reference answers)"

    class LLMJudge(models.TextChoices):
        OFF = "off", "Off"
        SHADOW = "shadow", "Opinions that do not count"
        VOTES = "votes", "Votes"

    class Space(models.TextChoices):
        UNSTRUCTURED = "unstructured", "Nothing: each policy is judged on its own"
        FACTORIAL = "factorial", "Each level adds its own effect in every combination (Bradley-Terry)"

    class OverlapRule(models.TextChoices):
        MAJORITY = "majority", "The majority decides"
        MEAN = "mean", "Each judgment counts its share (1, 2, 4 or 8 judgments)"

    class Missing(models.TextChoices):
        AGAINST = "against", "A pair without an answer counts against every claim"
        ANSWERS = "answers", "Answers alone count"

    class Backend(models.TextChoices):
        SMOLLM2 = "smollm2", "SmolLM2 (a small real model, without a GPU)"
        VLLM = "vllm", "vLLM"
        REMOTE = "remote", "Connections"

    class NoAnswer(models.TextChoices):
        JUDGED = "judged", "People judge it, shown as “(no answer)”"
        LOSES = "loses", "It loses against a text without a click"

    class ShownThinking(models.TextChoices):
        NEITHER = "neither", "Of neither response"
        BOTH = "both", "Of both responses"

    class Responses(models.TextChoices):
        FRESH = "fresh", "A new response for each comparison"
        REUSE = "reuse", "One response for each policy and task, used again"
        IMPORTED = "imported", "Imported responses"

    class RulePreference(models.TextChoices):
        STEPS = "steps", "The response that shows its steps"
        CONCISE = "concise", "The more concise response"

    CLAIMS = (
        (Claim.GOOD_ENOUGH.value, "good enough"),
        (Claim.BEST.value, "best"),
        (Claim.BEST_IF_ANY.value, "best, if there is a best"),
    )

    name = models.CharField(max_length=200)
    maker = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        help_text=(
            "The user who made it and became its owner; among theirs its name is unique. Empty where a "
            "command made it for nobody."
        ),
    )
    question = models.CharField(max_length=300, default="Which response is better?")
    guidelines = models.TextField(blank=True)
    judge = models.CharField(max_length=10, choices=Judge, default=Judge.HUMAN)
    rule_preference = models.CharField(
        max_length=10,
        choices=RulePreference,
        default=RulePreference.STEPS,
        help_text="The rule judge's preference between two correct responses.",
    )
    llm_judge = models.CharField(
        max_length=10,
        choices=LLMJudge,
        default=LLMJudge.OFF,
        help_text="Role of a language model as a judge beside people.",
    )
    rubric = models.TextField(
        blank=True,
        max_length=10_000,
        help_text=(
            "Instructions for the language model that judges: when a response is better. Empty: the "
            "guidelines."
        ),
    )
    llm_budget = models.PositiveIntegerField(
        default=500, help_text="Maximum number of comparisons to send to the language model, each twice."
    )
    llm_calibrated = models.CharField(
        max_length=64,
        blank=True,
        help_text="Identity of the model and its instructions whose agreement with people an admin accepted.",
    )
    llm_failures = models.PositiveIntegerField(
        default=0, help_text="Failed opinions since the last successful one."
    )
    llm_halted = models.TextField(
        blank=True, help_text="Reason why the language model was halted; empty if it was not."
    )

    claim = models.CharField(
        max_length=20,
        choices=CLAIMS,
        default=USUAL_CLAIM.value,
        help_text="The claim on which the experiment stops.",
    )
    delta = models.FloatField(
        default=0.05,
        validators=[MinValueValidator(SMALLEST_RISK), MaxValueValidator(LARGEST_RISK)],
        help_text="Accepted risk of naming a wrong winner, for example 0.05.",
    )
    epsilon = models.FloatField(
        default=USUAL_MARGIN,
        validators=[MinValueValidator(0.0), MaxValueValidator(LARGEST_MARGIN)],
        help_text=(
            "Margin; 0.05 is five points. Good enough: no other policy is better by more. Best, if there "
            "is a best: the winner must win that much more than half of the time. Best: it does not count."
        ),
    )
    missing = models.CharField(
        max_length=10,
        choices=Missing,
        default=Missing.AGAINST,
        help_text=(
            "How pairs count that were shown and not answered. Against every claim: the accepted risk holds "
            "whoever leaves which pairs. By answers alone: it holds only if pairs are left regardless of "
            "what the answer would be."
        ),
    )
    budget = models.PositiveIntegerField(
        default=2000, validators=[MinValueValidator(1)], help_text="Comparisons after which to stop anyway."
    )
    space = models.CharField(
        max_length=15,
        choices=Space,
        default=Space.UNSTRUCTURED,
        help_text="Assumption about how the factors act together.",
    )
    excluded = models.JSONField(
        default=list,
        blank=True,
        help_text=(
            "Combinations to leave out: a list of {factor: level}. Each entry excludes all combinations "
            "with these levels."
        ),
    )
    responses = models.CharField(
        max_length=10,
        choices=Responses,
        default=Responses.FRESH,
        help_text=(
            "With new responses, the finding holds for everything that the policies "
            "could write. With one response for each policy and task, or with "
            "imported responses, it costs less and holds for these responses only."
        ),
    )
    sampler = models.CharField(max_length=30, default="balanced")
    stopping = models.CharField(max_length=30, default=CERTIFIED)
    seed = models.PositiveBigIntegerField(
        default=new_seed,
        help_text="Seed for the choice of pairs. Sides and tasks follow from the secret instead.",
    )
    # Neither is in a description, on a page, in the API or, before the conclusion, in an export:
    # engine/domain/blinding.py.
    secret = models.CharField(max_length=64, default=new_secret, editable=False)
    past_secrets = models.JSONField(
        default=list,
        editable=False,
        help_text="Published secrets, each with the number of its first comparison.",
    )
    secret_from = models.PositiveIntegerField(
        default=0,
        editable=False,
        help_text="Number of the first comparison under this secret.",
    )
    allow_tie = models.BooleanField(default=False, help_text="Offer “equally good”: neither response wins.")
    allow_both_bad = models.BooleanField(
        default=False, help_text="Offer “both are bad”; it counts like “equally good”."
    )
    tell_outcome = models.BooleanField(
        default=False,
        help_text="When it is decided, annotators see which policy their answers preferred.",
    )
    leaderboard = models.BooleanField(
        default=False,
        help_text="Annotators see how many pairs each of them has answered; never what anybody answered.",
    )
    tags = models.CharField(
        max_length=200, blank=True, help_text="Tags by which lists are filtered, separated by commas."
    )
    overlap = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(9)],
        help_text="How many different annotators judge each comparison.",
    )
    overlap_rule = models.CharField(
        max_length=10,
        choices=OverlapRule,
        default=OverlapRule.MAJORITY,
        help_text="Rule that combines several judgments of one comparison into its outcome.",
    )
    repeat_rate = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(0.5)],
        help_text="Share of an annotator's pairs that are earlier ones shown again, sides swapped.",
    )
    gold_rate = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(0.5)],
        help_text="Share of an annotator's pairs whose right answer is known.",
    )
    practice = models.PositiveSmallIntegerField(
        default=0, help_text="Gold pairs that a new annotator judges first, with the answer told."
    )

    judge_model = models.CharField(
        max_length=100,
        blank=True,
        help_text="The connection of the language model that judges; empty: the judging worker's own model.",
    )
    no_answer = models.CharField(
        max_length=10,
        choices=NoAnswer,
        default=NoAnswer.JUDGED,
        help_text="What happens to a pair of which one response is no answer: empty, filtered or refused.",
    )
    shown_thinking = models.CharField(
        max_length=10,
        choices=ShownThinking,
        default=ShownThinking.NEITHER,
        help_text="Whether annotators see what models thought before they answered.",
    )
    money_limit = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.0)],
        help_text="Money after which no more responses are asked for; empty: no limit.",
    )
    backend = models.CharField(
        max_length=10,
        choices=Backend,
        blank=True,
        help_text="Backend of the workers that write; empty: any.",
    )
    model = models.CharField(
        max_length=200,
        blank=True,
        help_text="Connection or worker's model that writes, by its name; empty: a worker's own model.",
    )

    state = models.CharField(max_length=10, choices=State, default=State.DRAFT)
    conclusion = models.CharField(
        max_length=20, choices=[(reason.value, label) for reason, label in _CONCLUSIONS.items()], blank=True
    )
    winner = models.ForeignKey("Policy", models.PROTECT, null=True, blank=True, related_name="+")
    certified_claim = models.CharField(
        max_length=20,
        choices=CLAIMS,
        blank=True,
        help_text="The claim that the conclusion rests on; empty without a certified winner.",
    )
    finding = models.TextField(
        blank=True,
        help_text="What the conclusion claims and what that assumes, in words; empty if it claims nothing.",
    )
    planned_count = models.PositiveIntegerField(
        default=0, help_text="Comparisons planned so far; seeds the next pick."
    )
    evidence_stale = models.BooleanField(
        default=False,
        help_text=(
            "True after a judgment was taken back or a rule changed: the evidence is replayed before the "
            "next decision."
        ),
    )
    closing_since = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text=(
            "Since when the claim would hold without the pairs that annotators hold now: nobody is shown a "
            "new one. Empty otherwise."
        ),
    )
    round_seconds = models.FloatField(
        default=0.0, editable=False, help_text="Time from the last round of planning to the next one."
    )
    rests_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="End of the pause after the last round of planning."
    )
    used_up = models.BooleanField(
        default=False,
        editable=False,
        help_text="True where every annotator has judged each two texts that may be compared.",
    )
    past_votes = models.PositiveIntegerField(
        default=0,
        editable=False,
        help_text="Comparisons that a file of past votes brought along; no sampler chose their pairs.",
    )
    created_at = models.DateTimeField(default=clock.now)
    started_at = models.DateTimeField(null=True, blank=True)
    concluded_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    first_claim = models.CharField(
        max_length=20,
        choices=CLAIMS,
        blank=True,
        help_text="Claim before anybody saw an outcome; empty if never changed.",
    )
    first_delta = models.FloatField(
        null=True,
        blank=True,
        help_text="Accepted risk before anybody saw an outcome; empty if never changed.",
    )
    first_epsilon = models.FloatField(
        null=True,
        blank=True,
        help_text="Margin before anybody saw an outcome; empty if never changed.",
    )

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=["maker", "name"],
                name="experiment_name_once",
                violation_error_message="You have an experiment of this name already. Choose another name.",
            ),
            models.UniqueConstraint(
                fields=["name"],
                condition=Q(maker__isnull=True),
                name="experiment_name_once_without_maker",
                violation_error_message=(
                    "There is an experiment of this name already that belongs to nobody. Choose another name."
                ),
            ),
            models.CheckConstraint(
                name="experiment_state", condition=Q(state__in=["draft", "running", "paused", "concluded"])
            ),
            models.CheckConstraint(
                # Shares of a half, a quarter or an eighth add up exactly in binary. Thirds do not, and an
                # undone judgment would leave a trace in the counts.
                name="experiment_mean_of_a_power_of_two",
                condition=Q(overlap_rule="majority") | Q(overlap__in=[1, 2, 4, 8]),
                violation_error_message=(
                    "With shares, each comparison needs 1, 2, 4 or 8 judgments. For another number, let "
                    "the majority decide."
                ),
            ),
            models.CheckConstraint(
                name="experiment_concluded_has_reason",
                condition=Q(state="concluded", conclusion__gt="")
                | (~Q(state="concluded") & Q(conclusion="")),
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def capital_moves(self) -> bool:
        """True if proofs may move capital: not with texts that are drawn without replacement, for which that
        is not proved.
        """
        return self.responses == self.Responses.FRESH

    @property
    def tag_list(self) -> list[str]:
        """Its tags, by name."""
        return self.tags.split(", ") if self.tags else []

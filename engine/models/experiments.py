"""One experiment: what is asked, how it is decided, and where it stands."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from engine.core import StopReason
from engine.domain.blinding import new_secret, new_seed

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
        SHADOW = "shadow", "Gives opinions that do not count"
        VOTES = "votes", "Votes"

    class Space(models.TextChoices):
        UNSTRUCTURED = "unstructured", "Nothing: any policy may do well or badly on its own"
        FACTORIAL = "factorial", "Each level adds its own worth, whatever it is combined with (Bradley-Terry)"

    class OverlapRule(models.TextChoices):
        MAJORITY = "majority", "The majority decides"
        MEAN = "mean", "Each judgment counts its share (1, 2, 4 or 8 judgments)"

    class Backend(models.TextChoices):
        EMBEDDED = "embedded", "Embedded (the small model that comes along)"
        VLLM = "vllm", "vLLM"
        OPENAI = "openai", "A server that speaks OpenAI's protocol"

    class Responses(models.TextChoices):
        FRESH = "fresh", "A fresh one for every comparison"
        REUSE = "reuse", "One for each policy and task, used again"
        IMPORTED = "imported", "Ready-made ones that were imported"

    class RulePreference(models.TextChoices):
        STEPS = "steps", "The one that shows its steps"
        CONCISE = "concise", "The more concise one"

    name = models.CharField(max_length=200, unique=True)
    question = models.CharField(max_length=300, default="Which response is better?")
    guidelines = models.TextField(blank=True)
    judge = models.CharField(max_length=10, choices=Judge, default=Judge.HUMAN)
    rule_preference = models.CharField(
        max_length=10,
        choices=RulePreference,
        default=RulePreference.STEPS,
        help_text="What the rule judge prefers between two right answers.",
    )
    llm_judge = models.CharField(
        max_length=10,
        choices=LLMJudge,
        default=LLMJudge.OFF,
        help_text="What a language model has to say beside people.",
    )
    rubric = models.TextField(
        blank=True,
        max_length=10_000,
        help_text="Told to the language model that judges: what makes a response better. Empty: the guidelines.",
    )
    llm_budget = models.PositiveIntegerField(
        default=500, help_text="Comparisons about which the language model is asked at most, twice each."
    )
    llm_calibrated = models.CharField(
        max_length=64,
        blank=True,
        help_text="Identity of the language model and words whose agreement with people was accepted.",
    )
    llm_failures = models.PositiveIntegerField(
        default=0, help_text="Opinions that failed since the last one that was given."
    )
    llm_halted = models.TextField(
        blank=True, help_text="Why the language model was halted; empty where it was not."
    )

    delta = models.FloatField(
        default=0.05,
        validators=[MinValueValidator(1e-9), MaxValueValidator(0.5)],
        help_text="Risk of naming a wrong winner that you accept, for example 0.05.",
    )
    epsilon = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(0.4)],
        help_text="A policy must win more than ½ + ε against every other one to stay in the race.",
    )
    budget = models.PositiveIntegerField(
        default=2000, validators=[MinValueValidator(1)], help_text="Comparisons after which to stop anyway."
    )
    space = models.CharField(
        max_length=15,
        choices=Space,
        default=Space.UNSTRUCTURED,
        help_text="What is assumed about how the factors act together.",
    )
    excluded = models.JSONField(
        default=list,
        blank=True,
        help_text="Combinations that are no policies: a list of {factor: level}, each leaving out all that have these levels.",
    )
    responses = models.CharField(
        max_length=10,
        choices=Responses,
        default=Responses.FRESH,
        help_text=(
            "Fresh responses make the answer hold for all that the policies could write. With one response for each policy "
            "and task, or ready-made ones, it costs less and holds for just these responses."
        ),
    )
    sampler = models.CharField(max_length=30, default="balanced")
    stopping = models.CharField(max_length=30, default="certified")
    seed = models.PositiveBigIntegerField(
        default=new_seed, help_text="Seeds the choice of pairs. What annotators see follows from the secret."
    )
    # Neither is in a description, on a page, in the API or, before the conclusion, in an export: engine/domain/blinding.py.
    secret = models.CharField(max_length=64, default=new_secret, editable=False)
    past_secrets = models.JSONField(
        default=list,
        editable=False,
        help_text="Those that were published, each with the number of the first comparison that it is about.",
    )
    secret_from = models.PositiveIntegerField(
        default=0,
        editable=False,
        help_text="Number of the first comparison that the secret is about.",
    )
    max_skips = models.PositiveSmallIntegerField(
        default=3, help_text="A comparison skipped this often is discarded and its pair planned again."
    )
    allow_tie = models.BooleanField(
        default=False, help_text="Offer “equally good”; it counts half a win each."
    )
    allow_both_bad = models.BooleanField(
        default=False, help_text="Offer “both are bad”; it counts half a win each."
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
        help_text="How several judgments of one comparison become its one outcome D.",
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

    backend = models.CharField(
        max_length=10,
        choices=Backend,
        blank=True,
        help_text="Which kind of generation worker writes; empty: any.",
    )
    model = models.CharField(
        max_length=200,
        blank=True,
        help_text="Which model writes, by the name that its worker or server knows; empty: the worker's usual one.",
    )

    state = models.CharField(max_length=10, choices=State, default=State.DRAFT)
    conclusion = models.CharField(
        max_length=20, choices=[(reason.value, label) for reason, label in _CONCLUSIONS.items()], blank=True
    )
    winner = models.ForeignKey("Policy", models.PROTECT, null=True, blank=True, related_name="+")
    planned_count = models.PositiveIntegerField(
        default=0, help_text="Comparisons planned so far; seeds the next pick."
    )
    evidence_stale = models.BooleanField(
        default=False,
        help_text="Judgments were taken back or rules changed: the evidence is replayed before the next decision.",
    )
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    concluded_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    first_delta = models.FloatField(
        null=True,
        blank=True,
        help_text="δ as it was before anybody saw an outcome; empty where never changed.",
    )
    first_epsilon = models.FloatField(
        null=True,
        blank=True,
        help_text="ε as it was before anybody saw an outcome; empty where never changed.",
    )

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(
                name="experiment_state", condition=Q(state__in=["draft", "running", "paused", "concluded"])
            ),
            models.CheckConstraint(
                # Shares of a half, a quarter or an eighth add up exactly in binary; thirds do not, and an
                # undone judgment would leave a trace in the counts.
                name="experiment_mean_of_a_power_of_two",
                condition=Q(overlap_rule="majority") | Q(overlap__in=[1, 2, 4, 8]),
                violation_error_message="Each judgment can count its share of 1, 2, 4 or 8; else let the majority decide.",
            ),
            models.CheckConstraint(
                name="experiment_concluded_has_reason",
                condition=Q(state="concluded", conclusion__gt="")
                | (~Q(state="concluded") & Q(conclusion="")),
            ),
        )

    def __str__(self) -> str:
        return self.name

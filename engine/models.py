"""The rows behind an experiment.

Rows are the queue: every state below is moved by a conditional UPDATE or under a row lock, and Celery
messages only wake the code that looks for work here.

* ``Response``: waiting → generating (claim) → done | failed (reason).
* ``Comparison``: planned → ready (both responses done) → leased (one annotator) → judged; or discarded (reason).
* ``Judgment``: append-only; undoing one appends a ``JudgmentVoid``.
* ``Opinion``: waiting → asking (claim) → done | failed (reason); one that votes leads to its judgment.
* ``PairCount``: changed in the transaction of the judgment; rebuildable from the judgments.
* ``Experiment``: draft → running ⇄ paused → concluded (reason).
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Experiment(models.Model):
    """One search for the best of K policies by pairwise comparisons."""

    class State(models.TextChoices):
        DRAFT = "draft", "Draft"
        RUNNING = "running", "Running"
        PAUSED = "paused", "Paused"
        CONCLUDED = "concluded", "Concluded"

    class Conclusion(models.TextChoices):
        CERTIFIED = "certified", "Certified winner"
        NO_SINGLE_BEST = "no_single_best", "No single best policy"
        BUDGET = "budget", "Budget spent"
        STOPPED = "stopped", "Stopped by hand"

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
    seed = models.PositiveBigIntegerField(default=0)
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
    conclusion = models.CharField(max_length=20, choices=Conclusion, blank=True)
    winner = models.ForeignKey("Policy", models.PROTECT, null=True, blank=True, related_name="+")
    planned_count = models.PositiveIntegerField(
        default=0, help_text="Comparisons planned so far; seeds the next pick."
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


class Membership(models.Model):
    """Who may do what in an experiment. Superusers may do everything everywhere."""

    class Role(models.TextChoices):
        ANNOTATOR = "annotator", "Annotator"
        VIEWER = "viewer", "Viewer"
        EDITOR = "editor", "Editor"
        OWNER = "owner", "Owner"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.ANNOTATOR)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["experiment", "user", "role"], name="membership_once"),
        )

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.experiment}"


class Factor(models.Model):
    """One named part of a policy, such as the system prompt."""

    class Kind(models.TextChoices):
        PROMPT = "prompt", "System prompt"
        GUARDRAIL = "guardrail", "Safety guardrail"
        STRATEGY = "strategy", "Reasoning strategy"
        SAMPLING = "sampling", "Sampling parameters"
        MODEL = "model", "Model or adapter"
        IMPORTED = "imported", "Ready-made responses"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="factors")
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=10, choices=Kind)
    position = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ("position",)
        constraints = (
            models.UniqueConstraint(fields=["experiment", "name"], name="factor_name_once"),
            models.UniqueConstraint(fields=["experiment", "position"], name="factor_position_once"),
        )

    def __str__(self) -> str:
        return self.name


class Level(models.Model):
    """One value of a factor. What ``value`` may hold depends on the factor's kind: see ``engine.levels``."""

    factor = models.ForeignKey(Factor, models.CASCADE, related_name="levels")
    name = models.CharField(max_length=100)
    value = models.JSONField(default=dict)
    position = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ("position",)
        constraints = (
            models.UniqueConstraint(fields=["factor", "name"], name="level_name_once"),
            models.UniqueConstraint(fields=["factor", "position"], name="level_position_once"),
        )

    def __str__(self) -> str:
        return self.name


class Policy(models.Model):
    """A tuple of levels, one per factor; ``index`` is its row in every K×K matrix."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="policies")
    index = models.PositiveSmallIntegerField()
    levels = models.ManyToManyField(Level, related_name="policies")

    class Meta:
        ordering = ("index",)
        verbose_name_plural = "policies"
        constraints = (models.UniqueConstraint(fields=["experiment", "index"], name="policy_index_once"),)

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """The short name people see: P1 is the policy of index 0."""
        return f"P{self.index + 1}"


class Task(models.Model):
    """One query put to the policies. Drawn uniformly with replacement."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="tasks")
    position = models.PositiveIntegerField()
    prompt = models.TextField()
    reference = models.TextField(
        blank=True, help_text="The right answer, where there is one; the rule judge needs it."
    )

    class Meta:
        ordering = ("position",)
        constraints = (models.UniqueConstraint(fields=["experiment", "position"], name="task_position_once"),)

    def __str__(self) -> str:
        return self.prompt[:80]


class Response(models.Model):
    """One text that a policy wrote, or is to write, for a task."""

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        GENERATING = "generating", "Generating"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    policy = models.ForeignKey(Policy, models.PROTECT, related_name="responses")
    task = models.ForeignKey(Task, models.PROTECT, related_name="responses")
    seed = models.PositiveBigIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    claim = models.UUIDField(null=True, blank=True, help_text="The batch that is writing it.")
    claimed_by = models.CharField(max_length=200, blank=True)
    claimed_at = models.DateTimeField(
        null=True, blank=True, help_text="When its worker last gave a sign of life."
    )
    taken_at = models.DateTimeField(null=True, blank=True, help_text="When a worker last took it.")
    attempts = models.PositiveSmallIntegerField(default=0)
    crashes = models.PositiveSmallIntegerField(
        default=0, help_text="How often the batch that it was in came to a sudden end."
    )
    failure_reason = models.TextField(blank=True)

    text = models.TextField(blank=True)
    model = models.CharField(max_length=200, blank=True)
    prompt_tokens = models.PositiveIntegerField(null=True, blank=True)
    completion_tokens = models.PositiveIntegerField(null=True, blank=True)
    finish_reason = models.CharField(max_length=20, blank=True)
    guardrail = models.CharField(
        max_length=20,
        blank=True,
        help_text=(
            "What blocked it: a pattern of a guardrail (input, output) or a guard model (guard_input, guard_output). "
            "At the input the model was not asked."
        ),
    )
    latency_seconds = models.FloatField(null=True, blank=True)
    leak = models.CharField(
        max_length=500, blank=True, help_text="What the text gives away of its own prompt or model."
    )
    logprob = models.FloatField(
        null=True, blank=True, help_text="Sum over the written tokens, where the backend can tell."
    )
    created_at = models.DateTimeField(default=timezone.now)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = (
            # The queue itself: small whatever the number of finished rows.
            models.Index(fields=["created_at", "id"], name="response_waiting", condition=Q(state="waiting")),
            models.Index(fields=["claimed_at"], name="response_generating", condition=Q(state="generating")),
        )
        constraints = (
            models.CheckConstraint(
                name="response_state", condition=Q(state__in=["waiting", "generating", "done", "failed"])
            ),
        )

    def __str__(self) -> str:
        return f"Response {self.pk} ({self.state})"


class Comparison(models.Model):
    """One pair of responses to one task, by policies i < j."""

    class State(models.TextChoices):
        PLANNED = "planned", "Planned"
        READY = "ready", "Ready"
        LEASED = "leased", "Leased"
        JUDGED = "judged", "Judged"
        DISCARDED = "discarded", "Discarded"

    # In flight: chosen by the sampler, outcome still to come.
    PENDING = (State.PLANNED, State.READY, State.LEASED)

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="comparisons")
    policy_i = models.ForeignKey(Policy, models.PROTECT, related_name="+")
    policy_j = models.ForeignKey(Policy, models.PROTECT, related_name="+")
    task = models.ForeignKey(Task, models.PROTECT, related_name="+")
    response_i = models.ForeignKey(Response, models.PROTECT, related_name="comparisons_as_i")
    response_j = models.ForeignKey(Response, models.PROTECT, related_name="comparisons_as_j")
    i_on_left = models.BooleanField(help_text="The fair coin that put policy i's response on the left.")
    plan = models.JSONField(
        default=dict, help_text="What chose this pair: sampler, seed, δ, counts at the time."
    )

    state = models.CharField(max_length=10, choices=State, default=State.PLANNED)
    skips = models.PositiveSmallIntegerField(default=0)
    outcome = models.FloatField(
        null=True, blank=True, help_text="D, once as many people have judged it as the experiment asks for."
    )
    discard_reason = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    ready_at = models.DateTimeField(null=True, blank=True)
    judged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = (
            models.Index(
                fields=["experiment", "state", "id"],
                name="comparison_pending",
                condition=Q(state__in=["planned", "ready", "leased"]),
            ),
            # A page of the comparison browser is read off this index, whatever the number of rows.
            models.Index(fields=["experiment", "id"], name="comparison_in_order"),
        )
        constraints = (
            models.CheckConstraint(
                name="comparison_state",
                condition=Q(state__in=["planned", "ready", "leased", "judged", "discarded"]),
            ),
            models.CheckConstraint(
                name="comparison_judged_has_outcome",
                condition=Q(state="judged", outcome__isnull=False)
                | (~Q(state="judged") & Q(outcome__isnull=True)),
            ),
            models.CheckConstraint(name="comparison_two_policies", condition=~Q(policy_i=F("policy_j"))),
        )

    def __str__(self) -> str:
        return f"Comparison {self.pk} ({self.state})"

    @property
    def left(self) -> Response:
        return self.response_i if self.i_on_left else self.response_j

    @property
    def right(self) -> Response:
        return self.response_j if self.i_on_left else self.response_i


class Lease(models.Model):
    """A comparison shown to one annotator, for a while. ``token`` names it in the annotator's page.

    Rows are kept after they end: they say who saw what and when, and make a late click recognisable.
    """

    class State(models.TextChoices):
        ACTIVE = "active", "Active"
        JUDGED = "judged", "Judged"
        SKIPPED = "skipped", "Skipped"
        EXPIRED = "expired", "Expired"
        RETURNED = "returned", "Returned"

    comparison = models.ForeignKey(Comparison, models.CASCADE, related_name="leases")
    annotator = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="leases")
    token = models.UUIDField(default=uuid.uuid4, unique=True)
    state = models.CharField(max_length=10, choices=State, default=State.ACTIVE)
    granted_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["comparison"], name="lease_held_by_one", condition=Q(state="active")
            ),
        )
        indexes = (
            models.Index(fields=["expires_at"], name="lease_active_expiry", condition=Q(state="active")),
        )

    def __str__(self) -> str:
        return f"Lease of comparison {self.comparison_id} ({self.state})"


class Judgment(models.Model):
    """One outcome D(i, j). Append-only; ``token`` makes a repeated request the same judgment."""

    class Judge(models.TextChoices):
        HUMAN = "human", "People"
        RULE = "rule", "Rule (reference answers)"
        LLM = "llm", "Language model"

    class Choice(models.TextChoices):
        LEFT = "left", "Left"
        RIGHT = "right", "Right"
        TIE = "tie", "Equally good"
        BOTH_BAD = "both_bad", "Both bad"

    comparison = models.ForeignKey(Comparison, models.PROTECT, related_name="judgments")
    judge = models.CharField(max_length=10, choices=Judge)
    annotator = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="judgments"
    )
    token = models.UUIDField(default=uuid.uuid4, unique=True)
    choice = models.CharField(max_length=10, choices=Choice)
    outcome = models.FloatField(
        help_text="D: 1 where policy i's response was preferred, 0 where policy j's was."
    )
    reason = models.CharField(max_length=200, blank=True, help_text="Why, where the judge can say.")
    comment = models.CharField(max_length=1000, blank=True, help_text="What the annotator had to say.")
    restores = models.OneToOneField(
        "self",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="restored_by",
        help_text="The voided judgment that this one brings back.",
    )
    shown_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = (models.Index(fields=["created_at"], name="judgment_created"),)
        constraints = (
            models.CheckConstraint(
                name="judgment_outcome_in_unit_interval", condition=Q(outcome__gte=0, outcome__lte=1)
            ),
        )

    def __str__(self) -> str:
        return f"Judgment {self.pk}: {self.choice}"

    @property
    def seconds(self) -> float | None:
        """From being shown to being judged."""
        return None if self.shown_at is None else (self.created_at - self.shown_at).total_seconds()


class Opinion(models.Model):
    """What a language model thinks of a comparison, asked in both orders.

    ``identity`` names the model and the words it was asked with: agreement with people is known per identity only.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        ASKING = "asking", "Asking"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    # Sides as people see them, whichever order the model read them in.
    CHOICES = (
        (Judgment.Choice.LEFT, "Left"),
        (Judgment.Choice.RIGHT, "Right"),
        (Judgment.Choice.TIE, "Equally good"),
    )

    comparison = models.ForeignKey(Comparison, models.CASCADE, related_name="opinions")
    identity = models.CharField(max_length=64)
    seed = models.PositiveBigIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    claim = models.UUIDField(null=True, blank=True, help_text="The batch in which it is being asked for.")
    claimed_by = models.CharField(max_length=200, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    failure_reason = models.TextField(blank=True)

    left_first = models.CharField(
        max_length=10, choices=CHOICES, blank=True, help_text="The verdict where it read the left one first."
    )
    right_first = models.CharField(
        max_length=10, choices=CHOICES, blank=True, help_text="The verdict where it read the right one first."
    )
    choice = models.CharField(
        max_length=10, choices=CHOICES, blank=True, help_text="What both agree on; else a tie."
    )
    reason = models.TextField(blank=True, help_text="Its reasons, in either order.")
    model = models.CharField(max_length=200, blank=True)
    prompt_tokens = models.PositiveIntegerField(default=0, help_text="Over all attempts.")
    completion_tokens = models.PositiveIntegerField(default=0, help_text="Over all attempts.")
    judgment = models.OneToOneField(
        Judgment, models.PROTECT, null=True, blank=True, related_name="opinion", help_text="Where it voted."
    )
    created_at = models.DateTimeField(default=timezone.now)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = (
            models.Index(fields=["id"], name="opinion_waiting", condition=Q(state="waiting")),
            models.Index(fields=["claimed_at"], name="opinion_asking", condition=Q(state="asking")),
        )
        constraints = (
            models.UniqueConstraint(fields=["comparison", "identity"], name="opinion_once"),
            models.CheckConstraint(
                name="opinion_done_has_choice",
                condition=Q(state="done", choice__gt="", left_first__gt="", right_first__gt="")
                | (Q(state__in=["waiting", "asking", "failed"]) & Q(choice="")),
            ),
        )

    def __str__(self) -> str:
        return f"Opinion on comparison {self.comparison_id} ({self.state})"


class Flag(models.Model):
    """An annotator's word that something is wrong with a pair. Says nothing about which response is better."""

    class Reason(models.TextChoices):
        BROKEN = "broken", _("A response is broken or empty")
        HARMFUL = "harmful", _("A response is harmful")
        TASK = "task", _("The task makes no sense")
        LEAK = "leak", _("A response gives away how it was made")
        OTHER = "other", _("Something else")

    comparison = models.ForeignKey(Comparison, models.CASCADE, related_name="flags")
    annotator = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="flags")
    reason = models.CharField(max_length=10, choices=Reason)
    comment = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["comparison", "annotator"], name="flag_once_per_annotator"),
        )

    def __str__(self) -> str:
        return f"{self.annotator}: {self.get_reason_display()}"


class GoldItem(models.Model):
    """A pair of responses of which everybody should know the better one. It never enters the estimates."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="gold_items")
    prompt = models.TextField()
    better = models.TextField()
    worse = models.TextField()
    explanation = models.TextField(blank=True, help_text="Told after a practice pair.")

    def __str__(self) -> str:
        return self.prompt[:80]


class Check(models.Model):
    """A pair shown to learn about the annotator, not about the policies. It never enters the estimates."""

    class Kind(models.TextChoices):
        PRACTICE = "practice", "Practice"
        GOLD = "gold", "Gold"
        REPEAT = "repeat", "Repeat"

    SKIPPED = "skipped"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="checks")
    annotator = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="checks")
    kind = models.CharField(max_length=10, choices=Kind)
    gold = models.ForeignKey(GoldItem, models.CASCADE, null=True, blank=True, related_name="checks")
    better_on_left = models.BooleanField(
        default=False, help_text="Of a gold item: the side of the better one."
    )
    repeated = models.ForeignKey(
        Judgment,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="repeats",
        help_text="Shown with sides swapped.",
    )
    token = models.UUIDField(default=uuid.uuid4, unique=True)
    shown_at = models.DateTimeField(default=timezone.now)
    choice = models.CharField(
        max_length=10, choices=[*Judgment.Choice.choices, (SKIPPED, "Skipped")], blank=True
    )
    passed = models.BooleanField(
        null=True, blank=True, help_text="Agreed with the known or earlier answer; empty where skipped."
    )
    judged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.CheckConstraint(
                name="check_has_its_source",
                condition=Q(kind="repeat", repeated__isnull=False, gold__isnull=True)
                | (~Q(kind="repeat") & Q(repeated__isnull=True, gold__isnull=False)),
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} for {self.annotator}"


class Estimate(models.Model):
    """The planner's answer for one set of settings, kept for whoever asks the same again.

    waiting → running (progress) → done | failed. One that nobody has asked for lately waits until somebody does.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    key = models.CharField(max_length=64, unique=True, help_text="Hash of the question.")
    question = models.JSONField(help_text="The settings that the answer depends on.")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    progress = models.FloatField(default=0.0, help_text="Share of the simulated experiments that are done.")
    answer = models.JSONField(null=True, blank=True)
    failure_reason = models.TextField(blank=True)
    asked_at = models.DateTimeField(default=timezone.now)
    beat_at = models.DateTimeField(null=True, blank=True, help_text="Last sign of life of who computes it.")

    class Meta:
        constraints = (
            models.CheckConstraint(
                name="estimate_state", condition=Q(state__in=["waiting", "running", "done", "failed"])
            ),
        )

    def __str__(self) -> str:
        return f"Estimate {self.key[:8]} ({self.state})"


class JudgmentVoid(models.Model):
    """The event that takes one judgment back."""

    judgment = models.OneToOneField(Judgment, models.PROTECT, related_name="void")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    reason = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"Void of judgment {self.judgment_id}"


class PairCount(models.Model):
    """W_ij and N_ij of one pair i < j over the judgments that stand."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="pair_counts")
    policy_i = models.ForeignKey(Policy, models.PROTECT, related_name="+")
    policy_j = models.ForeignKey(Policy, models.PROTECT, related_name="+")
    wins_i = models.FloatField(default=0.0)
    comparisons = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["experiment", "policy_i", "policy_j"], name="pair_count_once"),
        )

    def __str__(self) -> str:
        return f"{self.wins_i}/{self.comparisons}"


class Snapshot(models.Model):
    """What the engine knew after some number of comparisons: the evidence race, one row per point."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="snapshots")
    comparisons = models.PositiveIntegerField()
    evidence = models.JSONField(help_text="log E_k per policy, natural logarithm, at this point.")
    peak_evidence = models.JSONField(help_text="The largest log E_k so far, per policy.")
    threshold = models.FloatField(help_text="log 1/δ.")
    best = models.ForeignKey(Policy, models.CASCADE, null=True, blank=True, related_name="+")
    runner_up = models.ForeignKey(Policy, models.CASCADE, null=True, blank=True, related_name="+")
    confidence = models.FloatField()
    expected_left = models.FloatField(null=True, blank=True)
    reason = models.CharField(max_length=20, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        # The race is read by number and the latest is asked for all the time; the rows are wide.
        indexes = (models.Index(fields=["experiment", "id"], name="snapshot_in_order"),)

    def __str__(self) -> str:
        return f"{self.experiment} after {self.comparisons}"


class Examination(models.Model):
    """What takes too long to compute for a page: the forecast, and replays without each annotator.

    Workers do it a slice at a time, so that nothing else in their queue waits for long.
    """

    experiment = models.OneToOneField(Experiment, models.CASCADE, related_name="examination")
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="When a worker took a slice of it.")
    forecast = models.JSONField(
        default=dict, blank=True, help_text="How many comparisons simulated continuations took."
    )
    replays_wanted_at = models.DateTimeField(null=True, blank=True)
    replays = models.JSONField(default=dict, blank=True, help_text="Where the replays have got to.")
    findings = models.JSONField(
        default=dict, blank=True, help_text="What the decision would be without each annotator."
    )

    def __str__(self) -> str:
        return f"Examination of {self.experiment}"


class Invitation(models.Model):
    """A link that makes whoever follows it a member of an experiment."""

    token = models.UUIDField(default=uuid.uuid4, unique=True)
    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=10, choices=Membership.Role, default=Membership.Role.ANNOTATOR)
    most_uses = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    uses = models.PositiveIntegerField(default=0)
    expires_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.CheckConstraint(name="invitation_not_overused", condition=Q(uses__lte=F("most_uses"))),
        )

    def __str__(self) -> str:
        return f"{self.role} of {self.experiment}, {self.uses}/{self.most_uses} used"


class WorkerPulse(models.Model):
    """When a worker of a queue was last seen at work."""

    queue = models.CharField(max_length=50)
    worker = models.CharField(max_length=200)
    seen_at = models.DateTimeField(default=timezone.now)
    details = models.JSONField(
        default=dict, help_text="What it runs and how fast: backend, model, tokens per second."
    )

    class Meta:
        constraints = (models.UniqueConstraint(fields=["queue", "worker"], name="pulse_once"),)

    def __str__(self) -> str:
        return f"{self.worker} on {self.queue}"


class AuditEntry(models.Model):
    """Who did what to an experiment, and when. Append-only: written by ``engine.services.audit`` alone."""

    class Action(models.TextChoices):
        CREATE = "create", "Created"
        EDIT = "edit", "Edited"
        START = "start", "Started"
        PAUSE = "pause", "Paused"
        RESUME = "resume", "Resumed"
        STOP = "stop", "Stopped"
        CONCLUDE = "conclude", "Concluded"
        REOPEN = "reopen", "Reopened"
        BUDGET = "budget", "Budget changed"
        DELTA = "delta", "Risk δ changed"
        EPSILON = "epsilon", "Margin ε changed"
        VOID = "void", "Judgments voided"
        RESTORE = "restore", "Judgments restored"
        ARCHIVE = "archive", "Archived"
        UNARCHIVE = "unarchive", "Taken out of the archive"
        CLONE = "clone", "Cloned"
        INVITE = "invite", "Invited"
        END_INVITATION = "end_invitation", "Invitation ended"
        JOIN = "join", "Joined"
        ROLE = "role", "Role changed"
        REMOVE = "remove", "Member removed"
        TOKEN_MADE = "token_made", "Token made"
        TOKEN_REVOKED = "token_revoked", "Token revoked"
        EXPORT = "export", "Exported"
        SUBSCRIBE = "subscribe", "Notification added"
        UNSUBSCRIBE = "unsubscribe", "Notification removed"

    experiment = models.ForeignKey(
        Experiment,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="audit_entries",
        help_text="Empty where it is about an account, such as a token.",
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Empty where LLM-PO itself or a command did it.",
    )
    at = models.DateTimeField(default=timezone.now)
    action = models.CharField(max_length=20, choices=Action)
    details = models.JSONField(default=dict, blank=True)
    sentence = models.TextField()

    class Meta:
        ordering = ("-pk",)
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return self.sentence


class Token(models.Model):
    """Lets a program act as its user through the API. Only its hash is kept: whoever reads the table cannot use it."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    hash = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=12, help_text="Its first characters, by which its owner knows it.")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}…)"


class Subscription(models.Model):
    """Who is told of what happens to an experiment, and by which way."""

    class Kind(models.TextChoices):
        EMAIL = "email", "E-mail"
        WEBHOOK = "webhook", "Webhook"

    class Event(models.TextChoices):
        CONCLUDED = "concluded", "It concludes"
        STALLED = "stalled", "Nobody judges although pairs are ready"
        UNHEALTHY = "unhealthy", "It turns unhealthy, or recovers"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="subscriptions")
    kind = models.CharField(max_length=10, choices=Kind)
    target = models.CharField(max_length=500, help_text="An e-mail address, or the URL of a webhook.")
    events = models.JSONField(default=list)
    secret = models.CharField(max_length=64, blank=True, help_text="What a webhook's calls are signed with.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("pk",)
        constraints = (
            models.UniqueConstraint(fields=["experiment", "kind", "target"], name="subscription_once"),
        )

    def __str__(self) -> str:
        return f"{self.kind} to {self.target}"


class Notification(models.Model):
    """The outbox: one message to one subscriber, written with what it tells of and sent afterwards.

    waiting → sent | failed (after too many attempts). ``key`` makes the same news one message.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    subscription = models.ForeignKey(Subscription, models.CASCADE, related_name="notifications")
    event = models.CharField(max_length=20)
    key = models.CharField(max_length=100)
    subject = models.CharField(max_length=300)
    text = models.TextField()
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField(default=timezone.now)
    error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["subscription", "key"], name="notification_once"),)
        indexes = (models.Index(fields=["due_at"], name="notification_due", condition=Q(state="waiting")),)

    def __str__(self) -> str:
        return self.subject


class Alarm(models.Model):
    """Something that is wrong with an experiment now. The row goes when it is over."""

    class Kind(models.TextChoices):
        STALLED = "stalled", "Stalled"
        UNHEALTHY = "unhealthy", "Unhealthy"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="alarms")
    kind = models.CharField(max_length=10, choices=Kind)
    since = models.DateTimeField(default=timezone.now)
    announced_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["experiment", "kind"], name="alarm_once"),)

    def __str__(self) -> str:
        return f"{self.experiment} is {self.kind} since {self.since}"

"""Comparisons, and why annotators skipped pairs."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from engine.domain.showings import Phase
from engine.models import clock
from engine.models.experiments import Experiment
from engine.models.generation import Response
from engine.models.policies import Policy, Task


class Comparison(models.Model):
    """One pair of responses to one task, by policies i < j."""

    class State(models.TextChoices):
        PLANNED = "planned", "Planned"
        READY = "ready", "Ready"
        ASSIGNED = "assigned", "Assigned"
        JUDGED = "judged", "Judged"
        DISCARDED = "discarded", "Discarded"

    # In flight: chosen by the sampler, outcome still to come.
    PENDING = (State.PLANNED, State.READY, State.ASSIGNED)
    PHASES = tuple((phase.value, phase.value) for phase in Phase)

    experiment = models.ForeignKey(
        Experiment,
        models.CASCADE,
        related_name="comparisons",
        db_index=False,  # it begins two of the indexes below
    )
    number = models.PositiveIntegerField(help_text="Its place in its experiment, from 1: its name on pages.")
    policy_i = models.ForeignKey(Policy, models.PROTECT, related_name="+")
    policy_j = models.ForeignKey(Policy, models.PROTECT, related_name="+")
    task = models.ForeignKey(Task, models.PROTECT, related_name="+")
    response_i = models.ForeignKey(Response, models.PROTECT, related_name="comparisons_as_i")
    response_j = models.ForeignKey(Response, models.PROTECT, related_name="comparisons_as_j")
    i_on_left = models.BooleanField(help_text="Result of the fair coin: policy i's response is on the left.")
    plan = models.JSONField(
        default=dict,
        help_text="Record of the choice of this pair: sampler, seed, accepted risk, counts at the time.",
    )

    texts = models.CharField(
        max_length=60,
        blank=True,
        editable=False,
        help_text=(
            "The two texts by name, the same for every comparison that shows them. Empty until both are "
            "written, and where each comparison has new ones."
        ),
    )
    state = models.CharField(max_length=10, choices=State, default=State.PLANNED)
    skips = models.PositiveSmallIntegerField(default=0)
    outcome = models.FloatField(
        null=True, blank=True, help_text="Outcome D, set once enough annotators judged the comparison."
    )
    discard_reason = models.TextField(blank=True)
    # As the log of showings says, so that a click need not read the log: engine/domain/showings.py.
    showing = models.CharField(
        max_length=10, blank=True, choices=PHASES, help_text="Whether its showing has begun and has ended."
    )
    least = models.FloatField(null=True, blank=True, help_text="The smallest D that the proofs allow for.")
    most = models.FloatField(null=True, blank=True, help_text="The largest D that the proofs allow for.")
    created_at = models.DateTimeField(default=clock.now)
    ready_at = models.DateTimeField(null=True, blank=True)
    judged_at = models.DateTimeField(null=True, blank=True)
    remarks_done_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Flags and comments up to this time have been dealt with.",
    )

    class Meta:
        indexes = (
            models.Index(
                fields=["experiment", "state", "id"],
                name="comparison_pending",
                condition=Q(state__in=["planned", "ready", "assigned"]),
            ),
            # Who has seen these two texts: asked for each comparison that somebody may be shown.
            models.Index(fields=["texts"], name="comparison_texts", condition=Q(texts__gt="")),
        )
        constraints = (
            # The comparison browser reads a page from its index in constant time.
            models.UniqueConstraint(fields=["experiment", "number"], name="comparison_number_once"),
            models.CheckConstraint(
                name="comparison_state",
                condition=Q(state__in=["planned", "ready", "assigned", "judged", "discarded"]),
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


class Flag(models.Model):
    """The reason why an annotator skipped a pair. It says nothing about which response is better."""

    class Reason(models.TextChoices):
        CANNOT_TELL = "cannot_tell", _("I cannot tell, or it is not my field")
        BROKEN = "broken", _("A response is broken, empty or harmful")
        TASK = "task", _("The task makes no sense")
        LEAK = "leak", _("I know who wrote it, or it names its model or prompt")

    comparison = models.ForeignKey(
        Comparison,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="flags",
        help_text="Empty for a check.",
    )
    assignment = models.OneToOneField(
        "Assignment", models.CASCADE, null=True, blank=True, related_name="flag", help_text="Of a check."
    )
    annotator = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="flags")
    reason = models.CharField(max_length=11, choices=Reason)
    comment = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["comparison", "annotator"], name="flag_once_per_annotator"),
            models.CheckConstraint(
                name="flag_of_comparison_or_check",
                condition=Q(comparison__isnull=True) ^ Q(assignment__isnull=True),
            ),
        )

    def __str__(self) -> str:
        return f"{self.annotator}: {self.get_reason_display()}"

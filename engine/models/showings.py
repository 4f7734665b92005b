"""The log from which all evidence is folded, and the evidence as far as it was folded."""

from typing import Any

from django.db import models
from django.db.models import Q

from engine.domain.showings import Kind
from engine.models import clock
from engine.models.comparisons import Comparison
from engine.models.experiments import Experiment
from engine.models.policies import Policy

_OF_NEITHER = [Kind.STAGE.value, Kind.WITHHELD.value, Kind.ALLOWED.value]


class ShowingEvent(models.Model):
    """An event of a showing: it began, ended, was opened again, or counts otherwise in the estimates. Or a
    policy joined or retired; or a stage began, or claims were withheld or allowed, which has neither
    comparison nor policy.

    Append-only, and the database sees to it (:mod:`engine.models.append_only`). Written in the transaction of
    what it records; the planner alone numbers it.
    """

    KINDS = tuple((kind.value, kind.value) for kind in Kind)

    experiment = models.ForeignKey(
        Experiment,
        models.CASCADE,
        related_name="showing_events",
        db_index=False,  # it begins the constraint and the index below
    )
    comparison = models.ForeignKey(
        Comparison, models.PROTECT, null=True, blank=True, related_name="showing_events"
    )
    policy = models.ForeignKey(
        Policy, models.PROTECT, null=True, blank=True, related_name="events", db_index=False
    )
    kind = models.CharField(max_length=10, choices=KINDS)
    outcome = models.FloatField(
        null=True, blank=True, help_text="D of policy i, in [0, 1]; empty where it has none."
    )
    least = models.FloatField(null=True, blank=True, help_text="The smallest D that the proofs allow for.")
    most = models.FloatField(null=True, blank=True, help_text="The largest D that the proofs allow for.")
    number = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Its place in the evidence, from 1; empty until it is in it."
    )
    showing = models.JSONField(
        null=True,
        blank=True,
        help_text="The ended showing after it, as the design gave it. A cache: a replay makes it anew.",
    )
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["experiment", "number"], name="showing_event_number_once"),
            models.CheckConstraint(
                name="showing_event_kind", condition=Q(kind__in=[kind.value for kind in Kind])
            ),
            models.CheckConstraint(
                name="showing_event_of_comparison_or_policy",
                condition=(Q(comparison__isnull=True) ^ Q(policy__isnull=True))
                ^ (Q(comparison__isnull=True) & Q(policy__isnull=True) & Q(kind__in=_OF_NEITHER)),
            ),
        )
        indexes = (
            # The planner asks for these in each round.
            models.Index(
                fields=["experiment", "id"], name="showing_event_new", condition=Q(number__isnull=True)
            ),
            models.Index(
                fields=["experiment"], name="showing_event_policy", condition=Q(comparison__isnull=True)
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind}: {self.comparison or self.policy}"


class Evidence(models.Model):
    """The state of an experiment's design after its first ``last`` events."""

    experiment = models.OneToOneField(Experiment, models.CASCADE, related_name="evidence")
    last = models.PositiveBigIntegerField(default=0, help_text="Number of the last event in it.")
    wins = models.JSONField(
        default=list, help_text="Summed outcomes of the estimates: [i, j, wins of i against j], if not 0."
    )
    progress = models.JSONField(
        default=dict, help_text="What the outcomes do not tell, as the design gave it."
    )

    def __str__(self) -> str:
        return f"Evidence of {self.experiment} after {self.last} events"

    @property
    def state(self) -> dict[str, Any]:
        """Everything except its annotator, for comparison."""
        return {"last": self.last, "wins": self.wins, "progress": self.progress}

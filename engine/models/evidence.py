"""Stored results of computations on the counts: the race, pages, replays."""

from django.db import models

from engine.models import clock
from engine.models.experiments import Experiment
from engine.models.policies import Policy
from engine.models.worker_holds import Claimable


class Snapshot(models.Model):
    """The state of the evidence after some number of comparisons: one point of the evidence race."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="snapshots")
    comparisons = models.PositiveIntegerField()
    evidence = models.JSONField(help_text="log E_k per policy, natural logarithm, at this point.")
    peak_evidence = models.JSONField(help_text="The largest log E_k so far, per policy.")
    threshold = models.FloatField(help_text="log 1/δ.")
    best = models.ForeignKey(Policy, models.CASCADE, null=True, blank=True, related_name="+")
    open_rivals = models.PositiveIntegerField(
        default=0, help_text="Rivals that the claim to stop on has still to exclude."
    )
    remaining = models.JSONField(
        null=True, blank=True, help_text="Comparisons still needed: low, likely, high. Null if unknown."
    )
    reason = models.CharField(max_length=20, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        # The race is read by number and the latest is asked for all the time; the rows are wide.
        indexes = (models.Index(fields=["experiment", "id"], name="snapshot_in_order"),)

    def __str__(self) -> str:
        return f"{self.experiment} after {self.comparisons}"


class DashboardPage(models.Model):
    """What a page of the dashboard shows, as it was last computed: the same for all viewers.

    A worker computes it again after a round of planning while somebody watches, and otherwise the request
    that finds it too old. It can be deleted at any time.
    """

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="+", db_index=False)
    page = models.CharField(max_length=10)
    promise = models.JSONField(help_text="State, finding and settings that the content must agree with.")
    content = models.JSONField()
    html = models.TextField(blank=True, help_text="Its charts and tables, which a poll mostly has already.")
    made_at = models.DateTimeField()
    due_at = models.DateTimeField(help_text="When it may be computed again.")
    watched_at = models.DateTimeField(help_text="When somebody last saw it, give or take some seconds.")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["experiment", "page"], name="dashboard_page_once"),)

    def __str__(self) -> str:
        return f"{self.page} of {self.experiment}"

    @property
    def version(self) -> str:
        """A name for just this content of its charts."""
        version: str = self.content["version"]
        return version


class Examination(Claimable):
    """Results that take too long to compute for a page: replays without each annotator.

    Unfinished work is stored too, so a worker that is killed loses little.
    """

    experiment = models.OneToOneField(Experiment, models.CASCADE, related_name="examination")
    replays_wanted_at = models.DateTimeField(null=True, blank=True)
    replays = models.JSONField(default=dict, blank=True, help_text="Progress of the replays.")
    findings = models.JSONField(default=dict, blank=True, help_text="The decision without each annotator.")

    def __str__(self) -> str:
        return f"Examination of {self.experiment}"

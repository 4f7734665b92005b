"""What experiments have concluded."""

from django.db import models

from engine.models import clock
from engine.models.experiments import Experiment


class Conclusion(models.Model):
    """A conclusion as it was drawn. It stays, whatever the claim to stop on or its risk become later: it was
    shown, and somebody may have acted on it.

    Append-only, and the database sees to it (:mod:`engine.models.append_only`).
    """

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="conclusions")
    claim = models.CharField(max_length=20, choices=Experiment.CLAIMS)
    delta = models.FloatField(help_text="The accepted risk when it was drawn.")
    epsilon = models.FloatField(help_text="The margin when it was drawn.")
    stage = models.PositiveIntegerField()
    policy = models.PositiveIntegerField(
        null=True, blank=True, help_text="Index of the policy named; empty for “no single best”."
    )
    among = models.JSONField(help_text="Indices of the policies that it is about.")
    risk = models.FloatField(help_text="The probability, at most, that it is wrong.")
    joint_risk = models.FloatField(help_text="The same of this one or any before it.")
    comparisons = models.PositiveIntegerField()
    text = models.TextField()
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        ordering = ("pk",)

    def __str__(self) -> str:
        return self.text

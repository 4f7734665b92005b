"""Trials of a draft: its policies answer a few tasks before anything counts."""

from datetime import timedelta

from django.conf import settings
from django.db import models

from engine.models import clock
from engine.models.experiments import Experiment


class Trial(models.Model):
    """One response of each policy to a few tasks of a draft. Nothing of it enters the experiment.

    The next change of the draft deletes its responses, and so does the start. The row stays, as it counts
    against the allowance of its maker and of its experiment.
    """

    KEPT_FOR = timedelta(days=30)

    experiment = models.ForeignKey(Experiment, models.SET_NULL, null=True, related_name="trials")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="trials")
    asked_at = models.DateTimeField(default=clock.now)
    n_responses = models.PositiveIntegerField(help_text="Number of responses asked for.")

    def __str__(self) -> str:
        return f"{self.n_responses} responses tried by {self.by}"

"""Gates for pull requests: what main holds, and the challenges of changed texts against it."""

from django.db import models

from engine.models import clock
from engine.models.experiments import Experiment
from engine.models.policies import Level


class MainText(models.Model):
    """The text of a level in the branch main by now, where it is another one than the level began with."""

    level = models.OneToOneField(Level, models.CASCADE, related_name="main_text")
    text = models.TextField()
    at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"{self.level} in main"


class Gate(models.Model):
    """An experiment in which texts of a change meet those of main: its first policy is main's."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="gates")
    challenge = models.OneToOneField(Experiment, models.CASCADE, related_name="gate")
    key = models.CharField(max_length=64, help_text="Hash of both sides, tasks, model, margin and risk.")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["experiment", "key"], name="gate_once"),)

    def __str__(self) -> str:
        return f"Gate {self.key[:7]} of {self.experiment}"


class GateCommit(models.Model):
    """A commit that has these texts, and hears of the end."""

    gate = models.ForeignKey(Gate, models.CASCADE, related_name="commits")
    sha = models.CharField(max_length=64)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["gate", "sha"], name="gate_commit_once"),)

    def __str__(self) -> str:
        return self.sha

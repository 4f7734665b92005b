"""The ledger of what was spent on models."""

from typing import Any

from django.db import models

from engine.models import clock
from engine.models.connections import Connection
from engine.models.experiments import Experiment
from engine.models.generation import Response
from engine.models.policies import Policy


def _number_of(model: type[models.Model]) -> Any:
    """A reference that outlives its row: the database checks nothing, and never gives a number again."""
    return models.ForeignKey(
        model,
        models.DO_NOTHING,
        null=True,
        db_constraint=False,
        db_index=False,
        related_name="charges",
    )


class Charge(models.Model):
    """A reply of a model that was paid for. Written by ``engine.services.charges`` alone.

    Append-only, and the database sees to it (:mod:`engine.models.append_only`). The connection, the draft or
    the trial may be gone; the name of the model and all numbers stay.
    """

    class Purpose(models.TextChoices):
        RESPONSE = "response", "Responses"
        GUARD = "guard", "Guards"
        OPINION = "opinion", "Judging"
        TRIAL = "trial", "Trials"
        TEST = "test", "Tests"
        WRITING = "writing", "Writing"

    model = models.CharField(max_length=200, help_text="The connection's name, or the worker's model.")
    connection = _number_of(Connection)
    purpose = models.CharField(max_length=10, choices=Purpose)
    experiment = _number_of(Experiment)
    policy = _number_of(Policy)
    response = _number_of(Response)
    prompt_tokens = models.PositiveIntegerField(null=True)
    cached_tokens = models.PositiveIntegerField(null=True)
    completion_tokens = models.PositiveIntegerField(null=True)
    thinking_tokens = models.PositiveIntegerField(null=True)
    cost = models.FloatField(null=True, help_text="Empty: no price was known.")
    currency = models.CharField(max_length=3, blank=True, help_text="That of the price at this moment.")
    at = models.DateTimeField(default=clock.now)

    class Meta:
        indexes = (
            # Each holds all columns of its sums, so that they read no rows.
            models.Index(
                fields=["experiment", "purpose", "policy", "currency", "cost"], name="charge_experiment"
            ),
            models.Index(fields=["connection", "at", "currency", "cost"], name="charge_connection"),
            models.Index(fields=["response", "currency", "cost"], name="charge_response"),
        )

    def __str__(self) -> str:
        return f"{self.model}: {self.purpose}"

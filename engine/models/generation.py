"""Responses, and the workers that write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

from engine.domain.replies import Finish
from engine.domain.texts import digest
from engine.models import clock
from engine.models.connections import Connection
from engine.models.policies import Policy, Task
from engine.models.trials import Trial
from engine.models.worker_holds import Claimable

if TYPE_CHECKING:
    Characters = models.CharField[str, str]
else:  # Django's class takes no types at run time.
    Characters = models.CharField


class TextDigest(Characters):
    """The digest of the row's ``text``, made anew with every save of the row."""

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        text = getattr(model_instance, "text")  # noqa: B009 - of whichever model has the field
        value = digest(text)
        setattr(model_instance, self.attname, value)
        return value


class Response(Claimable):
    """One text that a policy has written, or is to write, for a task."""

    FINISHES = tuple((finish.value, finish.value) for finish in Finish)

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        GENERATING = "generating", "Generating"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    class Block(models.TextChoices):
        INPUT = "input", "A pattern of the guardrail blocked the task; the model was not asked"
        OUTPUT = "output", "A pattern of the guardrail replaced this response"
        GUARD_INPUT = "guard_input", "The guard model blocked the task; the model was not asked"
        GUARD_OUTPUT = "guard_output", "The guard model replaced this response"

    policy = models.ForeignKey(Policy, models.PROTECT, related_name="responses")
    task = models.ForeignKey(Task, models.PROTECT, related_name="responses")
    trial = models.ForeignKey(
        Trial,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="responses",
        db_index=False,
        help_text="The trial that it belongs to: then it is in no comparison.",
    )
    seed = models.PositiveBigIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    taken_at = models.DateTimeField(null=True, blank=True, help_text="When a worker last took it.")
    attempts = models.PositiveSmallIntegerField(default=0)
    crashes = models.PositiveSmallIntegerField(
        default=0, help_text="Number of its batches that ended suddenly."
    )
    faults = models.PositiveSmallIntegerField(
        default=0, help_text="Rounds of tries that broke its server, which answered others meanwhile."
    )
    failure_reason = models.TextField(blank=True, help_text="In words of our own, for everybody.")
    said = models.TextField(
        blank=True, help_text="The server's words about a failure, without secrets; for editors."
    )
    refused_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the server refused the policy's settings; it waits until somebody says: again.",
    )

    text = models.TextField(blank=True, help_text="What people see; empty is no answer.")
    thinking = models.TextField(blank=True)
    refusal = models.TextField(blank=True, help_text="The model's own words where it refused.")
    marks = models.JSONField(
        default=list, blank=True, help_text="Marks of a chat template that were cut off the end."
    )
    digest = TextDigest(max_length=16, blank=True, editable=False)
    model = models.CharField(max_length=200, blank=True, help_text="The connection or the worker's model.")
    served_model = models.CharField(max_length=200, blank=True, help_text="As the server named it.")
    connection = models.ForeignKey(
        Connection, models.SET_NULL, null=True, blank=True, related_name="responses"
    )
    prompt_tokens = models.PositiveIntegerField(null=True, blank=True)
    cached_tokens = models.PositiveIntegerField(null=True, blank=True, help_text="Of the prompt's tokens.")
    completion_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text="Those of the thinking included."
    )
    thinking_tokens = models.PositiveIntegerField(null=True, blank=True)
    finish_reason = models.CharField(max_length=20, choices=FINISHES, blank=True)
    guardrail = models.CharField(
        max_length=20, choices=Block, blank=True, help_text="Guardrail that blocked it, if any."
    )
    latency_seconds = models.FloatField(null=True, blank=True)
    leak = models.CharField(
        max_length=500, blank=True, help_text="Part of the prompt or the model name that the text reveals."
    )
    created_at = models.DateTimeField(default=clock.now)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = (
            # The queue itself: finished rows do not enlarge it.
            models.Index(fields=["created_at", "id"], name="response_waiting", condition=Q(state="waiting")),
            models.Index(
                fields=["claim_expires_at"], name="response_generating", condition=Q(state="generating")
            ),
            models.Index(fields=["trial"], name="response_trial", condition=Q(trial__isnull=False)),
        )
        constraints = (
            models.CheckConstraint(
                name="response_state", condition=Q(state__in=["waiting", "generating", "done", "failed"])
            ),
        )

    def __str__(self) -> str:
        return f"Response {self.pk} ({self.state})"


class WorkerPulse(models.Model):
    """The last sign of life of a worker on a queue."""

    queue = models.CharField(max_length=50)
    worker = models.CharField(max_length=200)
    seen_at = models.DateTimeField(default=clock.now)
    details = models.JSONField(default=dict, help_text="Its state: backend, model, tokens per second.")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["queue", "worker"], name="pulse_once"),)

    def __str__(self) -> str:
        return f"{self.worker} on {self.queue}"

"""Factors, their levels, the policies made of them, and the tasks."""

from __future__ import annotations

from typing import Self

from django.db import models

from engine.domain.conversations import Message, turns_of
from engine.domain.policy_space import code_of
from engine.models.experiments import Experiment


class Factor(models.Model):
    """One named part of a policy, such as the system prompt."""

    class Kind(models.TextChoices):
        PROMPT = "prompt", "System prompt"
        GUARDRAIL = "guardrail", "Safety guardrail"
        STRATEGY = "strategy", "Reasoning strategy"
        SAMPLING = "sampling", "Sampling parameters"
        MODEL = "model", "Model"
        EXAMPLES = "examples", "Examples (few-shot)"
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
    """One value of a factor. What ``value`` may hold depends on the factor's kind: see
    ``engine.domain.levels``.
    """

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


class PolicyQuerySet(models.QuerySet["Policy"]):
    """Policies with what composes their messages."""

    def composable(self) -> Self:
        """The same, each with its experiment, levels and factors, in two more queries for all."""
        return self.select_related("experiment").prefetch_related("levels__factor")

    def present(self) -> Self:
        """Those that have not retired."""
        return self.filter(retired_at=None)

    def at(self, index: int) -> Policy | None:
        """The policy of this index, of those of one experiment; ``None`` where there is none."""
        return self.filter(index=index).first()


class Policy(models.Model):
    """A tuple of levels, one per factor; ``index`` is its row in every K×K matrix."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="policies")
    index = models.PositiveSmallIntegerField()
    levels = models.ManyToManyField(Level, related_name="policies")
    parent = models.ForeignKey(
        "self",
        models.RESTRICT,
        null=True,
        blank=True,
        related_name="children",
        db_index=False,
        help_text="The policy that it was made from.",
    )
    joined_at = models.DateTimeField(null=True, blank=True, help_text="Empty: there from the start.")
    retired_at = models.DateTimeField(null=True, blank=True)
    retired_because = models.CharField(max_length=500, blank=True)

    objects = PolicyQuerySet.as_manager()

    class Meta:
        ordering = ("index",)
        verbose_name_plural = "policies"
        constraints = (models.UniqueConstraint(fields=["experiment", "index"], name="policy_index_once"),)

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """Its code, such as P3."""
        return code_of(self.index)


class Task(models.Model):
    """One query put to the policies. Drawn uniformly with replacement."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="tasks")
    position = models.PositiveIntegerField()
    prompt = models.TextField(help_text="The text; of a conversation, its transcript.")
    reference = models.TextField(blank=True, help_text="The correct answer, if any; the rule judge needs it.")
    messages = models.JSONField(
        default=list, blank=True, help_text="The conversation; empty if the task is one message of the user."
    )
    variables = models.JSONField(
        default=dict, blank=True, help_text="Texts by name that fill {{ name }} in the policies' prompts."
    )
    tags = models.JSONField(default=list, blank=True, help_text="Categories of the task.")
    checks = models.JSONField(
        default=list,
        blank=True,
        help_text="Kinds and values of the checks that the rule judge reads in the place of the reference.",
    )
    joined_at = models.DateTimeField(
        null=True, blank=True, help_text="When it joined an experiment that had started; empty otherwise."
    )
    left_at = models.DateTimeField(null=True, blank=True)
    left_because = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ("position",)
        constraints = (models.UniqueConstraint(fields=["experiment", "position"], name="task_position_once"),)

    def __str__(self) -> str:
        return self.prompt[:80]

    @property
    def turns(self) -> tuple[Message, ...]:
        """All messages that a response continues."""
        return turns_of(self.prompt, self.messages)

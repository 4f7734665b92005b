"""Pairs that are shown to learn about the annotator."""

from __future__ import annotations

import uuid
from typing import cast

from django.conf import settings
from django.db import models
from django.db.models import Q

from engine.domain.conversations import Message, turns_of
from engine.models import clock
from engine.models.experiments import Experiment
from engine.models.judgments import Judgment
from engine.models.policies import Task


class GoldItem(models.Model):
    """A pair of responses of which everybody should know the better one. It never enters the estimates."""

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="gold_items")
    prompt = models.TextField(help_text="The text; of a conversation, its transcript.")
    messages = models.JSONField(
        default=list, blank=True, help_text="The conversation; empty if it is one message of the user."
    )
    better = models.TextField()
    worse = models.TextField()
    explanation = models.TextField(blank=True, help_text="Shown after a practice pair.")

    def __str__(self) -> str:
        return self.prompt[:80]

    @property
    def turns(self) -> tuple[Message, ...]:
        """All messages that the two responses continue."""
        return turns_of(self.prompt, self.messages)


class Check(models.Model):
    """A pair shown to learn about the annotator, not about the policies. It never enters the estimates."""

    class Kind(models.TextChoices):
        PRACTICE = "practice", "Practice"
        ADMISSION = "admission", "Admission"
        GOLD = "gold", "Gold"
        REPEAT = "repeat", "Repeat"

    SKIPPED = "skipped"
    LOST = "lost"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="checks")
    annotator = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="checks")
    kind = models.CharField(max_length=10, choices=Kind)
    gold = models.ForeignKey(GoldItem, models.CASCADE, null=True, blank=True, related_name="checks")
    better_on_left = models.BooleanField(
        default=False, help_text="For a gold item: the better response is on the left."
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
    number = models.PositiveIntegerField(
        default=0, help_text="Number of pairs shown to the annotator before; the draw depends on it."
    )
    period = models.PositiveSmallIntegerField(
        default=0,
        help_text="Number of secrets of the experiment before the one used for this draw.",
    )
    # These mean what they mean for a lease.
    created_at = models.DateTimeField(default=clock.now)
    shown_at = models.DateTimeField(default=clock.now)
    expires_at = models.DateTimeField(default=clock.now)
    choice = models.CharField(
        max_length=10,
        choices=[*Judgment.Choice.choices, (SKIPPED, "Skipped"), (LOST, "Open when the experiment ended")],
        blank=True,
    )
    comment = models.CharField(max_length=1000, blank=True, help_text="Comment of the annotator.")
    voided_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the annotator took the answer back."
    )
    passed = models.BooleanField(
        null=True,
        blank=True,
        help_text=(
            "True if the first answer agrees with the known or earlier answer; empty if skipped. An answer "
            "that replaces one that was taken back does not change it."
        ),
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

    @property
    def shown(self) -> tuple[Task | GoldItem, str, str]:
        """The holder of the task, and the responses that this check shows on the left and on the right."""
        if self.repeated is not None:
            comparison = self.repeated.comparison
            return comparison.task, comparison.right.text, comparison.left.text
        gold = cast(GoldItem, self.gold)  # the database sees to it that a check has one of the two
        sides = (gold.better, gold.worse)
        return gold, *(sides if self.better_on_left else sides[::-1])

"""Pairs that are shown to people: comparisons, and checks, which show how well a person judges."""

from __future__ import annotations

import uuid
from typing import cast

from django.conf import settings
from django.db import models
from django.db.models import Q

from engine.domain.conversations import Message, turns_of
from engine.models import clock
from engine.models.comparisons import Comparison
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


class Assignments(models.QuerySet["Assignment"]):
    """Assignments, as a query."""

    def checks(self) -> Assignments:
        """Those that are no comparisons."""
        return self.exclude(kind=Assignment.Kind.COMPARISON)


class Assignment(models.Model):
    """A pair given to one annotator, who keeps it until they answer or skip it. ``token`` names it in the
    annotator's page; an answer that is taken back gives the assignment a new one.

    A comparison counts. The other kinds are checks: they show how well the annotator judges, and never enter
    the estimates.
    """

    class Kind(models.TextChoices):
        COMPARISON = "comparison", "Comparison"
        PRACTICE = "practice", "Practice"
        ADMISSION = "admission", "Admission"
        GOLD = "gold", "Gold"
        REPEAT = "repeat", "Repeat"

    class State(models.TextChoices):
        OPEN = "open", "Open"
        JUDGED = "judged", "Judged"
        SKIPPED = "skipped", "Skipped"
        LOST = "lost", "Open when the experiment ended"

    experiment = models.ForeignKey(
        Experiment,
        models.CASCADE,
        related_name="assignments",
        db_index=False,  # it begins the index of checks below
    )
    annotator = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="assignments")
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.COMPARISON)
    comparison = models.ForeignKey(
        Comparison,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="assignments",
        db_index=False,  # it begins the constraint below
        help_text="Empty for a check.",
    )
    in_place_of = models.ForeignKey(
        Comparison,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,  # the index below has the few that are set
        help_text="Of a check: the ready comparison that its annotator gets only after it.",
    )
    gold = models.ForeignKey(GoldItem, models.CASCADE, null=True, blank=True, related_name="assignments")
    repeated = models.ForeignKey(
        Judgment,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="repeats",
        help_text="The earlier answer; its comparison is shown again with sides swapped.",
    )
    expected = models.CharField(
        max_length=10,
        choices=Judgment.Choice,
        blank=True,
        help_text="Of a check: the side of the better gold response, or of the earlier choice, swapped.",
    )
    token = models.UUIDField(default=uuid.uuid4, unique=True)
    state = models.CharField(max_length=10, choices=State, default=State.OPEN)
    number = models.PositiveIntegerField(
        default=0,
        help_text="Number of pairs shown to the annotator before; the draw of a check depends on it.",
    )
    period = models.PositiveSmallIntegerField(
        default=0,
        help_text="Number of secrets of the experiment before the one used for this draw.",
    )
    settled = models.BooleanField(
        default=False, help_text="True once the planner has taken in what became of it."
    )
    created_at = models.DateTimeField(
        default=clock.now, help_text="When it was given; a person's pairs come in this order."
    )
    granted_at = models.DateTimeField(
        default=clock.now,
        help_text="When its annotator came for it: at first, after they had left, or after an undo.",
    )
    expires_at = models.DateTimeField(
        help_text="Until when its annotator counts as being here; later they still have the pair."
    )
    passed = models.BooleanField(
        null=True,
        blank=True,
        help_text=(
            "Of a check: true if the first answer was the expected one; empty without an answer. An answer "
            "that replaces one that was taken back does not change it."
        ),
    )

    objects = Assignments.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["comparison", "annotator"], name="assigned_once_to_each_person"),
            models.CheckConstraint(
                name="assignment_shows_one_thing",
                condition=Q(
                    kind="comparison",
                    comparison__isnull=False,
                    gold__isnull=True,
                    repeated__isnull=True,
                    expected="",
                )
                | Q(kind="repeat", comparison__isnull=True, gold__isnull=True, repeated__isnull=False)
                | Q(
                    kind__in=["practice", "admission", "gold"],
                    comparison__isnull=True,
                    gold__isnull=False,
                    repeated__isnull=True,
                ),
            ),
        )
        indexes = (
            # Each click asks for the few that somebody holds.
            models.Index(fields=["annotator"], name="assignment_open", condition=Q(state="open")),
            # Each round of planning asks for those that changed since the last one.
            models.Index(fields=["experiment"], name="assignment_unsettled", condition=Q(settled=False)),
            models.Index(
                fields=["in_place_of"], name="assignment_before", condition=Q(in_place_of__isnull=False)
            ),
            # Checks are few beside comparisons.
            models.Index(
                fields=["experiment", "annotator"], name="assignment_check", condition=~Q(kind="comparison")
            ),
        )

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.pk} ({self.state})"

    @property
    def shown(self) -> tuple[Task | GoldItem, tuple[str, str], tuple[str, str]]:
        """The holder of the task; then the left and the right response, and the thinking of both."""
        if self.gold is not None:
            sides = (self.gold.better, self.gold.worse)
            return self.gold, sides if self.expected == Judgment.Choice.LEFT else sides[::-1], ("", "")
        # The database sees to it that an assignment shows something.
        comparison = cast(Comparison, self.repeated.comparison if self.repeated else self.comparison)
        left, right = comparison.left, comparison.right
        if self.repeated:
            left, right = right, left
        return comparison.task, (left.text, right.text), (left.thinking, right.thinking)

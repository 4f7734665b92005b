"""The pairs that people are given, and their page."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models


class Serving(models.Model):
    """The pairs that people are given, and their page: fields of an experiment."""

    class OverlapRule(models.TextChoices):
        MAJORITY = "majority", "The majority decides"
        MEAN = "mean", "Each judgment counts its share (1, 2, 4 or 8 judgments)"

    class ShownThinking(models.TextChoices):
        NEITHER = "neither", "Of neither response"
        BOTH = "both", "Of both responses"

    allow_tie = models.BooleanField(default=True, help_text="Offer “equally good”: neither response wins.")
    allow_both_bad = models.BooleanField(
        default=False, help_text="Offer “both are bad”; it counts like “equally good”."
    )
    tell_outcome = models.BooleanField(
        default=False,
        help_text="When it is decided, annotators see which policy their answers preferred.",
    )
    leaderboard = models.BooleanField(
        default=False,
        help_text="Annotators see how many pairs each of them has answered; never what anybody answered.",
    )
    equally_seen_only = models.BooleanField(
        default=False,
        help_text=(
            "Where texts come again, nobody is shown two that they have not seen equally often: the one seen "
            "more often is mostly the leader's. Their pairs end there."
        ),
    )
    overlap = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(9)],
        help_text="How many different annotators judge each comparison.",
    )
    overlap_rule = models.CharField(
        max_length=10,
        choices=OverlapRule,
        default=OverlapRule.MAJORITY,
        help_text="Rule that combines several judgments of one comparison into its outcome.",
    )
    repeat_rate = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(0.5)],
        help_text="Share of an annotator's pairs that are earlier ones shown again, sides swapped.",
    )
    gold_rate = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(0.5)],
        help_text="Share of an annotator's pairs whose right answer is known.",
    )
    practice = models.PositiveSmallIntegerField(
        default=0, help_text="Gold pairs that a new annotator judges first, with the answer told."
    )
    shown_thinking = models.CharField(
        max_length=10,
        choices=ShownThinking,
        default=ShownThinking.NEITHER,
        help_text="Whether annotators see what models thought before they answered.",
    )

    class Meta:
        abstract = True

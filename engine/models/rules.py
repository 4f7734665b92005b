"""The rules by which an experiment decides."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from engine.core import Claim
from engine.domain.claim_settings import (
    CERTIFIED,
    LARGEST_MARGIN,
    LARGEST_RISK,
    SMALLEST_RISK,
    USUAL_CLAIM,
    USUAL_MARGIN,
)


class DecisionRules(models.Model):
    """The claim to stop on, its risk, and the choice of pairs: fields of an experiment."""

    class Space(models.TextChoices):
        UNSTRUCTURED = "unstructured", "No assumption (safe)"
        FACTORIAL = (
            "factorial",
            "Prompts and models act independently (fewer clicks with many combinations)",
        )

    class Missing(models.TextChoices):
        AGAINST = "against", "A pair without an answer counts against every claim"
        ANSWERS = "answers", "Answers alone count"

    CLAIMS = (
        (Claim.GOOD_ENOUGH.value, "good enough"),
        (Claim.BEST.value, "best"),
        (Claim.BEST_IF_ANY.value, "best, if there is a best"),
    )
    claim = models.CharField(
        max_length=20,
        choices=CLAIMS,
        default=USUAL_CLAIM.value,
        help_text="The claim on which the experiment stops.",
    )
    delta = models.FloatField(
        default=0.05,
        validators=[MinValueValidator(SMALLEST_RISK), MaxValueValidator(LARGEST_RISK)],
        help_text="Accepted risk of naming a wrong winner, for example 0.05.",
    )
    epsilon = models.FloatField(
        default=USUAL_MARGIN,
        validators=[MinValueValidator(0.0), MaxValueValidator(LARGEST_MARGIN)],
        help_text=(
            "Margin; 0.05 is five points. Good enough: no other policy is better by more. Best, if there "
            "is a best: the winner must win that much more than half of the time. Best: it does not count."
        ),
    )
    missing = models.CharField(
        max_length=10,
        choices=Missing,
        default=Missing.AGAINST,
        help_text=(
            "How pairs count that were shown and not answered. Against every claim: the accepted risk holds "
            "whoever leaves which pairs. By answers alone: it holds only if pairs are left regardless of "
            "what the answer would be."
        ),
    )
    strict = models.BooleanField(
        default=False,
        choices=((False, "Each conclusion"), (True, "The whole life of this page")),
        help_text=(
            "What the accepted risk is about once policies join. False: each conclusion, whatever happened "
            "before it. True: everything that the experiment ever concludes."
        ),
    )
    budget = models.PositiveIntegerField(
        default=2000, validators=[MinValueValidator(1)], help_text="Comparisons after which to stop anyway."
    )
    space = models.CharField(
        max_length=15,
        choices=Space,
        default=Space.UNSTRUCTURED,
        help_text="Assumption about how the factors act together.",
    )
    excluded = models.JSONField(
        default=list,
        blank=True,
        help_text=(
            "Combinations to leave out: a list of {factor: level}. Each entry excludes all combinations "
            "with these levels."
        ),
    )
    sampler = models.CharField(max_length=30, default="balanced")
    stopping = models.CharField(max_length=30, default=CERTIFIED)
    first_claim = models.CharField(
        max_length=20,
        choices=CLAIMS,
        blank=True,
        help_text="Claim before anybody saw an outcome; empty if never changed.",
    )
    first_delta = models.FloatField(
        null=True,
        blank=True,
        help_text="Accepted risk before anybody saw an outcome; empty if never changed.",
    )
    first_epsilon = models.FloatField(
        null=True,
        blank=True,
        help_text="Margin before anybody saw an outcome; empty if never changed.",
    )

    class Meta:
        abstract = True

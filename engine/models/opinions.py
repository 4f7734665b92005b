"""Opinions of a language model on comparisons."""

from django.db import models
from django.db.models import Q

from engine.models import clock
from engine.models.comparisons import Comparison
from engine.models.judgments import Judgment
from engine.models.worker_holds import Claimable


class Opinion(Claimable):
    """A language model's opinion on a comparison, asked for in both orders.

    ``identity`` names the model and the wording: agreement with people is known for one identity at a time.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        ASKING = "asking", "Asking"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    # Sides as people see them, whichever order the model read them in.
    CHOICES = (
        (Judgment.Choice.LEFT, "Left"),
        (Judgment.Choice.RIGHT, "Right"),
        (Judgment.Choice.TIE, "Equally good"),
    )

    comparison = models.ForeignKey(Comparison, models.CASCADE, related_name="opinions")
    identity = models.CharField(max_length=64)
    seed = models.PositiveBigIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    failure_reason = models.TextField(blank=True)

    left_first = models.CharField(
        max_length=10, choices=CHOICES, blank=True, help_text="Verdict with the left response first."
    )
    right_first = models.CharField(
        max_length=10, choices=CHOICES, blank=True, help_text="Verdict with the right response first."
    )
    choice = models.CharField(
        max_length=10, choices=CHOICES, blank=True, help_text="The common verdict; a tie if the two differ."
    )
    reason = models.TextField(blank=True, help_text="Its reasons, one for each order.")
    model = models.CharField(max_length=200, blank=True)
    judgment = models.OneToOneField(
        Judgment,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="opinion",
        help_text="Its vote, if it voted.",
    )
    created_at = models.DateTimeField(default=clock.now)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = (
            models.Index(fields=["id"], name="opinion_waiting", condition=Q(state="waiting")),
            models.Index(fields=["claim_expires_at"], name="opinion_asking", condition=Q(state="asking")),
        )
        constraints = (
            models.UniqueConstraint(fields=["comparison", "identity"], name="opinion_once"),
            models.CheckConstraint(
                name="opinion_done_has_choice",
                condition=Q(state="done", choice__gt="", left_first__gt="", right_first__gt="")
                | (Q(state__in=["waiting", "asking", "failed"]) & Q(choice="")),
            ),
        )

    def __str__(self) -> str:
        return f"Opinion on comparison {self.comparison_id} ({self.state})"

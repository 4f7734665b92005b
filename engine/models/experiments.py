"""The experiment: its identity and its state. Its settings are in the abstract models by subject."""

from collections.abc import Collection
from typing import Any, Self

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Exists, OuterRef, Q, Value
from django.db.models.functions import Concat

from engine.core import StopReason
from engine.domain import limits
from engine.domain.errors import SpecError
from engine.domain.further_questions import read_questions
from engine.models import clock
from engine.models.blinding import Blinding
from engine.models.judges import Judges
from engine.models.people import Membership, User
from engine.models.responses import Responding
from engine.models.rules import DecisionRules
from engine.models.serving import Serving

_CONCLUSIONS = {
    StopReason.CERTIFIED: "Winner found",
    StopReason.NO_SINGLE_BEST: "No single best policy",
    StopReason.BUDGET: "Budget spent",
    StopReason.STOPPED: "Stopped by hand",
}


def check_further_questions(given: str) -> None:
    """Validate the lines of further questions."""
    try:
        read_questions(given)
    except SpecError as error:
        raise ValidationError(str(error)) from error


class ExperimentQuerySet(models.QuerySet["Experiment"]):
    """Experiments by a person's rights, and by tag."""

    def held_by(self, user: User, roles: Collection[str] = Membership.Role.values) -> Self:
        """Those in which this user has one of these roles; for superusers, all."""
        return self.filter(trial_of=None) if user.is_superuser else self.filter(has_role(user, roles))

    def watched_by(self, user: User) -> Self:
        """Those whose dashboard this user may see."""
        return self.held_by(user, Membership.WATCHING)

    def run_by(self, user: User) -> Self:
        """Those that this user may start, pause and stop."""
        return self.held_by(user, Membership.EDITING)

    def owned_by(self, user: User) -> Self:
        """Those that are this user's to give away and to delete."""
        return self.held_by(user, (Membership.Role.OWNER,))

    def judged_by(self, user: Any, role: str = Membership.Role.ANNOTATOR) -> Self:
        """Those that have started, that people judge, and in which this user is an annotator."""
        judged = self.filter(has_role(user, [role]), judge=Experiment.Judge.HUMAN)
        return judged.exclude(state=Experiment.State.DRAFT)

    def joinable_by(self, user: User) -> Self:
        """Those that this user owns and could begin to judge."""
        owned = self.judged_by(user, Membership.Role.OWNER)
        return owned.exclude(has_role(user, [Membership.Role.ANNOTATOR]))

    def tagged(self, tag: str) -> Self:
        """Those that have this tag; none where it is empty, or no text that can be stored."""
        if not tag or limits.text_fault(tag, "The tag"):
            return self.none()
        return self.alias(listed=Concat(Value(", "), "tags", Value(", "))).filter(
            listed__contains=f", {tag}, "
        )

    def tag_names(self) -> list[str]:
        """All their tags, by name."""
        stored = self.exclude(tags="").order_by().values_list("tags", flat=True).distinct()
        return sorted({tag for tags in stored for tag in tags.split(", ")})


def has_role(user: Any, roles: Collection[str], at: str = "pk") -> Exists:
    """The user has one of these roles in the experiment ``at``. No join: two roles give no second row."""
    return Exists(Membership.objects.filter(experiment=OuterRef(at), user=user, role__in=roles))


class Experiment(DecisionRules, Serving, Judges, Responding, Blinding):
    """One search for the best of K policies by pairwise comparisons."""

    class State(models.TextChoices):
        DRAFT = "draft", "Draft"
        RUNNING = "running", "Running"
        PAUSED = "paused", "Paused"
        CONCLUDED = "concluded", "Concluded"

    name = models.CharField(max_length=200)
    maker = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        help_text=(
            "The user who made it and became its owner; among theirs its name is unique. Empty where a "
            "command made it for nobody."
        ),
    )
    question = models.CharField(max_length=300, default="Which response is better?")
    guidelines = models.TextField(blank=True)
    further_questions = models.TextField(
        blank=True,
        validators=[check_further_questions],
        help_text=(
            "Asked beside the question that decides, optional, and shown by policy: one on each line. End a "
            "line with (1-5) for a mark of each response, or with (text) for words. At most five."
        ),
    )
    tags = models.CharField(
        max_length=200, blank=True, help_text="Tags by which lists are filtered, separated by commas."
    )
    state = models.CharField(max_length=10, choices=State, default=State.DRAFT)
    conclusion = models.CharField(
        max_length=20, choices=[(reason.value, label) for reason, label in _CONCLUSIONS.items()], blank=True
    )
    winner = models.ForeignKey("Policy", models.PROTECT, null=True, blank=True, related_name="+")
    certified_claim = models.CharField(
        max_length=20,
        choices=DecisionRules.CLAIMS,
        blank=True,
        help_text="The claim that the conclusion rests on; empty without a certified winner.",
    )
    finding = models.TextField(
        blank=True,
        help_text="What the conclusion claims and what that assumes, in words; empty if it claims nothing.",
    )
    planned_count = models.PositiveIntegerField(
        default=0, help_text="Comparisons planned so far; seeds the next pick."
    )
    evidence_stale = models.BooleanField(
        default=False,
        help_text=(
            "True after a judgment was taken back or a rule changed: the evidence is replayed before the "
            "next decision."
        ),
    )
    closing_since = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text=(
            "Since when the claim would hold without the pairs that annotators hold now: nobody is shown a "
            "new one. Empty otherwise."
        ),
    )
    round_seconds = models.FloatField(
        default=0.0, editable=False, help_text="Time from the last round of planning to the next one."
    )
    rests_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="End of the pause after the last round of planning."
    )
    used_up = models.BooleanField(
        default=False,
        editable=False,
        help_text="True where every annotator has judged each two texts that may be compared.",
    )
    past_votes = models.PositiveIntegerField(
        default=0,
        editable=False,
        help_text="Comparisons that a file of past votes brought along; no sampler chose their pairs.",
    )
    trial_of = models.ForeignKey(
        "self",
        models.CASCADE,
        null=True,
        blank=True,
        editable=False,
        related_name="tried_drafts",
        help_text="The experiment that the policies of this draft may join. No list shows the draft.",
    )
    created_at = models.DateTimeField(default=clock.now)
    started_at = models.DateTimeField(null=True, blank=True)
    concluded_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=["maker", "name"],
                name="experiment_name_once",
                violation_error_message="You have an experiment of this name already. Choose another name.",
            ),
            models.UniqueConstraint(
                fields=["name"],
                condition=Q(maker__isnull=True),
                name="experiment_name_once_without_maker",
                violation_error_message=(
                    "There is an experiment of this name already that belongs to nobody. Choose another name."
                ),
            ),
            models.CheckConstraint(
                name="experiment_state", condition=Q(state__in=["draft", "running", "paused", "concluded"])
            ),
            models.CheckConstraint(
                # Shares of a half, a quarter or an eighth add up exactly in binary. Thirds do not, and an
                # undone judgment would leave a trace in the counts.
                name="experiment_mean_of_a_power_of_two",
                condition=Q(overlap_rule="majority") | Q(overlap__in=[1, 2, 4, 8]),
                violation_error_message=(
                    "With shares, each comparison needs 1, 2, 4 or 8 judgments. For another number, let "
                    "the majority decide."
                ),
            ),
            models.CheckConstraint(
                name="experiment_concluded_has_reason",
                condition=Q(state="concluded", conclusion__gt="")
                | (~Q(state="concluded") & Q(conclusion="")),
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def tag_list(self) -> list[str]:
        """Its tags, by name."""
        return self.tags.split(", ") if self.tags else []

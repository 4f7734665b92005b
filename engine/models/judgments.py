"""Judgments, the events that take them back, the counts that they add up to, and the allowance of undos."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from engine.domain.showings import Fate
from engine.models import clock
from engine.models.comparisons import Comparison
from engine.models.experiments import Experiment
from engine.models.policies import Policy


class Judgment(models.Model):
    """One outcome D(i, j). ``token`` makes a repeated request the same judgment.

    Append-only, and the database sees to it (:mod:`engine.models.append_only`): ``standing`` may end, and a
    comment may be emptied for its writer's privacy.
    """

    class Judge(models.TextChoices):
        HUMAN = "human", "People"
        RULE = "rule", "Rule (no person)"
        LLM = "llm", "Language model"

    class Via(models.TextChoices):
        """The origin of a judgment."""

        PAGE = "page", "Page"
        API = "api", "API"
        IMPORT = "import", "Import"
        RULE = "rule", "Rule"
        MODEL = "model", "Language model"
        IDENTICAL = "identical", "Identical texts"
        NO_ANSWER = "no_answer", "No answer"

    # Judged as soon as both texts are known; nobody sees the pair.
    UNSEEN = (Via.IDENTICAL, Via.NO_ANSWER)

    class Choice(models.TextChoices):
        LEFT = "left", "Left"
        RIGHT = "right", "Right"
        TIE = "tie", "Equally good"
        BOTH_BAD = "both_bad", "Both bad"

    class InView(models.TextChoices):
        """Where the two texts were on the screen before the answer."""

        TOGETHER = "together", "Both at once"
        IN_TURN = "in_turn", "One after the other"

    comparison = models.ForeignKey(
        Comparison,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="judgments",
        help_text="Empty for an answer to a check, which counts nowhere.",
    )
    assignment = models.ForeignKey(
        "Assignment",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="judgments",
        db_index=False,  # few have one: see the index below
        help_text="The check that this answers.",
    )
    judge = models.CharField(max_length=10, choices=Judge)
    annotator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="judgments",
        db_index=False,  # it begins the index below
    )
    via = models.CharField(max_length=10, choices=Via, default=Via.PAGE)
    token = models.UUIDField(default=uuid.uuid4, unique=True)
    choice = models.CharField(max_length=10, choices=Choice)
    outcome = models.FloatField(
        help_text=(
            "D: 1 where policy i's response was preferred, 0 where policy j's was. Of a check: 1 where the "
            "left one was."
        )
    )
    reason = models.CharField(max_length=200, blank=True, help_text="Reason, if the judge gives one.")
    comment = models.CharField(max_length=1000, blank=True, help_text="Comment of the annotator.")
    in_view = models.CharField(
        max_length=10,
        choices=InView,
        blank=True,
        help_text="How both texts were in view, as the page says: nothing but the export follows from it.",
    )
    further = models.TextField(
        blank=True, help_text="Answers to the further questions, as JSON: by question, and left before right."
    )
    restores = models.OneToOneField(
        "self",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="restored_by",
        help_text="The voided judgment that this one restores.",
    )
    annotator_could_see_policies = models.BooleanField(
        default=False,
        help_text="The annotator had a role then, or had lost one, that shows which policy wrote what.",
    )
    standing = models.BooleanField(
        default=True, help_text="True unless voided. Duplicates JudgmentVoid for the constraint below."
    )
    shown_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        indexes = (
            models.Index(fields=["created_at"], name="judgment_created"),
            # Each click asks for somebody's answers of today.
            models.Index(fields=["annotator", "created_at"], name="judgment_of_annotator"),
            # The inbox of comments reads few of all judgments.
            models.Index(fields=["comparison"], name="judgment_commented", condition=Q(comment__gt="")),
            # Those of checks, which are few.
            models.Index(
                fields=["assignment"], name="judgment_of_check", condition=Q(assignment__isnull=False)
            ),
        )
        constraints = (
            models.UniqueConstraint(
                fields=["comparison", "annotator"],
                name="judgment_standing_once_per_annotator",
                condition=Q(standing=True),
            ),
            models.UniqueConstraint(
                fields=["assignment"],
                name="judgment_standing_once_per_check",
                condition=Q(standing=True, assignment__isnull=False),
            ),
            models.CheckConstraint(
                name="judgment_of_comparison_or_check",
                condition=Q(comparison__isnull=True) ^ Q(assignment__isnull=True),
            ),
            models.CheckConstraint(
                name="judgment_outcome_in_unit_interval", condition=Q(outcome__gte=0, outcome__lte=1)
            ),
            models.CheckConstraint(
                name="judgment_via_fits_judge",
                condition=Q(via="import")
                | Q(judge="human", via__in=["page", "api"])
                | Q(judge="rule", via__in=["rule", "identical", "no_answer"])
                | Q(judge="llm", via="model"),
            ),
        )

    def __str__(self) -> str:
        return f"Judgment {self.pk}: {self.choice}"

    @property
    def preferred(self) -> Policy | None:
        """The policy whose response was chosen; ``None`` for a tie or a check."""
        if self.outcome == 0.5 or self.comparison is None:
            return None
        return self.comparison.policy_i if self.outcome > 0.5 else self.comparison.policy_j

    @property
    def seconds(self) -> float | None:
        """Seconds from seeing the pair to judging it; ``None`` where that is not known."""
        return None if self.shown_at is None else (self.created_at - self.shown_at).total_seconds()


class JudgmentVoid(models.Model):
    """The event that takes one judgment back. Append-only; ends the judgment's ``standing`` in the same
    transaction.
    """

    FATES = (
        (Fate.SLIP.value, "Taken back by its annotator before their next answer"),
        (Fate.TAKEN_BACK.value, "Taken back by its annotator later"),
        (Fate.VOIDED.value, "Voided by hand"),
    )

    judgment = models.OneToOneField(Judgment, models.PROTECT, related_name="void")
    fate = models.CharField(max_length=10, choices=FATES, default=Fate.VOIDED)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    reason = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"Void of judgment {self.judgment_id}"


class PairCount(models.Model):
    """W_ij and N_ij of one pair i < j over the judgments that stand."""

    experiment = models.ForeignKey(
        Experiment,
        models.CASCADE,
        related_name="pair_counts",
        db_index=False,  # it begins the constraint below
    )
    policy_i = models.ForeignKey(Policy, models.PROTECT, related_name="+")
    policy_j = models.ForeignKey(Policy, models.PROTECT, related_name="+")
    wins_i = models.FloatField(default=0.0)
    comparisons = models.PositiveIntegerField(default=0)
    last_annotator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,  # each click would write into it, and into all other indexes of the table
        help_text=(
            "Annotator who completed the last comparison of this pair: the next one goes rather to "
            "somebody else."
        ),
    )

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["experiment", "policy_i", "policy_j"], name="pair_count_once"),
            models.CheckConstraint(
                name="pair_count_wins_in_range", condition=Q(wins_i__gte=0, wins_i__lte=F("comparisons"))
            ),
        )

    def __str__(self) -> str:
        return f"{self.wins_i}/{self.comparisons}"


class Allowance(models.Model):
    """The undos and skips of one annotator in an experiment, by the rules of
    :mod:`engine.services.undos_and_skips`.

    The row is also the lock that orders an annotator's own requests, from any number of tabs.
    """

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="allowances")
    annotator = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="allowances")
    undo_credit = models.PositiveSmallIntegerField(
        help_text="Balance after the latest undo, in answers: an undo costs several, each answer earns one."
    )
    answers = models.PositiveIntegerField(
        default=0, help_text="Number of answers at the time of the latest undo."
    )
    shown = models.PositiveIntegerField(default=0, help_text="Pairs given so far, checks among them.")
    skipped = models.PositiveIntegerField(default=0, help_text="Pairs skipped so far, checks among them.")
    most_answers = models.PositiveIntegerField(
        null=True, blank=True, help_text="Pairs that a guest is given at most, skipped ones aside."
    )
    waited_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the annotator asked for a pair in vain; at most every half minute.",
    )

    class Meta:
        constraints = (models.UniqueConstraint(fields=["experiment", "annotator"], name="allowance_once"),)

    def __str__(self) -> str:
        return f"{self.annotator} in {self.experiment}"

    @property
    def is_used_up(self) -> bool:
        """True if a guest was given all of their pairs."""
        return self.most_answers is not None and self.shown - self.skipped >= self.most_answers

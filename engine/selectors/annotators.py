"""The judgments of each judge: their number, their speed, and signs of how carefully they were made."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import Count, Exists, F, Max, Min, OuterRef, Q, QuerySet
from django.db.models.functions import Length, TruncDate

from engine.core.judgment_order import LONG_RUN, SoloRun, solo_runs
from engine.models import Assignment, Comparison, Experiment, Flag, Judgment, User
from engine.selectors.counts import standing_judgments
from engine.selectors.pace import FASTEST_READING, time_taken, times_taken
from engine.selectors.past_votes import sides_vary

# The newest answers of each annotator, which are compared with the lengths of the texts.
_READ = 100


@dataclass(frozen=True)
class Judged:
    """The choices of one annotator or kind of judge.

    ``left``, ``right``: of choices whose sides are known, which those of past votes need not be.
    ``median_seconds``: of the time taken for a pair.
    """

    judged: int
    left: int
    right: int
    median_seconds: float | None


@dataclass(frozen=True)
class Tallies:
    """The choices of everybody whose judgments stand.

    Attributes
    ----------
    by_annotator
        By user name.
    by_kind
        By kind of judge: people, the rule, a model.
    """

    by_annotator: dict[str, Judged]
    by_kind: dict[str, Judged]


@dataclass(frozen=True)
class Totals:
    """The judgments that stand, of all judges together.

    Attributes
    ----------
    people, judgments, by_model
        People who judged, all judgments, and a language model's judgments among them.
    since, until
        When the first and the last were given; ``None`` without any.
    """

    people: int
    judgments: int
    by_model: int
    since: datetime | None
    until: datetime | None


def totals(experiment: Experiment) -> Totals:
    """The number of people and judgments of an experiment, and when they were given."""
    return Totals(
        **standing_judgments(experiment.pk).aggregate(
            people=Count("annotator", distinct=True, filter=Q(judge=Judgment.Judge.HUMAN)),
            judgments=Count("pk"),
            by_model=Count("pk", filter=Q(judge=Judgment.Judge.LLM)),
            since=Min("created_at"),
            until=Max("created_at"),
        )
    )


def people_who_judged(experiment: Experiment) -> QuerySet[User]:
    """Everybody with a judgment in the experiment, voided or not, past members included."""
    return people_behind(Judgment.objects.filter(comparison__experiment=experiment))


def people_behind(judgments: QuerySet[Judgment]) -> QuerySet[User]:
    """Everybody with one of these judgments."""
    return User.objects.filter(Exists(judgments.filter(annotator=OuterRef("pk"))))


def tallies(experiment: Experiment, only: User | None = None) -> Tallies:
    """The choices of each annotator and each kind of judge; with ``only``, of that person alone.

    One pass over the judgments: with a hundred thousand of them, each further pass takes most of a second.
    """
    by_annotator: defaultdict[int | None, _Tally] = defaultdict(_Tally)
    by_kind: defaultdict[str, _Tally] = defaultdict(_Tally)
    newest: dict[int | None, datetime] = {}
    # Only a past vote may lack its sides. It got drawn ones, which say nothing about anybody's habit.
    side = ["comparison__plan__side_known"] if experiment.past_votes else []
    # Where side and policy coincide, a choice of a side may be one of a policy.
    coincide = bool(side) and not sides_vary(experiment)
    rows = (
        _of(only, standing_judgments(experiment.pk))
        .order_by("pk")
        .values_list("judge", "annotator_id", "choice", "shown_at", "created_at", *side)
    )
    for kind, annotator_id, choice, shown_at, judged_at, *side_known in rows.iterator():
        span = time_taken(shown_at, judged_at, answered_before=newest.get(annotator_id))
        newest[annotator_id] = judged_at
        for tally in (by_kind[kind], by_annotator[annotator_id]):
            tally.add(choice, span, sided=side_known != [False] and not (coincide and side_known == [True]))
    names = User.objects.filter(pk__in=[key for key in by_annotator if key]).order_by("username")
    return Tallies(
        by_annotator={name: by_annotator[key].judged() for key, name in names.values_list("pk", "username")},
        by_kind={kind: by_kind[kind].judged() for kind in sorted(by_kind)},
    )


class _Tally:
    def __init__(self) -> None:
        self.judgments = 0
        self.chosen: Counter[str] = Counter()
        self.seconds = array("d")

    def add(self, choice: str, span: timedelta | None, *, sided: bool) -> None:
        self.judgments += 1
        self.chosen[choice] += sided
        if span is not None:
            self.seconds.append(span.total_seconds())

    def judged(self) -> Judged:
        return Judged(
            judged=self.judgments,
            left=self.chosen[Judgment.Choice.LEFT],
            right=self.chosen[Judgment.Choice.RIGHT],
            median_seconds=median(self.seconds) if self.seconds else None,
        )


def _of(only: User | None, rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows if only is None else rows.filter(annotator=only)


def several_people_judged(experiment: Experiment) -> bool:
    """True if judgments of at least two people stand. It reads no further than the second person."""
    by_people = standing_judgments(experiment.pk).filter(judge=Judgment.Judge.HUMAN, annotator__isnull=False)
    somebody = by_people.order_by().values_list("annotator_id", flat=True)[:1]
    return any(by_people.exclude(annotator_id=each).exists() for each in somebody)


@dataclass(frozen=True)
class Reading:
    """The newest answers of one annotator against the lengths of the two responses.

    Attributes
    ----------
    timed, hasty
        Answers with a known time, and how many of them were faster than reading.
    uneven, longer
        Answers for one of two responses of different lengths, and how many chose the longer one.
    """

    timed: int = 0
    hasty: int = 0
    uneven: int = 0
    longer: int = 0


def reading_by_annotator(experiment: Experiment, names: Collection[str]) -> dict[str, Reading]:
    """The newest answers of annotators with these user names, and the lengths of the texts.

    Imported answers are left out. Only the newest are read, because measuring all texts of a large experiment
    takes seconds. One query for each annotator: one for all joined every text before it chose the newest.
    """
    users = User.objects.filter(username__in=names).values_list("username", "pk")
    return {name: _reading(experiment, pk) for name, pk in users}


def _reading(experiment: Experiment, annotator_id: int) -> Reading:
    rows = (
        standing_judgments(experiment.pk)
        .filter(annotator=annotator_id, via__in=[Judgment.Via.PAGE, Judgment.Via.API])
        .order_by("-created_at")
        .values_list(
            "outcome",
            "shown_at",
            "created_at",
            Length("comparison__response_i__text"),
            Length("comparison__response_j__text"),
        )
    )
    timed = hasty = uneven = longer = 0
    newest = list(rows[:_READ])[::-1]
    times = times_taken((shown_at, judged_at) for _, shown_at, judged_at, *_ in newest)
    for (outcome, _, _, length_i, length_j), taken in zip(newest, times, strict=True):
        if taken is not None:
            timed += 1
            hasty += (length_i + length_j) / FASTEST_READING > taken.total_seconds()
        if outcome != 0.5 and length_i != length_j:
            uneven += 1
            longer += (outcome > 0.5) == (length_i > length_j)
    return Reading(timed, hasty, uneven, longer)


def check_results(experiment: Experiment, only: User | None = None) -> dict[tuple[str, str], tuple[int, int]]:
    """``{(user name, kind of check): (answered, passed)}``."""
    answered = Assignment.objects.checks().filter(experiment=experiment, passed__isnull=False)
    rows = (
        _of(only, answered)
        .values_list("annotator__username", "kind")
        .annotate(answered=Count("pk"), agreed=Count("pk", filter=Q(passed=True)))
        .order_by()
    )
    return {(name, kind): (answered, agreed) for name, kind, answered, agreed in rows}


def passed_checks(experiment: Experiment, annotator: User) -> list[tuple[str, int, int]]:
    """The kinds of checks that an annotator answered: name, number passed, number answered."""
    results = check_results(experiment, only=annotator)
    return [(Assignment.Kind(kind).label, passed, n) for (_, kind), (n, passed) in sorted(results.items())]


def standing_of(experiment: Experiment, annotator: User) -> int:
    """The number of an annotator's judgments that stand."""
    return standing_judgments(experiment.pk).filter(annotator=annotator).count()


def flags_by_annotator(experiment: Experiment, only: User | None = None) -> dict[str, int]:
    """The number of pairs that each annotator flagged."""
    rows = _of(only, Flag.objects.filter(comparison__experiment=experiment))
    return dict(rows.values_list("annotator__username").annotate(n=Count("pk")).order_by())


def skips_by_annotator(experiment: Experiment, only: User | None = None) -> dict[str, int]:
    """The number of pairs that each annotator skipped."""
    rows = _of(
        only,
        Assignment.objects.filter(comparison__experiment=experiment, state=Assignment.State.SKIPPED),
    )
    return dict(rows.values_list("annotator__username").annotate(n=Count("pk")).order_by())


@dataclass(frozen=True)
class Activity:
    """The time of one annotator's judgments; ``days``: the number of days with one, in the installation's
    time zone.
    """

    first_at: datetime | None
    last_at: datetime | None
    days: int
    comments: int


def activity(experiment: Experiment, annotator: User) -> Activity:
    """The time of this annotator's judgments that stand, and the number of their comments."""
    found = (
        standing_judgments(experiment.pk)
        .filter(annotator=annotator)
        .aggregate(
            first_at=Min("created_at"),
            last_at=Max("created_at"),
            days=Count(TruncDate("created_at"), distinct=True),
            comments=Count("pk", filter=~Q(comment="")),
        )
    )
    return Activity(**found)


def agreement_with_others(experiment: Experiment, annotator: User) -> tuple[int, int]:
    """Answers of other people to the same two responses: how many there are, and how many are the same.

    Ties and "both bad" are one answer. Past votes count.
    """
    people = standing_judgments(experiment.pk).filter(judge=Judgment.Judge.HUMAN)
    theirs = people.filter(annotator=annotator)
    pair = ("comparison__response_i_id", "comparison__response_j_id")
    others = people.filter(annotator__isnull=False).exclude(annotator=annotator)
    shared = others.filter(Exists(theirs.filter(**{name: OuterRef(name) for name in pair})))
    mine = {(i, j): outcome for i, j, outcome in theirs.order_by("-pk").values_list(*pair, "outcome")}
    same = [mine[i, j] == outcome for i, j, outcome in shared.values_list(*pair, "outcome") if (i, j) in mine]
    return len(same), sum(same)


@dataclass(frozen=True)
class LongerPreferred:
    """Among the comparisons with a decision and two lengths: how many went to the longer response."""

    longer: int
    decided: int

    @property
    def percent(self) -> int | None:
        """``None`` where no comparison counts."""
        return round(100 * self.longer / self.decided) if self.decided else None


def longer_preferred(experiment: Experiment) -> LongerPreferred:
    """Counts of the response with more written tokens; ties and equal lengths are left out."""
    i, j = F("response_i__completion_tokens"), F("response_j__completion_tokens")
    decided = (
        Comparison.objects.filter(experiment=experiment, state=Comparison.State.JUDGED)
        .exclude(outcome=0.5)
        .filter(Q(response_i__completion_tokens__gt=j) | Q(response_i__completion_tokens__lt=j))
    )
    for_longer = Q(outcome__gt=0.5, response_i__completion_tokens__gt=j) | Q(
        outcome__lt=0.5, response_j__completion_tokens__gt=i
    )
    found = decided.aggregate(longer=Count("pk", filter=for_longer), decided=Count("pk"))
    return LongerPreferred(**found)


def could_see_policies(experiment: Experiment) -> int:
    """The number of standing judgments of people who had, or had had, a role that shows which policy wrote
    what.
    """
    return standing_judgments(experiment.pk).filter(annotator_could_see_policies=True).count()


def long_solo_runs(experiment: Experiment, longer_than: int = LONG_RUN) -> list[SoloRun]:
    """Long runs of one annotator with nobody else's judgments in between, the longest first.

    A language model's votes and past votes without a name are somebody else's. Ties of identical texts are
    nobody's.
    """
    judged = standing_judgments(experiment.pk).exclude(via__in=Judgment.UNSEEN).order_by("pk")
    # By number: with the names, the same rows take twice as long to read.
    every = solo_runs(list(judged.values_list("annotator_id", flat=True)), longer_than)
    runs = [run for run in every if run.annotator is not None]
    people = User.objects.in_bulk([run.annotator for run in runs])
    return [replace(run, annotator=people[run.annotator].get_username()) for run in runs]

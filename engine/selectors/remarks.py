"""Remarks of annotators about pairs: flags, and comments on answers that stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Q, QuerySet

from engine.models import Comparison, Experiment, Flag, Judgment

# More comparisons with remarks than anybody reads; the newest count.
_MOST = 5000


@dataclass(frozen=True)
class Remark:
    """A flag, whose ``reason`` is said, or a comment on an answer."""

    by: str
    at: datetime
    reason: str
    comment: str


@dataclass(frozen=True)
class Remarked:
    """A comparison and its remarks, the oldest first; there is at least one."""

    comparison: Comparison
    remarks: Sequence[Remark]

    @property
    def until(self) -> str:
        """The time of the newest remark, in ISO 8601."""
        return self.remarks[-1].at.isoformat()


def remarked_comparisons(
    experiment: Experiment, *, done: bool, finished: bool = False
) -> QuerySet[Comparison]:
    """The comparisons with a remark that nobody has marked as done; with ``done``, those with no such remark.

    ``finished``: only comparisons that nobody can be shown any more.
    """
    newer = Q(comparison__remarks_done_at=None) | Q(created_at__gt=F("comparison__remarks_done_at"))
    found: set[int] = set()
    settled: set[int] = set()
    for rows in (_flags(experiment), _commented(experiment)):
        found |= _comparisons(rows.filter(newer))
        if done:
            settled |= _comparisons(rows.exclude(newer))
    comparisons = experiment.comparisons.filter(pk__in=settled - found if done else found)
    return comparisons.exclude(state__in=Comparison.PENDING) if finished else comparisons


def _comparisons(rows: QuerySet[Flag] | QuerySet[Judgment]) -> set[int]:
    return set(rows.order_by("-pk").values_list("comparison_id", flat=True)[:_MOST])


def _flags(experiment: Experiment) -> QuerySet[Flag]:
    return Flag.objects.filter(comparison__experiment=experiment)


def _commented(experiment: Experiment) -> QuerySet[Judgment]:
    return Judgment.objects.filter(comparison__experiment=experiment, standing=True, comment__gt="")


def flag_reasons(experiment: Experiment) -> dict[int, str]:
    """The reasons of the flags on each flagged comparison by its number, the oldest first, with spaces
    between them.
    """
    reasons: dict[int, str] = {}
    for comparison_id, reason in _flags(experiment).order_by("pk").values_list("comparison_id", "reason"):
        known = reasons.get(comparison_id)
        reasons[comparison_id] = f"{known} {reason}" if known else reason
    return reasons


def with_remarks(comparisons: Sequence[Comparison]) -> list[Remarked]:
    """The comparisons that have remarks, with them, in their order."""
    remarks: dict[int | None, list[Remark]] = {comparison.pk: [] for comparison in comparisons}
    for flag in Flag.objects.filter(comparison__in=comparisons).select_related("annotator"):
        said = Remark(str(flag.annotator), flag.created_at, flag.get_reason_display(), flag.comment)
        remarks[flag.comparison_id].append(said)
    commented = Judgment.objects.filter(comparison__in=comparisons, standing=True, comment__gt="")
    for judgment in commented.select_related("annotator"):
        by = str(judgment.annotator or judgment.get_judge_display())
        remarks[judgment.comparison_id].append(Remark(by, judgment.created_at, "", judgment.comment))
    return [
        Remarked(comparison, sorted(remarks[comparison.pk], key=lambda remark: remark.at))
        for comparison in comparisons
        if remarks[comparison.pk]
    ]

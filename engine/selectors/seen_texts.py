"""The pairs of texts that people have seen, and who may still be shown one."""

from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest
from django.db.models.lookups import Exact, GreaterThanOrEqual, IsNull

from engine.models import Assignment, Comparison, Judgment, Membership, User
from engine.selectors.counts import count_of
from engine.selectors.people import annotators
from engine.selectors.prepared_reads import Given


def found_one(rows: QuerySet[Any]) -> IsNull:
    """True of each row for which there is one of ``rows``, a subquery: as ``Exists``, but looked up by row.

    For EXISTS, PostgreSQL plans two ways. It may prefer to read all that somebody ever answered into a table
    of hashes, even where the first few rows will do.
    """
    return IsNull(Subquery(rows.order_by().values("pk")[:1]), False)


def annotators_left(experiment_id: int, texts: str | OuterRef) -> QuerySet[Membership]:
    """The annotators who were not given two texts yet.

    ``texts``: their name, or an ``OuterRef`` to it, to use this as a subquery.
    """
    return annotators(experiment_id).filter(~has_seen(OuterRef("user"), _outer(texts)))


def seen_as_often_as_there_are_annotators(experiment_id: int, texts: OuterRef) -> GreaterThanOrEqual:
    """True if these two texts were shown or judged at least as often as there are annotators. Then perhaps
    every annotator has seen them; not surely, as one person may count twice, and people who left count too.
    By the name of the texts; of none without a name.
    """
    of_these = {"comparison__texts": texts, "comparison__texts__gt": ""}
    shown = Assignment.objects.filter(**of_these)
    # Each other judgment that stands has an assignment.
    judged = Judgment.objects.filter(
        standing=True, annotator__isnull=False, via=Judgment.Via.IMPORT, **of_these
    )
    # To count different people, PostgreSQL sorts for each row, which took most of the time.
    n_seen = count_of(shown) + count_of(judged)
    return GreaterThanOrEqual(n_seen, Greatest(count_of(annotators(experiment_id)), 1))


def has_seen(annotator: User | OuterRef | Given, texts: str | OuterRef) -> Q:
    """True if somebody was given these two texts, or has judged them; by their name."""
    # Found by their texts, and then by whose they are. In a join, SQLite would go through all that somebody
    # ever answered, for each pair that is ready.
    theirs = {"annotator": _outer(annotator), "comparison": OuterRef("pk")}
    shown = Q(found_one(Assignment.objects.filter(**theirs)))
    judged = Q(found_one(Judgment.objects.filter(standing=True, **theirs)))
    return Q(found_one(Comparison.objects.filter(shown | judged, texts=texts, texts__gt="")))


def has_seen_of_task(experiment: Given, annotator: Given) -> Q:
    """True of a comparison if somebody was given another pair of its task."""
    # Read once, and not for each pair that is ready.
    given = Assignment.objects.filter(annotator=annotator, comparison__experiment=experiment)
    return Q(task__in=given.values("comparison__task"))


def has_seen_unequally(annotator: User | Given) -> Q:
    """True of a comparison if somebody was shown one of its two texts more often than the other."""
    return ~Q(Exact(_n_shown(annotator, "response_i"), _n_shown(annotator, "response_j")))


def _n_shown(annotator: User | Given, half: str) -> Coalesce:
    digest = OuterRef(f"{half}__digest")
    either = Q(comparison__response_i__digest=digest) | Q(comparison__response_j__digest=digest)
    return count_of(Assignment.objects.filter(either, annotator=annotator, comparison__task=OuterRef("task")))


def _outer(reference: Any) -> Any:
    """The same reference one query further in."""
    return OuterRef(reference) if isinstance(reference, OuterRef) else reference

"""The pairs of texts that people have seen, and who may still be shown one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from engine.models import Judgment, Lease, Membership, User
from engine.selectors.compiled import Given
from engine.selectors.people import annotators

# States of a lease whose annotator has finished the pair, or has it on the screen.
SEEN = (Lease.State.ACTIVE, Lease.State.JUDGED, Lease.State.SKIPPED)


def annotators_left(
    experiment_id: int, comparison: int | OuterRef, texts: str | OuterRef
) -> QuerySet[Membership]:
    """The annotators who may still be shown a comparison: they have neither judged nor skipped it, nor
    another one of the same two texts.

    ``comparison``, ``texts``: its number and the name of its texts, or an ``OuterRef`` to each, to use this
    as a subquery.
    """
    through_with_it = Lease.objects.filter(
        comparison=_outer(comparison),
        annotator=OuterRef("user"),
        state__in=[Lease.State.SKIPPED, Lease.State.JUDGED],
    )
    judged = Judgment.objects.filter(comparison=_outer(comparison), annotator=OuterRef("user"), standing=True)
    return annotators(experiment_id).filter(
        ~Exists(through_with_it), ~Exists(judged), ~has_seen(OuterRef("user"), _outer(texts))
    )


def seen_by_as_many_as_annotate(experiment_id: int, names: Collection[str]) -> set[str]:
    """Those of these names of two texts that perhaps every annotator has seen: as many people have as
    annotate the experiment, some of whom may have left.
    """
    if not names:
        return set()
    leases = Lease.objects.filter(comparison__texts__in=names, state__in=SEEN)
    judgments = Judgment.objects.filter(comparison__texts__in=names, standing=True, annotator__isnull=False)
    seen: Counter[str] = Counter()
    for answers in (leases, judgments):
        people = answers.values("comparison__texts").annotate(n=Count("annotator", distinct=True))
        seen.update(dict(people.values_list("comparison__texts", "n")))
    n_annotators = annotators(experiment_id).count()
    return {name for name in names if seen[name] >= max(n_annotators, 1)}


def has_seen(annotator: User | OuterRef | Given, texts: str | OuterRef) -> Q:
    """True if somebody has judged or skipped these two texts, or has them on the screen; by their name."""
    of_these = {"annotator": annotator, "comparison__texts": texts, "comparison__texts__gt": ""}
    return Q(Exists(Lease.objects.filter(state__in=SEEN, **of_these))) | Q(
        Exists(Judgment.objects.filter(standing=True, **of_these))
    )


def _outer(reference: Any) -> Any:
    """The same reference one query further in."""
    return OuterRef(reference) if isinstance(reference, OuterRef) else reference

"""Comparisons of one text twice: held back as soon as that is known, and a tie that nobody looks at."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from django.db import transaction
from django.db.models import CharField, F, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Concat, Greatest, Least

from engine.domain.texts import NOTHING
from engine.models import Comparison, Experiment, Judgment, Response
from engine.selectors import counts
from engine.selectors.compiled import EXPERIMENT, Compiled
from engine.services.judging import record_judgment

# Added to the record of a comparison whose two texts are one.
IDENTICAL_PLAN = {"identical": True}


@transaction.atomic
def name_and_hold_back(*, comparison_ids: Collection[int]) -> None:
    """Name the texts of comparisons that have just become ready. Hold back those of one text twice until it
    is their turn: nobody needs to look at them.

    The caller has locked them. Only where people judge: a rule takes no time that could be saved.
    """
    ours = Comparison.objects.filter(pk__in=comparison_ids, experiment__judge=Experiment.Judge.HUMAN)
    _name_texts(ours)
    same = ours.filter(response_i__digest=F("response_j__digest"))
    for comparison in same.exclude(response_i__digest=NOTHING):
        comparison.plan = comparison.plan | IDENTICAL_PLAN
        comparison.state = Comparison.State.PLANNED
        comparison.save(update_fields=["plan", "state"])


def _name_texts(comparisons: QuerySet[Comparison]) -> None:
    """Store the name of both texts of comparisons whose responses come again, in one statement."""
    first, second = (
        Subquery(Response.objects.filter(pk=OuterRef(half)).values("digest"), output_field=CharField())
        for half in ("response_i", "response_j")
    )
    comparisons.exclude(experiment__responses=Experiment.Responses.FRESH).update(
        texts=Concat(
            Cast("task_id", CharField()),
            Value(":"),
            Least(first, second),
            Value(":"),
            Greatest(first, second),
        )
    )


@transaction.atomic(savepoint=False)
def settle_identical(*, experiment: Experiment) -> None:
    """Judge comparisons of one text twice a tie.

    At once: what people still have before them counts against every claim, so that it matters to none which
    outcomes come first.
    """
    for comparison in _HELD_BACK(experiment=experiment.pk):
        record_judgment(
            comparison=comparison,
            choice=Judgment.Choice.TIE,
            judge=Judgment.Judge.RULE,
            via=Judgment.Via.IDENTICAL,
            token=uuid.uuid4(),
            reason="Both responses are the same text.",
        )


# Each round of planning asks, and mostly there are none.
_HELD_BACK = Compiled(
    lambda: (
        Comparison.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
        .select_related("experiment")
        .filter(counts.HELD_BACK, experiment=EXPERIMENT)
        .order_by("number")
    ),
    keeps_plan=False,
)

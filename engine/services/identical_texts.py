"""Comparisons of one text twice: held back as soon as that is known, and a tie that nobody looks at."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from django.db import transaction
from django.db.models import CharField, F, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Concat, Greatest, Least

from engine.models import Comparison, Experiment, Judgment, Response
from engine.selectors import buffer, counts, pools
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
    for comparison in ours.filter(response_i__digest=F("response_j__digest")):
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
    """Judge comparisons of one text twice a tie, each in its turn. This is when as many are judged as were
    asked before it, or when no other waits for any annotator who is here.

    Judged as soon as they are ready, they would come before all that wait for people. Which outcomes come
    first would depend on what they are, and with a margin ties alone could then establish a claim.
    """
    if not (held := _HELD_BACK(experiment=experiment.pk)):
        return
    n_judged = counts.comparison_count(experiment.pk)
    alone = not _others_wait(experiment)
    n_settled = 0
    for comparison in held:
        plan = comparison.plan
        if alone or n_judged + n_settled >= plan["comparisons"] + plan["in_flight"] + plan["draw"]:
            record_judgment(
                comparison=comparison,
                choice=Judgment.Choice.TIE,
                judge=Judgment.Judge.RULE,
                via=Judgment.Via.IDENTICAL,
                token=uuid.uuid4(),
                reason="Both responses are the same text.",
            )
            n_settled += 1


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


def _others_wait(experiment: Experiment) -> bool:
    """True if somebody looks at a comparison, or some wait for people who are here; where nobody is, for
    anybody.
    """
    others = Comparison.objects.filter(
        counts.FOR_PEOPLE, experiment=experiment, state__in=Comparison.PENDING, skips=0
    )
    # In a finite pool, what waits may be over for all who are here.
    finite = pools.is_finite(experiment)
    stocks = pools.stocks(experiment, buffer.annotators_present(experiment)) if finite else []
    if stocks and not any(stock.n_waiting for stock in stocks):
        others = others.filter(state=Comparison.State.LEASED)
    return others.exists()

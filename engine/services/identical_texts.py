"""Comparisons that need no judge: of one text twice, or, by setting, of a text and no answer.

They are held back as soon as that is known, and judged without anybody's looking at them.
"""

import uuid
from collections.abc import Collection

from django.db import transaction
from django.db.models import CharField, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Concat, Greatest, Least

from engine.domain.texts import NOTHING
from engine.models import Comparison, Experiment, Judgment, Response
from engine.selectors import counts
from engine.services.judging import record_judgment, without_an_answer

_IDENTICAL = Q(response_i__digest=F("response_j__digest")) & ~Q(response_i__digest=NOTHING)
_ONE_ANSWERS = Q(experiment__no_answer=Experiment.NoAnswer.LOSES) & (
    Q(response_i__digest=NOTHING) ^ Q(response_j__digest=NOTHING)
)


@transaction.atomic
def name_and_hold_back(*, comparison_ids: Collection[int]) -> None:
    """Name the texts of comparisons that have just become ready. Hold back those that need no judge until it
    is their turn.

    The caller has locked them. Only where people judge: a rule takes no time that could be saved.
    """
    ours = Comparison.objects.filter(pk__in=comparison_ids, experiment__judge=Experiment.Judge.HUMAN)
    _name_texts(ours)
    for via, condition in ((Judgment.Via.IDENTICAL, _IDENTICAL), (Judgment.Via.NO_ANSWER, _ONE_ANSWERS)):
        for comparison in ours.filter(condition):
            comparison.plan = comparison.plan | {"by_rule": via.value}
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
def settle_by_rule(*, experiment: Experiment) -> None:
    """Judge the comparisons that were held back.

    At once: what people still have before them counts against every claim, so that it matters to none which
    outcomes come first.
    """
    held_back = (
        experiment.comparisons.filter(counts.HELD_BACK)
        .select_for_update(no_key=True, skip_locked=True, of=("self",))
        .select_related("experiment")
    )
    for comparison in held_back.order_by("number"):
        via = Judgment.Via(comparison.plan["by_rule"])
        choice, reason = Judgment.Choice.TIE.value, "Both responses are the same text."
        if via == Judgment.Via.NO_ANSWER:
            choice, reason = without_an_answer(comparison) or (choice, reason)
        record_judgment(
            comparison=comparison,
            choice=choice,
            judge=Judgment.Judge.RULE,
            via=via,
            token=uuid.uuid4(),
            reason=reason,
        )

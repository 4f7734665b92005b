"""An editor's corrections of judgments: voids and restores single ones, or voids all of one annotator's."""

import uuid
from datetime import datetime
from typing import cast

from django.db import transaction

from engine.domain.errors import WrongStateError
from engine.domain.showings import Fate
from engine.models import (
    Assignment,
    AuditEntry,
    Comparison,
    Judgment,
    JudgmentVoid,
    User,
    clock,
)
from engine.selectors import counts
from engine.services.analysis import outdate
from engine.services.audit import record
from engine.services.judging import (
    check_not_final,
    record_judgment,
    void_judgment,
    write_voids,
)
from engine.services.locks import lock_by_number, locked_experiment
from engine.services.showings import settle, settle_assignments

# States of comparisons that accept no judgment now.
_WHY_NOT = {
    str(Comparison.State.JUDGED): "This pair has been judged again. Void that judgment first.",
    str(Comparison.State.ASSIGNED): "An annotator is looking at this pair. Try again in a few minutes.",
    str(Comparison.State.DISCARDED): "This pair has been discarded, so it accepts no judgments.",
}


@transaction.atomic
def settle_remarks(*, comparison_id: int, by: User, until: datetime) -> bool:
    """Mark the flags and comments on a comparison, up to this time, as done; ``False`` if they were."""
    comparison = Comparison.objects.select_for_update(no_key=True).get(pk=comparison_id)
    # Nobody can have read a remark of the future.
    until = min(until, clock.now())
    if comparison.remarks_done_at is not None and comparison.remarks_done_at >= until:
        return False
    comparison.remarks_done_at = until
    comparison.save(update_fields=["remarks_done_at"])
    record(
        experiment=comparison.experiment,
        by=by,
        action=AuditEntry.Action.REMARKS_DONE,
        details={"number": comparison.number, "comparison": comparison.pk},
    )
    return True


@transaction.atomic
def void_one(*, judgment_id: int, by: User, reason: str) -> JudgmentVoid:
    """Void somebody's judgment, and record it in the log.

    Annotators who take back their own judgments leave no entry, as there are many.

    Raises
    ------
    WrongStateError
        See :func:`engine.services.judging.void_judgment`.
    """
    void = void_judgment(judgment_id=judgment_id, by=by, reason=reason)
    record(
        experiment=cast(Comparison, void.judgment.comparison).experiment,
        by=by,
        action=AuditEntry.Action.VOID,
        details={
            "count": 1,
            "reason": f"number {judgment_id}. {reason}",
            "judgments": [judgment_id],
        },
    )
    return void


@transaction.atomic
def restore_judgment(*, judgment_id: int, by: User | None = None) -> Judgment:
    """Bring a voided judgment back by a new one that copies it and refers to it.

    Estimates count it again from now on; the proofs never stopped counting it.

    Raises
    ------
    WrongStateError
        It stands or was restored already, or its comparison needs no more judgments; the message says
        which.
    """
    voided = Judgment.objects.select_related("comparison", "annotator").get(pk=judgment_id)
    experiment = locked_experiment(cast(Comparison, voided.comparison).experiment_id)
    settle_assignments(experiment=experiment)
    open_ones = Assignment.objects.filter(
        comparison=voided.comparison_id, annotator=voided.annotator_id, state=Assignment.State.OPEN
    )
    lock_by_number(open_ones, no_key=True)
    comparison = (
        Comparison.objects.select_for_update(no_key=True, of=("self",))
        .select_related("experiment")
        .get(judgments=voided)
    )
    check_not_final(experiment)
    if refusal := _refusal(comparison, voided):
        raise WrongStateError(refusal)
    # As if the annotator had just clicked: the pair is not shown to them again.
    open_ones.update(state=Assignment.State.JUDGED)
    restored = record_judgment(
        comparison=comparison,
        choice=voided.choice,
        judge=voided.judge,
        via=voided.via,
        token=uuid.uuid4(),
        annotator=voided.annotator,
        reason=voided.reason,
        comment=voided.comment,
        in_view=voided.in_view,
        further=voided.further,
        shown_at=voided.shown_at,
        restores=voided,
        could_see_policies=voided.annotator_could_see_policies,
    )
    record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.RESTORE,
        details={
            "count": 1,
            "reason": f"number {voided.pk}, as number {restored.pk}.",
            "judgments": [voided.pk],
        },
    )
    return restored


def _refusal(comparison: Comparison, voided: Judgment) -> str:
    void = JudgmentVoid.objects.filter(judgment=voided).first()
    if void is None:
        return "This judgment is not voided, so it cannot be restored."
    if Judgment.objects.filter(restores=voided).exists():
        return "This judgment has already been restored."
    standing = counts.standing(comparison.judgments.all())
    if voided.annotator is not None and standing.filter(annotator=voided.annotator).exists():
        return f"{voided.annotator} has judged this pair again. Void that judgment first."
    # An answer voided by hand keeps its place, so nobody else can have taken it.
    return "" if void.fate == Fate.VOIDED else _WHY_NOT.get(comparison.state, "")


@transaction.atomic
def void_annotator(*, experiment_id: int, annotator: User, by: User, reason: str) -> int:
    """Void everything that an annotator has judged in an experiment; returns how many judgments those are.

    It voids all of them or none.

    Raises
    ------
    WrongStateError
        The experiment has concluded.
    """
    experiment = locked_experiment(experiment_id)
    check_not_final(experiment)
    theirs = counts.standing_judgments(experiment_id).filter(annotator=annotator)
    # Lock all comparisons, in order, before any count: a click holds its comparison while it waits for its
    # count.
    comparisons = list(
        Comparison.objects.filter(pk__in=list(theirs.values_list("comparison_id", flat=True)))
        .select_for_update(no_key=True)
        .order_by("pk")
    )
    # Read again under the locks: the annotator may have taken one back meanwhile.
    judgments = list(theirs.filter(comparison__in=comparisons))
    checked = counts.standing(Judgment.objects.filter(assignment__experiment=experiment, annotator=annotator))
    # Their answers to checks too: alone in a list, they would show which pairs were checks.
    write_voids(
        judgments=[*judgments, *checked.exclude(assignment__kind=Assignment.Kind.PRACTICE)],
        by=by,
        reason=reason,
    )
    voided_in = {judgment.comparison_id for judgment in judgments}
    if settle(experiment, [each for each in comparisons if each.pk in voided_in]):
        outdate(experiment=experiment)
    if judgments:
        record(
            experiment=experiment,
            by=by,
            about=annotator,
            action=AuditEntry.Action.VOID,
            details={
                "count": len(judgments),
                "reason": f"all of {AuditEntry.PERSON}. {reason}",
                "judgments": [judgment.pk for judgment in judgments],
            },
        )
    return len(judgments)

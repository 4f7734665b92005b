"""Judgments, and what they count, until they are taken back. The comparison's row lock guards both."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import BigAutoField, F, FloatField, OuterRef, Q
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from engine.domain import about
from engine.domain.errors import LeaseLostError, WrongStateError
from engine.domain.outcomes import joint_outcome, outcome_of
from engine.models import (
    Comparison,
    Experiment,
    Judgment,
    JudgmentVoid,
    Lease,
    Membership,
    PairCount,
    Response,
    User,
)
from engine.selectors import counts
from engine.selectors.blinding import has_or_had
from engine.selectors.compiled import ANNOTATOR, EXPERIMENT, Given
from engine.services.compiled_writes import Update, Write, inserting, saving, write
from engine.services.leases import locked_lease, reopen
from engine.services.locks import locked_experiment
from engine.services.replaying import mark_stale

# Checks are refused in the same words, so that nobody can tell them from comparisons.
WAS_SKIPPED = gettext_lazy("You skipped that pair, so your answer to it was not counted.")
WENT_ON = gettext_lazy(
    "That pair was open for a long time and went to somebody else, so your answer was not counted."
)
NOT_OFFERED = gettext_lazy("This experiment does not offer that choice.")
VOID_ALREADY = gettext_lazy("This judgment was taken back already.")


@dataclass(frozen=True)
class Recorded:
    """A judgment that stands, whether this very call made it, and whether its pair was not reserved any more
    then.
    """

    judgment: Judgment
    created: bool
    late: bool


@transaction.atomic
def judge_leased(
    *,
    experiment_id: int,
    token: uuid.UUID,
    annotator: User,
    choice: str,
    comment: str = "",
    via: str = Judgment.Via.PAGE,
) -> Recorded:
    """Record an annotator's click on the pair shown under ``token``, exactly once.

    A repeated request returns the judgment of the first. A click after the lease ran out still counts as
    long as nobody else holds or has judged the pair. A click after a skip does not: the skip stands.

    Raises
    ------
    LeaseLostError, UnknownTokenError
    WrongStateError
        The experiment does not offer this choice.
    """
    lease = locked_lease(experiment_id, token, annotator)
    comparison = lease.comparison
    about.note(comparison=comparison.pk)
    # An active lease has led to no judgment yet, and there is no second one of the same pair.
    active = lease.state == Lease.State.ACTIVE
    if not active and (earlier := Judgment.objects.filter(token=token).first()) is not None:
        return Recorded(judgment=earlier, created=False, late=True)
    if lease.state == Lease.State.SKIPPED:
        raise LeaseLostError(WAS_SKIPPED)
    # Brought back by an editor: one person's judgment of a comparison counts once.
    if not active and counts.standing(comparison.judgments.filter(annotator=annotator)).exists():
        raise LeaseLostError(_("Your earlier answer to that pair stands, so this one was not counted."))
    held_by_other = not active and comparison.leases.filter(state=Lease.State.ACTIVE).exists()
    if held_by_other or comparison.state not in {Comparison.State.READY, Comparison.State.LEASED}:
        raise LeaseLostError(WENT_ON)
    if choice not in counts.choices(comparison.experiment):
        raise WrongStateError(NOT_OFFERED)
    lease.state = Lease.State.JUDGED
    judgment = record_judgment(
        comparison=comparison,
        choice=choice,
        judge=Experiment.Judge.HUMAN,
        via=via,
        annotator=annotator,
        token=token,
        shown_at=lease.granted_at,
        comment=comment,
        could_see_policies=annotator.is_superuser or lease.annotator_watches,
        besides=[saving(lease, "state")],
    )
    return Recorded(judgment=judgment, created=True, late=not active)


@transaction.atomic
def judge_ready(*, comparison_id: int, verdict: Callable[[Comparison], tuple[str, str]]) -> Judgment | None:
    """Let an automatic judge decide a ready comparison; ``None`` where it is not ready any more.

    ``verdict`` returns the choice and the reason for it.
    """
    comparison = (
        Comparison.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
        .select_related("response_i", "response_j", "task", "experiment")
        .filter(pk=comparison_id, state=Comparison.State.READY)
        .first()
    )
    if comparison is None:
        return None
    choice, reason = verdict(comparison)
    return record_judgment(
        comparison=comparison,
        choice=choice,
        judge=comparison.experiment.judge,
        via=Judgment.Via.RULE,
        reason=reason,
        token=uuid.uuid4(),
    )


def record_judgment(
    *,
    comparison: Comparison,
    choice: str,
    judge: str,
    via: str,
    token: uuid.UUID,
    annotator: User | None = None,
    reason: str = "",
    comment: str = "",
    shown_at: datetime | None = None,
    restores: Judgment | None = None,
    could_see_policies: bool = False,
    besides: Sequence[Write] = (),
) -> Judgment:
    """Write a judgment of a locked comparison, in the caller's transaction.

    With the last judgment that the experiment asks for, the comparison has its outcome and is counted. Before
    that it goes on to the next annotator.

    ``besides``: writes of other rows, to be executed with its own.
    """
    judgment = Judgment(
        comparison=comparison,
        judge=judge,
        via=via,
        annotator=annotator,
        token=token,
        choice=choice,
        outcome=outcome_of(choice, i_on_left=comparison.i_on_left),
        reason=reason,
        comment=comment,
        shown_at=shown_at,
        restores=restores,
        annotator_could_see_policies=could_see_policies,
    )
    experiment = comparison.experiment
    needed = counts.needed(experiment)
    outcomes = [judgment.outcome]
    if needed > 1:
        outcomes += counts.standing(comparison.judgments.all()).values_list("outcome", flat=True)
    has_outcome = len(outcomes) >= needed or via == Judgment.Via.IDENTICAL
    if has_outcome:
        comparison.outcome = joint_outcome(outcomes, experiment.overlap_rule)
        comparison.state = Comparison.State.JUDGED
        comparison.judged_at = judgment.created_at
    else:
        reopen(comparison)
    saved = saving(comparison, "state", "outcome", "judged_at", "discard_reason")
    writes = [*besides, inserting(judgment), saved]
    if has_outcome:
        _count(_ADDED, comparison, besides=writes, annotator=judgment.annotator_id)
    else:
        write(*writes)
    return judgment


_PAIR = PairCount.objects.filter(
    experiment=EXPERIMENT, policy_i=Given("i", BigAutoField()), policy_j=Given("j", BigAutoField())
)
_OUTCOME = Given("outcome", FloatField())
_ADDED = Update(
    _PAIR, wins_i=F("wins_i") + _OUTCOME, comparisons=F("comparisons") + 1, last_annotator=ANNOTATOR
)
_TAKEN_OFF = Update(_PAIR, wins_i=F("wins_i") - _OUTCOME, comparisons=F("comparisons") - 1)


def _count(
    change: Update, comparison: Comparison, *, besides: Sequence[Write] = (), **values: int | None
) -> None:
    counted = change.of(
        experiment=comparison.experiment_id,
        i=comparison.policy_i_id,
        j=comparison.policy_j_id,
        outcome=comparison.outcome,
        **values,
    )
    *_, changed = write(*besides, counted)
    if changed != 1:
        raise RuntimeError(f"{comparison} has {changed} pair counts instead of one; run rebuild_counts.")


def check_not_final(experiment: Experiment) -> None:
    """Refuse to change the judgments of a concluded experiment.

    Raises
    ------
    WrongStateError
    """
    if experiment.state == Experiment.State.CONCLUDED:
        raise WrongStateError(_("The experiment has concluded; its judgments are final."))


@transaction.atomic
def void_judgment(*, judgment_id: int, by: User, reason: str) -> JudgmentVoid:
    """Take a judgment back while its experiment runs: the pair is judged anew, and evidence that has seen the
    judgment is marked as stale.

    Raises
    ------
    WrongStateError
        The experiment has concluded, or the judgment is void already.
    """
    judged = Judgment.objects.filter(pk=judgment_id)
    experiment = locked_experiment(judged.values_list("comparison__experiment", flat=True).get())
    # Read under the experiment's lock, which every void takes.
    judgment = judged.select_related("comparison").select_for_update(no_key=True, of=("comparison",)).get()
    comparison = judgment.comparison
    check_not_final(experiment)
    if not judgment.standing:
        raise WrongStateError(VOID_ALREADY)
    [void] = write_voids(judgments=[judgment], by=by, reason=reason)
    hand_voided_back(comparison_ids=[comparison.pk], annotator_id=judgment.annotator_id)
    if comparison.outcome is None:
        return void
    _count(_TAKEN_OFF, comparison)
    take_outcomes_back([comparison])
    comparison.save(update_fields=["state", "discard_reason", "outcome", "judged_at"])
    # The voided outcome may have carried a peak of the evidence.
    mark_stale(experiment=experiment, changed_from=judgment.pk)
    return void


def hand_voided_back(*, comparison_ids: Collection[int], annotator_id: int | None) -> None:
    """Let an annotator be shown pairs again whose judgments by them are void, in the caller's transaction.

    Not if they may have looked meanwhile who wrote what.
    """
    Lease.objects.filter(
        ~Q(annotator__is_superuser=True),
        ~has_or_had(OuterRef("comparison__experiment"), OuterRef("annotator"), Membership.WATCHING),
        comparison__in=comparison_ids,
        annotator=annotator_id,
        state=Lease.State.JUDGED,
    ).update(state=Lease.State.RETURNED)


def take_outcomes_back(comparisons: Sequence[Comparison]) -> None:
    """Have comparisons judged anew, but for identical texts, and for past votes without texts to show. The
    caller locks and saves them.
    """
    past = [comparison.pk for comparison in comparisons if comparison.plan.get("past")]
    # Asked for past votes only: an undo takes as many queries as one of a check does.
    textless = set(
        Comparison.objects.filter(
            Q(response_i__state=Response.State.FAILED) | Q(response_j__state=Response.State.FAILED),
            pk__in=past,
        ).values_list("pk", flat=True)
        if past
        else ()
    )
    for comparison in comparisons:
        comparison.state, comparison.discard_reason = state_without_judgments(
            textless=comparison.pk in textless, identical=comparison.plan.get("identical", False)
        )
        comparison.outcome = comparison.judged_at = None


def state_without_judgments(*, textless: bool, identical: bool) -> tuple[Comparison.State, str]:
    """The state of a comparison whose judgments are all void, and the reason where it is discarded.

    ``textless``: a past vote that lacks the text of a response. ``identical``: both responses are one text.
    """
    if identical:
        return (
            Comparison.State.DISCARDED,
            "Both responses are the same text, so nobody can judge it anew.",
        )
    if textless:
        return Comparison.State.DISCARDED, "A past vote without texts, so nobody can judge it anew."
    return Comparison.State.READY, ""


def write_voids(*, judgments: Sequence[Judgment], by: User, reason: str) -> list[JudgmentVoid]:
    """Write that judgments are void, in the caller's transaction, which corrects the counts too."""
    voids = JudgmentVoid.objects.bulk_create(
        JudgmentVoid(judgment=judgment, by=by, reason=reason) for judgment in judgments
    )
    Judgment.objects.filter(pk__in=[judgment.pk for judgment in judgments]).update(standing=False)
    return voids


@transaction.atomic
def rebuild_counts(
    *, experiment_id: int
) -> dict[tuple[int, int], tuple[tuple[float, int], tuple[float, int]]]:
    """Recount every pair from the judgments that stand and mend what differs.

    Returns
    -------
    dict
        ``{(i, j): ((stored wins, stored count), (true wins, true count))}`` for the pairs that differed;
        empty where the counts were right.
    """
    experiment = locked_experiment(experiment_id)
    # A click writes its judgment and then waits for its pair's row. With all of these rows held, both tallies
    # show exactly the committed judgments.
    rows = {
        (row.policy_i.index, row.policy_j.index): row
        for row in PairCount.objects.filter(experiment=experiment)
        .select_for_update(no_key=True, of=("self",))
        .select_related("policy_i", "policy_j")
        .order_by("pk")
    }
    true = counts.counts_from_judgments(experiment)
    differences = {}
    for pair, row in rows.items():
        was, is_ = (row.wins_i, row.comparisons), true.get(pair, (0.0, 0))
        if was == is_:
            continue
        differences[pair] = (was, is_)
        row.wins_i, row.comparisons = is_
        row.save(update_fields=["wins_i", "comparisons"])
    return differences

"""Judgments, and what they count, until they are taken back. The comparison's row lock guards both."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from engine.domain import about
from engine.domain.errors import LeaseLostError, UnknownTokenError, WrongStateError
from engine.domain.outcomes import outcome_of
from engine.domain.showings import Fate, Phase, Showing, answered
from engine.domain.texts import is_blank
from engine.models import (
    Comparison,
    Experiment,
    Judgment,
    JudgmentVoid,
    Lease,
    PairCount,
    ShowingEvent,
    User,
)
from engine.selectors import counts
from engine.services.leases import end_without_answer, has_ended, lease_again, locked_lease
from engine.services.locks import locked_experiment
from engine.services.showings import FIELDS, become, begin, count, let_go, settle

# Checks are refused in the same words, so that nobody can tell them from comparisons.
WAS_SKIPPED = gettext_lazy("You skipped that pair, so your answer to it was not counted.")
ENDED = gettext_lazy("The experiment ended before your answer to that pair came, so it was not counted.")
NOT_OFFERED = gettext_lazy("This experiment does not offer that choice.")
WAS_VOIDED = "Its judgment was voided by hand."
VOID_ALREADY = gettext_lazy("This judgment was taken back already.")


@dataclass(frozen=True)
class Recorded:
    """A judgment, and whether this very call made it."""

    judgment: Judgment
    created: bool


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

    A repeated request returns the judgment of the first. A pair stays its annotator's, so a click counts
    however late it comes, unless the experiment has ended. A click after a skip does not: the skip stands.

    Raises
    ------
    LeaseLostError, UnknownTokenError
    WrongStateError
        The experiment does not offer this choice.
    """
    try:
        lease = locked_lease(experiment_id, token, annotator)
    except UnknownTokenError:
        # An answer that was taken back gave its lease another token.
        theirs = Judgment.objects.filter(comparison__experiment=experiment_id, annotator=annotator)
        if (taken_back := theirs.filter(token=token).first()) is None:
            raise
        return Recorded(judgment=taken_back, created=False)
    comparison = lease.comparison
    about.note(comparison=comparison.pk)
    if lease.state == Lease.State.SKIPPED:
        raise LeaseLostError(WAS_SKIPPED)
    if lease.state == Lease.State.JUDGED:
        if (earlier := Judgment.objects.filter(token=token).first()) is not None:
            return Recorded(judgment=earlier, created=False)
        # Brought back by an editor: one person's judgment of a comparison counts once.
        raise LeaseLostError(_("Your earlier answer to that pair stands, so this one was not counted."))
    if comparison.state not in {Comparison.State.READY, Comparison.State.LEASED} or has_ended(
        comparison.experiment, lease
    ):
        raise LeaseLostError(ENDED)
    if choice not in counts.choices(comparison.experiment):
        raise WrongStateError(NOT_OFFERED)
    lease.state = Lease.State.JUDGED
    lease.save(update_fields=["state"])
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
    )
    return Recorded(judgment=judgment, created=True)


@transaction.atomic
def judge_ready(*, comparison_id: int, verdict: Callable[[Comparison], tuple[str, str]]) -> Judgment | None:
    """Let an automatic judge decide a comparison; ``None`` if it is no longer ready.

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
    if is_blank(comparison.response_i.text) and is_blank(comparison.response_j.text):
        # A rule would find a tie, and two policies that say nothing would be good enough.
        let_go(comparison, "Neither response has any text.")
        return None
    choice, reason = verdict(comparison)
    if comparison.experiment.no_answer == Experiment.NoAnswer.LOSES:
        choice, reason = without_an_answer(comparison) or (choice, reason)
    return record_judgment(
        comparison=comparison,
        choice=choice,
        judge=comparison.experiment.judge,
        via=Judgment.Via.RULE,
        reason=reason,
        token=uuid.uuid4(),
    )


def without_an_answer(comparison: Comparison) -> tuple[str, str] | None:
    """The choice and its reason where one response is no answer and the other is one; else ``None``."""
    left, right = (is_blank(each.text) for each in (comparison.left, comparison.right))
    if left == right:
        return None
    return Judgment.Choice.RIGHT if left else Judgment.Choice.LEFT, "Only this response is an answer."


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
) -> Judgment:
    """Write a judgment of a locked comparison, in the caller's transaction.

    With the last judgment that the experiment asks for, the comparison has its outcome and is counted. The
    log of showings has both.
    """
    judgment = Judgment.objects.create(
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
    if via not in Judgment.UNSEEN and (counts.needed(comparison.experiment) > 1 or restores):
        settle(comparison, reason="", annotator=judgment.annotator_id)
        return judgment
    # One answer is all that it needs: the way of every click, without a further look at the tables.
    begun = begin(comparison)
    before = Showing(Phase(comparison.showing), None, comparison.least, comparison.most)
    [told] = become(comparison, answered(before, judgment.outcome))
    comparison.state = Comparison.State.JUDGED
    comparison.judged_at = judgment.created_at
    comparison.save(update_fields=FIELDS)
    ShowingEvent.objects.bulk_create([*begun, told])
    count(comparison, judgment.outcome, 1, annotator=judgment.annotator_id)
    return judgment


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
    """Void somebody's judgment by hand while its experiment runs.

    The person could see the outcome, so the proofs keep the answer. The estimates leave it out, and
    nobody judges the pair anew.

    Raises
    ------
    WrongStateError
        The experiment has concluded, or the judgment is void already.
    """
    return _void(judgment_id, by, reason, Fate.VOIDED)


@transaction.atomic
def take_back_judgment(*, judgment_id: int, annotator: User, watches: bool) -> Lease | None:
    """Void a judgment for its own ``annotator``, and open its pair for them again. Before their next answer
    it was a slip.

    ``None`` for somebody who ``watches``, and may have looked meanwhile who wrote what: their pair has then
    ended without an answer.

    Raises
    ------
    WrongStateError
        The experiment has concluded, or the judgment is void already.
    """
    judgment = Judgment.objects.get(pk=judgment_id)
    later = Judgment.objects.filter(
        annotator=annotator, comparison__experiment=judgment.comparison.experiment_id, pk__gt=judgment_id
    )
    fate = Fate.TAKEN_BACK if watches or later.exists() else Fate.SLIP
    void = _void(judgment_id, annotator, "Taken back by the annotator", fate)
    comparison = void.judgment.comparison
    lease = comparison.leases.select_for_update(no_key=True, of=("self",)).get(annotator=annotator)
    lease.comparison = comparison
    if watches:
        end_without_answer(lease)
        return None
    return lease_again(lease=lease)


def _void(judgment_id: int, by: User, reason: str, fate: Fate) -> JudgmentVoid:
    judged = Judgment.objects.filter(pk=judgment_id)
    experiment = locked_experiment(judged.values_list("comparison__experiment", flat=True).get())
    # Read under the experiment's lock, which every void takes.
    judgment = judged.select_related("comparison").select_for_update(no_key=True, of=("comparison",)).get()
    check_not_final(experiment)
    if not judgment.standing:
        raise WrongStateError(VOID_ALREADY)
    [void] = write_voids(judgments=[judgment], by=by, reason=reason, fate=fate)
    judgment.comparison.experiment = experiment
    settle(judgment.comparison, reason=WAS_VOIDED)
    return void


def write_voids(
    *, judgments: Sequence[Judgment], by: User, reason: str, fate: Fate = Fate.VOIDED
) -> list[JudgmentVoid]:
    """Write that judgments are void, in the caller's transaction, which settles their comparisons too."""
    voids = JudgmentVoid.objects.bulk_create(
        JudgmentVoid(judgment=judgment, by=by, reason=reason, fate=fate) for judgment in judgments
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

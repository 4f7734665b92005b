"""Judgments, and what takes them back. An answer of a person is only stored: the planner settles it."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from engine.domain import log_context
from engine.domain.errors import AssignmentLostError, UnknownTokenError, WrongStateError
from engine.domain.further_questions import read_questions, stored
from engine.domain.outcome_of_answers import outcome_of
from engine.domain.showings import Fate
from engine.domain.texts import is_blank
from engine.models import (
    Assignment,
    Comparison,
    Experiment,
    Flag,
    Judgment,
    JudgmentVoid,
    PairCount,
    User,
)
from engine.selectors import counts
from engine.services.assignments import (
    end_without_answer,
    has_ended,
    locked,
    open_again,
)
from engine.services.locks import locked_experiment
from engine.services.showings import let_go, settle, settle_assignments


@dataclass(frozen=True)
class Recorded:
    """A judgment of an assignment, and whether this very call made it."""

    judgment: Judgment
    assignment: Assignment | None
    created: bool


@transaction.atomic
def record_answer(
    *,
    experiment_id: int,
    token: uuid.UUID,
    annotator: User,
    choice: str,
    comment: str = "",
    in_view: str = "",
    further: Mapping[str, Any] = MappingProxyType({}),
    via: str = Judgment.Via.PAGE,
) -> Recorded:
    """Record an annotator's answer to the pair shown under ``token``, exactly once.

    A repeated request returns the judgment of the first. A pair stays its annotator's, so a click counts
    however late it comes, unless the experiment has ended. A click after a skip does not: the skip stands.

    Raises
    ------
    AssignmentLostError, UnknownTokenError
    WrongStateError
        The experiment does not offer this choice.
    SpecError
        The experiment has no such further question, or this is no answer to it.
    """
    try:
        assignment = locked(experiment_id, token, annotator)
    except UnknownTokenError:
        # An answer that was taken back gave its assignment another token.
        theirs = Judgment.objects.filter(counts.in_experiment(experiment_id), annotator=annotator)
        if (taken_back := theirs.filter(token=token).first()) is None:
            raise
        return Recorded(taken_back, None, created=False)
    if assignment.comparison_id:
        log_context.note(comparison=assignment.comparison_id)
    if assignment.state == Assignment.State.SKIPPED:
        raise AssignmentLostError(_("You skipped that pair, so your answer to it was not counted."))
    if assignment.state == Assignment.State.JUDGED:
        if (earlier := Judgment.objects.filter(token=token).first()) is not None:
            return Recorded(earlier, assignment, created=False)
        # Brought back by an editor: one person's judgment of a comparison counts once.
        raise AssignmentLostError(_("Your earlier answer to that pair stands, so this one was not counted."))
    if has_ended(assignment):
        raise AssignmentLostError(
            _("The experiment ended before your answer to that pair came, so it was not counted.")
        )
    if choice not in counts.choices(assignment.experiment):
        raise WrongStateError(_("This experiment does not offer that choice."))
    more = ""
    if further:
        more = stored(read_questions(assignment.experiment.further_questions), further)
    assignment.state, assignment.settled = Assignment.State.JUDGED, False
    # The first answer says how well somebody judges: an undo must not pass a check.
    if assignment.expected and assignment.passed is None:
        assignment.passed = choice == assignment.expected
    assignment.save(update_fields=["state", "settled", "passed"])
    comparison = assignment.comparison
    judgment = _judgment(
        comparison=comparison,
        assignment=None if comparison else assignment,
        i_on_left=comparison.i_on_left if comparison else True,
        choice=choice,
        judge=Experiment.Judge.HUMAN,
        via=via,
        annotator=annotator,
        token=token,
        shown_at=assignment.granted_at,
        comment=comment,
        in_view=in_view,
        further=more,
        could_see_policies=annotator.is_superuser or assignment.annotator_watches,
    )
    return Recorded(judgment, assignment, created=True)


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
    in_view: str = "",
    further: str = "",
    shown_at: datetime | None = None,
    restores: Judgment | None = None,
    could_see_policies: bool = False,
) -> Judgment:
    """Write a judgment of a locked comparison, in the caller's transaction.

    With the last judgment that the experiment asks for, the comparison has its outcome and is counted. The
    log of showings has both.
    """
    judgment = _judgment(
        comparison=comparison,
        i_on_left=comparison.i_on_left,
        choice=choice,
        judge=judge,
        via=via,
        annotator=annotator,
        token=token,
        reason=reason,
        comment=comment,
        in_view=in_view,
        further=further,
        shown_at=shown_at,
        restores=restores,
        could_see_policies=could_see_policies,
    )
    settle(comparison.experiment, [comparison])
    return judgment


def _judgment(*, choice: str, i_on_left: bool, could_see_policies: bool, **fields: Any) -> Judgment:
    return Judgment.objects.create(
        choice=choice,
        outcome=outcome_of(choice, i_on_left=i_on_left),
        annotator_could_see_policies=could_see_policies,
        **fields,
    )


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
    judged = Judgment.objects.filter(pk=judgment_id)
    experiment = locked_experiment(judged.values_list("comparison__experiment", flat=True).get())
    void = _void(experiment, judged, by, reason, Fate.VOIDED)
    comparison = Comparison.objects.select_for_update(no_key=True).get(judgments=judgment_id)
    settle(experiment, [comparison])
    void.judgment.comparison = comparison
    return void


@transaction.atomic
def take_back_judgment(*, judgment_id: int, annotator: User, watches: bool) -> Assignment | None:
    """Void a judgment for its own ``annotator``, and open its pair for them again. Before their next answer
    it was a slip.

    ``None`` for somebody who ``watches``, and may have looked meanwhile who wrote what: their pair has then
    ended without an answer.

    Raises
    ------
    WrongStateError
        The experiment has concluded, or the judgment is void already.
    """
    judged = Judgment.objects.filter(pk=judgment_id)
    judgment = judged.get()
    theirs = Assignment.objects.filter(
        Q(pk=judgment.assignment_id) if judgment.assignment_id else Q(comparison=judgment.comparison_id),
        annotator=annotator,
    )
    experiment = locked_experiment(theirs.values_list("experiment", flat=True).get())
    assignment = theirs.select_for_update(no_key=True, of=("self",)).get()
    assignment.experiment = experiment
    later = Judgment.objects.filter(
        counts.in_experiment(experiment.pk), annotator=annotator, pk__gt=judgment_id
    )
    fate = Fate.TAKEN_BACK if watches or later.exists() else Fate.SLIP
    _void(experiment, judged, annotator, "Taken back by the annotator", fate)
    if watches:
        end_without_answer(assignment)
        return None
    return open_again(assignment)


@transaction.atomic
def take_back_skip(*, skipped: Assignment, watches: bool) -> Assignment:
    """Open a pair again for the annotator who skipped it. Until they answer it, it is as if they had not.

    Raises
    ------
    WrongStateError
        The experiment has concluded, the skip was taken back already, or the annotator ``watches``: they may
        have looked meanwhile who wrote what.
    """
    experiment = locked_experiment(skipped.experiment_id)
    check_not_final(experiment)
    assignment = Assignment.objects.select_for_update(no_key=True).get(pk=skipped.pk)
    flags = Flag.objects.filter(
        Q(assignment=assignment) | Q(comparison=assignment.comparison_id, comparison__isnull=False),
        annotator=assignment.annotator_id,
    )
    if watches or assignment.token != skipped.token or not flags.delete()[0]:
        raise WrongStateError(_("That pair is not shown again: it counts as no answer."))
    return open_again(assignment)


def _void(
    experiment: Experiment, judged: QuerySet[Judgment], by: User, reason: str, fate: Fate
) -> JudgmentVoid:
    """Void a judgment of a locked experiment."""
    # Read under the experiment's lock, which every void takes.
    judgment = judged.get()
    check_not_final(experiment)
    if not judgment.standing:
        raise WrongStateError(_("This judgment was taken back already."))
    [void] = write_voids(judgments=[judgment], by=by, reason=reason, fate=fate)
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
    settle_assignments(experiment=experiment)
    # A machine's judgment waits for its pair's row. With all of these rows held, both tallies show exactly
    # the committed judgments.
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

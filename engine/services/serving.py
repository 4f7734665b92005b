"""What an annotator sees: one pair of texts under one token, whether it is a comparison or a check."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from django.db import transaction
from django.utils.translation import gettext

from engine.domain.errors import UnknownTokenError
from engine.models import Check, Experiment, Flag, Judgment, Lease, User
from engine.services import allowances, checks, judging
from engine.services.checks import expected_choice
from engine.services.costs import same_cost

# Statements that each of these takes at most, a comparison or a check: both are filled up to it.
_SHOWING = 9
_ANSWERING = 11
_SKIPPING = 12
_FLAGGING = 21
_TAKING_BACK = 30
_RETURNING = 5
_RETURNING_EACH = 3
_SCREEN = 4  # a page holds no more pairs than that


@dataclass(frozen=True)
class ShownPair:
    """A pair as the page may know it: nothing here says which policy wrote what, nor whether it is a check."""

    token: uuid.UUID
    prompt: str
    left: str
    right: str
    practice: bool = False


@dataclass(frozen=True)
class Answered:
    """What became of an answer."""

    created: bool
    feedback: str = ""


def show_next(
    *, experiment: Experiment, annotator: User, besides: Collection[uuid.UUID] = ()
) -> ShownPair | None:
    """The next pair for this annotator, other than those on their screen already; ``None`` where none is ready."""
    if not checks.are_used(experiment):
        lease = judging.lease_next(experiment_id=experiment.pk, annotator=annotator, besides=besides)
        return None if lease is None else _of_comparison(lease)
    with same_cost(_SHOWING), transaction.atomic(savepoint=False):
        room = allowances.locked_room(experiment_id=experiment.pk, annotator=annotator)
        unanswered = checks.unanswered_checks(experiment=experiment, annotator=annotator)
        waiting = [check for check in unanswered if check.token not in besides]
        held = judging.held_leases(experiment_id=experiment.pk, annotator=annotator)
        lease = judging.renewed(held, besides=besides)
        check = next(filter(checks.is_held, waiting), None)
        found: Lease | Check | None = lease
        if check is not None and (lease is None or check.shown_at < lease.granted_at):
            found = checks.hold(check)
        elif lease is None and experiment.state == Experiment.State.RUNNING and len(held) < room:
            on_screen = len(waiting) < len(unanswered)
            found = _next(experiment, annotator, waiting, besides, on_screen=on_screen)
        return None if found is None else _shown(found)


def _next(
    experiment: Experiment,
    annotator: User,
    waiting: list[Check],
    besides: Collection[uuid.UUID],
    *,
    on_screen: bool,
) -> Lease | Check | None:
    """A pair that the annotator does not hold: one that they handed back before a new one.

    ``on_screen``: a check is on the annotator's screen, so that there is no second one.
    """
    for check in filter(checks.has_rested, waiting):
        if not checks.give_up_if_lost(check):
            return checks.hold(check)
    seen = checks.seen_by(experiment=experiment, annotator=annotator)
    if not on_screen:
        practice = checks.practice_due(experiment=experiment, annotator=annotator, seen=seen)
        if practice is not None:
            return practice

    def instead() -> Check | None:
        # Asked where a comparison is ready only: else a pair that had to be waited for would be no check.
        return None if on_screen else checks.check_due(experiment=experiment, annotator=annotator, seen=seen)

    return judging.new_lease(
        experiment_id=experiment.pk, annotator=annotator, besides=besides, instead=instead
    )


def answer(
    *,
    experiment_id: int,
    token: uuid.UUID,
    annotator: User,
    choice: str,
    comment: str = "",
    via: str = Judgment.Via.PAGE,
) -> Answered:
    """Record an answer to whatever was shown under ``token``, exactly once.

    ``via``: whether the annotator answered on the page or through the API.

    Raises
    ------
    LeaseLostError, UnknownTokenError, WrongStateError
        See :func:`engine.services.judging.judge_leased`.
    """
    with same_cost(_ANSWERING) as cost:
        try:
            recorded = judging.judge_leased(
                experiment_id=experiment_id,
                token=token,
                annotator=annotator,
                choice=choice,
                comment=comment,
                via=via,
            )
        except UnknownTokenError:
            checked = checks.answer_check(
                experiment_id=experiment_id, token=token, annotator=annotator, choice=choice, comment=comment
            )
            if checked is None:
                raise
            return Answered(created=checked.created, feedback=_feedback(checked.check))
        if recorded.created and not checks.are_used(recorded.judgment.comparison.experiment):
            cost.statements = 0
        return Answered(created=recorded.created)


def flag(*, experiment_id: int, token: uuid.UUID, annotator: User, reason: str, comment: str = "") -> None:
    """Hand a pair back with a word about what is wrong with it. A check that is flagged is just skipped."""
    with same_cost(_FLAGGING), transaction.atomic():
        lease = Lease.objects.filter(
            token=token, annotator=annotator, comparison__experiment_id=experiment_id
        ).first()
        if lease is not None:
            Flag.objects.update_or_create(
                comparison_id=lease.comparison_id,
                annotator=annotator,
                defaults={"reason": reason, "comment": comment},
            )
        skip(experiment_id=experiment_id, token=token, annotator=annotator)


def skip(*, experiment_id: int, token: uuid.UUID, annotator: User) -> None:
    """Hand a pair back for somebody else. A check that is skipped is over."""
    with same_cost(_SKIPPING):
        checked = checks.answer_check(
            experiment_id=experiment_id, token=token, annotator=annotator, choice=Check.SKIPPED
        )
        if checked is None:
            judging.skip(experiment_id=experiment_id, token=token, annotator=annotator)


def renew(*, annotator: User, tokens: Collection[uuid.UUID]) -> None:
    """Keep the pairs of an open page reserved. Says nothing of how many are: a check must not differ."""
    judging.renew_leases(annotator=annotator, tokens=tokens)
    checks.renew_checks(annotator=annotator, tokens=tokens)


def hand_back(*, annotator: User, tokens: Collection[uuid.UUID] | None = None) -> None:
    """End the reservations of a page that was closed, or all of the annotator's."""
    with same_cost(_RETURNING + _RETURNING_EACH * min(len(tokens or ()), _SCREEN)):
        judging.return_leases(annotator=annotator, tokens=tokens)
        checks.return_checks(annotator=annotator, tokens=tokens)


@transaction.atomic
def take_back(
    *, experiment: Experiment, answer: Judgment | Check, annotator: User, besides: Collection[uuid.UUID] = ()
) -> ShownPair | None:
    """Void one of the annotator's own answers, to a comparison or to a check, and show its pair again.

    ``None`` where a colleague is looking at the pair now; the answer is void all the same. ``besides``: the pairs
    that wait behind the one on the screen.

    Raises
    ------
    WrongStateError
        The annotator has no undo left now, or see :func:`engine.services.judging.void_judgment`.
    """
    with same_cost(_TAKING_BACK):
        allowances.spend_undo(experiment_id=experiment.pk, annotator=annotator)
        if isinstance(answer, Check):
            judging.make_room(experiment_id=experiment.pk, annotator=annotator, besides=besides)
            return _of_check(checks.take_back_check(check_id=answer.pk))
        void = judging.void_judgment(
            judgment_id=answer.pk, by=annotator, reason="Taken back by the annotator"
        )
        lease = judging.lease_again(
            comparison_id=void.judgment.comparison_id, annotator=annotator, besides=besides
        )
        return None if lease is None else _of_comparison(lease)


def _shown(found: Lease | Check) -> ShownPair:
    return _of_check(found) if isinstance(found, Check) else _of_comparison(found)


def _of_comparison(lease: Lease) -> ShownPair:
    comparison = lease.comparison
    return ShownPair(
        token=lease.token,
        prompt=comparison.task.prompt,
        left=comparison.left.text,
        right=comparison.right.text,
    )


def _of_check(check: Check) -> ShownPair:
    prompt, left, right = check.texts
    return ShownPair(
        token=check.token,
        prompt=prompt,
        left=left,
        right=right,
        practice=check.kind == Check.Kind.PRACTICE,
    )


def _feedback(check: Check) -> str:
    """Practice tells what was right; a gold item or a repeat must not give itself away."""
    if check.kind != Check.Kind.PRACTICE:
        return ""
    better = gettext("A") if expected_choice(check) == Judgment.Choice.LEFT else gettext("B")
    verdict = (
        gettext("Right.") if check.passed else gettext("Here %(side)s is the better one.") % {"side": better}
    )
    explanation = check.gold.explanation if check.gold else ""
    return f"{verdict} {explanation}".strip()

"""The pair shown to an annotator: texts under one token, from a comparison or a check."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from django.db import transaction
from django.utils.translation import gettext

from engine.domain.conversations import Message
from engine.domain.errors import LeaseLostError, UnknownTokenError
from engine.models import Check, Experiment, Flag, Judgment, Lease, User
from engine.services import allowances, checks, judging, leases
from engine.services.checks import Seen, expected_choice
from engine.services.constant_cost import same_cost
from engine.services.leases import ReadyComparison

# Statements that each of these takes at most, a comparison or a check: both are filled up to it.
_SHOWING = 8
_SHOWING_AFTER_ONE_WAS_HANDED_BACK = 21
_ANSWERING = 11
_ANSWERING_LATE_OR_AS_ONE_OF_SEVERAL = 13
_SKIPPING = 13
_FLAGGING = 22
_TAKING_BACK = 23
_TAKING_BACK_AND_MAKING_ROOM = 31
_RETURNING = 6
_RETURNING_EACH = 3


@dataclass(frozen=True)
class ShownPair:
    """A pair as the page may know it: nothing tells which policy wrote what, or whether it is a check."""

    token: uuid.UUID
    prompt: str
    messages: tuple[Message, ...]
    left: str
    right: str
    practice: bool = False


@dataclass(frozen=True)
class Answered:
    """The result of an answer. ``counts``: this very call added one to the answers of the annotator."""

    created: bool
    counts: bool
    feedback: str = ""


def show_next(
    *, experiment: Experiment, annotator: User, besides: Collection[uuid.UUID] = ()
) -> ShownPair | None:
    """The next pair for this annotator, other than those on their screen already; ``None`` where none is
    ready.

    After the conclusion none is shown again, though one that is on a screen may still be answered.
    """
    if experiment.state == Experiment.State.CONCLUDED:
        return None
    if not checks.are_used(experiment):
        lease = leases.lease_next(experiment_id=experiment.pk, annotator=annotator, besides=besides)
        return None if lease is None else _of_comparison(lease)
    with transaction.atomic(savepoint=False):
        # The first look makes the row, which takes as long before a comparison as before a check.
        allowances.locked(experiment_id=experiment.pk, annotator=annotator)
        with same_cost(_SHOWING) as cost:
            unanswered = checks.unanswered_checks(experiment=experiment, annotator=annotator)
            held = _held(experiment, annotator, unanswered)
            for pair in held:
                if pair.token not in besides and (found := _renewed(pair)) is not None:
                    return _shown(found)
            if experiment.state != Experiment.State.RUNNING or len(held) >= allowances.MOST_HELD:
                return None
            if any(isinstance(pair, Check) and pair.kind == Check.Kind.PRACTICE for pair in held):
                # One learns from the answer to it, so that comes before the next pair.
                return None
            seen = checks.seen_by(experiment=experiment, annotator=annotator)
            if seen.handed_back:
                cost.statements = _SHOWING_AFTER_ONE_WAS_HANDED_BACK
            due = _due(experiment, annotator, seen=seen, unanswered=unanswered, besides=besides)
            return None if due is None else _shown(due)


def may_have_next(*, experiment: Experiment, annotator: User) -> bool:
    """``False`` if nothing is there for an annotator whose page waits for a pair: `show_next` is spared."""
    # A check may be due where no comparison is.
    return checks.are_used(experiment) or leases.has_next(experiment_id=experiment.pk, annotator=annotator)


def _held(experiment: Experiment, annotator: User, unanswered: list[Check]) -> list[Lease | Check]:
    """The pairs that an annotator holds, whatever they are, in the order in which they were shown first."""
    pairs = leases.held_leases(experiment_id=experiment.pk, annotator=annotator)
    held: list[Lease | Check] = [*pairs, *filter(checks.is_held, unanswered)]
    return sorted(held, key=lambda pair: pair.created_at)


def _renewed(pair: Lease | Check) -> Lease | Check | None:
    """A pair that is held, for longer; ``None`` where it was handed back meanwhile."""
    return checks.renew(pair) if isinstance(pair, Check) else leases.renew(pair)


def _due(
    experiment: Experiment,
    annotator: User,
    *,
    seen: Seen,
    unanswered: list[Check],
    besides: Collection[uuid.UUID],
) -> Lease | Check | None:
    """A pair that the annotator does not hold: one that they handed back, the first one first, before a new
    one.
    """
    handed_back = checks.resumable(check for check in unanswered if check.token not in besides)
    if handed_back is None:
        practice = checks.practice_due(experiment=experiment, annotator=annotator, seen=seen)
        if practice is not None:
            return practice

    def instead(comparison: ReadyComparison) -> Check | None:
        # Asked where a comparison is ready only: else a pair that had to be waited for would be no check.
        if handed_back is not None:
            first = comparison.had_since is None or handed_back.created_at < comparison.had_since
            return checks.resume(handed_back) if first else None
        if comparison.had_since is not None:
            return None
        # Also where a check is held already. If one never followed another, an annotator who recognised a
        # check would know the next pair for a comparison.
        return checks.check_due(experiment=experiment, annotator=annotator, seen=seen, instead_of=comparison)

    due = leases.new_lease(experiment_id=experiment.pk, annotator=annotator, besides=besides, instead=instead)
    # One that was handed back is there even where no comparison is.
    return checks.resume(handed_back) if due is None and handed_back is not None else due


def answer(
    *,
    experiment_id: int,
    token: uuid.UUID,
    annotator: User,
    choice: str,
    comment: str = "",
    via: str = Judgment.Via.PAGE,
) -> Answered:
    """Record an answer to the pair shown under ``token``, exactly once.

    ``via``: whether the annotator answered on the page or through the API.

    Raises
    ------
    LeaseLostError, UnknownTokenError, WrongStateError
        See :func:`engine.services.judging.judge_leased`.
    """
    with same_cost(_ANSWERING_LATE_OR_AS_ONE_OF_SEVERAL) as cost:
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
            check, created = checked.check, checked.created
            if created and check.reserved and check.experiment.overlap == 1:
                cost.statements = _ANSWERING
            if not created:
                _refuse_another(check.choice, check.voided_at is None, choice)
            counts = created and check.passed is not None and check.kind != Check.Kind.PRACTICE
            return Answered(created, counts, feedback=_feedback(check))
        asked_of = recorded.judgment.comparison.experiment
        if recorded.created and not recorded.late and asked_of.overlap == 1:
            cost.statements = _ANSWERING
        if recorded.created and not checks.are_used(asked_of):
            cost.statements = 0
        if not recorded.created:
            _refuse_another(recorded.judgment.choice, recorded.judgment.standing, choice)
        return Answered(recorded.created, counts=recorded.created)


def _refuse_another(given: str, stands: bool, choice: str) -> None:
    """A request that is repeated is answered like the first. Another answer, as from another tab, is not
    dropped without a word.
    """
    if not stands:
        raise LeaseLostError(
            gettext("Your answer to that pair was taken back, so this one was not counted. Answer it anew.")
        )
    if given != choice:
        raise LeaseLostError(
            gettext("You had answered that pair already. That answer stands; this one was not counted.")
        )


def flag(
    *, experiment: Experiment, token: uuid.UUID, annotator: User, reason: str, comment: str = ""
) -> None:
    """Hand a pair back with a word about what is wrong with it. A check that is flagged is just skipped."""
    with same_cost(_FLAGGING if checks.are_used(experiment) else 0), transaction.atomic():
        lease = Lease.objects.filter(
            token=token, annotator=annotator, comparison__experiment=experiment
        ).first()
        if lease is not None:
            Flag.objects.update_or_create(
                comparison_id=lease.comparison_id,
                annotator=annotator,
                defaults={"reason": reason, "comment": comment},
            )
        skip(experiment=experiment, token=token, annotator=annotator)


def skip(*, experiment: Experiment, token: uuid.UUID, annotator: User) -> None:
    """Hand a pair back for somebody else. A check that is skipped is over.

    Raises
    ------
    UnknownTokenError
    """
    with same_cost(_SKIPPING if checks.are_used(experiment) else 0):
        try:
            leases.skip(experiment_id=experiment.pk, token=token, annotator=annotator)
        except UnknownTokenError:
            checked = checks.answer_check(
                experiment_id=experiment.pk, token=token, annotator=annotator, choice=Check.SKIPPED
            )
            if checked is None:
                raise


def renew(*, annotator: User, tokens: Collection[uuid.UUID]) -> None:
    """Keep the pairs of an open page reserved. Says nothing of how many are: a check must not differ."""
    leases.renew_leases(annotator=annotator, tokens=tokens)
    checks.renew_checks(annotator=annotator, tokens=tokens)


def hand_back(*, annotator: User, tokens: Collection[uuid.UUID] | None = None) -> None:
    """End the reservations of a page that was closed, or all of the annotator's."""
    with same_cost(_RETURNING) as cost:
        n_pairs = _n_held(annotator) if tokens is None else len(tokens)
        cost.statements += _RETURNING_EACH * n_pairs
        leases.return_leases(annotator=annotator, tokens=tokens)
        checks.return_checks(annotator=annotator, tokens=tokens)


def _n_held(annotator: User) -> int:
    """The number of pairs that somebody holds in all experiments together."""
    leases = Lease.objects.filter(annotator=annotator, state=Lease.State.ACTIVE)
    held = Check.objects.filter(annotator=annotator, choice="", reserved=True)
    return leases.values("pk").union(held.values("pk"), all=True).count()


def hand_back_expired() -> None:
    """End the reservations of annotators who went away."""
    leases.expire_leases()
    checks.expire_checks()


@transaction.atomic
def take_back(
    *, experiment: Experiment, answer: Judgment | Check, annotator: User, besides: Collection[uuid.UUID] = ()
) -> ShownPair | None:
    """Void one of the annotator's own answers, to a comparison or to a check, and show its pair again.

    ``None`` where a colleague is looking at the pair now; the answer is void all the same. ``besides``: the
    pairs that wait behind the one on the screen. Where the annotator holds as many as they may, one of the
    others goes back.

    Raises
    ------
    WrongStateError
        The annotator has no undo left now, or see :func:`engine.services.judging.void_judgment`.
    """
    checked = checks.are_used(experiment)
    with same_cost(_TAKING_BACK if checked else 0) as cost:
        allowances.spend_undo(experiment_id=experiment.pk, annotator=annotator)
        again: Lease | Check | None
        if isinstance(answer, Check):
            again = checks.take_back_check(check_id=answer.pk)
            if not again.reserved:
                return None
        else:
            void = judging.take_back_judgment(judgment_id=answer.pk)
            again = leases.lease_again(comparison_id=void.judgment.comparison_id, annotator=annotator)
            if again is None:
                return None
        if _make_room(experiment, annotator, again.token, besides) and checked:
            cost.statements = _TAKING_BACK_AND_MAKING_ROOM
        return _shown(again)


def _make_room(
    experiment: Experiment, annotator: User, shown: uuid.UUID, besides: Collection[uuid.UUID]
) -> bool:
    """Hand pairs back until the annotator holds no more than they may, the one that is ``shown`` now among
    them. Returns whether any had to go.

    Those that wait on the screen (``besides``) go before the one that was on show, the last before the first.
    """
    unanswered = []
    if checks.are_used(experiment):
        unanswered = checks.unanswered_checks(experiment=experiment, annotator=annotator)
    others = [pair for pair in _held(experiment, annotator, unanswered) if pair.token != shown]
    places = {token: place for place, token in enumerate(besides, 1)}
    others.sort(key=lambda pair: (places.get(pair.token, 0), pair.created_at))
    if over := [pair.token for pair in others[allowances.MOST_HELD - 1 :]]:
        leases.return_leases(annotator=annotator, tokens=over)
        checks.return_checks(annotator=annotator, tokens=over)
    return bool(over)


def _shown(found: Lease | Check) -> ShownPair:
    return _of_check(found) if isinstance(found, Check) else _of_comparison(found)


def _of_comparison(lease: Lease) -> ShownPair:
    comparison = lease.comparison
    return ShownPair(
        token=lease.token,
        prompt=comparison.task.prompt,
        messages=comparison.task.turns,
        left=comparison.left.text,
        right=comparison.right.text,
    )


def _of_check(check: Check) -> ShownPair:
    task, left, right = check.shown
    return ShownPair(
        token=check.token,
        prompt=task.prompt,
        messages=task.turns,
        left=left,
        right=right,
        practice=check.kind == Check.Kind.PRACTICE,
    )


def _feedback(check: Check) -> str:
    """Practice tells what was right; a gold item or a repeat must not give itself away."""
    if check.kind != Check.Kind.PRACTICE:
        return ""
    better = gettext("A") if expected_choice(check) == Judgment.Choice.LEFT else gettext("B")
    # It is shown above the next pair, and must not read as the answer to that one.
    verdict = (
        gettext("The last practice pair: right.")
        if check.passed
        else gettext("In the last practice pair, %(side)s was the better one.") % {"side": better}
    )
    explanation = check.gold.explanation if check.gold else ""
    return f"{verdict} {explanation}".strip()

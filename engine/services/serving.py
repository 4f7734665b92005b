"""The pair shown to an annotator: texts under one token, from a comparison or a check."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from django.db import transaction
from django.utils.translation import gettext

from engine.domain.conversations import Message
from engine.domain.errors import LeaseLostError, UnknownTokenError
from engine.models import Allowance, Check, Experiment, Judgment, Lease, Membership, User
from engine.selectors import admission
from engine.selectors.admission import Gold
from engine.selectors.blinding import has_or_had
from engine.selectors.missing import is_capped
from engine.services import allowances, checks, judging, leases
from engine.services.checks import expected_choice
from engine.services.constant_cost import same_cost

# Statements that each of these takes at most, a comparison or a check: both are filled up to it.
_GIVING = 8
_SHOWING = 4
_ANSWERING = 11
_ANSWERING_AS_ONE_OF_SEVERAL = 13
_SKIPPING = 20
_TAKING_BACK = 23


@dataclass(frozen=True)
class ShownPair:
    """A pair as the page may know it: nothing tells which policy wrote what, or whether it is a check."""

    token: uuid.UUID
    prompt: str
    messages: tuple[Message, ...]
    left: str
    right: str
    practice: bool = False
    left_thinking: str = ""
    right_thinking: str = ""

    @property
    def has_thinking(self) -> bool:
        """True if there is thinking to show: of both responses, as one alone would stand out."""
        return bool(self.left_thinking or self.right_thinking)


@dataclass(frozen=True)
class Answered:
    """The result of an answer. ``counts``: this very call added one to the answers of the annotator."""

    created: bool
    counts: bool
    feedback: str = ""


class Ended(Enum):
    """Why somebody gets no more pairs: they left too many, or failed gold items."""

    NOT = auto()
    LEFT = auto()
    GOLD = auto()


@dataclass(frozen=True)
class Desk:
    """The pairs that are open for an annotator, in the order in which they were given.

    Attributes
    ----------
    ended
        Why the annotator gets no more pairs, for good or until they answer the open ones; see
        :class:`Ended`.
    asks_before_skip
        True for somebody who has left many: the page asks before it skips another one.
    """

    pairs: Sequence[Lease | Check]
    ended: Ended = Ended.NOT
    asks_before_skip: bool = False

    def behind(self, token: uuid.UUID | None) -> Sequence[Lease | Check]:
        """The pairs behind this one; all of them if it is not open."""
        return self.pairs[_place_behind(self.pairs, token) :]

    def without(self, token: uuid.UUID) -> Desk:
        """It without a pair that was answered meanwhile."""
        return replace(self, pairs=[pair for pair in self.pairs if pair.token != token])


def desk(*, experiment: Experiment, annotator: User, n_wanted: int, after: uuid.UUID | None = None) -> Desk:
    """The open pairs of an annotator, and new ones until there are ``n_wanted``, as far as any are ready.
    ``after``: until there are so many behind this one, if it is open.

    What somebody was given stays theirs and comes first, from any tab, device or program. Nobody is given
    more than `allowances.MOST_HELD`. After the conclusion nothing is shown again, though a pair on a
    screen may still be answered.

    Whoever records an answer asks for its next pairs before: were they chosen after it, they could tell what
    the answered pair was.
    """
    if experiment.state == Experiment.State.CONCLUDED:
        return Desk([])
    checked = checks.are_used(experiment)
    with transaction.atomic(savepoint=False):
        allowance = allowances.locked(experiment_id=experiment.pk, annotator=annotator)
        held: list[Lease | Check] = [*leases.held(experiment_id=experiment.pk, annotator=annotator)]
        if checked:
            held += checks.held(experiment=experiment, annotator=annotator)
            held.sort(key=lambda pair: pair.created_at)
        n_left = allowances.n_left(allowance, held)
        ended = Ended.LEFT if is_capped(n_left, allowance.shown) else Ended.NOT
        wanted = admission.n_admission(experiment)
        gold = admission.gold_of(experiment, annotator.pk) if checked else Gold()
        if gold.fails(wanted):
            ended = Ended.GOLD
        n_wanted += _place_behind(held, after)
        while ended is Ended.NOT and len(held) < min(n_wanted, allowances.MOST_HELD):
            with same_cost(_GIVING if checked else 0):
                new = _given(experiment, annotator, allowance, held, wanted)
            if new is None:
                break
            held.append(new)
    return Desk(held, ended, allowances.asks_before_skip(n_left, allowance.shown))


def _place_behind(pairs: Sequence[Lease | Check], token: uuid.UUID | None) -> int:
    """The place behind the pair of a token; the first one if there is no such pair."""
    return next((place for place, pair in enumerate(pairs, 1) if pair.token == token), 0)


def _given(
    experiment: Experiment,
    annotator: User,
    allowance: Allowance,
    held: Sequence[Lease | Check],
    n_admission: int,
) -> Lease | Check | None:
    """A new pair of an annotator who may have another one; ``None`` where none is ready."""
    if not checks.are_used(experiment):
        return leases.new_lease(experiment=experiment, annotator=annotator, allowance=allowance)
    if experiment.state != Experiment.State.RUNNING:
        return None
    if any(isinstance(pair, Check) and pair.kind == Check.Kind.PRACTICE for pair in held):
        # One learns from the answer to it, so that comes before the next pair.
        return None
    n_shown = allowance.shown
    gold = admission.gold_of(experiment, annotator.pk)
    new: Lease | Check | None = checks.first_ones_due(
        experiment=experiment, annotator=annotator, gold=gold, n_admission=n_admission, n_shown=n_shown
    )
    # Nothing that counts is given before all admission items are answered.
    if new is None and not gold.admission_open:
        # A check comes where a comparison is ready only: else a pair that was waited for would be no check.
        new = leases.new_lease(
            experiment=experiment,
            annotator=annotator,
            allowance=allowance,
            instead=lambda: checks.check_due(experiment=experiment, annotator=annotator, n_shown=n_shown),
        )
    if isinstance(new, Check):
        allowance.shown += 1
        allowance.save(update_fields=["shown"])
    return new


def shown(experiment: Experiment, pairs: Sequence[Lease | Check]) -> list[ShownPair]:
    """These pairs of a :class:`Desk` with their texts, as far as they are still open. Their annotator is here
    from now on.
    """
    # Those that are new have them already.
    others = [pair for pair in pairs if not _has_texts(pair)]
    with same_cost(_SHOWING if others and checks.are_used(experiment) else 0):
        there: list[Lease | Check] = [
            *leases.come_for([pair for pair in others if isinstance(pair, Lease)]),
            *checks.come_for([pair for pair in others if isinstance(pair, Check)]),
        ]
    found = {pair.token: _shown(experiment, pair) for pair in (*filter(_has_texts, pairs), *there)}
    return [found[pair.token] for pair in pairs if pair.token in found]


def _has_texts(pair: Lease | Check) -> bool:
    return not {"comparison", "gold", "repeated"}.isdisjoint(pair._state.fields_cache)


def show_next(*, experiment: Experiment, annotator: User) -> ShownPair | None:
    """The pair for this annotator to answer now; ``None`` where none is ready."""
    pairs = desk(experiment=experiment, annotator=annotator, n_wanted=1).pairs
    return next(iter(shown(experiment, pairs[:1])), None)


def may_have_next(*, experiment: Experiment, annotator: User) -> bool:
    """``False`` if nothing is there for an annotator whose page waits for a pair: the look is spared."""
    # A check may be due where no comparison is.
    return checks.are_used(experiment) or leases.has_next(experiment_id=experiment.pk, annotator=annotator)


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
    with same_cost(_ANSWERING_AS_ONE_OF_SEVERAL) as cost:
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
            if created and check.experiment.overlap == 1:
                cost.statements = _ANSWERING
            if not created:
                _refuse_another(check.choice, check.voided_at is None, choice)
            counts = created and check.kind != Check.Kind.PRACTICE
            return Answered(created, counts, feedback=_feedback(check))
        asked_of = recorded.judgment.comparison.experiment
        if recorded.created and asked_of.overlap == 1:
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
        raise LeaseLostError(gettext("Your answer to that pair was taken back, so this one was not counted."))
    if given != choice:
        raise LeaseLostError(
            gettext("You had answered that pair already. That answer stands; this one was not counted.")
        )


def skip(
    *, experiment: Experiment, token: uuid.UUID, annotator: User, reason: str, comment: str = ""
) -> None:
    """End a pair for its annotator without an answer: nobody gives one in their place. Skipping twice is
    skipping once.

    Raises
    ------
    UnknownTokenError
    """
    with same_cost(_SKIPPING if checks.are_used(experiment) else 0), transaction.atomic():
        allowance = allowances.locked(experiment_id=experiment.pk, annotator=annotator)
        try:
            skipped = leases.skip(
                experiment_id=experiment.pk, token=token, annotator=annotator, reason=reason, comment=comment
            )
        except UnknownTokenError:
            checked = checks.answer_check(
                experiment_id=experiment.pk,
                token=token,
                annotator=annotator,
                choice=Check.SKIPPED,
                comment=comment,
            )
            if checked is None:
                raise
            skipped = checked.created
        if skipped:
            allowance.skipped += 1
            allowance.save(update_fields=["skipped"])


@transaction.atomic(savepoint=False)
def stay(*, experiment: Experiment, annotator: User) -> None:
    """Note that an annotator's page is open. Says nothing of their pairs: a check must not differ."""
    leases.stay(experiment_id=experiment.pk, annotator=annotator)
    checks.stay(experiment_id=experiment.pk, annotator=annotator)


@transaction.atomic(savepoint=False)
def leave(*, annotator: User, experiment_id: int | None = None) -> None:
    """Note that an annotator left an experiment, or all. Their pairs wait for them, and nobody waits for
    these.
    """
    leases.leave(annotator=annotator, experiment_id=experiment_id)
    checks.leave(annotator=annotator, experiment_id=experiment_id)


@transaction.atomic
def take_back(*, experiment: Experiment, answer: Judgment | Check, annotator: User) -> ShownPair | None:
    """Void one of the annotator's own answers, to a comparison or to a check, and open its pair again, before
    all that they were given later.

    ``None`` where the annotator may see who wrote what: their pair has then ended without an answer.

    Raises
    ------
    WrongStateError
        The annotator has no undo left now, or see :func:`engine.services.judging.take_back_judgment`.
    """
    with same_cost(_TAKING_BACK if checks.are_used(experiment) else 0):
        allowance = allowances.spend_undo(experiment_id=experiment.pk, annotator=annotator)
        roles = has_or_had(experiment.pk, annotator.pk, Membership.WATCHING)
        watches = annotator.is_superuser or User.objects.filter(roles, pk=annotator.pk).exists()
        again: Lease | Check | None
        if isinstance(answer, Check):
            again = checks.take_back_check(check_id=answer.pk, watches=watches)
        else:
            again = judging.take_back_judgment(judgment_id=answer.pk, annotator=annotator, watches=watches)
        if again is None:
            allowance.skipped += 1
            allowance.save(update_fields=["skipped"])
            return None
        return _shown(experiment, again)


def _shown(experiment: Experiment, found: Lease | Check) -> ShownPair:
    shown = _of_check(found) if isinstance(found, Check) else _of_comparison(found)
    if experiment.shown_thinking == Experiment.ShownThinking.BOTH:
        return shown
    return replace(shown, left_thinking="", right_thinking="")


def _of_comparison(lease: Lease) -> ShownPair:
    comparison = lease.comparison
    return ShownPair(
        token=lease.token,
        prompt=comparison.task.prompt,
        messages=comparison.task.turns,
        left=comparison.left.text,
        right=comparison.right.text,
        left_thinking=comparison.left.thinking,
        right_thinking=comparison.right.thinking,
    )


def _of_check(check: Check) -> ShownPair:
    task, left, right = check.shown
    left_thinking = right_thinking = ""
    if check.repeated is not None:
        # Sides are swapped.
        repeated = check.repeated.comparison
        left_thinking, right_thinking = repeated.right.thinking, repeated.left.thinking
    return ShownPair(
        token=check.token,
        prompt=task.prompt,
        messages=task.turns,
        left=left,
        right=right,
        practice=check.kind == Check.Kind.PRACTICE,
        left_thinking=left_thinking,
        right_thinking=right_thinking,
    )


def _feedback(check: Check) -> str:
    """Practice shows the right answer; a gold item or a repeat must not reveal itself."""
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

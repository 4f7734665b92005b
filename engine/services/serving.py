"""The pairs shown to an annotator: texts under a token, whatever their kind."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.utils.translation import gettext

from engine.domain.conversations import Message
from engine.domain.errors import AssignmentLostError
from engine.models import Assignment, Experiment, Judgment, Membership, User
from engine.selectors import admission
from engine.selectors.blinding import has_or_had
from engine.selectors.missing import is_capped
from engine.services import assignments, checks, judging, undos_and_skips


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
    """Why somebody gets no more pairs: they were given all that are theirs, left too many, or failed gold
    items.
    """

    NOT = auto()
    GIVEN = auto()
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

    pairs: Sequence[Assignment]
    ended: Ended = Ended.NOT
    asks_before_skip: bool = False

    def behind(self, token: uuid.UUID | None) -> Sequence[Assignment]:
        """The pairs behind this one; all of them if it is not open."""
        return self.pairs[_place_behind(self.pairs, token) :]

    def without(self, token: uuid.UUID) -> Desk:
        """It without a pair that was answered meanwhile."""
        return replace(self, pairs=[pair for pair in self.pairs if pair.token != token])


def desk(*, experiment: Experiment, annotator: User, n_wanted: int, after: uuid.UUID | None = None) -> Desk:
    """The open pairs of an annotator, and new ones until there are ``n_wanted``, as far as any are ready.
    ``after``: until there are so many behind this one, if it is open.

    What somebody was given stays theirs and comes first, from any tab, device or program. Nobody is given
    more than `undos_and_skips.MOST_HELD`. After the conclusion nothing is shown again, though a pair on a
    screen may still be answered.

    Whoever records an answer asks for its next pairs before: were they chosen after it, they could tell what
    the answered pair was.
    """
    if experiment.state == Experiment.State.CONCLUDED:
        return Desk([])
    checked = checks.are_used(experiment)
    with transaction.atomic(savepoint=False):
        allowance = undos_and_skips.locked(experiment_id=experiment.pk, annotator=annotator)
        held = assignments.held(experiment_id=experiment.pk, annotator=annotator)
        n_left = undos_and_skips.n_left(allowance, held)
        ended = Ended.LEFT if is_capped(n_left, allowance.shown) else Ended.NOT
        if checked and admission.gold_of(experiment, annotator.pk).fails(admission.n_admission(experiment)):
            ended = Ended.GOLD
        n_wanted += _place_behind(held, after)
        n_wanted = min(n_wanted, undos_and_skips.MOST_HELD)
        while ended is Ended.NOT and len(held) < n_wanted and not allowance.is_used_up:
            new = assignments.reserve(experiment=experiment, annotator=annotator, allowance=allowance)
            if new is None:
                break
            held.append(new)
        if ended is Ended.NOT and allowance.is_used_up:
            ended = Ended.GIVEN
    asks = allowance.shown >= undos_and_skips.ASKED_FROM_SHOWN
    return Desk(held, ended, asks and n_left > undos_and_skips.ASKED_BEYOND * allowance.shown)


def _place_behind(pairs: Sequence[Assignment], token: uuid.UUID | None) -> int:
    """The place behind the pair of a token; the first one if there is no such pair."""
    return next((place for place, pair in enumerate(pairs, 1) if pair.token == token), 0)


def shown(experiment: Experiment, pairs: Sequence[Assignment]) -> list[ShownPair]:
    """These pairs of a :class:`Desk` with their texts, as far as they are still open. Their annotator is here
    from now on.
    """
    found = {pair.token: _shown(experiment, pair) for pair in assignments.come_for(pairs)}
    return [found[pair.token] for pair in pairs if pair.token in found]


def show_next(*, experiment: Experiment, annotator: User) -> ShownPair | None:
    """The pair for this annotator to answer now; ``None`` where none is ready."""
    pairs = desk(experiment=experiment, annotator=annotator, n_wanted=1).pairs
    return next(iter(shown(experiment, pairs[:1])), None)


def may_have_next(*, experiment: Experiment, annotator: User) -> bool:
    """``False`` if nothing is there for an annotator whose page waits for a pair: the look is spared."""
    # A check may be due where no comparison is.
    return checks.are_used(experiment) or assignments.has_next(experiment=experiment, annotator=annotator)


def answer(
    *,
    experiment_id: int,
    token: uuid.UUID,
    annotator: User,
    choice: str,
    comment: str = "",
    in_view: str = "",
    further: Mapping[str, Any] = MappingProxyType({}),
    via: str = Judgment.Via.PAGE,
) -> Answered:
    """Record an answer to the pair shown under ``token``, exactly once.

    ``via``: whether the annotator answered on the page or through the API.

    Raises
    ------
    AssignmentLostError, UnknownTokenError, WrongStateError, SpecError
        See :func:`engine.services.judging.record_answer`.
    """
    recorded = judging.record_answer(
        experiment_id=experiment_id,
        token=token,
        annotator=annotator,
        choice=choice,
        comment=comment,
        in_view=in_view,
        further=further,
        via=via,
    )
    given, answered = recorded.judgment, recorded.assignment
    if not given.standing:
        raise AssignmentLostError(
            gettext("Your answer to that pair was taken back, so this one was not counted.")
        )
    # A request that is repeated is answered like the first. Another answer, as from another tab, is not
    # dropped without a word.
    if given.choice != choice:
        raise AssignmentLostError(
            gettext("You had answered that pair already. That answer stands; this one was not counted.")
        )
    practice = answered is not None and answered.kind == Assignment.Kind.PRACTICE
    return Answered(
        recorded.created,
        counts=recorded.created and not practice,
        feedback=_feedback(answered) if answered and practice else "",
    )


@transaction.atomic
def skip(
    *, experiment: Experiment, token: uuid.UUID, annotator: User, reason: str, comment: str = ""
) -> None:
    """End a pair for its annotator without an answer: nobody gives one in their place. Skipping twice is
    skipping once.

    Raises
    ------
    UnknownTokenError
    """
    allowance = undos_and_skips.locked(experiment_id=experiment.pk, annotator=annotator)
    if assignments.skip(
        experiment_id=experiment.pk, token=token, annotator=annotator, reason=reason, comment=comment
    ):
        allowance.skipped += 1
        allowance.save(update_fields=["skipped"])


@transaction.atomic
def take_back(*, experiment: Experiment, answer: Judgment | Assignment, annotator: User) -> ShownPair | None:
    """Void one of the annotator's own answers, or undo their skip of a pair, and open the pair again, before
    all that they were given later.

    ``None`` where the annotator may see who wrote what: their pair has then ended without an answer.

    Raises
    ------
    WrongStateError
        The annotator has no undo left now, or see :func:`engine.services.judging.take_back_judgment`.
    """
    allowance = undos_and_skips.spend_undo(experiment_id=experiment.pk, annotator=annotator)
    roles = has_or_had(experiment.pk, annotator.pk, Membership.WATCHING)
    watches = annotator.is_superuser or User.objects.filter(roles, pk=annotator.pk).exists()
    if isinstance(answer, Assignment):
        shown = judging.take_back_skip(skipped=answer, watches=watches)
        allowance.skipped -= 1
        allowance.save(update_fields=["skipped"])
        return _shown(experiment, shown)
    again = judging.take_back_judgment(judgment_id=answer.pk, annotator=annotator, watches=watches)
    if again is None:
        allowance.skipped += 1
        allowance.save(update_fields=["skipped"])
        return None
    return _shown(experiment, again)


def _shown(experiment: Experiment, pair: Assignment) -> ShownPair:
    task, (left, right), thinking = pair.shown
    if experiment.shown_thinking != Experiment.ShownThinking.BOTH:
        thinking = ("", "")
    return ShownPair(
        token=pair.token,
        prompt=task.prompt,
        messages=task.turns,
        left=left,
        right=right,
        practice=pair.kind == Assignment.Kind.PRACTICE,
        left_thinking=thinking[0],
        right_thinking=thinking[1],
    )


def _feedback(practice: Assignment) -> str:
    """The right answer to a practice pair; a gold item or a repeat must not reveal itself."""
    better = gettext("A") if practice.expected == Judgment.Choice.LEFT else gettext("B")
    # It is shown above the next pair, and must not read as the answer to that one.
    verdict = (
        gettext("The last practice pair: right.")
        if practice.passed
        else gettext("In the last practice pair, %(side)s was the better one.") % {"side": better}
    )
    explanation = practice.gold.explanation if practice.gold else ""
    return f"{verdict} {explanation}".strip()

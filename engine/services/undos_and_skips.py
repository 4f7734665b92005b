"""Allowances of one annotator in one experiment: pairs to hold, pairs to leave, and answers to take back."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Case, F, Q, When
from django.utils.translation import ngettext

from engine.domain.errors import WrongStateError
from engine.models import Allowance, Assignment, User, clock
from engine.selectors.answers import answers_given
from engine.selectors.missing import hold
from engine.selectors.pairs_ahead import PRESENCE

# The pair on show, one that came back by an undo, and four that are fetched ahead or whose answers are on
# their way. A quick person on a slow connection (0.8 s) answers four before a reply comes. More would keep
# pairs from others, or let somebody choose among them.
MOST_HELD = 6

# A token bucket. A slip is noticed within a few answers, so ten undos in a row are plenty, and one in five
# answers later. Without a limit, somebody could answer both ways and watch what follows from each.
UNDOS_IN_A_ROW = 10
ANSWERS_PER_UNDO = 5

# Beyond this share of at least so many pairs, the page asks before a skip.
ASKED_FROM_SHOWN, ASKED_BEYOND = 20, 0.05

# Half of the time for which somebody counts as being here.
_WAITING_NOTED = PRESENCE / 2


def presence_end() -> datetime:
    """Until when somebody who is seen now counts as being here."""
    return clock.now() + timedelta(seconds=settings.ASSIGNMENT_SECONDS)


def arrival() -> dict[str, Any]:
    """The update of pairs whose annotator looks at them now."""
    since = Case(When(expires_at__lt=clock.now(), then=clock.now()), default=F("granted_at"))
    return {"expires_at": presence_end(), "granted_at": since}


def n_left(allowance: Allowance, held: Collection[Assignment]) -> int:
    """The number of pairs that somebody skipped, or left open for longer than a `hold`.

    ``held``: their open pairs.
    """
    return allowance.skipped + sum(pair.created_at < clock.now() - hold() for pair in held)


def locked(*, experiment_id: int, annotator: User) -> Allowance:
    """The annotator's row, locked: their requests run one after another."""
    allowance, _ = Allowance.objects.select_for_update(no_key=True).get_or_create(
        experiment_id=experiment_id,
        annotator=annotator,
        defaults={"undo_credit": UNDOS_IN_A_ROW * ANSWERS_PER_UNDO},
    )
    return allowance


def limit_answers(*, experiment_id: int, annotator: User, most: int | None) -> None:
    """Give somebody at most so many pairs to answer."""
    allowance = locked(experiment_id=experiment_id, annotator=annotator)
    allowance.most_answers = most
    allowance.save(update_fields=["most_answers"])


def note_waiting(*, experiment_id: int, annotator: User) -> bool:
    """Note that an annotator asked and got no pair, at most every half minute. ``True`` if it is news to
    the planner, who counts them among those who are here.
    """
    now = clock.now()
    theirs = Allowance.objects.filter(experiment=experiment_id, annotator=annotator)
    not_lately = theirs.filter(Q(waited_at=None) | Q(waited_at__lt=now - _WAITING_NOTED))
    return bool(not_lately.update(waited_at=now))


def spend_undo(*, experiment_id: int, annotator: User) -> Allowance:
    """Take one undo off the annotator's allowance, in the caller's transaction.

    The allowance starts with `UNDOS_IN_A_ROW` undos and never holds more. An undo costs one, and
    `ANSWERS_PER_UNDO` answers earn one. Checks are answers too, as they must not stand out.

    Raises
    ------
    WrongStateError
        None is left; the message says after how many answers there is one.
    """
    allowance = locked(experiment_id=experiment_id, annotator=annotator)
    answers = answers_given(experiment_id, annotator)
    earned = allowance.undo_credit + answers - allowance.answers
    credit = min(earned, UNDOS_IN_A_ROW * ANSWERS_PER_UNDO)
    if credit < ANSWERS_PER_UNDO:
        missing = ANSWERS_PER_UNDO - credit
        message = ngettext(
            "After %(n)d more answer you can take back another one.",
            "After %(n)d more answers you can take back another one.",
            missing,
        )
        raise WrongStateError(message % {"n": missing})
    allowance.undo_credit, allowance.answers = credit - ANSWERS_PER_UNDO, answers
    allowance.save(update_fields=["undo_credit", "answers"])
    return allowance

"""The time that somebody takes for a pair."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

# Characters a second. A thousand words a minute: nobody reads so fast, and few skim so fast.
FASTEST_READING = 100
# 250 words a minute.
_USUAL_READING = 25


def time_taken(
    shown_at: datetime | None, answered_at: datetime, *, answered_before: datetime | None
) -> timedelta | None:
    """The time for one answer; ``None`` where it is not known when its pair was handed out.

    A page holds the next pairs already. The time for one of them begins with the answer to the one before it.
    Else somebody who holds six pairs seems six times as slow as they are.

    ``answered_before``: when the same person gave the answer before this one.
    """
    if shown_at is None:
        return None
    if answered_before is not None and answered_before <= answered_at:
        shown_at = max(shown_at, answered_before)
    return answered_at - shown_at


def times_taken(answers: Iterable[tuple[datetime | None, datetime]]) -> Iterator[timedelta | None]:
    """The time for each answer of one person, in the order of the answers; ``None`` as in `time_taken`.

    ``answers``: when the pair was handed out, and when it was answered.
    """
    answered_before = None
    for shown_at, answered_at in answers:
        yield time_taken(shown_at, answered_at, answered_before=answered_before)
        answered_before = answered_at


def reading_time(taken: timedelta, characters: int) -> timedelta:
    """The time for an answer whose texts were read: where it is too short for that, the usual one."""
    too_fast = characters / FASTEST_READING > taken.total_seconds()
    return timedelta(seconds=characters / _USUAL_READING) if too_fast else taken

"""The time that somebody takes for a pair."""

from __future__ import annotations

from datetime import datetime, timedelta


def time_taken(
    shown_at: datetime | None, answered_at: datetime, *, answered_before: datetime | None
) -> timedelta | None:
    """The time for one answer; ``None`` where it is not known when its pair was handed out.

    A page holds the next pairs already. The time for one of them begins with the answer to the one before
    it: else somebody who holds six pairs seems six times as slow as they are.

    ``answered_before``: when the same person gave the answer before this one.
    """
    if shown_at is None:
        return None
    if answered_before is not None and answered_before <= answered_at:
        shown_at = max(shown_at, answered_before)
    return answered_at - shown_at

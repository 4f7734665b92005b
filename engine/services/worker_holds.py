"""The one protocol by which workers take work from the database.

A worker *takes* rows by a conditional UPDATE that writes a random number, the claim, and a deadline. It
*renews* the deadline while it works. Every later change that it makes names the claim. A row that somebody
else has taken, or that was given back meanwhile, does not match any more. So a late result is refused. A
holder that dies stops renewing, and its rows are *expired*: any worker that finds them may take them or give
them back. A deadline that has passed takes nothing away as long as nobody else has come.
"""

import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from django.db.models import Q, QuerySet

from engine.models import clock
from engine.models.worker_holds import Claimable, overdue

C = TypeVar("C", bound=Claimable)

# The fields of a row that nobody has claimed, for code that cannot end a claim by `release`.
NOBODY = {"claim": None, "claim_expires_at": None}
# A long computation renews its claim, and asks whether it is still wanted, at most this often.
_KEEP_SECONDS = 1.0


class StoppedError(Exception):
    """The worker was told to stop. It returns its rows."""


class ClaimLostError(Exception):
    """Somebody else has taken the row, or it was given back."""


def free(rows: QuerySet[C]) -> QuerySet[C]:
    """The rows that may be taken: nobody holds them, or their holder has passed the deadline."""
    return rows.filter(Q(claim__isnull=True) | overdue())


def take(
    rows: QuerySet[C], *, seconds: float, by: str = "", joining: uuid.UUID | None = None, **changes: Any
) -> uuid.UUID:
    """Claim those of ``rows`` that are free, in one UPDATE; :func:`held` returns which these were.

    Parameters
    ----------
    rows : QuerySet
        Filtered by fields of the row itself only. The database looks at these again once it has the row. At a
        joined table it would not, and two workers could get the same row.
    seconds : float
        Until the deadline, unless the claim is renewed.
    by : str
        The worker's name.
    joining : UUID
        A claim that this worker holds already: the rows are added to it.
    changes
        Other fields to write with the claim.

    Returns
    -------
    UUID
        The claim. It holds nothing where nothing was free.

    Raises
    ------
    ValueError
        ``rows`` is filtered by another table.
    """
    wanted = free(rows)
    if wanted.query.count_active_tables() > 1:
        raise ValueError(
            "Rows are claimed by fields of their own: look up the ids first, then filter by pk__in."
        )
    claim = joining or uuid.uuid4()
    wanted.update(claim=claim, claimed_by=by, claim_expires_at=_deadline(seconds), **changes)
    return claim


def held(rows: QuerySet[C], claim: uuid.UUID | None) -> QuerySet[C]:
    """The rows that this claim holds. ``None`` holds nothing."""
    return rows.none() if claim is None else rows.filter(claim=claim)


def renew(rows: QuerySet[C], claim: uuid.UUID, *, seconds: float) -> int:
    """Extend the deadline, since the holder is still at work. Returns how many rows the claim still holds."""
    return held(rows, claim).update(claim_expires_at=_deadline(seconds))


def release(rows: QuerySet[C], **changes: Any) -> int:
    """End the claim on ``rows``, which are :func:`held` or :func:`expired`, and write ``changes``; returns
    how many there were.

    0 says that the result came too late and was refused.
    """
    return rows.update(**NOBODY, **changes)


def expired(rows: QuerySet[C], *, begun_anew: str = "") -> QuerySet[C]:
    """The rows with a holder that has let the deadline pass: it died, or is very late.

    ``begun_anew``: a worker that has just started, so an earlier process of its name is gone.
    """
    dead = overdue() | Q(claimed_by=begun_anew) if begun_anew else overdue()
    return rows.filter(dead, claim__isnull=False)


def keeper(
    rows: QuerySet[C],
    claim: uuid.UUID,
    *,
    seconds: float,
    tick: Callable[[], None] = lambda: None,
) -> Callable[[], None]:
    """A function for a long computation to call again and again; it renews the claim every second or so.

    Parameters
    ----------
    rows, claim, seconds
        As for :func:`renew`.
    tick
        Called each time, first; what it raises interrupts the computation.

    Raises
    ------
    ClaimLostError
        Raised by the returned function: the claim is lost.
    """
    renewed_at = time.monotonic()

    def keep() -> None:
        nonlocal renewed_at
        tick()
        if time.monotonic() - renewed_at < _KEEP_SECONDS:
            return
        renewed_at = time.monotonic()
        if not renew(rows, claim, seconds=seconds):
            raise ClaimLostError

    return keep


def _deadline(seconds: float) -> Any:
    return clock.now() + timedelta(seconds=seconds)

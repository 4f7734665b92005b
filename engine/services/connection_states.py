"""Pauses a connection whose server does not answer, as long as the server says or ever longer.

The row is the state, so that all workers and pages see the same. A connection that has paused is tried with
one request before more follow.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from engine.domain.replies import Fault
from engine.domain.texts import storable
from engine.models import Connection, clock
from engine.selectors.pauses import TROUBLED

# One hung or broken request says nothing about the server; so many in a row do.
_PATIENCE = 3
_LONGEST_SECONDS = {Fault.BUSY: 120.0, Fault.SERVER: 120.0, Fault.ACCESS: 600.0}
_FIRST_SECONDS = {Fault.BUSY: 2.0, Fault.SERVER: 2.0, Fault.ACCESS: 30.0}
# A server may ask for an hour; a date in the next year is a mistake.
_LONGEST_WISH_SECONDS = 6 * 3600.0


# A connection with these is asked at once.
WORKS: dict[str, Any] = {"waits_until": None, "failures": 0, "trouble": "", "said": ""}


def note_success(connection: Connection) -> None:
    """The server answered: the connection works."""
    if connection.failures or connection.waits_until is not None:
        _change(connection, **WORKS)


def note_failure(
    connection: Connection, fault: Fault, *, reason: str, said: str = "", wait_seconds: float | None = None
) -> None:
    """The server did not answer, by the server's fault or for want of access.

    Without a wish of the server's a pause grows with each failure after it. Failures of requests that were
    under way when it paused say nothing new.
    """
    now = clock.now()
    paused = connection.waits_until is not None and connection.waits_until > now
    if paused and (wait_seconds is None or fault == Fault.ACCESS):
        return
    failures = connection.failures + (not paused)
    if fault == Fault.ACCESS:
        # No second request is needed to know it.
        failures = max(failures, TROUBLED)
    n_pauses = failures - (TROUBLED if fault == Fault.ACCESS else _PATIENCE)
    if wait_seconds is not None:
        seconds = min(wait_seconds, _LONGEST_WISH_SECONDS)
    elif n_pauses < 0:
        _change(connection, failures=failures)
        return
    else:
        seconds = min(_FIRST_SECONDS[fault] * 2.0 ** min(n_pauses, 20), _LONGEST_SECONDS[fault])
    until = now + timedelta(seconds=seconds)
    if connection.waits_until is not None:
        until = max(until, connection.waits_until)
    _change(connection, failures=failures, waits_until=until, trouble=storable(reason), said=storable(said))


def _change(connection: Connection, **changes: Any) -> None:
    Connection.objects.filter(pk=connection.pk).update(**changes)
    for name, value in changes.items():
        setattr(connection, name, value)

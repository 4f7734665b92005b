"""The state of a connection: its pauses and its tests.

A connection whose server does not answer pauses as long as the server says, or ever longer.
The row is the state, so that all workers and pages see the same. A connection that has paused is tried with
one request before more follow.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db import transaction

from engine.domain.replies import Fault, Usage
from engine.domain.texts import storable
from engine.models import Charge, Connection, clock
from engine.selectors.connection_pauses import TROUBLED
from engine.services import charges

# One hung or broken request says nothing about the server; so many in a row do.
_PATIENCE = 3
_LONGEST_SECONDS = {Fault.BUSY: 120.0, Fault.SERVER: 120.0, Fault.ACCESS: 600.0}
_FIRST_SECONDS = {Fault.BUSY: 2.0, Fault.SERVER: 2.0, Fault.ACCESS: 30.0}
# A server may ask for an hour; a date in the next year is a mistake.
_LONGEST_WISH_SECONDS = 6 * 3600.0
# A worker that has not answered a test for so long may have died.
_BETWEEN_TESTS = timedelta(seconds=150)
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


def ask_test(*, connection_id: int) -> bool:
    """Note that a test was asked for. False if one is under way; otherwise the caller wakes a worker."""
    rows = Connection.objects.filter(pk=connection_id, retired_at=None)
    recent = clock.now() - _BETWEEN_TESTS
    return bool(rows.exclude(test={}, test_asked_at__gt=recent).update(test={}, test_asked_at=clock.now()))


@transaction.atomic
def note_test(*, connection_id: int, test: dict[str, Any], usages: Iterable[Usage] = ()) -> None:
    """Store a test's result and cost. After a successful one the connection is asked again at once."""
    name = Connection.objects.values_list("name", flat=True).get(pk=connection_id)
    cost = charges.book(charges.Spent(name, usage, Charge.Purpose.TEST) for usage in usages)
    fields: dict[str, Any] = {"test": test | {"cost": str(cost)}}
    if test["works"]:
        fields |= WORKS
    Connection.objects.filter(pk=connection_id).update(**fields)


def _change(connection: Connection, **changes: Any) -> None:
    Connection.objects.filter(pk=connection.pk).update(**changes)
    for name, value in changes.items():
        setattr(connection, name, value)

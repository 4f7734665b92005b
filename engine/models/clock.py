"""The clock of the whole installation: the database's.

Assignments, claims and signs of life are written on one machine and read on another. The clocks of these
machines may be minutes apart, so nothing in the engine asks its own machine what time it is.
"""

import time
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

# In between, this machine's monotonic clock counts, which nobody sets.
_LOOK_AGAIN_SECONDS = 60.0

# The database's time when this process last asked for it, and the monotonic time at that moment.
_seen: tuple[datetime, float] | None = None


def now() -> datetime:
    """The database's time, aware of its zone. It costs a process one query a minute.

    With SQLite all processes share one machine, so its clock will do.

    Raises
    ------
    django.db.Error
        The database cannot be asked.
    """
    global _seen  # noqa: PLW0603 - one reading for all threads of the process
    if connection.vendor == "sqlite":
        return timezone.now()
    seen = _seen
    if seen is None or time.monotonic() - seen[1] > _LOOK_AGAIN_SECONDS:
        seen = _seen = _look()
    return seen[0] + timedelta(seconds=time.monotonic() - seen[1])


def _look() -> tuple[datetime, float]:
    connection.ensure_connection()
    # Past Django: the wrappers around its cursors count what a request costs, which is the same each time.
    with connection.wrap_database_errors, connection.connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (at,) = cursor.fetchone()
    return at, time.monotonic()

"""Django's ``migrate``, one at a time for a database, which tries again if somebody holds a table."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from django.core.management.commands import migrate
from django.db import OperationalError, connections

# PostgreSQL's code.
LOCK_NOT_AVAILABLE = "55P03"


# The number of the advisory lock: the bytes of "migr".
_LOCK = 0x6D696772
_LOOK_AGAIN_SECONDS = 0.5


class Command(migrate.Command):
    # It waits two seconds for a table, and everybody else waits behind it. Then it pauses for these.
    again_after_seconds = 5.0

    def handle(self, *args: Any, **options: Any) -> None:
        with _alone(options["database"]):
            self._migrate(*args, **options)

    def _migrate(self, *args: Any, **options: Any) -> None:
        while True:
            try:
                super().handle(*args, **options)
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE:
                    raise
                self.stderr.write(
                    "Somebody uses a table that is to be changed, such as for an export. What is done so far "
                    f"stays; the rest is tried again in {self.again_after_seconds:g} s, until it succeeds."
                )
            else:
                return
            time.sleep(self.again_after_seconds)


@contextmanager
def _alone(alias: str) -> Iterator[None]:
    """Wait until no other process migrates this database. The lock of a process that fails or is killed goes
    with its connection.
    """
    connection = connections[alias]
    if connection.vendor == "sqlite":
        # The database itself has to stay free for what the migrations write.
        with closing(sqlite3.connect(f"{connection.settings_dict['NAME']}.migrating", timeout=3600)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            yield
        return
    with connection.cursor() as cursor:
        # PostgreSQL's own waiting would be a transaction, for whose end an index that is made concurrently
        # waits.
        while not _has(cursor, "pg_try_advisory_lock"):
            time.sleep(_LOOK_AGAIN_SECONDS)
    yield
    with connection.cursor() as cursor:
        _has(cursor, "pg_advisory_unlock")


def _has(cursor: Any, function: str) -> bool:
    cursor.execute(f"SELECT {function}(%s)", [_LOCK])
    return bool(cursor.fetchone()[0])

"""Django's backend for SQLite, whose writers get their turn soon after the lock is free."""

import sqlite3
import time

from django.db.backends.sqlite3 import base

_LOOK_AGAIN_SECONDS = 0.005


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that looks every few milliseconds whether it may begin to write.

    SQLite itself looks again after up to 100 ms. Where many write, it finds the lock taken again, and
    everybody who came later and looks more often overtakes it.
    """

    def _start_transaction_under_autocommit(self) -> None:
        seconds = self.settings_dict["OPTIONS"]["timeout"]
        deadline = time.monotonic() + seconds
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            while time.monotonic() < deadline:
                if self._has_begun():
                    return
                time.sleep(_LOOK_AGAIN_SECONDS)
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
        finally:
            # Statements outside of a transaction wait as SQLite does.
            self.connection.execute(f"PRAGMA busy_timeout = {1000 * seconds}")

    def _has_begun(self) -> bool:
        """Begin, unless somebody else writes.

        Not by a cursor of Django's: an exception would keep it until the garbage collector comes, perhaps in
        a thread that writes. There it would wait for this connection, which waits for that writer.
        """
        with self.wrap_database_errors:
            try:
                self.connection.execute(f"BEGIN {self.transaction_mode}")  # type: ignore[attr-defined]
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                return False
        return True

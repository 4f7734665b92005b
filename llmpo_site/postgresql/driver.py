"""psycopg as Django's backend uses it, with connections that may give up a silent server.

A server that is stopped, or that swaps, still acknowledges packets, so no timeout of the network ends the
wait for its answer.
"""

from typing import Any, ClassVar

import psycopg
from psycopg.errors import _WaitTimeout


class Connection(psycopg.Connection[Any]):
    """A connection that is given up if the server leaves a statement without an answer for too long.

    Attributes
    ----------
    patience
        Seconds, for all connections of this process; ``None``: they wait forever.
    """

    patience: ClassVar[float | None] = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """As psycopg does, and for no longer than ``patience``.

        Raises
        ------
        OperationalError
        """
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except _WaitTimeout as silence:
            # The server may still be running the statement, so this connection cannot be used again.
            self.pgconn.finish()
            raise psycopg.OperationalError(
                "The database said nothing for too long and was given up."
            ) from silence


connect = Connection.connect


def __getattr__(name: str) -> Any:
    """All else is psycopg's own, which Django looks up here."""
    return getattr(psycopg, name)

"""Makes comparisons and checks take the same number of database statements.

The duration of a page depends above all on its number of statements. If that differed, a stopwatch could tell
a check from a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection


@dataclass
class Cost:
    """The intended number of statements, and the number so far."""

    statements: int
    taken: int = 0

    def count(self, execute: Callable[..., Any], *statement: Any) -> Any:
        """Count a statement that goes to the database."""
        self.taken += 1
        return execute(*statement)


@contextmanager
def same_cost(statements: int) -> Iterator[Cost]:
    """Add statements to those of the body, up to so many.

    The body may lower ``statements`` where there is nothing to hide.
    """
    cost = Cost(statements)
    with connection.execute_wrapper(cost.count):
        try:
            yield cost
        finally:
            if not connection.needs_rollback:
                with connection.cursor() as cursor:
                    while cost.taken < cost.statements:
                        cursor.execute("SELECT 1")

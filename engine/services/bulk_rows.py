"""Many new rows at once, with as little of the work as can be inside of the transaction.

Making the values of a row takes Django more than ten times as long as storing them takes the database, and
SQLite has one writer at a time. So the values are made first (:func:`prepared`), and :func:`insert` only puts
keys in their places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Field, Model

# The key of a row, by the number that stands for the row until it is stored.
Key = Callable[[int], int]
# Rows of one statement. SQLite writes out the index of texts after each statement that has a trigger, which
# takes three times as long as storing the texts; psycopg sends many statements at once as fast as one.
_AT_ONCE = {"sqlite": 100, "postgresql": 1}
# Characters of a text that may come again, such as a state.
_SHORT = 20


@dataclass(frozen=True)
class Prepared:
    """Rows of one table as the database takes them, without their keys and those given to ``insert``."""

    model: type[Model]
    rows: Sequence[tuple[Any, ...]]


def prepared(model: type[Model], instances: Iterable[Model]) -> Prepared:
    """The values of new rows. Foreign keys may hold numbers that stand for rows which are not stored yet."""
    fields = [field for field in model._meta.concrete_fields if not field.primary_key]
    return Prepared(model, list(zip(*_columns(fields, list(instances)), strict=True)))


def _columns(fields: Sequence[Field[Any, Any]], instances: Sequence[Model]) -> Iterator[list[Any]]:
    """The values column by column. Most of a column is the same few short values: each is converted once."""
    backend = connections[DEFAULT_DB_ALIAS]  # `connection` would be looked up for each cell
    for field in fields:
        known: dict[Any, Any] = {}
        column = []
        for row in instances:
            value = field.pre_save(row, add=True)
            short = value is None or (type(value) is str and len(value) <= _SHORT)
            if not short:
                column.append(field.get_db_prep_save(value, backend))
                continue
            if value not in known:
                known[value] = field.get_db_prep_save(value, backend)
            column.append(known[value])
        yield column


def insert(rows: Prepared, keys: Mapping[str, Key], *, own: str = "") -> Sequence[int]:
    """Store the rows; returns their keys in their order. Call it in a transaction.

    Parameters
    ----------
    keys
        By the name of a column: the key of the row that a number in it stands for. Empty ones stay empty.
    own
        A column whose numbers stand for other rows of ``rows``.
    """
    fields = rows.model._meta.concrete_fields
    columns = [str(field.column) for field in fields if not field.primary_key]
    table, primary = rows.model._meta.db_table, str(rows.model._meta.pk.column)
    quote = connection.ops.quote_name
    into = f"INSERT INTO {quote(table)} ({', '.join(map(quote, [primary, *columns]))}) VALUES "  # noqa: S608 - our own names
    row_of_places = f"({', '.join(['%s'] * (len(columns) + 1))})"
    at_once = _AT_ONCE[connection.vendor]
    with connection.cursor() as cursor:
        new = _new_keys(cursor, table, primary, len(rows.rows))
        known = dict(keys) | ({own: new.__getitem__} if own else {})
        places = [(columns.index(column), key) for column, key in known.items()]

        def placed(start: int, n: int) -> Iterator[list[Any]]:
            # The values of each statement of n rows, to the last whole one.
            for first in range(start, len(new) - n + 1, n):
                values: list[Any] = []
                for pk, row in zip(new[first : first + n], rows.rows[first : first + n], strict=True):
                    cells = list(row)
                    for place, key in places:
                        if cells[place] is not None:
                            cells[place] = key(cells[place])
                    values += [pk, *cells]
                yield values

        rest = len(new) % at_once
        for start, n in ((0, at_once), (len(new) - rest, rest)):
            if n:
                # Both drivers take an iterator, which keeps no second copy of the rows; the types of Django
                # say less.
                statement = into + ", ".join([row_of_places] * n)
                cursor.executemany(statement, cast(Any, placed(start, n)))
    return new


def _new_keys(cursor: Any, table: str, primary: str, n: int) -> Sequence[int]:
    if connection.vendor == "postgresql":
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, %s)) FROM generate_series(1, %s)", [table, primary, n]
        )
        return [key for (key,) in cursor.fetchall()]
    # SQLite notes the largest key that a table ever had, and nobody else writes during this transaction.
    cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [table])
    first = (cursor.fetchone() or (0,))[0] + 1
    return range(first, first + n)

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
    statement = (
        f"INSERT INTO {quote(table)} ({', '.join(map(quote, [primary, *columns]))}) "  # noqa: S608 - our own names
        f"VALUES ({', '.join(['%s'] * (len(columns) + 1))})"
    )
    with connection.cursor() as cursor:
        new = _new_keys(cursor, table, primary, len(rows.rows))
        known = dict(keys) | ({own: new.__getitem__} if own else {})
        places = [(columns.index(column), key) for column, key in known.items()]

        def placed() -> Iterator[list[Any]]:
            for pk, row in zip(new, rows.rows, strict=True):
                values = list(row)
                for place, key in places:
                    if values[place] is not None:
                        values[place] = key(values[place])
                yield [pk, *values]

        # Both drivers take an iterator, which keeps no second copy of the rows; the types of Django say less.
        cursor.executemany(statement, cast(Any, placed()))
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

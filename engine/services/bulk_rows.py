"""Many new rows at once, with as little of the work as possible inside the transaction.

Django takes more than ten times as long to make the values of a row as the database to store them. SQLite has
one writer at a time. So the values are made first (:func:`prepared`), SQLite gets them before it is locked
(:func:`staged`), and :func:`insert` only puts keys in their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Field, Model

from engine.importing.pacing import paced

T = TypeVar("T")
# The keys of rows, by the numbers that stand for the rows until they are stored.
Keys = Sequence[int]
# Characters of a text that may come again, such as a state.
_SHORT = 20
# Fewer rows are inserted one by one, which is faster: after each temporary table, SQLite compiles every
# statement of the connection anew.
_FEW = 100


@dataclass(frozen=True)
class Prepared:
    """Rows of one table as the database takes them, without their keys and those given to ``insert``."""

    model: type[Model]
    rows: Sequence[tuple[Any, ...]]
    # The temporary table that has them too, while there is one.
    table: list[str] = field_of(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """The columns of ``rows``: all but the primary key."""
        return [str(each.column) for each in self.model._meta.concrete_fields if not each.primary_key]


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
        for row in _paced(instances):
            value = field.pre_save(row, add=True)
            short = value is None or (type(value) is str and len(value) <= _SHORT)
            if not short:
                column.append(field.get_db_prep_save(value, backend))
                continue
            if value not in known:
                known[value] = field.get_db_prep_save(value, backend)
            column.append(known[value])
        yield column


def _paced(rows: Sequence[T]) -> Iterable[T]:
    """The rows, without rests while this connection has a transaction, for which other writers wait."""
    return rows if connection.in_atomic_block else paced(rows)


@contextmanager
def staged(*tables: Prepared) -> Iterator[None]:
    """Hand rows to SQLite before the transaction that inserts them.

    They lie in temporary tables, which are this connection's own. What is left for the transaction are single
    statements: no other thread of the process makes them wait, while they make all other writers wait.
    PostgreSQL has many writers and does not need it.
    """
    if connection.vendor != "sqlite":
        yield
        return
    with ExitStack() as stack, connection.cursor() as cursor:
        for rows in tables:
            if len(rows.rows) <= _FEW:
                continue
            name = f"staged_{id(rows)}"
            columns = rows.columns
            # Without types, so that the values stay as they are until the table itself takes them.
            cursor.execute(f"CREATE TEMPORARY TABLE {name} ({', '.join(map(_quoted, columns))})")
            rows.table.append(name)
            stack.callback(_drop, rows)
            places = ", ".join(["%s"] * len(columns))
            cursor.executemany(f"INSERT INTO {name} VALUES ({places})", cast(Any, _paced(rows.rows)))  # noqa: S608 - our own name
        yield


def _drop(rows: Prepared) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE temp.{rows.table.pop()}")


def insert(
    rows: Prepared,
    keys: Mapping[str, Keys],
    *,
    own: str = "",
    prefixes: Mapping[str, str] | None = None,
    values: Mapping[str, Sequence[Any]] | None = None,
) -> Keys:
    """Store the rows; returns their keys in their order. Call it in a transaction.

    Parameters
    ----------
    keys
        By the name of a column: the keys of the rows that numbers in it stand for. A range is one of
        consecutive keys. Empty cells stay empty.
    own
        A column whose numbers stand for other rows of ``rows``.
    prefixes
        By the name of a text column: the column of ``keys`` whose key and a colon go before each text in it.
        An empty text stays empty.
    values
        By the name of a column: a value for each row, in the place of its own.
    """
    prefixes, values = prefixes or {}, values or {}
    fields = {str(field.column): field for field in rows.model._meta.concrete_fields}
    given = {
        column: [fields[column].get_db_prep_save(each, connection) for each in of_rows]
        for column, of_rows in values.items()
    }
    with connection.cursor() as cursor:
        new = _new_keys(cursor, rows)
        keys = dict(keys) | ({own: new} if own else {})
        with nullcontext() if rows.table else staged(rows):
            if rows.table:
                _insert_staged(cursor, rows, keys, prefixes, given=given, first=new[0])
            else:
                _insert_one_by_one(cursor, rows, keys, prefixes, new, given=given)
    return new


def analyze(*tables: Prepared) -> None:
    """Have PostgreSQL look at tables into which many rows came, at the end of their transaction.

    It does so by itself within minutes. Until then it plans for the few rows that were there before, and
    facts about 9,000 votes were given up after 30 seconds. A table that is being looked at is passed over.
    """
    names = {rows.model._meta.db_table for rows in tables if len(rows.rows) > _FEW}
    if names and connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(map(_quoted, names))}")


def _insert_staged(
    cursor: Any,
    rows: Prepared,
    keys: Mapping[str, Keys],
    prefixes: Mapping[str, str],
    *,
    given: Mapping[str, Sequence[Any]],
    first: int,
) -> None:
    """Insert rows of a temporary table by one statement.

    One statement also writes out the index of texts once, which takes three times as long as storing the
    texts.
    """
    cursor.execute(
        "CREATE TEMPORARY TABLE staged_keys (place, number, key, PRIMARY KEY (place, number)) WITHOUT ROWID"
    )
    try:
        [table] = rows.table
        values: dict[str, str] = {}
        for place, column in enumerate(rows.columns):
            name = f"{table}.rowid - 1" if column in given else _quoted(column)
            known = given.get(column) or (_as_range(keys[column]) if column in keys else None)
            if known is None:
                values[column] = name
            elif isinstance(known, range):
                values[column] = f"({name} + {known.start})"
            else:
                cursor.executemany(
                    "INSERT INTO staged_keys VALUES (%s, %s, %s)",
                    ((place, number, key) for number, key in enumerate(known)),
                )
                values[column] = f"(SELECT key FROM staged_keys WHERE place = {place} AND number = {name})"  # noqa: S608 - our own names
        for column, of in prefixes.items():
            text = values[column]
            values[column] = f"CASE {text} WHEN '' THEN '' ELSE {values[of]} || ':' || {text} END"
        cells = ", ".join([f"{first} - 1 + rowid", *values.values()])
        cursor.execute(f"{_into(rows)} SELECT {cells} FROM {table} ORDER BY rowid")  # noqa: S608 - our own names
    finally:
        cursor.execute("DROP TABLE temp.staged_keys")


def _as_range(keys: Keys) -> Keys:
    """The same keys, as a range if they are consecutive: a sum then replaces the search for each key."""
    if isinstance(keys, range) or not keys:
        return keys
    consecutive = range(keys[0], keys[0] + len(keys))
    return consecutive if list(keys) == list(consecutive) else keys


def _insert_one_by_one(
    cursor: Any,
    rows: Prepared,
    keys: Mapping[str, Keys],
    prefixes: Mapping[str, str],
    new: Keys,
    *,
    given: Mapping[str, Sequence[Any]],
) -> None:
    """Insert rows by a statement each; psycopg sends many of them at once."""
    places = [(rows.columns.index(column), known) for column, known in keys.items()]
    named = [(rows.columns.index(column), rows.columns.index(of)) for column, of in prefixes.items()]
    whole = [(rows.columns.index(column), values) for column, values in given.items()]

    def placed() -> Iterator[list[Any]]:
        for number, (key, row) in enumerate(zip(new, rows.rows, strict=True)):
            cells = list(row)
            for place, values in whole:
                cells[place] = values[number]
            for place, known in places:
                if cells[place] is not None:
                    cells[place] = known[cells[place]]
            for place, of in named:
                if cells[place]:
                    cells[place] = f"{cells[of]}:{cells[place]}"
            yield [key, *cells]

    # The driver takes an iterator, which keeps no second copy of the rows; the types of Django say less.
    row_of_places = ", ".join(["%s"] * (len(rows.columns) + 1))
    cursor.executemany(f"{_into(rows)} VALUES ({row_of_places})", cast(Any, placed()))


def _into(rows: Prepared) -> str:
    columns = [str(rows.model._meta.pk.column), *rows.columns]
    return f"INSERT INTO {_quoted(rows.model._meta.db_table)} ({', '.join(map(_quoted, columns))})"


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)


def _new_keys(cursor: Any, rows: Prepared) -> Keys:
    table, n = rows.model._meta.db_table, len(rows.rows)
    if connection.vendor == "postgresql":
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, %s)) FROM generate_series(1, %s)",
            [table, str(rows.model._meta.pk.column), n],
        )
        return [key for (key,) in cursor.fetchall()]
    # SQLite notes the largest key that a table ever had, and nobody else writes during this transaction.
    cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [table])
    first = (cursor.fetchone() or (0,))[0] + 1
    return range(first, first + n)

"""Writes that every click repeats, compiled once: :mod:`engine.selectors.compiled` has the reason.

They skip the signals of models; nothing listens to those of the rows that a click writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Field, Model, QuerySet
from django.db.models.sql import InsertQuery, UpdateQuery
from django.db.transaction import mark_for_rollback_on_error

from engine.selectors.compiled import Given, Statement, executed

_M = TypeVar("_M", bound=Model)


@dataclass(frozen=True)
class Write:
    """A compiled INSERT or UPDATE and its values, for :func:`write`.

    Attributes
    ----------
    model
        Whose rows it writes.
    statement, values
        What is executed.
    inserted
        The row that an INSERT stores; ``None`` for an UPDATE.
    """

    model: type[Model]
    statement: Statement
    values: dict[str, Any]
    inserted: Model | None = None


def write(*writes: Write) -> list[int]:
    """Execute these writes: as one statement on PostgreSQL, and one after the other on SQLite.

    None may depend on what another writes: in one statement, each sees the tables as they were before.

    Returns
    -------
    list of int
        For each UPDATE the number of rows that it changed, for each INSERT the key of its row.

    Raises
    ------
    ValueError
        Two UPDATEs are of one table: of two changes of one row in one statement, PostgreSQL makes only one.
    """
    # On SQLite too, which would make both, so that a test on either finds it.
    sql = _joined(tuple((each.model, each.statement, each.inserted is not None) for each in writes))
    with mark_for_rollback_on_error(DEFAULT_DB_ALIAS):
        if len(writes) > 1 and connection.vendor == "postgresql":
            numbers = _in_one_statement(sql, writes)
        else:
            numbers = [_number(each) for each in writes]
    for each, number in zip(writes, numbers, strict=True):
        if each.inserted is not None:
            each.inserted.pk = number
            each.inserted._state.adding, each.inserted._state.db = False, DEFAULT_DB_ALIAS
    return numbers


def _number(each: Write) -> int:
    with each.statement.executed(each.values) as cursor:
        return int(cursor.rowcount if each.inserted is None else cursor.fetchone()[0])


def _in_one_statement(sql: str, writes: Sequence[Write]) -> list[int]:
    database = connections[DEFAULT_DB_ALIAS]
    parameters = [value for each in writes for value in each.statement.parameters(each.values, database)]
    with executed(database, sql, parameters) as cursor:
        return [int(number) for number in cursor.fetchone()]


@cache
def _joined(parts: tuple[tuple[type[Model], Statement, bool], ...]) -> str:
    """One statement of these, each of which is an INSERT or not: it returns the number of each.

    Raises
    ------
    ValueError
        Two UPDATEs are of one table.
    """
    updated = Counter(model for model, _, inserts in parts if not inserts)
    if twice := [model.__name__ for model, n in updated.items() if n > 1]:
        raise ValueError(f"Two UPDATEs of {', '.join(twice)} may change one row. Execute them one by one.")
    writes, numbers = [], []
    for place, (_, statement, inserts) in enumerate(parts):
        name = f"write_{place}"
        if inserts:
            # It has a RETURNING clause of one column, its key.
            writes.append(f"{name} AS ({statement.sql})")
            numbers.append(f"(TABLE {name})")
        else:
            writes.append(f"{name} AS ({statement.sql} RETURNING 1)")
            numbers.append(f"(SELECT COUNT(*) FROM {name})")  # noqa: S608 - the names are ours
    return f"WITH {', '.join(writes)} SELECT {', '.join(numbers)}"


class Update:
    """An UPDATE that is compiled at its first call.

    Parameters
    ----------
    rows
        Which rows; nothing differs from call to call but the values that are :class:`Given`.
    changes
        The new values by field, as `QuerySet.update` takes them, with a `Given` for each that differs.
    """

    def __init__(self, rows: QuerySet[Any], **changes: Any) -> None:
        self._rows, self._changes = rows, changes

    @cached_property
    def _statement(self) -> Statement:
        query: Any = self._rows.query.chain(UpdateQuery)
        query.add_update_values(self._changes)
        return Statement(DEFAULT_DB_ALIAS, *query.get_compiler(DEFAULT_DB_ALIAS).as_sql())

    def of(self, **values: Any) -> Write:
        """It with these values, to be executed with other writes."""
        return Write(self._rows.model, self._statement, values)

    def __call__(self, **values: Any) -> int:
        """Execute it with these values; returns the number of rows."""
        [n_rows] = write(self.of(**values))
        return n_rows


def saving(row: Model, *fields: str) -> Write:
    """The UPDATE of these fields of a row that is stored, and that the caller has locked."""
    values = {name: getattr(row, _column(type(row), name).attname) for name in fields}
    return _by_key(type(row), fields).of(key=row.pk, **values)


def inserting(row: Model) -> Write:
    """The INSERT of a new row, which has its key once it is executed."""
    values = {field.attname: field.pre_save(row, add=True) for field in _columns(type(row))}
    return Write(type(row), _new(type(row)), values, inserted=row)


def insert(row: _M) -> _M:
    """Store a new row; returns it with its key."""
    write(inserting(row))
    return row


@cache
def _by_key(model: type[Model], fields: tuple[str, ...]) -> Update:
    changes = {name: Given(name, _column(model, name)) for name in fields}
    return Update(model._default_manager.filter(pk=Given("key", model._meta.pk)), **changes)


@cache
def _new(model: type[Model]) -> Statement:
    query = InsertQuery(model)
    # A row whose cells are the places of the values.
    places = model(**{field.attname: Given(field.attname, field) for field in _columns(model)})
    query.insert_values(_columns(model), [places], raw=True)
    compiler: Any = query.get_compiler(DEFAULT_DB_ALIAS)
    compiler.returning_fields = [model._meta.pk]
    [(sql, parameters)] = compiler.as_sql()
    return Statement(DEFAULT_DB_ALIAS, sql, parameters)


@cache
def _columns(model: type[Model]) -> list[Field[Any, Any]]:
    return [field for field in model._meta.local_concrete_fields if not field.primary_key]


def _column(model: type[Model], name: str) -> Field[Any, Any]:
    return cast("Field[Any, Any]", model._meta.get_field(name))

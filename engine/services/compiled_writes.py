"""Writes that every click repeats, compiled once: :mod:`engine.selectors.compiled` has the reason.

They skip the signals of models; nothing listens to those of the rows that a click writes.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS
from django.db.models import Field, Model, QuerySet
from django.db.models.sql import InsertQuery, UpdateQuery
from django.db.transaction import mark_for_rollback_on_error

from engine.selectors.compiled import Given, Statement

_M = TypeVar("_M", bound=Model)


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

    def __call__(self, **values: Any) -> int:
        """Execute it with these values; returns the number of rows."""
        with mark_for_rollback_on_error(DEFAULT_DB_ALIAS), self._statement.executed(values) as cursor:
            return int(cursor.rowcount)


def save(row: Model, *fields: str) -> None:
    """Write these fields of a row that is stored, and that the caller has locked."""
    values = {name: getattr(row, _column(type(row), name).attname) for name in fields}
    _by_key(type(row), fields)(key=row.pk, **values)


def insert(row: _M) -> _M:
    """Store a new row; returns it with its key."""
    values = {field.attname: field.pre_save(row, add=True) for field in _columns(type(row))}
    with mark_for_rollback_on_error(DEFAULT_DB_ALIAS), _new(type(row)).executed(values) as cursor:
        (row.pk,) = cursor.fetchone()
    row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS
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

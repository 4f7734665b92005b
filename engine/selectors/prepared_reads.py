"""Reads of a click that the ORM compiles once in a process, and PostgreSQL plans once in a connection.

To compile one takes the ORM longer than the database takes to answer it. Only what each click repeats is
worth that; docs/performance.md has the figures.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigAutoField, Expression, Field, IntegerField, QuerySet

_R = TypeVar("_R")


class Given(Expression):
    """A value that is named when a :class:`Prepared` read is called.

    Parameters
    ----------
    name
        The call's argument.
    field
        Says how the database is told the value.
    """

    def __init__(self, name: str, field: Field[Any, Any]) -> None:
        super().__init__(output_field=field)
        self.name = name

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """A placeholder, and this expression as its parameter."""
        return "%s", (self,)

    def told(self, value: Any) -> Any:
        """The value as the database's driver takes it.

        Raises
        ------
        EmptyResultSet
            It is a number that the column has no room for, so that nothing equals it.
        """
        if isinstance(self.output_field, IntegerField):
            least, most = connection.ops.integer_field_range(self.output_field.get_internal_type())
            if not least <= value <= most:
                raise EmptyResultSet
        return self.output_field.get_db_prep_value(value, connection=connection)


EXPERIMENT, ANNOTATOR = Given("experiment", BigAutoField()), Given("annotator", BigAutoField())


class Prepared(Generic[_R]):
    """A read that is built and compiled at its first call.

    Parameters
    ----------
    build
        Returns the query set. Only values that are :class:`Given` differ from call to call.
    """

    def __init__(self, build: Callable[[], QuerySet[Any, _R]]) -> None:
        self._build = build

    @cached_property
    def _compiled(self) -> tuple[QuerySet[Any, _R], Any, str, list[Any]]:
        queryset = self._build()
        compiler: Any = queryset.query.get_compiler(queryset.db)
        return queryset, compiler, *_with_constants(*compiler.as_sql())

    def __call__(self, **values: Any) -> list[_R]:
        """The rows that are found with these values."""
        built, compiled, sql, places = self._compiled
        try:
            told = [each.told(values[each.name]) if isinstance(each, Given) else each for each in places]
        except EmptyResultSet:
            return []
        # Django reads the rows, by a compiler that has compiled already.
        compiler: Any = copy.copy(compiled)
        compiler.connection, compiler.as_sql = connections[built.db], lambda: (sql, told)
        query: Any = copy.copy(built.query)
        query.get_compiler = lambda *_, **__: compiler
        with _plan_kept():
            rows: Any = built._iterable_class(QuerySet(built.model, query, built.db))
            return list(rows)


@contextmanager
def _plan_kept() -> Iterator[None]:
    """Have PostgreSQL keep the plan of what is executed meanwhile, which Django's usual cursor prevents: it
    writes the values into the statement.
    """
    if connection.vendor != "postgresql":
        yield
        return
    from django.db.backends.postgresql.base import ServerBindingCursor  # noqa: PLC0415 - needs psycopg

    connection.ensure_connection()
    driver: Any = connection.connection
    usual = driver.cursor_factory, driver.prepare_threshold
    driver.cursor_factory, driver.prepare_threshold = ServerBindingCursor, 0
    try:
        yield
    finally:
        driver.cursor_factory, driver.prepare_threshold = usual


def _with_constants(sql: str, parameters: Any) -> tuple[str, list[Any]]:
    """A statement with its constant texts and numbers written into it, and the other parameters.

    A plan that is kept uses an index of some rows, such as the comparisons that are ready, only if the
    statement itself says that it asks for no others.
    """
    first, *others = sql.split("%s")
    written, remaining = [first], []
    for parameter, following in zip(parameters, others, strict=True):
        if isinstance(parameter, str):
            constant = "'" + parameter.replace("'", "''").replace("%", "%%") + "'"
        elif isinstance(parameter, int) and not isinstance(parameter, bool):
            constant = str(parameter)
        else:
            constant = "%s"
            remaining.append(parameter)
        written += constant, following
    return "".join(written), remaining

"""Reads that every click repeats, compiled once.

Building and compiling a read of several subqueries takes the ORM longer than the database takes to answer it.
Here the ORM does so once in a process, with a :class:`Given` for each value; a call puts the values in.
What is the same in every call is written into the statement.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, TypeVar, cast

from django.core.exceptions import EmptyResultSet
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigAutoField, Expression, Field, IntegerField, Model, QuerySet, Subquery
from django.db.models.lookups import IsNull
from django.db.models.query import ModelIterable, get_related_populators

_R = TypeVar("_R")


class Given(Expression):
    """A value that is named when a :class:`Compiled` read is called; a number is asked for as it is.

    Parameters
    ----------
    name
        The call's argument.
    field
        Says how the database is told the value.
    """

    def __init__(self, name: str, field: Field[Any, Any]) -> None:
        super().__init__(output_field=field)
        self._name = name

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """A placeholder, and this very expression as its parameter."""
        return "%s", (self,)

    def parameter(self, values: dict[str, Any], connection: BaseDatabaseWrapper) -> Any:
        """The value among those of a call, as the database's driver takes it.

        Raises
        ------
        EmptyResultSet
            It is a number that the column has no room for, so that nothing equals it.
        """
        return self._told(values[self._name], connection)

    def _told(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        if value is None:
            # In a column of JSON too, where the value of a lookup would be JSON's own null.
            return None
        if isinstance(self.output_field, IntegerField):
            least, most = connection.ops.integer_field_range(self.output_field.get_internal_type())
            if (least is not None and value < least) or (most is not None and value > most):
                raise EmptyResultSet
        return self.output_field.get_db_prep_value(value, connection=connection)


class GivenList(Given):
    """A list of such values, as ``__in`` takes it; one parameter, so that all lengths are one statement."""

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """A subquery of the values, whose parameter is this very expression."""
        return "SELECT value FROM json_each(%s)", (self,)

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """A subquery of the values, as an array: PostgreSQL passes a list as one."""
        return f"SELECT unnest(%s::{self.output_field.cast_db_type(connection)}[])", (self,)

    def _told(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        listed = [super(GivenList, self)._told(each, connection) for each in value]
        return listed if connection.vendor == "postgresql" else json.dumps(listed)


EXPERIMENT, ANNOTATOR = Given("experiment", BigAutoField()), Given("annotator", BigAutoField())
EXPERIMENTS = GivenList("experiments", BigAutoField())


def found_one(rows: QuerySet[Any]) -> IsNull:
    """True of each row for which there is one of ``rows``, a subquery: as ``Exists``, but looked up by row.

    For EXISTS, PostgreSQL plans two ways. It may prefer to read all that somebody ever answered into a table
    of hashes, even where the first few rows will do.
    """
    return IsNull(Subquery(rows.order_by().values("pk")[:1]), False)


class Compiled(Generic[_R]):
    """A read of model instances, or of a ``values_list``, that is built and compiled at its first call.

    Parameters
    ----------
    build
        Returns the query set. Nothing in it may differ from call to call but the values that are
        :class:`Given`.
    keeps_plan
        Whether PostgreSQL may keep its plan, which is of the tables as they were: for reads that go by
        indexes, however small the tables are.
    for_pages
        Whether it goes where the routers send reads, as pages may be read from a replica; rights and all that
        writes are not.
    """

    def __init__(
        self, build: Callable[[], QuerySet[Any, _R]], *, keeps_plan: bool = True, for_pages: bool = False
    ) -> None:
        self._build, self._keeps_plan, self._for_pages = build, keeps_plan, for_pages
        self._reads: dict[str, _Read] = {}

    def __call__(self, **values: Any) -> list[_R]:
        """The instances, or the tuples, that are found with these values."""
        alias: str = router.db_for_read(Model) if self._for_pages else DEFAULT_DB_ALIAS
        if (read := self._reads.get(alias)) is None:
            read = self._reads[alias] = _Read(self._build().using(alias), keeps_plan=self._keeps_plan)
        return read.found(values)


class Statement:
    """A statement with places for values, executed as often as it is called.

    Parameters
    ----------
    alias
        The database.
    sql, parameters
        As Django's compilers return them; a :class:`Given` among the parameters is a place.
    keeps_plan
        Whether PostgreSQL may keep its plan.
    """

    def __init__(self, alias: str, sql: str, parameters: Iterable[Any], *, keeps_plan: bool = True) -> None:
        self._alias, self._keeps_plan = alias, keeps_plan
        self.sql, remaining = _with_constants(sql, parameters)
        # A value that stands in many places is told once.
        given = list(dict.fromkeys(each for each in remaining if isinstance(each, Given)))
        constants = [each for each in remaining if not isinstance(each, Given)]
        self._told = [*given, *constants]
        after = iter(range(len(given), len(self._told)))
        self._places = [given.index(each) if isinstance(each, Given) else next(after) for each in remaining]

    def executed(self, values: dict[str, Any]) -> AbstractContextManager[Any]:
        """A cursor that has executed the statement with these values.

        Raises
        ------
        EmptyResultSet
            A column has no room for one of them.
        """
        connection = connections[self._alias]
        parameters = self.parameters(values, connection)
        return executed(connection, self.sql, parameters, keeps_plan=self._keeps_plan)

    def parameters(self, values: dict[str, Any], connection: BaseDatabaseWrapper) -> list[Any]:
        """The parameters of ``sql`` with these values; it raises what `executed` raises."""
        told = [
            each.parameter(values, connection) if isinstance(each, Given) else each for each in self._told
        ]
        return [told[place] for place in self._places]


@contextmanager
def executed(
    connection: Any, sql: str, parameters: Sequence[Any], *, keeps_plan: bool = True
) -> Iterator[Any]:
    """A cursor of this connection that has executed a statement, whose plan PostgreSQL may keep.

    Only for these few: a plan is of the tables as they were, and a bad one for others that have grown.
    """
    # Only `llmpo_site.postgresql` has it.
    keeps_plan = keeps_plan and hasattr(connection, "plan_keeping_cursor")
    with connection.plan_keeping_cursor() if keeps_plan else connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        yield cursor


class _Read:
    """The read of one database."""

    def __init__(self, queryset: QuerySet[Any], *, keeps_plan: bool) -> None:
        self._alias = queryset.db
        compiler = queryset.query.get_compiler(using=self._alias)
        self._statement = Statement(self._alias, *compiler.as_sql(), keeps_plan=keeps_plan)
        columns: list[Any] = [column for column, *_ in compiler.select]
        self._converters = compiler.get_converters(columns)
        if queryset._iterable_class is not ModelIterable:
            self._made: Callable[[list[Any]], Any] = tuple
            return
        self._made = self._instance
        info = compiler.klass_info
        places = info["select_fields"]
        self._model, self._fields = info["model"], slice(places[0], places[-1] + 1)
        self._names = [column.target.attname for column in columns[self._fields]]
        # Types are those of Django 6, where this takes an argument more.
        self._populators = cast(Any, get_related_populators)(info, compiler.select, self._alias)
        self._annotations = compiler.annotation_col_map or {}

    def found(self, values: dict[str, Any]) -> list[Any]:
        try:
            with self._statement.executed(values) as cursor:
                rows = cursor.fetchall()
        except EmptyResultSet:
            return []
        connection = connections[self._alias]
        return [self._made(self._converted(row, connection)) for row in rows]

    def _converted(self, row: tuple[Any, ...], connection: BaseDatabaseWrapper) -> list[Any]:
        columns = list(row)
        for place, (converters, column) in self._converters.items():
            for convert in converters:
                columns[place] = convert(columns[place], column, connection)
        return columns

    def _instance(self, columns: list[Any]) -> Any:
        found = self._model.from_db(self._alias, self._names, columns[self._fields])
        for related in self._populators:
            related.populate(columns, found)
        for name, place in self._annotations.items():
            setattr(found, name, columns[place])
        return found


def _with_constants(sql: str, parameters: Iterable[Any]) -> tuple[str, list[Any]]:
    """A statement into which its texts and numbers are written, and the parameters that remain.

    Some indexes have some rows alone, such as the comparisons that are ready. They serve a plan that is kept
    only where the statement itself says that it asks for no others.
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

"""Django's backend for PostgreSQL, with two changes. Connections may give up a silent server and keep the
plans of statements. Changes of tables may give up a table in use.
"""

from __future__ import annotations

from typing import Any, Self

import psycopg
from django.db.backends.postgresql import base, operations

from llmpo_site.postgresql import driver
from llmpo_site.postgresql.schema import SchemaEditor


class DatabaseOperations(operations.DatabaseOperations):
    """Django's, which tell of prepared statements too what was executed."""

    def last_executed_query(self, cursor: Any, sql: Any, params: Any) -> Any:
        try:
            return super().last_executed_query(cursor, sql, params) or self.compose_sql(sql, params)
        except driver.DataError:
            # A value that could not be bound, of which Django tells itself.
            return None


class _PlanKeepingCursor(psycopg.Cursor[Any]):
    """Has what it executes prepared. Django's usual cursor writes the values into the statement, which cannot
    be prepared then.
    """

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        self.connection.prepare_threshold = 0
        try:
            return super().execute(query, params, **options)
        finally:
            self.connection.prepare_threshold = None

    def close(self) -> None:
        """It stays open for the next statement, until its connection is closed."""


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection of :mod:`llmpo_site.postgresql.driver`."""

    Database = driver
    ops_class = DatabaseOperations
    SchemaEditorClass = SchemaEditor

    def init_connection_state(self) -> None:
        """As Django's, with one plan for all values of a statement that is prepared.

        By its own estimates, PostgreSQL goes on to plan the largest statements of a click anew at each call.
        That takes it five times as long as to execute them. A parameter of the start would be shorter, but
        PgBouncer refuses it in every mode.
        """
        super().init_connection_state()
        connection: Any = self.connection
        if not self._is_pooled:
            with connection.cursor() as cursor:
                cursor.execute("SET plan_cache_mode = force_generic_plan")
            # Made once, as each click executes eight statements or so.
            self._plan_keeping = _PlanKeepingCursor(connection)

    def plan_keeping_cursor(self) -> Any:
        """A cursor whose statements PostgreSQL prepares, to keep their plans, where that is allowed.

        It is the same one each time, so read what it found before the next statement.
        """
        if self._is_pooled:
            return self.cursor()
        self.close_if_health_check_failed()
        self.ensure_connection()
        return self._prepare_cursor(self._plan_keeping)  # type: ignore[attr-defined]  # not in the stubs

    @property
    def _is_pooled(self) -> bool:
        """True if what a statement leaves in the server may be gone at the next one, as with PgBouncer."""
        return bool(self.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))

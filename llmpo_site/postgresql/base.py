"""Django's backend for PostgreSQL, with connections that may give up a silent server and keep the plans of
statements, and changes of tables that may give up a table in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection of :mod:`llmpo_site.postgresql.driver`."""

    Database = driver
    ops_class = DatabaseOperations
    SchemaEditorClass = SchemaEditor

    def init_connection_state(self) -> None:
        """As Django's, with one plan for all values of a statement that is prepared.

        By its own estimates, PostgreSQL goes on to plan the largest statements of a click anew at each call,
        which takes it five times as long as to execute them. A parameter of the start would be shorter, but
        PgBouncer refuses it in every mode.
        """
        super().init_connection_state()
        connection: Any = self.connection
        if not self._is_pooled:
            with connection.cursor() as cursor:
                cursor.execute("SET plan_cache_mode = force_generic_plan")

    @contextmanager
    def keeping_plans(self) -> Iterator[None]:
        """Have PostgreSQL prepare what is executed, and keep its plan, where that is allowed."""
        if self._is_pooled:
            yield
            return
        self.ensure_connection()
        connection: Any = self.connection
        # Django's usual cursor writes the values into the statement, which cannot be prepared then.
        usual = connection.cursor_factory
        connection.cursor_factory, connection.prepare_threshold = base.ServerBindingCursor, 0
        try:
            yield
        finally:
            connection.cursor_factory, connection.prepare_threshold = usual, None

    @property
    def _is_pooled(self) -> bool:
        """True if what a statement leaves in the server may be gone at the next one, as with PgBouncer."""
        return bool(self.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))

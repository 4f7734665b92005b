"""Django's backend for PostgreSQL, on connections that may give up a server that says nothing, and with
changes of tables that may give up a table that is in use.
"""

from __future__ import annotations

from django.db.backends.postgresql import base

from llmpo_site.postgresql import driver
from llmpo_site.postgresql.schema import SchemaEditor


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection of :mod:`llmpo_site.postgresql.driver`."""

    Database = driver
    SchemaEditorClass = SchemaEditor

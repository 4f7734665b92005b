"""Django's backend for PostgreSQL, which gives up a silent server, and a change of a table in use."""

from django.db.backends.postgresql import base

from llmpo_site.postgresql import driver
from llmpo_site.postgresql.schema import SchemaEditor


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection of :mod:`llmpo_site.postgresql.driver`."""

    Database = driver
    SchemaEditorClass = SchemaEditor

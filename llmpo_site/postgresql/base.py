"""Django's backend for PostgreSQL, on connections that may give up a server that says nothing."""

from __future__ import annotations

from django.db.backends.postgresql import base

from llmpo_site.postgresql import driver


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection of :mod:`llmpo_site.postgresql.driver`."""

    Database = driver

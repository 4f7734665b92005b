"""A trigram index of the texts of responses: a part of a word is found without reading all texts.

It is made after every ``migrate`` and not by one migration, as the triggers of `append_only` are. The
statements of PostgreSQL and SQLite for it have nothing in common, and SQLite's are triggers of the table.
"""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.models import Q
from django.db.models.expressions import RawSQL

_TABLE = "engine_response"
_INDEX = "engine_response_trigrams"
# A shorter text has no trigram, so every response has to be read.
_SHORTEST = 3

# The expression by which Django compares without regard to case.
_POSTGRESQL = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    f'CREATE INDEX "{_INDEX}" ON "{_TABLE}" USING gin (UPPER("text") gin_trgm_ops) WHERE "text" <> \'\'',
)
_REMOVE = f"""INSERT INTO "{_INDEX}" ("{_INDEX}", rowid, "text") VALUES ('delete', OLD.id, OLD."text");"""  # noqa: S608 - made of our own names
_ADD = f'INSERT INTO "{_INDEX}" (rowid, "text") VALUES (NEW.id, NEW."text");'  # noqa: S608
# This table is only the index; texts stay in their own table.
_SQLITE = (
    f"""CREATE VIRTUAL TABLE "{_INDEX}"
        USING fts5("text", content="{_TABLE}", content_rowid="id", tokenize="trigram")""",
    f"""INSERT INTO "{_INDEX}" ("{_INDEX}") VALUES ('rebuild')""",  # noqa: S608
)
# Empty texts too: a row that the index never got cannot be removed from it.
_SQLITE_TRIGGERS = tuple(
    f'CREATE TRIGGER IF NOT EXISTS "{_INDEX}_{name}" AFTER {event} ON "{_TABLE}" BEGIN {what} END'
    for name, event, what in (
        ("added", "INSERT", _ADD),
        ("changed", 'UPDATE OF "text"', _REMOVE + _ADD),
        ("deleted", "DELETE", _REMOVE),
    )
)


def install_after_migrate(using: str = DEFAULT_DB_ALIAS, **_: Any) -> None:
    """Make the index where it is missing. Receiver of Django's ``post_migrate``."""
    database = connections[using]
    there = set(database.introspection.table_names())
    if _TABLE not in there:
        return
    if database.vendor == "postgresql":
        with database.cursor() as cursor:
            indexes = database.introspection.get_constraints(cursor, _TABLE)
        # IF NOT EXISTS would wait for everybody who writes a response, and block others meanwhile.
        statements = () if _INDEX in indexes else _POSTGRESQL
    else:
        statements = (*(() if _INDEX in there else _SQLITE), *_SQLITE_TRIGGERS)
    with transaction.atomic(using=using), database.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def responses_with(text: str) -> Q:
    """The condition that a response contains ``text`` in any case. Uses the index where possible."""
    if connection.vendor == "postgresql" or len(text) < _SHORTEST:
        return ~Q(text="") & Q(text__icontains=text)
    phrase = '"' + text.replace('"', '""') + '"'
    return Q(pk__in=RawSQL(f'SELECT rowid FROM "{_INDEX}" WHERE "text" MATCH %s', [phrase]))  # noqa: S608, S611

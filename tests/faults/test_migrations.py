"""Changes of tables that people are using, on PostgreSQL: nobody has to wait for long."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import psycopg
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, models

from engine.management.commands import migrate
from engine.models import Judgment
from llmpo_site.postgresql.schema import SchemaEditor
from tests.faults.test_database_lost import administrator
from tools import migrations

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]

_TABLES = ("judgment", "judgmentvoid", "auditentry", "response", "comparison", "assignment")


@pytest.fixture
def somebody() -> Iterator[psycopg.Connection]:
    """Somebody's transaction, to be begun and ended by hand."""
    with administrator() as other:
        yield other


def use(somebody: psycopg.Connection, mode: str) -> None:
    somebody.execute("BEGIN")
    for table in _TABLES:
        somebody.execute(f"LOCK TABLE engine_{table} IN {mode} MODE")


def test_each_migration_may_run_beside_the_code_before_it():
    assert migrations.main() == 0


def test_a_migrate_without_news_waits_for_nobody(somebody, monkeypatch):
    """Each start of an installation runs it. Behind an export that takes an hour, clicks would wait too."""
    monkeypatch.setattr(migrate.time, "sleep", lambda _: pytest.fail("A table was not to be had."))
    use(somebody, "ROW EXCLUSIVE")
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1s'")
    try:
        call_command("migrate", verbosity=0)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")
        somebody.execute("ROLLBACK")


def test_a_change_gives_up_a_table_that_is_read(somebody, monkeypatch):
    monkeypatch.setattr(SchemaEditor, "wait_seconds", 0.1)
    use(somebody, "ACCESS SHARE")
    column = models.IntegerField(null=True)
    column.set_attributes_from_name("newer")
    with pytest.raises(OperationalError, match="lock timeout"), connection.schema_editor() as editor:
        editor.add_field(Judgment, column)
    somebody.execute("ROLLBACK")
    with connection.schema_editor() as editor:
        editor.add_field(Judgment, column)
        editor.remove_field(Judgment, column)


def test_migrate_tries_again_until_the_table_is_free(somebody, monkeypatch):
    monkeypatch.setattr(SchemaEditor, "wait_seconds", 0.1)
    monkeypatch.setattr(migrate.time, "sleep", lambda _: somebody.execute("ROLLBACK"))
    changed: list[str] = []

    def change(*_args: object, **_options: object) -> None:
        with connection.schema_editor() as editor:
            editor.execute("LOCK TABLE engine_judgment IN ACCESS EXCLUSIVE MODE")
            changed.append("judgment")

    monkeypatch.setattr("django.core.management.commands.migrate.Command.handle", change)
    use(somebody, "ACCESS SHARE")
    said = StringIO()
    call_command("migrate", stderr=said)
    assert "Somebody uses a table that is to be changed" in said.getvalue()
    assert changed == ["judgment"]


def test_migrate_ends_with_any_other_error(monkeypatch):
    def fail(*_args: object, **_options: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr("django.core.management.commands.migrate.Command.handle", fail)
    with pytest.raises(OperationalError):
        call_command("migrate")
    connection.close()

"""Fixtures that several folders of tests share."""

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.core.cache import cache
from django.core.management.commands import flush
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from django.utils import translation

from engine.models import User, append_only
from tests import prompt

prompt.install()

from tests.factories import make_user  # noqa: E402 - it imports what is installed
from tests.workers import Workers  # noqa: E402

# A busy machine must not fail a test, nor may luck: the examples are the same each time.
# `make fuzz` draws others.
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
hypothesis.settings.register_profile("fuzz", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

# A test that asks for one of these needs more than its own process.
_NOT_UNIT = {"db", "transactional_db", "django_db_setup", "workers", "page", "browser"}
# So does a test with one of these marks.
_NOT_UNIT_MARKS = ("django_db", "browser", "slow")
_MARKS_OF_A_FILE = re.compile(r"^pytestmark = (\[.*?\]$|.*?$)", re.DOTALL | re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--unit",
        action="store_true",
        help="only tests without database, browser, processes, long simulations",
    )


def _is_unit(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in _NOT_UNIT_MARKS)
    return not marked and _NOT_UNIT.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file whose text says that no test of it is chosen: importing it takes longer."""
    if not collection_path.name.startswith("test_"):
        return None
    if config.getoption("markexpr").startswith("postgres"):
        return None if "mark.postgres" in collection_path.read_text() else True
    if not config.getoption("--unit"):
        return None
    marks = _MARKS_OF_A_FILE.search(collection_path.read_text())
    return True if marks and any(f"mark.{name}" in marks[1] for name in _NOT_UNIT_MARKS) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose and order the tests.

    A long wait begins first: as the last one left, it would leave the other cores idle.
    """
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)
    if config.getoption("--unit"):
        others = [item for item in items if not _is_unit(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _is_unit(item)]
    if "postgresql" in settings.DATABASES["default"]["ENGINE"]:
        return
    for item in items:
        if item.get_closest_marker("postgres_only"):
            item.add_marker(pytest.mark.skip(reason="needs PostgreSQL: set DATABASE_URL"))


_SETTINGS = ("CELERY_BROKER_URL", "DATABASE_URL", "DEBUG", "LOG_LEVEL", "SECRET_KEY", "VAR_DIR")
_AT_FIRST = [os.environ.get(name) for name in _SETTINGS]


def pytest_collection_finish() -> None:
    """Spare each garbage collection what stays for the whole run: thousands of tests, and every module.

    None of these modules may change the settings of the processes that tests start.
    """
    if [os.environ.get(name) for name in _SETTINGS] != _AT_FIRST:
        raise pytest.UsageError(f"An import changed one of these variables: {', '.join(_SETTINGS)}.")
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """SQLite's tables are made from the models. The site asks which migrations were applied: all of them."""
    if connection.vendor == "postgresql":
        return
    with django_db_blocker.unblock():
        migrations = MigrationLoader(connection)
        for app, name in migrations.disk_migrations.keys() - migrations.applied_migrations.keys():
            MigrationRecorder(connection).record_applied(app, name)


@pytest.fixture(scope="session", autouse=True)
def collected_static() -> None:
    """The folder that WhiteNoise warns about once per client where ``collectstatic`` has not made it."""
    settings.STATIC_ROOT.mkdir(exist_ok=True)


@pytest.fixture(scope="session", autouse=True)
def fast_passwords() -> Iterator[None]:
    """Hashing that takes a tenth of a second on purpose is most of the time of a test that makes users."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(scope="class")
def shared_rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A transaction around those of the tests of a class, for rows that take long to make.

    All tests of the class see these rows, so each of them should ask for them. What a test changes is rolled
    back after it, and the rows after the last one. A fixture that makes rows hands on their keys: an instance
    would keep what a test changed.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


def _without_kept(tables: list[str]) -> list[str]:
    """The tables but for those of which ``migrate`` writes the rows."""
    return [table for table in tables if table not in {"django_content_type", "auth_permission"}]


@pytest.fixture(autouse=True, scope="session")
def flushing_between_tests() -> Iterator[None]:
    """Empty the tables, append-only ones too, by DELETE after a test that committed.

    On SQLite the triggers that refuse changes of history are removed before and made anew after. On
    PostgreSQL they are off. Django's TRUNCATE there makes new files for every table and index, which costs
    the server 20 times as much. The lock waits for transactions that are still under way, as TRUNCATE does.

    What every ``migrate`` writes stays. After an emptying Django would make it anew from the models, which
    takes several times as long as the emptying.
    """
    operations = type(connection.ops)
    by_django = operations.sql_flush

    def of_sqlite(self: Any, style: Any, tables: list[str], **options: Any) -> list[str]:
        return [
            *append_only.remove_sql(self.connection),
            *by_django(self, style, _without_kept(tables), **options),
            *append_only.install_sql(self.connection),
        ]

    def of_postgresql(self: Any, style: Any, tables: list[str], **options: Any) -> list[str]:
        names = [self.quote_name(table) for table in _without_kept(tables)]
        if not names:
            return []
        return [
            "SET LOCAL session_replication_role = replica",
            f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE",
            "; ".join(f"DELETE FROM {name}" for name in names),  # noqa: S608 - our own names
        ]

    with pytest.MonkeyPatch.context() as patch:
        # Of the class, as the connection is another object beside a browser.
        patch.setattr(
            operations, "sql_flush", of_postgresql if connection.vendor == "postgresql" else of_sqlite
        )
        patch.setattr(flush, "emit_post_migrate_signal", lambda *arguments, **options: None)
        yield


@pytest.fixture(autouse=True)
def fresh_counts() -> None:
    """Wrong passwords and requests of tokens are counted in the cache, which outlives a test."""
    cache.clear()


@pytest.fixture(autouse=True)
def usual_language() -> None:
    """A page that an earlier test asked for in German leaves its language to the thread."""
    translation.deactivate()


@pytest.fixture(autouse=True)
def every_message_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that ask for planning would be gathered, across tests too."""
    monkeypatch.setattr("engine.tasks._GATHERING_SECONDS", 0.0)


@pytest.fixture
def late_planner() -> Iterator[None]:
    """What people do is settled by rounds of planning only."""
    with prompt.late():
        yield


@pytest.fixture
def annotator(db: None) -> User:
    return make_user("ann")


@pytest.fixture
def admin(db: None) -> User:
    return make_user("admin", is_staff=True, is_superuser=True)


@pytest.fixture
def workers(transactional_db: None, tmp_path: Path) -> Iterator[Workers]:
    running = Workers(tmp_path)
    yield running
    running.stop_all()

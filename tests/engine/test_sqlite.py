"""SQLite has one writer at a time: everybody else waits for the lock, and no longer than it is held."""

import gc
import sqlite3
import time
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection, transaction

from engine.models import User

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL has many writers at a time."),
]


@pytest.fixture
def holder() -> Iterator[sqlite3.Connection]:
    """Another connection, which holds the lock."""
    connection.ensure_connection()
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def busy_timeout() -> int:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        return cursor.fetchone()[0]


def test_a_writer_looks_every_few_milliseconds_until_the_lock_is_free(holder, monkeypatch):
    before = busy_timeout()
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        # By now SQLite itself would look every 100 ms.
        if len(naps) == 50:
            holder.rollback()

    monkeypatch.setattr(time, "sleep", nap)
    with transaction.atomic():
        User.objects.create(username="ann")
    assert len(naps) == 50
    assert max(naps) <= 0.01
    assert busy_timeout() == before > 0


def test_a_wait_leaves_no_cursor_to_the_garbage_collector(holder, monkeypatch):
    """A thread that writes would wait for it, where the collector comes by there."""

    def cursors() -> int:
        return sum(issubclass(type(each), sqlite3.Cursor) for each in gc.get_objects())

    looks = iter([*[False] * 20, True])
    monkeypatch.setattr(time, "sleep", lambda _: holder.rollback() if next(looks) else None)
    gc.collect()
    gc.disable()
    try:
        before = cursors()
        with transaction.atomic():
            during = cursors()
    finally:
        gc.enable()
    assert during <= before


@pytest.mark.usefixtures("holder")
def test_a_lock_that_is_never_free_ends_the_wait(monkeypatch):
    before = busy_timeout()
    hours = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: 3600 * next(hours))
    with pytest.raises(OperationalError, match="database is locked"), transaction.atomic():
        pass
    assert busy_timeout() == before


def test_another_error_is_told_at_once(monkeypatch):
    connection.ensure_connection()
    before = connection.transaction_mode
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits for nothing"))
    connection.transaction_mode = "SOMEHOW"
    try:
        with pytest.raises(OperationalError, match="syntax error"), transaction.atomic():
            pass
    finally:
        connection.transaction_mode = before

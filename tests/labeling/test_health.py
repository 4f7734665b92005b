"""The probes: alive, and ready."""

import errno

import pytest
from django.db import OperationalError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from labeling.middleware import health

pytestmark = pytest.mark.django_db


@pytest.fixture
def probe() -> Client:
    """As an orchestrator asks: by the container's address, without a login, without TLS."""
    return Client(headers={"host": "10.0.0.7:8000"})


def test_alive_asks_nothing_of_the_database(probe, settings, django_assert_num_queries):
    settings.SECURE_SSL_REDIRECT = True
    with django_assert_num_queries(0):
        reply = probe.get("/healthz")
    assert (reply.status_code, reply.json()) == (200, {"alive": "ok"})
    assert reply["Cache-Control"] == "no-store"
    assert probe.head("/healthz").status_code == 200
    assert probe.post("/healthz").status_code == 405


def test_ready_where_everything_is_there(probe):
    reply = probe.get("/readyz")
    assert (reply.status_code, reply.json()) == (
        200,
        {"database": "ok", "migrations": "ok", "broker": "ok", "disk_space": "ok"},
    )


def test_a_migration_that_is_missing(probe):
    [last] = MigrationLoader(connection).graph.leaf_nodes("engine")
    MigrationRecorder(connection).record_unapplied(*last)
    reply = probe.get("/readyz")
    assert (reply.status_code, reply.json()["migrations"]) == (503, "missing")


def test_a_broker_that_is_away(probe, monkeypatch):
    def refuse(**_: object) -> None:
        raise ConnectionRefusedError("Connection refused.")

    monkeypatch.setattr("kombu.Connection.ensure_connection", lambda self, **_: refuse())
    reply = probe.get("/readyz")
    assert (reply.status_code, reply.json()["broker"]) == (503, "missing")
    assert reply.json()["database"] == "ok"


def test_a_database_that_is_away(probe, monkeypatch, caplog):
    def away() -> bool:
        raise OperationalError("could not connect to db.internal")

    monkeypatch.setattr("labeling.middleware.health._database", away)
    reply = probe.get("/readyz")
    assert (reply.status_code, reply.json()["database"]) == (503, "missing")
    assert "db.internal" not in reply.content.decode()
    assert "Not ready: database" in caplog.text


@pytest.mark.parametrize("full", [None, "uploads"])
def test_no_space_for_temporary_files_or_for_uploads(full, probe, settings, monkeypatch, tmp_path):
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path / "uploads"
    settings.FILE_UPLOAD_TEMP_DIR.mkdir()
    real = health.tempfile.TemporaryFile

    def temporary_file(dir):
        if getattr(dir, "name", None) == full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(dir=dir)

    assert probe.get("/readyz").json()["disk_space"] == "ok"
    monkeypatch.setattr(health.tempfile, "TemporaryFile", temporary_file)
    reply = probe.get("/readyz")
    assert (reply.status_code, reply.json()["disk_space"]) == (503, "missing")
    assert probe.get("/healthz").status_code == 200

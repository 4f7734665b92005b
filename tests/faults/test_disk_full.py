"""No room on the disk: for the database, for an upload, and for the log."""

import errno
import logging
import sys
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.core.management import call_command
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from engine.models import Judgment
from tests.factories import assign, make_experiment, make_user

HTMX = {"HX-Request": "true"}


@pytest.fixture
def client(annotator) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(annotator)
    return client


def allow_pages(n: int) -> int:
    """Let SQLite's file have at most so many pages; it keeps those that it has. Returns the limit."""
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA max_page_count = {n}")
        return cursor.fetchone()[0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL's is below")
def test_an_answer_is_refused_until_there_is_room_in_the_database(client, annotator):
    experiment = make_experiment(n_policies=4, n_tasks=20, annotators=(annotator,), ready=True)
    url = reverse("judge", args=[experiment.pk])
    # A comment that fits no page that is there.
    form = {"token": assign(experiment, annotator).token, "choice": "left", "comment": "full " * 200}
    with connection.cursor() as cursor:
        # Other tests leave free pages behind.
        cursor.execute("VACUUM")
    limit = allow_pages(1_000_000)
    allow_pages(1)
    try:
        statuses = []
        while 503 not in statuses:
            reply = client.post(url, form, headers=HTMX)
            statuses.append(reply.status_code)
            assert len(statuses) < 50, "the disk never became full"
            if reply.status_code == 200:
                form["token"] = assign(experiment, annotator).token
        assert set(statuses) <= {200, 503}
        assert reply["Retry-After"] == "2"
        assert not Judgment.objects.filter(token=form["token"]).exists()
    finally:
        allow_pages(limit)
    assert client.post(url, form, headers=HTMX).status_code == 200
    assert Judgment.objects.filter(token=form["token"]).count() == 1
    call_command("verify", stdout=StringIO())


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres_only
@pytest.mark.parametrize("table", ["assignment", "judgment", "comparison", "allowance"])
def test_an_answer_is_refused_until_there_is_room_for_a_table(table, client, annotator):
    """PostgreSQL says so at the statement that needs a page: with this code, and at each of the click's."""
    experiment = make_experiment(n_policies=4, n_tasks=20, annotators=(annotator,), ready=True)
    url = reverse("judge", args=[experiment.pk])
    form = {"token": assign(experiment, annotator).token, "choice": "left"}
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$"
        )
        cursor.execute(
            f"CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON engine_{table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION no_room()"
        )
    try:
        reply = client.post(url, form, headers=HTMX)
        assert (reply.status_code, reply["Retry-After"]) == (503, "2")
        assert not Judgment.objects.exists()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION no_room CASCADE")
    assert client.post(url, form, headers=HTMX).status_code == 200
    assert Judgment.objects.count() == 1
    call_command("verify", stdout=StringIO())


@pytest.mark.django_db
def test_an_upload_is_refused_until_there_is_room_for_it(monkeypatch, settings, tmp_path):
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path
    client = Client(raise_request_exception=False)
    client.force_login(make_user("root", is_superuser=True))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def send() -> HttpResponse:
        large = BytesIO(b"task,model_a,model_b,winner\n" + b"x,a,b,a\n" * 200_000)
        large.name = "votes.csv"
        return client.post(reverse("import_votes"), {"file": large})

    with monkeypatch.context() as full:
        full.setattr(TemporaryFileUploadHandler, "receive_data_chunk", refuse)
        reply = send()
        assert (reply.status_code, reply["Retry-After"]) == (503, "2")
    # It is read now, and the form asks for a name.
    assert send().status_code == 400


@pytest.mark.django_db
def test_a_log_that_cannot_be_written_stops_nothing(client, monkeypatch):
    # Nothing waits in a buffer, as with a worker's standard error.
    with TextIOWrapper(open("/dev/full", "wb", buffering=0), write_through=True) as full:
        handler = logging.StreamHandler(full)
        monkeypatch.setattr(sys, "stderr", full)
        monkeypatch.setattr(logging.getLogger("django.request"), "handlers", [handler])
        with pytest.raises(OSError, match="No space left"):
            full.write("A line.")
        assert client.get("/nothing/here/").status_code == 404
        monkeypatch.undo()

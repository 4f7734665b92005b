"""A request that is too large is 413, a database that is busy is 503, and the API's errors are JSON."""

import io
import json
import sqlite3
from typing import ClassVar

import psycopg
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse

from engine.models import Experiment, User
from engine.services.drafts import delete_experiment
from labeling.middleware.failures import MOST_AT_ONCE, Failures, is_temporary
from tests.accounts import bearer, log_in_recently
from tests.factories import make_experiment, make_user
from tests.tables import imported

pytestmark = pytest.mark.django_db


def locked() -> OperationalError:
    """The error that Django raises if SQLite's lock is not available, made by SQLite itself."""
    cause = sqlite3.OperationalError("database is locked")
    cause.sqlite_errorcode = sqlite3.SQLITE_BUSY
    error = OperationalError(*cause.args)
    error.__cause__ = cause
    return error


def of_postgresql(state: str | None) -> OperationalError:
    cause = (
        psycopg.errors.lookup(state)("Said by the server.") if state else psycopg.OperationalError("Gone.")
    )
    error = OperationalError(*cause.args)
    error.__cause__ = cause
    return error


@pytest.fixture
def client() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(make_user("root", is_superuser=True))
    return client


@pytest.fixture
def headers() -> dict[str, str]:
    user = make_user("program", is_superuser=True)
    return bearer(user)


SPEC_THAT_IS_FINE = {
    "name": "A",
    "factors": [{"name": "P", "kind": "prompt", "levels": {"a": {"text": "x"}, "b": {"text": "y"}}}],
    "tasks": [{"prompt": "x"}],
}


def break_with(monkeypatch, error: Exception) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr("engine.models.experiments.ExperimentQuerySet.watched_by", fail)
    monkeypatch.setattr("labeling.access.to_watch", fail)


def detail(response) -> str:
    assert response["Content-Type"].startswith("application/json")
    return response.json()["detail"]


class TestDraftDeletedMeanwhile:
    """Between the look at somebody's rights and their change, as by a second click on Delete."""

    @pytest.fixture
    def draft(self, monkeypatch: pytest.MonkeyPatch) -> Experiment:
        draft = make_experiment(running=False)

        def found_and_deleted(*_args: object) -> Experiment:
            found = Experiment.objects.get(pk=draft.pk)
            delete_experiment(experiment_id=draft.pk, by=None)
            return found

        for rule in ("to_run", "to_own"):
            monkeypatch.setattr(f"labeling.access.{rule}", found_and_deleted)
        return draft

    @pytest.mark.parametrize(
        ("page", "form"),
        [
            ("delete_experiment", {}),
            ("change_display", {"name": "a"}),
            ("invite", {"role": "annotator", "valid_days": "7"}),
            ("subscribe", {"kind": "email", "target": "a@example.org", "events": ["concluded"]}),
        ],
    )
    def test_a_page_does_not_find_it(self, page, form, client, draft):
        log_in_recently(client, User.objects.get(username="root"))
        response = client.post(reverse(page, args=[draft.pk]), form)
        assert response.status_code == 404
        assert "This page does not exist, or you may not see it." in response.content.decode()

    def test_nor_does_the_api(self, client, headers, draft):
        response = client.patch(
            f"/api/experiments/{draft.pk}", {"tags": "a"}, content_type="application/json", headers=headers
        )
        assert response.status_code == 404
        assert "GET /api/experiments lists yours." in detail(response)


class TestBusyDatabase:
    def test_the_api_answers_503_in_json_and_says_when_to_come_back(self, client, headers, monkeypatch):
        """Twelve clients got error pages in HTML, with status 500, while an import held the lock."""
        break_with(monkeypatch, locked())
        response = client.get("/api/experiments", headers=headers)
        assert response.status_code == 503
        assert response["Retry-After"] == "2"
        assert "Send the same request again in 2 seconds" in detail(response)

    def test_a_page_says_so_in_words(self, client, monkeypatch):
        experiment = make_experiment()
        break_with(monkeypatch, locked())
        response = client.get(reverse("dashboard", args=[experiment.pk]))
        assert response.status_code == 503
        assert response["Retry-After"] == "2"
        assert "One moment, please" in response.content.decode()
        assert "no-store" in response["Cache-Control"]

    def test_also_where_the_session_could_not_be_stored(self, client, monkeypatch):
        """A failure in a middleware, outside of any view."""

        def fail(*_args: object, **_more: object) -> None:
            raise locked()

        monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.save", fail)
        response = Client(raise_request_exception=False).post(
            reverse("login"), {"username": "root", "password": "a long password"}
        )
        assert response.status_code == 503
        assert "One moment, please" in response.content.decode()

    def test_another_error_stays_one_of_ours(self, client, headers, monkeypatch):
        break_with(monkeypatch, RuntimeError("A secret of the server's."))
        response = client.get("/api/experiments", headers=headers)
        assert response.status_code == 500
        assert "secret" not in detail(response)
        page = client.get(reverse("dashboard", args=[make_experiment().pk]))
        assert (page.status_code, "Our fault" in page.content.decode()) == (500, True)

    @pytest.mark.parametrize(
        ("state", "temporary"),
        [
            *((state, True) for state in (None, "40001", "40P01", "53300", "57P01", "08006", "55P03")),
            *((state, False) for state in ("42P01", "57014")),
        ],
    )
    def test_of_postgresql_lost_connections_and_rolled_back_transactions_are_temporary(
        self, state, temporary
    ):
        assert is_temporary(of_postgresql(state)) == temporary

    def test_of_sqlite_a_missing_table_is_not(self):
        with pytest.raises(sqlite3.OperationalError) as missing:
            sqlite3.connect(":memory:").execute("SELECT * FROM nothing")
        error = OperationalError("no such table: nothing")
        error.__cause__ = missing.value
        assert not is_temporary(error)


class TestTheAPIsErrorsAreJSON:
    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("get", "/api/nothing/here", 404),
            ("get", "/api/experiments/one", 404),
            ("put", "/api/experiments", 405),
            ("get", "/api/experiments/99999", 404),
            ("post", "/api/experiments", 400),
        ],
    )
    @pytest.mark.parametrize("debug", [False, True])
    def test_every_failure_has_its_status_and_says_why(
        self, method, path, status, debug, client, headers, settings
    ):
        settings.DEBUG = debug
        response = client.generic(method.upper(), path, "{", "application/json", headers=headers)
        assert response.status_code in {status, 422}
        assert detail(response)
        if status == 405:
            assert "GET" in response["Allow"]


class Zeros(io.RawIOBase):
    """A body of zeros that takes no memory."""

    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int = -1) -> bytes:
        n_bytes = min(size, self.left)
        self.left -= n_bytes
        return b"\0" * n_bytes


class TestTooLarge:
    @pytest.mark.parametrize(
        ("declared", "left"), [(16_000_001, 0), (64_000_000, 0), (64_000_001, 64_000_001)]
    )
    def test_a_declared_length_is_refused_after_the_body_was_passed_over(self, declared, left):
        """A client that is still sending would find its connection cut, and not the answer."""
        body = Zeros(declared)
        sent = {"wsgi.input": body, "CONTENT_LENGTH": str(declared)}
        request = RequestFactory().generic("POST", "/api/experiments", **sent)
        response = Failures(lambda request: pytest.fail("The request went on."))(request)
        assert response.status_code == 413
        said = f"{declared:,} bytes in one request with its files; the limit is 16,000,000"
        assert said in json.loads(response.content)["detail"]
        assert body.left == left

    def test_a_body_of_the_api_and_a_form_of_too_many_fields(self, client, headers):
        body = b'{"name": "' + b"x" * 5_000_001 + b'"}'
        response = client.post("/api/experiments", body, content_type="application/json", headers=headers)
        assert response.status_code == 413
        assert "5,000,000 bytes in one request" in detail(response)
        response = client.post(reverse("new_experiment"), {f"f{n}": "" for n in range(5_001)})
        assert response.status_code == 413
        assert "5,000 fields in one form" in response.content.decode()

    @pytest.mark.parametrize("enforce_csrf_checks", [False, True])
    def test_a_form_that_is_too_large_is_refused_with_the_limit(self, enforce_csrf_checks):
        client = Client(raise_request_exception=False, enforce_csrf_checks=enforce_csrf_checks)
        client.force_login(make_user(is_superuser=True))
        # With the cookie the CSRF check reads the form, in a middleware.
        client.cookies["csrftoken"] = "x" * 32
        response = client.post(reverse("new_from", args=["prompts"]), {"tasks": "x" * 5_000_001})
        assert response.status_code == 413
        assert "5,000,000 bytes in one request" in response.content.decode()


class TestDoors:
    """The same limits whichever way an experiment comes in."""

    SPEC: ClassVar = {
        "name": "Large",
        "factors": [
            {"name": f"F{f}", "kind": "prompt", "levels": {f"L{n}": {"text": f"{n}"} for n in range(20)}}
            for f in range(6)
        ],
        "tasks": [{"prompt": "x"}],
    }

    def test_the_api_refuses_six_factors_of_twenty_levels(self, client, headers):
        """They asked for 29 PiB and took 192 s."""
        response = client.post(
            "/api/experiments", self.SPEC, content_type="application/json", headers=headers
        )
        assert response.status_code == 422
        assert "64,000,000 policies; the limit is 300" in detail(response)
        assert not Experiment.objects.exists()

    @pytest.mark.parametrize(
        "change",
        [{"tasks": [{}] * 3_000}, {f"unknown{n}": 1 for n in range(3_000)}, {"k" * 100_000: 1}],
        ids=["entries", "names", "a long name"],
    )
    def test_what_is_wrong_with_a_body_is_told_in_few_words(self, change, client, headers):
        """5 MB of faulty entries were answered with 18 MB of faults."""
        response = client.post(
            "/api/experiments", self.SPEC | change, content_type="application/json", headers=headers
        )
        assert response.status_code == 422
        assert len(response.content) < 20_000

    def test_of_many_faults_the_first_are_told_and_the_rest_counted(self, client, headers):
        body = self.SPEC | {"tasks": [{}] * 100}
        response = client.post("/api/experiments", body, content_type="application/json", headers=headers)
        assert detail(response).startswith(
            "payload.tasks.0: Give either prompt, a text, or messages, a conversation.; "
        )
        assert detail(response).endswith("And 80 more like these.")

    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            (b'{"name": "\xe9"}', 400, "The body is not UTF-8. Send it as UTF-8."),
            (b'{"name": "a", "name": "b"}', 422, "'name' appears twice in one object. Remove one of them."),
            (b'{"budget": true}', 422, "payload.budget: Input should be a valid integer"),
            (b'{"budget": "5"}', 422, "payload.budget: Input should be a valid integer"),
        ],
    )
    def test_a_change_that_could_be_misunderstood(self, body, status, words, client, headers):
        experiment = make_experiment(running=False)
        response = client.generic(
            "PATCH",
            f"/api/experiments/{experiment.pk}",
            body,
            content_type="application/json",
            headers=headers,
        )
        assert (response.status_code, detail(response)[: len(words)]) == (status, words)

    def test_an_export_says_what_is_wrong_with_its_filter(self, client, headers):
        """The API answered that the request cannot be read, and no more."""
        experiment = make_experiment(running=False)
        response = client.get(f"/api/experiments/{experiment.pk}/judgments.csv?policy=P0", headers=headers)
        assert response.status_code == 400
        assert "The filter cannot be used. policy: Select a valid choice. P0" in detail(response)

    @pytest.mark.parametrize(
        "change", [{"\ud800": 1}, {"tasks": [{"prompt": "a", "\ud800": 1}]}, {"excluded": [{"\ud800": {}}]}]
    )
    def test_half_of_a_surrogate_pair_in_a_name_is_told_and_not_shown(self, change, client):
        """The page named it, and could not be encoded: 500."""
        file = SimpleUploadedFile("f.json", json.dumps(SPEC_THAT_IS_FINE | change).encode())
        response = imported(client, reverse("new_experiment"), {"description": file})
        assert response.status_code == 400
        assert "a character cannot be stored" in response.content.decode()

    def test_it_is_refused_in_what_the_setup_page_sends_back_too(self, client):
        sent = {"factor": "f1", "f1-name": "F", "f1-kind": "prompt", "f1-level": "l1", "f1-l1-name": "L"}
        response = client.post(
            reverse("new_from", args=["prompts"]), sent | {"f1-l1-extra": '{"\\ud800": 1}', "name": "Mine"}
        )
        assert response.status_code == 400
        assert 'value="Mine"' in response.content.decode()


def in_the_middle(request: HttpRequest) -> StreamingHttpResponse:
    """A download of which nothing is read yet."""
    return StreamingHttpResponse(iter([b"row"]))


@pytest.mark.parametrize("by", ["session", "token"])
def test_one_person_has_no_more_requests_under_way_than_a_browser_opens(by, rf):
    """A thousand looks of a waiting page made everybody else wait for 25 seconds."""

    def ask(name: str) -> HttpResponse:
        if by == "session":
            rf.cookies["sessionid"] = name
            return asked(rf.get("/"))
        return asked(rf.get("/", headers={"authorization": f"Bearer {name}"}))

    asked = Failures(in_the_middle)
    theirs = [ask("ann") for _ in range(MOST_AT_ONCE)]
    assert {reply.status_code for reply in theirs} == {200}
    refused = ask("ann")
    assert (refused.status_code, refused["Retry-After"]) == (503, "2")
    other = ask("bob")
    assert other.status_code == 200
    for reply in (theirs.pop(), other):
        reply.close()
    theirs.append(ask("ann"))
    assert theirs[-1].status_code == 200
    assert ask("ann").status_code == 503
    for reply in theirs:
        reply.close()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("origin", "setting"),
    [
        ("https://testserver", "BEHIND_TLS_PROXY=true"),
        ("https://label.example.org", "CSRF_TRUSTED_ORIGINS=https://label.example.org"),
        ("http://testserver", "HTTPS=true"),
    ],
)
def test_a_refused_form_tells_the_operator_which_setting_it_may_be(caplog, origin, setting):
    caplog.set_level("WARNING", "labeling")
    client = Client(enforce_csrf_checks=True)
    reply = client.post("/accounts/login/", headers={"origin": origin})
    assert reply.status_code == 403
    [said] = [record.getMessage() for record in caplog.records if record.name.startswith("labeling")]
    assert setting in said
    assert "CSRF_TRUSTED_ORIGINS" not in reply.content.decode()


def test_an_unknown_host_tells_the_operator_which_setting_it_is(caplog, settings):
    settings.DEBUG = False
    caplog.set_level("WARNING", "labeling")
    reply = Client(headers={"host": "label.example.org"}).get("/accounts/login/")
    assert reply.status_code == 400
    assert "ALLOWED_HOSTS" in caplog.text
    assert "<h1>" in reply.content.decode()

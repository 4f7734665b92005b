"""PostgreSQL ends the connection in the middle of a request, as it does when it is restarted.

Not at random: once at each statement of the request. Whatever was under way then, the reply is what the
request would have got anyway or 503 with Retry-After, and the same request again finishes the work.
"""

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import close_old_connections, connection
from django.test import Client
from django.urls import reverse

from engine.models import Assignment, Judgment, Token
from engine.services.tokens import make_token
from llmpo_site.postgresql.driver import Connection
from tests.factories import assign, make_experiment, make_user
from tests.markup import stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]

_MOST_STATEMENTS = 100


def end_connection(server: psycopg.Connection, ours: psycopg.Connection | None = None) -> None:
    """Have the server end this thread's connection, with the words of a restart, and wait for these."""
    ours = ours or connection.connection
    server.execute("SELECT pg_terminate_backend(%s)", [ours.info.backend_pid])
    select.select([ours.fileno()], [], [])


def administrator() -> psycopg.Connection:
    """Another connection to the same database."""
    own = connection.get_connection_params()
    login = {name: own[name] for name in ("dbname", "user", "password", "host", "port") if name in own}
    return psycopg.connect(**login, autocommit=True)


@contextmanager
def lost_at(statement: int, server: psycopg.Connection) -> Iterator[list[str]]:
    """Lose the connection right before the statement of this number; yields the statements so far."""
    seen: list[str] = []

    def count(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        seen.append(sql)
        if len(seen) == statement:
            end_connection(server)
        return execute(sql, *rest)

    with connection.execute_wrapper(count):
        yield seen


def lose_at_each_statement(ask: Callable[[], Any], made_good: Callable[[], None]) -> int:
    """Ask, with the connection lost at the first statement, the second and so on, until none is left.

    Returns in how many of the rounds the request was refused.
    """
    refused = 0
    with administrator() as server:
        for statement in range(1, _MOST_STATEMENTS):
            with lost_at(statement, server) as seen:
                reply = ask()
            if len(seen) < statement:
                assert reply.status_code == 200
                return refused
            if reply.status_code == 503:
                assert reply["Retry-After"] == "2"
                refused += 1
            else:
                assert reply.status_code == 200, seen[statement - 1]
            # Between two requests a web process does this; the client of the tests leaves it out.
            close_old_connections()
            made_good()
    pytest.fail(f"More than {_MOST_STATEMENTS} statements")


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


def test_a_click_is_refused_or_saved_and_counts_once(client, annotator, settings):
    settings.BUFFER_MIN = 60
    experiment = make_experiment(n_policies=4, n_tasks=20, annotators=(annotator,), ready=True)
    client.force_login(annotator)
    url = reverse("judge", args=[experiment.pk])
    given = []

    def click() -> Any:
        return client.post(url, {"token": given[-1], "choice": "left"}, headers={"HX-Request": "true"})

    def sent_again() -> None:
        reply = click()
        assert reply.status_code == 200
        assert Judgment.objects.filter(token=given[-1]).count() == 1
        given.append(stage(reply)["token"])

    given.append(assign(experiment, annotator).token)
    assert lose_at_each_statement(click, sent_again) > 5
    assert Judgment.objects.count() == len(given)
    assert Assignment.objects.filter(state=Assignment.State.OPEN).count() == 1
    call_command("verify", stdout=StringIO())


@pytest.mark.parametrize("name", ["pair", "dashboard_live", "api"])
def test_a_page_is_refused_or_shown(name, client, annotator):
    experiment = make_experiment(annotators=(annotator,), ready=True)
    headers = {}
    url = reverse(name, args=[experiment.pk]) if name != "api" else f"/api/experiments/{experiment.pk}"
    if name == "api":
        user = make_user("program", is_superuser=True)
        _, secret = make_token(user=user, name="n", valid_days=1, scopes=Token.Scope.values)
        headers = {"Authorization": f"Bearer {secret}"}
    else:
        client.force_login(annotator if name == "pair" else make_user(is_superuser=True))
    assert lose_at_each_statement(lambda: client.get(url, headers=headers), lambda: None) > 1


def test_one_refused_request_has_every_thread_connect_anew(client, annotator):
    """Else each thread of a web process would refuse one more request, however long after the restart."""
    experiment = make_experiment(annotators=(annotator,), ready=True)
    client.force_login(annotator)
    url = reverse("pair", args=[experiment.pk])
    asked, lost = threading.Event(), threading.Event()
    theirs, statuses = [], []

    def thread() -> None:
        other = Client(raise_request_exception=False)
        other.cookies = client.cookies
        statuses.append(other.get(url).status_code)
        theirs.append(connection.connection)
        asked.set()
        assert lost.wait(60)
        statuses.append(other.get(url).status_code)
        connection.close()

    other = threading.Thread(target=thread)
    other.start()
    assert asked.wait(60)
    with administrator() as server:
        client.get(url)
        end_connection(server)
        end_connection(server, theirs[0])
    statuses.append(client.get(url).status_code)
    close_old_connections()
    lost.set()
    other.join()
    assert statuses == [200, 503, 200]


def test_a_server_that_says_nothing_is_given_up(client, annotator, monkeypatch):
    experiment = make_experiment(annotators=(annotator,), ready=True)
    client.force_login(annotator)
    token = assign(experiment, annotator).token

    def click() -> Any:
        url = reverse("judge", args=[experiment.pk])
        return client.post(url, {"token": token, "choice": "left"}, headers={"HX-Request": "true"})

    monkeypatch.setattr(Connection, "patience", 1.0)
    with administrator() as server, server.transaction():
        server.execute(f"LOCK TABLE {Judgment._meta.db_table} IN EXCLUSIVE MODE")
        reply = click()
    assert reply.status_code == 503
    assert reply["Retry-After"] == "2"
    close_old_connections()
    assert click().status_code == 200
    assert Judgment.objects.count() == 1


def test_a_worker_waits_for_the_server(transactional_db):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(1.5), 7")
        assert cursor.fetchone()[1] == 7

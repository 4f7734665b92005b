"""A server that echoes all that it gets, plain and encoded, while everything that leaves a trace is searched.

It echoes in a refusal (401), in a failure (500), in the refusal of a setting (400) and in an answer (200).
"""

import base64
import json
import logging
from collections.abc import Iterator

import pytest
from django.core import mail
from django.db import connection as database
from django.urls import reverse

from engine.generation.remote.connection_test import try_connection
from engine.models import Connection, Experiment, Membership, Response, Subscription, User
from engine.notifying.delivery import deliver_due
from engine.services import connection_loans, connections, keys
from engine.services.notifications import subscribe, watch
from engine.services.tokens import make_token
from llmpo_site.traces_and_errors import cut
from tests.accounts import logged_in
from tests.engine.test_remote_work import compare, write
from tests.factories import add_member, make_user
from tests.servers import echoing, serving

pytestmark = pytest.mark.django_db

KEY = "sk-proj-Zq7Lw3Xy9Rt5Vb1Nm8Kp4Hd6Jf2Gs0Ac-TAIL"
STATUSES = (401, 500, 400, 200)


def needles(size: int) -> list[str]:
    """Parts of the key, and of its encodings at each of the three places in a group of letters."""
    parts = [KEY[n : n + size] for n in range(len(KEY) - size)]
    for n in range(3):
        encoded = base64.b64encode(KEY[n:].encode()).decode()
        parts += [encoded[k : k + 3 * size // 2] for k in range(0, len(encoded) - 3 * size // 2, 4)]
    return parts


def found_in(text: str, size: int = 8) -> list[str]:
    low = text.lower()
    return [needle for needle in needles(size) if needle.lower() in low]


def test_the_search_finds_what_the_server_echoes():
    """Otherwise the other tests would show nothing."""
    with serving() as server:
        server.headers.append({"authorization": f"Bearer {KEY}"})
        for size in (8, 16):
            assert len(found_in(str(echoing(server).body), size)) > len(needles(size)) / 2


def everything_stored() -> Iterator[tuple[str, str]]:
    with database.cursor() as cursor:
        for table in database.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - names of our own tables
            for row in cursor.fetchall():
                yield table, " ".join(map(str, row))


@pytest.fixture
def logged(caplog):
    """The log at DEBUG, as our settings let it through."""
    caplog.set_level(logging.DEBUG)
    return caplog


def used(status: int) -> tuple[Experiment, Connection]:
    """An experiment whose model echoes: tested, asked for responses, with mails about what happened."""
    owner = make_user("owner", email="owner@example.org", is_staff=True)
    with serving() as server:
        made = connections.make(
            by=owner, owner=None, key=KEY, name="echo", provider="compatible", model_id=f"echo{status}",
            address=server.url, everybody=True,
        )  # fmt: skip
        try_connection(made.pk)
        assert server.headers[-1]["authorization"] == f"Bearer {KEY}", "it has seen the key"
        experiment = compare("echo")
        add_member(experiment, owner, Membership.Role.OWNER)
        for kind, target in (("email", "owner@example.org"), ("webhook", "https://hooks.example.org/")):
            events = list(Subscription.Event)
            subscribe(experiment=experiment, by=owner, kind=kind, target=target, events=events)
        for _ in range(2):
            Connection.objects.update(waits_until=None)
            write()
    watch()
    deliver_due()
    return experiment, made


def pages(experiment: Experiment, made: Connection) -> Iterator[tuple[str, str]]:
    """What the owner sees, who sees all that others do (tests/authorisation)."""
    paths = [
        *(reverse(name) for name in ("home", "connections")),
        *(reverse(name, args=[made.pk]) for name in ("connection", "change_connection", "connection_tested")),
        *(
            reverse(name, args=[experiment.pk])
            for name in ("dashboard", "quality", "method", "log", "comparisons", "setup", "setup_file",
                         "report", "export", "experiment_settings", "remarks", "people")
        ),
        *(reverse("policy", args=[experiment.pk, number]) for number in (1, 2)),
        *(reverse("policy_request", args=[experiment.pk, number]) for number in (1, 2)),
    ]  # fmt: skip
    owner = User.objects.get(username="owner")
    browser = logged_in(owner)
    _, secret = make_token(user=owner, name="t", valid_days=1, scopes=["read", "manage"])
    bearer = {"Authorization": f"Bearer {secret}"}
    of_experiment = ("", "/log", "/responses", "/ranking", "/quality", "/results/task", "/members")
    answers = {
        **{path: browser.get(path) for path in paths},
        **{
            name: browser.post(reverse(name, args=[experiment.pk]))
            for name in ("judgments_csv", "judgments_jsonl")
        },
        "own_data": browser.post(reverse("own_data")),
        **{
            path: browser.get(path, headers=bearer)
            for path in (
                "/api/connections",
                *(f"/api/experiments/{experiment.pk}{each}" for each in of_experiment),
            )
        },
    }
    for where, answer in answers.items():
        content = b"".join(answer) if answer.streaming else answer.content
        yield where, content.decode()


@pytest.fixture
def called(monkeypatch):
    """The bodies of the calls to webhooks."""
    bodies: list[str] = []
    monkeypatch.setattr("engine.notifying.delivery.call", lambda *, body, **_: bodies.append(body.decode()))
    return bodies


@pytest.mark.parametrize("status", STATUSES)
def test_no_part_of_a_key_comes_back(status, settings, logged, called):
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    experiment, made = used(status)
    assert Connection.objects.get().test["sentence"]
    places = [
        *everything_stored(),
        ("log", logged.text),
        *(("webhook", each) for each in called),
        *((f"mail {each.subject}", f"{each.subject} {each.body}") for each in mail.outbox),
        *pages(experiment, made),
    ]
    # Ordinary words must stay in answers, so shorter parts are left in them.
    size = 16 if status == 200 else 8
    shown = {where: parts for where, text in places if (parts := found_in(text, size))}
    assert not shown
    assert bool(called) == bool(mail.outbox)
    written = Response.objects.exclude(state=Response.State.WAITING)
    assert written.exists() == (status == 200), "an answer is stored, and nothing else ends a response"
    assert keys.target_of(Connection.objects.get()).key == KEY


def test_an_error_report_holds_no_key():
    event = {
        "message": f"Refused: Bearer {KEY}",
        "exception": {"values": [{"value": f"{KEY}", "stacktrace": {"frames": []}}]},
        "request": {"headers": {"x": f"api-key: {KEY}"}, "url": f"https://me:{KEY}@host/v1?key={KEY}"},
    }
    assert not found_in(json.dumps(cut(event)))


def test_another_experiment_uses_it_only_while_it_is_lent(settings):
    """Its name in a level, a guard or a judge of somebody else asks nothing."""
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    owner = make_user("owner")
    with serving() as server:
        made = connections.make(
            by=owner, owner=owner, key=KEY, name="theirs", provider="compatible", model_id="echo200",
            address=server.url,
        )  # fmt: skip
        connections.make(
            by=None, owner=None, name="free", provider="compatible", model_id="echo401",
            address=server.url, everybody=True,
        )  # fmt: skip
        # Neither could start without the loan, which they lose afterwards.
        Connection.objects.filter(pk=made.pk).update(everybody=True)
        experiment, guarded = compare("theirs"), compare("free", guard={"guard_model": "theirs"})
        Connection.objects.filter(pk=made.pk).update(everybody=False)
        add_member(experiment, owner, Membership.Role.OWNER)
        write()
        assert not [each for each in server.headers if "authorization" in each]
        loan = connection_loans.lend(connection_id=made.pk, experiment=experiment, by=owner)
        write()
        asked = len([each for each in server.headers if "authorization" in each])
        assert asked
        assert not Response.objects.filter(policy__experiment=guarded, state="done").exists()
        connection_loans.end_loan(loan_id=loan.pk, by=owner)
        Response.objects.filter(policy__experiment=experiment).update(state="waiting", text="", done_at=None)
        write()
        assert len([each for each in server.headers if "authorization" in each]) == asked

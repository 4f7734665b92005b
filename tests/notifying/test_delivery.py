"""Sending in earnest: a real HTTP server on this machine, and Django's outbox for mail."""

import json
import re
import smtplib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from django.core import mail

from engine import tasks
from engine.domain.addresses import resolve
from engine.models import Notification
from engine.notifying import signed_calls
from engine.notifying.delivery import deliver_due
from engine.notifying.signed_calls import signature
from engine.services.experiments import stop
from engine.services.notifications import send_test, subscribe
from tests.factories import make_experiment, make_user

pytestmark = pytest.mark.django_db


@dataclass
class Receiver:
    """The calls received, and the answers to give."""

    url: str = ""
    status: int = 204
    location: str = ""
    calls: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver(settings) -> Iterator[Receiver]:
    settings.ALLOW_PRIVATE_WEBHOOKS = True
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.calls.append((self.path, dict(self.headers), body))
            self.send_response(receiver.status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://localhost:{server.server_port}/hook?key=1"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield receiver
    server.shutdown()
    server.server_close()


@pytest.fixture
def experiment():
    return make_experiment(name="Which is best?")


def hook(experiment, url: str):
    return subscribe(experiment=experiment, by=make_user(), kind="webhook", target=url, events=["concluded"])


def the_message() -> Notification:
    return Notification.objects.get()


def is_genuine_of_the_documentation() -> Callable[..., bool]:
    """The function that docs/api.md gives to those who receive calls."""
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    [snippet] = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "is_genuine" in code]
    names: dict[str, Any] = {}
    exec(snippet, names)  # noqa: S102 - our own documentation
    return cast("Callable[..., bool]", names["is_genuine"])


class TestWebhook:
    def test_a_replayed_call_is_recognised_by_what_the_documentation_says(self, experiment, receiver):
        """The number was not signed: an overheard call could be repeated under a fresh one."""
        subscription = hook(experiment, receiver.url)
        send_test(subscription=subscription)
        deliver_due()
        [(_, headers, body)] = receiver.calls
        is_genuine = is_genuine_of_the_documentation()
        handled: set[str] = set()
        assert not is_genuine("another secret", headers, body, handled)
        assert not is_genuine(subscription.secret, headers, body + b" ", handled)
        assert not is_genuine(subscription.secret, headers | {"LLMPO-Delivery": "12345"}, body, handled)
        old = str(int(headers["LLMPO-Timestamp"]) - 301)
        resigned = f"v2={signature(subscription.secret, headers['LLMPO-Delivery'], old, body)}"
        aged = headers | {"LLMPO-Timestamp": old}
        assert not is_genuine(subscription.secret, aged, body, handled)
        assert not is_genuine(subscription.secret, aged | {"LLMPO-Signature": resigned}, body, handled)
        assert is_genuine(subscription.secret, headers, body, handled)
        assert not is_genuine(subscription.secret, headers, body, handled), "handled already"

    @pytest.mark.parametrize("status", [204, 500])
    def test_neither_the_workers_log_nor_the_reason_of_a_failure_holds_the_url(
        self, status, experiment, receiver, caplog
    ):
        """A Slack URL is a password; the HTTP client used to write it into the log of every worker."""
        caplog.set_level("DEBUG")
        receiver.status = status
        send_test(subscription=hook(experiment, receiver.url.replace("/hook?key=1", "/T0/B0/s3cret?key=k3y")))
        deliver_due()
        assert len(receiver.calls) == 1
        assert not any(part in caplog.text + the_message().error for part in ("s3cret", "k3y", "/T0/"))

    def test_a_call_that_fails_names_the_host_only(self, experiment, receiver, monkeypatch, caplog):
        def fail(*args: object, **options: object) -> None:
            raise httpx2.ConnectError("no way to http://localhost/s3cret?key=k3y")

        monkeypatch.setattr(httpx2.Client, "send", fail)
        send_test(subscription=hook(experiment, "http://localhost/s3cret?key=k3y"))
        deliver_due()
        assert the_message().error == "The call to localhost failed: ConnectError"
        assert "s3cret" not in caplog.text

    def test_a_call_is_signed_so_that_its_receiver_can_tell_who_made_it(self, experiment, receiver):
        subscription = hook(experiment, receiver.url)
        stop(experiment_id=experiment.pk)
        assert deliver_due() == 1
        [(path, headers, body)] = receiver.calls
        assert path == "/hook?key=1"
        assert headers["Host"] == receiver.url.split("/")[2]
        assert is_genuine_of_the_documentation()(subscription.secret, headers, body, set())
        assert headers["LLMPO-Delivery"] == str(the_message().pk)
        assert the_message().state == "sent"

        news = json.loads(body)
        assert news["event"] == "concluded"
        assert news["text"].startswith("Not decided. ")
        assert news["experiment"]["name"] == "Which is best?"
        assert news["experiment"]["conclusion"] == "stopped"
        assert news["experiment"]["url"] == f"http://localhost:8000/experiments/{experiment.pk}/"

    @pytest.mark.parametrize("status", [400, 404, 500])
    def test_an_answer_that_is_no_success_is_tried_again_later(self, status, experiment, receiver):
        receiver.status = status
        send_test(subscription=hook(experiment, receiver.url))
        deliver_due()
        assert (the_message().state, the_message().attempts) == ("waiting", 1)
        assert f"It answered {status}" in the_message().error
        assert deliver_due() == 0, "not at once"

    def test_a_redirect_is_not_followed(self, experiment, receiver):
        receiver.status, receiver.location = 302, receiver.url
        send_test(subscription=hook(experiment, receiver.url))
        deliver_due()
        assert len(receiver.calls) == 1
        assert "It answered 302" in the_message().error

    # On a busy machine the time may be over before there is a connection to close.
    @pytest.mark.parametrize("seconds", [0.3, 0.0])
    def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(
        self, experiment, settings, monkeypatch, seconds
    ):
        """Each byte began the timeout anew: the receiver of one webhook could hold a worker for days."""
        settings.ALLOW_PRIVATE_WEBHOOKS = True
        monkeypatch.setattr(signed_calls, "_WHOLE_CALL_SECONDS", seconds)
        gone = threading.Event()

        def dribble() -> None:
            connection, _ = listener.accept()
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                for _ in range(2000):
                    time.sleep(0.05)
                    connection.sendall(b"x")
                connection.sendall(b"\r\n\r\n")
            except OSError:
                gone.set()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=dribble, daemon=True).start()
            send_test(subscription=hook(experiment, f"http://localhost:{listener.getsockname()[1]}/"))
            deliver_due()
        assert f"took longer than {seconds:g} seconds" in the_message().error
        assert gone.wait(30), "the connection is closed"

    def test_nobody_there_is_tried_again_later(self, experiment, receiver):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        send_test(subscription=hook(experiment, f"http://127.0.0.1:{port}/"))
        deliver_due()
        assert the_message().state == "waiting"
        assert "The call to 127.0.0.1 failed: ConnectError" in the_message().error

    def test_a_name_that_leads_to_a_private_address_is_refused_for_good(self, experiment, receiver, settings):
        send_test(subscription=hook(experiment, receiver.url))
        settings.ALLOW_PRIVATE_WEBHOOKS = False
        deliver_due()
        assert receiver.calls == []
        assert the_message().state == "failed"
        assert "that is not public" in the_message().error

    def test_one_private_address_among_several_is_enough_to_refuse(self, monkeypatch):
        both = [(0, 0, 0, "", ("93.184.216.34", 443)), (0, 0, 0, "", ("10.0.0.7", 443))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: both)
        with pytest.raises(ValueError, match="leads to an address that is not public"):
            resolve("example.org", 443)

    def test_the_address_that_was_checked_is_the_one_that_is_called(self, experiment, receiver, monkeypatch):
        """A name that leads elsewhere when asked a second time."""
        true = socket.getaddrinfo
        asked: list[str] = []

        def once(host, *args, **options):
            asked.append(host)
            return true(host, *args, **options)

        monkeypatch.setattr(socket, "getaddrinfo", once)
        send_test(subscription=hook(experiment, receiver.url))
        deliver_due()
        assert asked.count("localhost") == 1
        assert len(receiver.calls) == 1


class TestMail:
    def mail_to(self, experiment):
        return subscribe(
            experiment=experiment,
            by=make_user(),
            kind="email",
            target="ann@example.org",
            events=["concluded"],
        )

    def test_it_says_what_happened_and_where_to_look(self, experiment):
        self.mail_to(experiment)
        stop(experiment_id=experiment.pk)
        deliver_due()
        [message] = mail.outbox
        assert message.to == ["ann@example.org"]
        assert message.subject == "Which is best?: Not decided"
        assert f"http://localhost:8000/experiments/{experiment.pk}/" in message.body
        assert the_message().state == "sent"

    def test_a_line_break_in_a_name_is_no_header(self):
        experiment = make_experiment(name="Best?\nBcc: all@example.org")
        send_test(subscription=self.mail_to(experiment))
        deliver_due()
        [message] = mail.outbox
        assert message.subject == "Best? Bcc: all@example.org: a test"
        assert message.recipients() == ["ann@example.org"]

    def test_a_refused_recipient_is_not_named_in_the_log(self, experiment, monkeypatch, caplog):
        def refuse(*args: object, **options: object) -> None:
            raise smtplib.SMTPRecipientsRefused({"ann@example.org": (550, b"No such user")})

        monkeypatch.setattr("django.core.mail.EmailMessage.send", refuse)
        send_test(subscription=self.mail_to(experiment))
        deliver_due()
        assert "ann@" not in the_message().error + caplog.text
        assert "somebody at example.org" in the_message().error

    def test_a_mail_server_that_is_away_costs_an_attempt_and_nothing_else(self, experiment, monkeypatch):
        def refuse(*args: object, **options: object) -> None:
            raise smtplib.SMTPServerDisconnected("away")

        monkeypatch.setattr("django.core.mail.EmailMessage.send", refuse)
        send_test(subscription=self.mail_to(experiment))
        deliver_due()
        assert (the_message().state, the_message().error) == ("waiting", "The mail server: away")


def test_what_only_goes_to_the_log_is_not_called_sent(experiment, settings, capsys):
    """Under console:// a message that nobody could receive was listed as sent."""
    TestMail().mail_to(experiment)
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    stop(experiment_id=experiment.pk)
    deliver_due()
    assert "Which is best?: Not decided" in capsys.readouterr().out
    assert the_message().state == "failed"
    assert the_message().error.startswith("Mail is not configured here")


def test_one_address_that_fails_does_not_hold_up_the_others(experiment, receiver):
    receiver.status = 500
    hook(experiment, receiver.url)
    TestMail().mail_to(experiment)
    stop(experiment_id=experiment.pk)
    tasks.deliver()
    assert sorted(Notification.objects.values_list("state", flat=True)) == ["sent", "waiting"]
    assert len(mail.outbox) == 1


def test_the_sweep_has_what_is_due_sent(experiment, monkeypatch, django_capture_on_commit_callbacks):
    woken: list[str] = []
    for task in (tasks.deliver, tasks.generate, tasks.judge):
        monkeypatch.setattr(
            task, "apply_async", lambda args=(), task=task, **options: woken.append(task.name)
        )
    with django_capture_on_commit_callbacks(execute=True):
        tasks.sweep()
    assert "engine.tasks.deliver" not in woken
    TestMail().mail_to(experiment)
    stop(experiment_id=experiment.pk)
    with django_capture_on_commit_callbacks(execute=True):
        tasks.sweep()
    assert "engine.tasks.deliver" in woken


@pytest.mark.parametrize("kind", ["slack", "teams"])
def test_slack_and_teams_get_their_own_shape_and_names_are_no_markup(receiver, kind):
    named = "<!channel> [here](https://evil.example)"
    experiment = make_experiment(name=named)
    target = {"kind": kind, "target": receiver.url, "events": ["concluded"]}
    subscription = subscribe(experiment=experiment, by=make_user(), **target)
    assert subscription.secret == ""
    send_test(subscription=subscription)
    assert deliver_due() == 1
    assert the_message().state == Notification.State.SENT
    [(_, headers, body)] = receiver.calls
    assert "LLMPO-Signature" not in headers
    sent = json.loads(body)
    link = f"http://localhost:8000/experiments/{experiment.pk}/"
    if kind == "slack":
        header, section, last = sent["blocks"]
        assert named in header["text"]["text"]
        assert {header["text"]["type"], section["text"]["type"]} == {"plain_text"}
        assert last["text"]["text"].startswith(f"<{link}|")
        assert "<" not in sent["text"]
    else:
        [attachment] = sent["attachments"]
        card = attachment["content"]
        assert (sent["type"], card["type"]) == ("message", "AdaptiveCard")
        assert named in card["body"][0]["inlines"][0]["text"]
        assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
        assert [action["url"] for action in card["actions"]] == [link]


@pytest.mark.parametrize(
    ("kind", "target", "token"),
    [
        ("webhook", "/a\x7fb", ""),
        ("github", "/ann/prompts", "clé"),
    ],
)
def test_what_cannot_be_sent_at_all_ends_and_holds_nothing_up(receiver, experiment, kind, target, token):
    base = receiver.url.partition("/hook")[0]
    bad = subscribe(
        experiment=experiment, by=make_user(), kind=kind, target=base + target, events=[], token=token
    )
    Notification.objects.create(
        subscription=bad,
        event="commit",
        key="1",
        text=json.dumps({"sha": "a" * 40, "state": "same", "experiment": experiment.pk}),
    )
    send_test(subscription=hook(experiment, receiver.url))
    deliver_due()
    assert [each.state for each in Notification.objects.order_by("pk")] == ["failed", "sent"]
    assert token not in Notification.objects.earliest("pk").error or not token

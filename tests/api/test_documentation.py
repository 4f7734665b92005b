"""The examples of docs/api.md, taken from the document and run in their order against the application."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

import llmpo_client
from engine.models import Experiment, Judgment, Token, User
from engine.services.planning import advance
from engine.services.tokens import make_token
from llmpo_site.wsgi import application
from tests.backends import ScriptedBackend
from tests.factories import write_responses

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("connection_stays_open")]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/api.md"
HOST = "https://label.example.org"
# A description of what is sent to somebody's own server; tests/notifying runs the example beside it.
NOT_REQUESTS = ("LLMPO-Signature", '"event"')


def examples() -> Iterator[tuple[str, str]]:
    text = DOCUMENT.read_text()
    for language, code in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if not any(each in code for each in NOT_REQUESTS):
            yield language, code


def curled(command: str, token: str) -> httpx2.Request:
    """The request of a curl command."""
    words = iter(shlex.split(command.replace("$TOKEN", token)))
    assert next(words) == "curl"
    method, headers, body, url = "GET", {}, None, ""
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case "-d":
                body = next(words)
            case _:
                url = word
    return httpx2.Request(method, url, headers=headers, content=body)


def work() -> None:
    """Do the work of the workers between the examples."""
    for experiment in Experiment.objects.filter(state="running"):
        advance(experiment_id=experiment.pk)
    write_responses(ScriptedBackend(lambda request: f"A response by {request.seed}."))


def test_every_example_works_as_typed(admin: User, settings: Any, monkeypatch: Any, tmp_path: Path, capsys):
    """Create, start, label gave 404."""
    settings.ALLOWED_HOSTS = ["label.example.org"]
    _, token = make_token(user=admin, name="t", valid_days=1, scopes=Token.Scope.values)
    monkeypatch.setenv("LLMPO_TOKEN", token)
    monkeypatch.chdir(tmp_path)
    transport = httpx2.WSGITransport(application)
    monkeypatch.setattr(llmpo_client, "Client", partial(llmpo_client.Client, transport=transport))
    here = httpx2.Client(base_url=HOST, transport=transport, headers={"Authorization": f"Bearer {token}"})
    # Nobody decides the experiment meanwhile, so it is stopped.
    monkeypatch.setattr(time, "sleep", lambda seconds: names["client"].act(names["made"]["id"], "stop"))
    names: dict[str, Any] = {}
    seen, number = [], 0
    for language, code in examples():
        seen.append(language)
        match language:
            case "json":
                made = here.post("/api/experiments", json=json.loads(code))
                assert made.status_code == 201, made.text
                # The document says 1 where the number of one's own experiment goes.
                number = made.json()["id"]
                assert here.post(f"/api/experiments/{number}/actions/start").json()["state"] == "running"
            case "sh":
                request = curled(code.strip().replace("/label/1/", f"/label/{number}/"), token)
                answer = here.send(request)
                assert answer.status_code == 200, answer.text
                if request.method == "POST":
                    pair = answer.json()["pair"]
                    body = {"token": pair["token"], "choice": "left"}
                    assert here.post(f"/api/label/{number}/judgments", json=body).json()["created"]
            case "python":
                exec(code, names)  # noqa: S102 - our own document
        work()
    assert seen == ["sh", "json", "python", "python", "python", "python", "sh"]
    assert Judgment.objects.count() == 2
    [row] = [json.loads(line) for line in Path("judgments.jsonl").read_text().splitlines()]
    assert (row["choice"], row["via"]) == ("left", "api")
    printed = capsys.readouterr().out
    assert "Two greetings running" in printed
    assert "it does not hold" in printed
    assert "stopped None" in printed

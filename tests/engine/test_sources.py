"""Sources of tasks, against a server that answers as the hub and Langfuse were seen to."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from engine.importing.items import read_tasks
from engine.models import Experiment
from engine.sources import hub, langfuse
from engine.sources.base import SourceError, Wanted
from engine.sources.registry import build_source, source_names
from tests.accounts import bearer
from tests.factories import make_user

REVISION = "e53f048856ff4f594e959d75785d2c2d37b678ee"
FEATURES = [
    {"feature_idx": 0, "name": "question", "type": {"dtype": "string", "_type": "Value"}},
    {"feature_idx": 1, "name": "topic", "type": {"names": ["trains", "ships"], "_type": "ClassLabel"}},
    {
        "feature_idx": 2,
        "name": "marks",
        "type": {"feature": {"names": ["no", "yes"], "_type": "ClassLabel"}, "_type": "Sequence"},
    },
]


class Recorded(BaseHTTPRequestHandler):
    """The hub's data viewer with 250 rows, and Langfuse with three items on two pages."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        status, found = getattr(self, f"_{parts.path.rpartition('/')[2].replace('-', '_')}")(query)
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("X-Revision", REVISION)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass

    def _splits(self, query):
        if query["dataset"] == "a/private" and self.headers["Authorization"] != "Bearer right":
            return 401, {"error": "The dataset does not exist, or is not accessible without authentication."}
        configurations = {"a/several": ["main", "socratic"]}.get(query["dataset"], ["default"])
        return 200, {"splits": [{"config": c, "split": s} for c in configurations for s in ("train", "test")]}

    def _rows(self, query):
        offset, length = int(query["offset"]), int(query["length"])
        assert length <= 100
        rows = [
            {
                "row_idx": n,
                "row": {"question": f"Question {n}?", "topic": n % 2, "marks": [0, 1]},
                "truncated_cells": ["question"] if n == 7 else [],
            }
            for n in range(offset, min(offset + length, 250))
        ]
        return 200, {"features": FEATURES, "rows": rows, "num_rows_total": 250}

    def _dataset_items(self, query):
        if self.headers["Authorization"] != f"Basic {base64.b64encode(b'pk:sk').decode()}":
            return 401, {"message": "Invalid credentials"}
        page = int(query["page"])
        items = [
            {"id": n, "input": f"Item {n}?", "expectedOutput": None, "datasetName": "d"} for n in range(3)
        ]
        if query["datasetName"] == "odd":
            return 200, {"data": items, "meta": ["?"]}
        data = items[:2] if page == 1 else items[2:]
        return 200, {"data": data, "meta": {"page": page, "totalPages": 2}}


@pytest.fixture
def server(settings, monkeypatch) -> Iterator[str]:
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    running = ThreadingHTTPServer(("127.0.0.1", 0), Recorded)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{running.server_port}"
    monkeypatch.setattr(hub, "ADDRESS", address)
    monkeypatch.setattr(langfuse, "ADDRESS", address)
    yield address
    running.shutdown()
    running.server_close()


def tasks_of(wanted: Wanted) -> list:
    return read_tasks(build_source("hub").fetch(wanted).files)


@pytest.mark.usefixtures("server")
class TestHub:
    def test_rows_are_drawn_by_the_seed_with_the_names_of_classes(self):
        wanted = Wanted("a/trains", split="test", number=30, seed=4)
        fetched = build_source("hub").fetch(wanted)
        tasks = read_tasks(fetched.files)
        assert len({task.prompt for task in tasks}) == 30
        number = int(tasks[0].prompt.split()[1].rstrip("?"))
        assert tasks[0].variables == {"topic": ["trains", "ships"][number % 2], "marks": '["no", "yes"]'}
        assert tasks == tasks_of(wanted)
        assert tasks != tasks_of(Wanted("a/trains", split="test", number=30, seed=5))
        assert REVISION in fetched.told
        assert fetched.label == f"a/trains@{REVISION[:12]}"

    def test_all_rows_but_those_that_are_cut(self):
        fetched = build_source("hub").fetch(Wanted("trains", split="test", number=1000))
        assert len(read_tasks(fetched.files)) == 249
        assert "1 left out" in fetched.told

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            (Wanted("a/several"), "configuration needs one of: main, socratic"),
            (Wanted("a/several", configuration="main"), "split needs one of: train, test"),
            (Wanted("a/several", configuration="x"), "needs one of: main, socratic"),
            (Wanted("a/private"), "needs a token"),
            (Wanted("a/private", token="wrong"), "needs a token"),
            (Wanted("../a/b"), "owner/name"),
            (Wanted("a/trains", split="test", revision="0000"), REVISION[:12]),
        ],
    )
    def test_what_is_missing_is_said(self, wanted, message):
        with pytest.raises(SourceError, match=message):
            build_source("hub").fetch(wanted)

    def test_a_token_opens_a_private_one(self):
        assert len(tasks_of(Wanted("a/private", split="test", token="right", number=5))) == 5


@pytest.mark.usefixtures("server")
class TestLangfuse:
    def test_all_pages_of_a_data_set(self):
        fetched = build_source("langfuse").fetch(Wanted("d", token="pk:sk"))
        assert "3 rows" in fetched.told

    def test_an_answer_without_a_number_of_pages_is_not_taken_for_all(self):
        with pytest.raises(SourceError, match="how many pages"):
            build_source("langfuse").fetch(Wanted("odd", token="pk:sk"))

    @pytest.mark.parametrize("token", ["", "pk", "pk:wrong"])
    def test_the_keys_are_asked_for(self, token):
        with pytest.raises(SourceError, match=r"needs a token|refuses"):
            build_source("langfuse").fetch(Wanted("d", token=token))


def test_no_source_reaches_our_own_network(settings):
    settings.ALLOW_PRIVATE_CONNECTIONS = False
    for address in ("https://127.0.0.1", "https://localhost", "https://169.254.169.254"):
        with pytest.raises(SourceError, match="public"):
            build_source("langfuse").fetch(Wanted("d", address=address, token="pk:sk"))


def test_packages_add_sources_by_an_entry_point(monkeypatch):
    point = importlib.metadata.EntryPoint("mine", "engine.sources.hub:Hub", "llmpo.sources")
    points = importlib.metadata.EntryPoints([point])
    monkeypatch.setattr("engine.domain.entry_points.entry_points", lambda group: points.select(group=group))
    assert source_names() == ["files", "hub", "langfuse", "mine"]
    assert isinstance(build_source("mine"), hub.Hub)
    with pytest.raises(SourceError, match="files, hub, langfuse, mine"):
        build_source("other")


@pytest.mark.django_db
@pytest.mark.usefixtures("server")
class TestDoors:
    def test_the_page_puts_them_where_tasks_are_typed_and_keeps_no_token(self):
        client = Client()
        client.force_login(make_user("ann", is_superuser=True))
        sent = {
            "source_kind": "hub",
            "source_name": "a/private",
            "source_split": "test",
            "source_number": "5",
        }
        url = reverse("new_from", args=["prompts"])
        answer = client.post(url, sent | {"part": "tasks-source"}, headers={"HX-Request": "true"})
        assert "needs a token" in answer.content.decode()
        sent |= {"source_token": "right"}
        page = client.post(
            url, sent | {"part": "tasks-source"}, headers={"HX-Request": "true"}
        ).content.decode()
        assert 'name="n_tasks" value="5"' in page
        assert REVISION in page
        assert 'value="right"' not in page

    def test_the_api_draws_tasks(self):
        admin = make_user("ann", is_superuser=True)
        body = {"name": "d", "token": "pk:sk", "number": 2}
        answer = Client().post("/api/sources/langfuse", body, "application/json", headers=bearer(admin))
        assert answer.status_code == 200, answer.content
        assert len(answer.json()["tasks"]) == 2
        answer = Client().post("/api/sources/files", body, "application/json", headers=bearer(admin))
        assert answer.status_code == 422

    def test_the_command_prints_a_description_to_complete(self, capsys):
        asked = ["--source", "hub", "--split", "test", "--sample", "3", "--owner", make_user().username]
        call_command("load_experiment", "a/trains", *asked)
        printed = capsys.readouterr().out
        assert printed.count("- prompt: Question") == 3
        assert f"a/trains@{REVISION[:12]}" in printed
        assert not Experiment.objects.exists()

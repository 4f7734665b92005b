"""Sources of tasks, against servers that answer as the hub, Langfuse and Phoenix were seen to, and as
LangSmith does by the requests of its client.
"""

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
from engine.sources import hub, langfuse, langsmith
from engine.sources.base import SourceError, Wanted
from engine.sources.registry import build_source, draw_tasks, source_names
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


def run_of(name: str) -> dict:
    asked = [{"role": "system", "content": "Be short."}, {"role": "user", "content": f"{name}?"}]
    answered = {"choices": [{"message": {"role": "assistant", "content": f"{name}."}}]}
    extra = {"metadata": {"ls_model_name": "acme"}}
    return {"id": name, "run_type": "llm", "inputs": {"messages": asked}, "outputs": answered, "extra": extra}


def span_of(name: str) -> dict:
    asked, answered = "llm.input_messages.0.message", "llm.output_messages.0.message"
    roles = {f"{asked}.role": "user", f"{answered}.role": "assistant"}
    texts = {f"{asked}.content": f"{name}?", f"{answered}.content": "Yes."}
    return {
        "name": "ChatCompletion",
        "context": {"trace_id": "0" * 32, "span_id": name},
        "span_kind": "LLM",
        "status_code": "OK",
        "attributes": {"openinference.span.kind": "LLM", "llm.model_name": "acme"} | texts | roles,
    }


EXAMPLES = [{"id": str(n), "inputs": {"q": f"Example {n}?"}, "outputs": {"a": "x"}} for n in range(103)]
EXAMPLE = {"id": "1", "input": {"q": "Hot?"}, "output": {"a": "80 °C"}, "metadata": {}, "updated_at": "2026"}


class Traced(BaseHTTPRequestHandler):
    """LangSmith below /, Phoenix below /v1: a data set, and calls of models on two pages."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if not parts.path.startswith("/v1/") and self.headers["x-api-key"] != "right":
            self.answer({}, 403)
            return
        self.answer(
            {
                "/datasets": lambda: [{"id": "d1"}] if query["name"] == "d" else [],
                "/examples": lambda: EXAMPLES[int(query["offset"]) :][: int(query["limit"])],
                "/sessions": lambda: [{"id": "s1"}] if query["name"] == "shop" else [],
                "/v1/datasets": lambda: {"data": [{"id": "RA=="}] if query["name"] == "d" else []},
                "/v1/datasets/RA==/examples": lambda: {"data": {"examples": [EXAMPLE]}},
                "/v1/projects/my%20shop/spans": lambda: {
                    "data": [span_of(name) for name in (("c",) if "cursor" in query else ("a", "b"))],
                    "next_cursor": None if "cursor" in query else "2",
                },
            }.get(parts.path, dict)()
        )

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (self.path.rstrip("?"), asked["session"], asked["run_type"]) == ("/runs/query", ["s1"], "llm")
        names = ("c",) if "cursor" in asked else ("a", "b")
        cursors = {"next": None if "cursor" in asked else "2"}
        self.answer({"runs": [run_of(name) for name in names], "cursors": cursors})

    def answer(self, found: object, status: int = 200) -> None:
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Elsewhere(Traced):
    """Some other server, which answers the same to everything."""

    said: object = None

    def do_GET(self) -> None:
        self.answer(self.said)

    def do_POST(self) -> None:
        self.answer(self.said)


def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    running = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


@pytest.fixture
def server(settings, monkeypatch) -> Iterator[str]:
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    for address in serving(Recorded):
        monkeypatch.setattr(hub, "ADDRESS", address)
        monkeypatch.setattr(langfuse, "ADDRESS", address)
        yield address


@pytest.fixture
def traced(settings, monkeypatch) -> Iterator[str]:
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    for address in serving(Traced):
        monkeypatch.setattr(langsmith, "ADDRESS", address)
        yield address


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


class TestLangSmith:
    def test_all_examples_of_a_data_set(self, traced):
        tasks = draw_tasks("langsmith", Wanted("d", token="right")).spec.tasks
        assert (len(tasks), tasks[0].prompt, tasks[0].reference) == (103, "Example 0?", "x")

    def test_the_newest_calls_of_a_project_as_tasks_and_as_policies(self, traced):
        wanted = Wanted("", configuration="shop", token="right")
        found = draw_tasks("langsmith", wanted)
        assert [task.prompt for task in found.spec.tasks] == ["a?", "b?", "c?"]
        assert (found.systems, found.spec.ready_made, found.findings.n_left("response")) == (
            ["Be short."],
            [],
            3,
        )
        kept = draw_tasks("langsmith", wanted, tasks_alone=False).spec
        assert {each.policy for each in kept.ready_made} == {"acme · Be short."}

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            (Wanted("d"), "needs a token"),
            (Wanted("d", token="wrong"), "refuses this token"),
            (Wanted("other", token="right"), "no data set 'other'"),
            (Wanted("", token="right"), "no project 'default'"),
        ],
    )
    def test_what_is_missing_is_said(self, traced, wanted, message):
        with pytest.raises(SourceError, match=message):
            draw_tasks("langsmith", wanted)


class TestPhoenix:
    def test_a_data_set(self, traced):
        [task] = draw_tasks("phoenix", Wanted("d", address=traced)).spec.tasks
        assert (task.prompt, task.reference) == ("Hot?", "80 °C")

    def test_as_many_of_the_newest_calls_as_are_wanted(self, traced):
        for number, n_tasks in ((3, 3), (2, 2)):
            wanted = Wanted("", configuration="my shop", address=traced, number=number)
            assert len(draw_tasks("phoenix", wanted).spec.tasks) == n_tasks

    def test_what_is_missing_is_said(self, traced):
        for wanted, message in (
            (Wanted("d"), "address"),
            (Wanted("other", address=traced), "no data set 'other'"),
            (Wanted("", address=traced), "Check the address and the name"),
        ):
            with pytest.raises(SourceError, match=message):
                draw_tasks("phoenix", wanted)


@pytest.mark.parametrize(
    ("name", "data_set", "said"),
    [
        ("langsmith", "d", [{}]),
        ("langsmith", "d", [None]),
        ("langsmith", "", [{"id": "s1"}]),
        ("phoenix", "d", {"data": [{"id": 5}]}),
        ("phoenix", "d", {"data": [{"id": "\0"}]}),
        ("phoenix", "d", {"data": [{"id": "x" * 100_000}]}),
        ("phoenix", "", {"data": 1.5}),
    ],
)
def test_a_server_that_answers_something_else_is_named(settings, monkeypatch, name, data_set, said):
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    monkeypatch.setattr(Elsewhere, "said", said)
    for address in serving(Elsewhere):
        with pytest.raises(SourceError, match=r"127\.0\.0\.1"):
            draw_tasks(name, Wanted(data_set, address=address, token="right"))


def test_no_source_reaches_our_own_network(settings):
    settings.ALLOW_PRIVATE_CONNECTIONS = False
    for address in ("https://127.0.0.1", "https://localhost", "https://169.254.169.254"):
        with pytest.raises(SourceError, match="public"):
            build_source("langfuse").fetch(Wanted("d", address=address, token="pk:sk"))


def test_packages_add_sources_by_an_entry_point(monkeypatch):
    point = importlib.metadata.EntryPoint("mine", "engine.sources.hub:Hub", "llmpo.sources")
    points = importlib.metadata.EntryPoints([point])
    monkeypatch.setattr("engine.domain.entry_points.entry_points", lambda group: points.select(group=group))
    assert source_names() == ["files", "hub", "langfuse", "langsmith", "phoenix", "mine"]
    assert isinstance(build_source("mine"), hub.Hub)
    with pytest.raises(SourceError, match="files, hub, langfuse, langsmith, phoenix, mine"):
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

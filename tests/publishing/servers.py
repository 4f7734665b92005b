"""Registries of prompts on this machine, which answer as Langfuse, MLflow and LangSmith do."""

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Answer = tuple[int, Any]


@dataclass
class Recorded:
    """A server: the calls that it got, its versions, and which of them each label marks."""

    url: str = ""
    calls: list[tuple[str, str, bytes]] = field(default_factory=list)
    versions: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    broken: bool = False

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        raise NotImplementedError

    def lets_in(self, headers: dict[str, str]) -> bool:
        return headers.get("Authorization") == f"Basic {base64.b64encode(b'pk-1:sk-2').decode()}"

    def bodies(self) -> list[str]:
        """What changed something, in order."""
        return [body.decode() for method, _, body in self.calls if method != "GET"]


class LangfuseServer(Recorded):
    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if (method, path) == ("POST", "/api/public/v2/prompts"):
            self.versions.append(body)
            return 201, self._version(len(self.versions), body["labels"])
        found = re.fullmatch(r"/api/public/v2/prompts/([^/]+)(?:/versions/(\d+))?", path)
        if found is None or not self.versions or found[1] != self.versions[0]["name"]:
            return 404, {"message": "Prompt not found", "error": "LangfuseNotFoundError"}
        if method == "PATCH":
            return 200, self._version(int(found[2]), body["newLabels"])
        if query["label"] not in self.labels:
            return 404, {"message": "Prompt not found", "error": "LangfuseNotFoundError"}
        return 200, self._version(self.labels[query["label"]], [])

    def _version(self, number: int, labels: list[str]) -> dict[str, Any]:
        # A label leaves the version that had it.
        self.labels |= dict.fromkeys(labels, number)
        held = [label for label, marked in self.labels.items() if marked == number]
        return self.versions[number - 1] | {"id": f"id-{number}", "version": number, "labels": held}


class MLflowServer(Recorded):
    made: bool = False

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:  # noqa: PLR0911
        path = path.removeprefix("/api/2.0/mlflow/")
        if path == "registered-models/create":
            if self.made:
                return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": "It exists."}
            self.made = True
            return 200, {"registered_model": {"name": body["name"], "tags": body["tags"]}}
        if not self.made:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "It does not exist."}
        if path == "model-versions/create":
            self.versions.append(body)
            return 200, {"model_version": {"name": body["name"], "version": str(len(self.versions))}}
        if method == "POST":
            self.labels[body["alias"]] = int(body["version"])
            return 200, {}
        if query["alias"] not in self.labels:
            said = f"Registered model alias {query['alias']} not found."
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": said}
        number = self.labels[query["alias"]]
        return 200, {"model_version": self.versions[number - 1] | {"version": str(number)}}


class LangSmithServer(Recorded):
    made: bool = False

    def lets_in(self, headers: dict[str, str]) -> bool:
        return headers.get("X-Api-Key") == "pk-1:sk-2"

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:  # noqa: PLR0911
        if path == "/repos/":
            made, self.made = self.made, True
            return (409, {"detail": "exists"}) if made else (200, {"repo": {"repo_handle": "support"}})
        if not self.made:
            return 404, {"detail": "not found"}
        if path == "/commits/-/support/":
            newest = [{"commit_hash": f"hash-{len(self.versions)}"}] if self.versions else []
            return 200, {"commits": newest, "total": len(newest)}
        if path == "/commits/-/support":
            newest_hash = f"hash-{len(self.versions)}" if self.versions else None
            if body["parent_commit"] != newest_hash:
                return 409, {"detail": "parent"}
            self.versions.append(body)
            n = len(self.versions)
            return 200, {"commit": {"id": f"id-{n}", "commit_hash": f"hash-{n}"}}
        if method == "GET":
            return 200, [{"tag_name": name, "commit_id": f"id-{n}"} for name, n in self.labels.items()]
        name = body.get("tag_name") or path.rpartition("/")[2]
        if method == "POST" and name in self.labels:
            return 409, {"detail": "exists"}
        self.labels[name] = int(body["commit_id"].removeprefix("id-"))
        return 200, {"tag_name": name}


@contextmanager
def serving(recorded: Recorded) -> Iterator[Recorded]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"] or 0))
            recorded.calls.append((self.command, self.path, raw))
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            status, said = 401, {"message": "Invalid credentials sk-2"}
            if recorded.broken:
                status, said = 500, {}
            elif recorded.lets_in(dict(self.headers)):
                status, said = recorded.answer(
                    self.command, unquote(parts.path), query, json.loads(raw) if raw else None
                )
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET: Callable[[Any], None] = _answer  # noqa: N815
        do_POST: Callable[[Any], None] = _answer  # noqa: N815
        do_PATCH: Callable[[Any], None] = _answer  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    recorded.url = f"http://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield recorded
    finally:
        server.shutdown()
        server.server_close()

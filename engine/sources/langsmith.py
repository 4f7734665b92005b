"""Data sets of LangSmith, and the newest calls of models that it has traced, by its API.

By HTTP, since its own client would open any address, without a limit on time and size.
"""

from typing import Any

from engine.sources.base import Fetched, SourceError, Wanted
from engine.sources.web import Server, fetched_rows

ADDRESS = "https://api.smith.langchain.com"
_PAGE, _MOST_PAGES = 100, 50
_OF_A_RUN = [
    "id", "trace_id", "parent_run_id", "run_type", "name", "inputs", "outputs", "extra", "error",
    "session_id", "reference_example_id",
]  # fmt: skip


class LangSmith:
    """All examples of a data set; without a name the newest calls of a project, as many as are wanted."""

    def fetch(self, wanted: Wanted) -> Fetched:
        """Read page by page."""
        if not wanted.token:
            raise SourceError("LangSmith needs a token: an API key of the workspace.")
        with Server(wanted.address or ADDRESS, {"x-api-key": wanted.token}) as server:
            rows = self._examples(server, wanted.name) if wanted.name else self._calls(server, wanted)
        return fetched_rows("langsmith", rows, wanted)

    def _examples(self, server: Server, name: str) -> list[Any]:
        dataset = self._id_of(server, "/datasets", "data set", name)
        rows: list[Any] = []
        for number in range(_MOST_PAGES):
            page = server.found(
                "/examples", dataset=dataset, inline_s3_urls="true", limit=_PAGE, offset=number * _PAGE
            )
            rows += page
            if len(page) < _PAGE:
                return rows
        raise SourceError(f"The data set has {len(rows):,} items or more. Bring it as a file.")

    def _calls(self, server: Server, wanted: Wanted) -> list[Any]:
        project = self._id_of(server, "/sessions", "project", wanted.configuration or "default")
        body: dict[str, Any] = {"session": [project], "run_type": "llm", "select": _OF_A_RUN, "limit": _PAGE}
        rows: list[Any] = []
        while len(rows) < wanted.number:
            found = server.found("/runs/query", "runs", body=body)
            rows += found["runs"]
            cursors = found.get("cursors") or {}
            if not (cursor := cursors.get("next")):
                break
            body["cursor"] = cursor
        return rows[: wanted.number]

    def _id_of(self, server: Server, path: str, what: str, name: str) -> str:
        found = server.found(path, name=name, limit=1)
        if not found:
            raise SourceError(f"LangSmith has no {what} {name[:100]!r} that this key may read.")
        return str(found[0]["id"])

"""Data sets of Phoenix, and the newest calls of models that it has traced, by its API.

By HTTP, since its own client would open any address, without a limit on time and size.
"""

from typing import Any
from urllib.parse import quote

from engine.sources.base import Fetched, SourceError, Wanted
from engine.sources.web import Server, fetched_rows

_PAGE = 100


class Phoenix:
    """All examples of a data set; without a name the newest calls of a project, as many as are wanted."""

    def fetch(self, wanted: Wanted) -> Fetched:
        """Read the data set, or page by page the calls."""
        headers = {"Authorization": f"Bearer {wanted.token}"} if wanted.token else {}
        if not wanted.address:
            raise SourceError("Give the address of your Phoenix, such as https://phoenix.example.com.")
        with Server(wanted.address, headers) as server:
            rows = self._examples(server, wanted.name) if wanted.name else self._calls(server, wanted)
        return fetched_rows("phoenix", rows, wanted)

    def _examples(self, server: Server, name: str) -> list[Any]:
        known = server.found("/v1/datasets", "data", name=name)["data"]
        if not known:
            raise SourceError(f"Phoenix has no data set {name[:100]!r} that this token may read.")
        number = quote(known[0]["id"], safe="=")
        found = server.found(f"/v1/datasets/{number}/examples", "data")
        # The shape of examples that LangSmith has too.
        return [
            {"inputs": each["input"], "outputs": each["output"], "metadata": each["metadata"]}
            for each in found["data"]["examples"]
        ]

    def _calls(self, server: Server, wanted: Wanted) -> list[Any]:
        path = f"/v1/projects/{quote(wanted.configuration or 'default', safe='')}/spans"
        rows: list[Any] = []
        query: dict[str, object] = {"span_kind": "LLM", "limit": _PAGE}
        while len(rows) < wanted.number:
            found = server.found(path, "data", **query)
            rows += found["data"]
            if not (cursor := found.get("next_cursor")):
                break
            query["cursor"] = cursor
        return rows[: wanted.number]

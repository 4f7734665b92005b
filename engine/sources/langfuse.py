"""Data sets of Langfuse, and the newest calls of models that it has traced, by its API."""

from __future__ import annotations

import base64
from typing import Any

from engine.sources.base import Fetched, SourceError, Wanted
from engine.sources.web import Server, fetched_rows

ADDRESS = "https://cloud.langfuse.com"
_PAGE, _MOST_PAGES = 100, 50


class Langfuse:
    """All items of a data set; without a name the newest calls, as many as are wanted."""

    def fetch(self, wanted: Wanted) -> Fetched:
        """Read page by page."""
        public, colon, secret = wanted.token.partition(":")
        if not (public and colon and secret):
            raise SourceError("Langfuse needs a token: the public key, a colon, and the secret key.")
        packed = base64.b64encode(wanted.token.encode()).decode()
        path = "/api/public/dataset-items" if wanted.name else "/api/public/observations"
        query = {"datasetName": wanted.name} if wanted.name else {"type": "GENERATION"}
        rows: list[Any] = []
        with Server(wanted.address or ADDRESS, {"Authorization": f"Basic {packed}"}) as server:
            for page in range(1, _MOST_PAGES + 1):
                status, _, found = server.get(path, **query, page=page, limit=_PAGE)
                if status in {401, 403}:
                    raise SourceError("Langfuse refuses this token. Give the keys of the project.")
                if status != 200 or not isinstance(found, dict) or not isinstance(found.get("data"), list):
                    raise SourceError(f"Langfuse answered {status}. Check the address and the name.")
                rows += found["data"]
                meta = found.get("meta")
                pages = meta.get("totalPages") if isinstance(meta, dict) else None
                if not isinstance(pages, int):
                    raise SourceError("Langfuse did not say how many pages there are. Check the address.")
                if page >= pages or (not wanted.name and len(rows) >= wanted.number):
                    break
            else:
                raise SourceError(
                    f"The data set has more than {_PAGE * _MOST_PAGES:,} items. Bring it as a file."
                )
        return fetched_rows("langfuse", rows, wanted)

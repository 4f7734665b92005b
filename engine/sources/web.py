"""Reads JSON from a server, at a checked address only."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx2

from engine.domain.addresses import CONNECTIONS, check_connection, resolve
from engine.domain.exchange_deadlines import Deadline
from engine.domain.limits import RESPONSES_BYTES
from engine.domain.pinned_requests import pinned_request
from engine.importing.reading_process import source_of
from engine.sources.base import Fetched, SourceError, Wanted

_IDLE_SECONDS, _WHOLE_SECONDS = 10.0, 25.0


class Server:
    """A server that answers with JSON. A deadline and a size hold for all answers together."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        try:
            parts = check_connection(address, has_key=bool(headers))
        except ValueError as error:
            raise SourceError(str(error)) from error
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            self._at = resolve(str(parts.hostname), port, CONNECTIONS)[0]
        except ValueError as error:
            raise SourceError(str(error)) from error
        except OSError as error:
            raise SourceError(f"{parts.hostname} is not found: {error}.") from error
        self._host, self._address, self._headers = parts.hostname, address.rstrip("/"), headers
        self._deadline, self._left = Deadline(_WHOLE_SECONDS), RESPONSES_BYTES.most
        self._client = httpx2.Client(trust_env=False, follow_redirects=False)

    def __enter__(self) -> Server:
        self._deadline.__enter__()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._client.close()
        self._deadline.__exit__()
        # An answer of another shape: any server may be at an address that somebody typed.
        if isinstance(error, (LookupError, TypeError, AttributeError)):
            raise SourceError(f"{self._host} answered something else. Check the address.") from error

    def found(self, path: str, rows: str = "", *, body: Any = None, **query: object) -> Any:
        """The JSON of an answer, a list, or an object that holds something by the name of ``rows``."""
        status, _, found = self.get(path, body=body, **query)
        if status in {401, 403}:
            raise SourceError(f"{self._host} refuses this token.")
        fits = rows in found if isinstance(found, dict) else not rows and isinstance(found, list)
        if status != 200 or not fits:
            raise SourceError(f"{self._host} answered {status}. Check the address and the name.")
        return found

    def get(self, path: str, *, body: Any = None, **query: object) -> tuple[int, Mapping[str, str], Any]:
        """The status, the headers and the JSON of an answer, `None` in the place of anything else.

        ``body``: what is posted, as JSON.
        """
        content = b"" if body is None else json.dumps(body).encode()
        try:
            request = pinned_request(
                "POST" if content else "GET",
                f"{self._address}{path}?{urlencode(query)}",
                self._at,
                headers={**self._headers, **({"Content-Type": "application/json"} if content else {})},
                content=content,
                idle_seconds=_IDLE_SECONDS,
                deadline=self._deadline,
            )
        except httpx2.InvalidURL as error:
            raise SourceError(f"{self._host} gave an id that cannot be asked for.") from error
        except UnicodeError as error:
            raise SourceError("The token holds a character that cannot be sent.") from error
        data = b""
        try:
            answer = self._client.send(request, stream=True)
            for part in answer.iter_bytes():
                data += part
                if len(data) > self._left:
                    raise SourceError("The answers are too large. Ask for fewer rows.")
            answer.close()
            self._left -= len(data)
        except httpx2.HTTPError as error:
            if self._deadline.passed:
                raise SourceError(
                    f"This took longer than {_WHOLE_SECONDS:g} seconds. Ask for fewer rows."
                ) from error
            raise SourceError(f"{self._host} does not answer: {type(error).__name__}.") from error
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        return answer.status_code, answer.headers, found


def fetched_rows(tool: str, rows: Sequence[Any], wanted: Wanted) -> Fetched:
    """The rows of a data set of a tool, or of its newest calls."""
    what = f"the data set {wanted.name}" if wanted.name else "the newest calls"
    files = source_of([(f"{tool}.json", io.BytesIO(json.dumps(rows).encode()))], RESPONSES_BYTES)
    return Fetched(files, f"{len(rows):,} rows of {what}.", f"{tool}:{wanted.name or 'calls'}")

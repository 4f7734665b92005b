"""Requests to the very address that was checked: asked again, the name could lead elsewhere."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx2

from engine.domain.exchange_deadlines import Deadline


def pinned_request(
    method: str,
    url: str,
    at: str,
    *,
    headers: Mapping[str, str],
    content: bytes = b"",
    idle_seconds: float,
    deadline: Deadline,
) -> httpx2.Request:
    """A request to the checked address ``at``, in the name of the URL's host.

    Raises
    ------
    httpx2.InvalidURL, UnicodeError
        The URL or a header holds a character that cannot be sent.
    """
    parts = urlsplit(url)
    return httpx2.Request(
        method,
        httpx2.URL(url).copy_with(host=at),
        content=content,
        headers={"Host": parts.netloc, "User-Agent": "LLM-PO", **headers},
        extensions={
            "sni_hostname": parts.hostname,
            "timeout": httpx2.Timeout(idle_seconds).as_dict(),
            "trace": deadline.trace,
        },
    )

"""Signed calls to somebody's URL. See docs/api.md for how to check the signature."""

import hashlib
import hmac
import time
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

import httpx2

from engine.domain.addresses import check_url, resolve
from engine.domain.exchange_deadlines import Deadline
from engine.domain.pinned_requests import pinned_request

_TIMEOUT_SECONDS = 5.0
# The timeout above begins anew with every byte, so that an answer of one byte a second would hold a worker
# for days.
_WHOLE_CALL_SECONDS = 10.0


class WebhookError(Exception):
    """The call did not arrive. ``final``: it never would."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


def signature(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    """The signature of a call, in hexadecimal; the receiver computes it again.

    The HMAC-SHA256 of the delivery's number, the timestamp and the body, with full stops between. Without the
    number in it, somebody who overheard a call could repeat it under a number that the receiver has not seen.
    """
    signed = f"{delivery}.{timestamp}.".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def call(
    *, url: str, secret: str, body: bytes, delivery: str, headers: Mapping[str, str] = MappingProxyType({})
) -> None:
    """POST the body once, signed if there is a secret, or with these headers.

    Reads only the answer's status.

    Raises
    ------
    WebhookError
        With what to do about it. Names the host only: viewers and worker logs see the message.
    """
    timestamp = str(int(time.time()))
    signed = {
        "LLMPO-Delivery": delivery,
        "LLMPO-Timestamp": timestamp,
        "LLMPO-Signature": f"v2={signature(secret, delivery, timestamp, body)}",
    }
    status, _ = exchange(
        method="POST", url=url, headers=signed if secret else headers, body=body, most_bytes=0
    )
    if not 200 <= status < 300:
        raise WebhookError(f"It answered {status}; anything from 200 to 299 counts as received.")


def exchange(
    *, method: str, url: str, headers: Mapping[str, str], body: bytes, most_bytes: int = 1_000_000
) -> tuple[int, bytes]:
    """Send one request, and return the answer's status and content. Follows no redirect.

    Raises
    ------
    WebhookError
        As :func:`call`.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        check_url(url)
        address = resolve(str(parts.hostname), port)[0]
    except ValueError as error:
        raise WebhookError(str(error), final=True) from error
    except OSError as error:
        raise WebhookError(f"{parts.hostname} is not found: {error}.") from error

    deadline = Deadline(_WHOLE_CALL_SECONDS)
    try:
        request = pinned_request(
            method,
            url,
            address,
            headers={"Content-Type": "application/json", **headers},
            content=body,
            idle_seconds=_TIMEOUT_SECONDS,
            deadline=deadline,
        )
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise WebhookError(
            "Its address or its key holds a character that cannot be sent.", final=True
        ) from error
    try:
        with deadline, httpx2.Client(trust_env=False, follow_redirects=False) as client:
            answer = client.send(request, stream=True)
            content = b""
            for piece in answer.iter_bytes() if most_bytes else ():
                content += piece
                if len(content) > most_bytes:
                    raise WebhookError(f"The answer of {parts.hostname} is too long.")
            answer.close()
    except httpx2.HTTPError as error:
        if deadline.passed:
            raise WebhookError(
                f"The call to {parts.hostname} took longer than {_WHOLE_CALL_SECONDS:g} seconds. "
                "Answer at once, and work later."
            ) from error
        raise WebhookError(f"The call to {parts.hostname} failed: {_safe_words(error, url)}") from error
    return answer.status_code, content


def _safe_words(error: httpx2.HTTPError, url: str) -> str:
    """The library's words, unless they quote a part of the URL, which may be a secret."""
    parts = urlsplit(url)
    secrets = {url, parts.path, parts.query, *parts.path.split("/")} - {"", "/"}
    text = str(error)
    name = type(error).__name__
    return name if not text or any(secret in text for secret in secrets) else f"{name}: {text}"

"""Sends one request to a model and reads what comes back, whatever that is."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from urllib.parse import unquote, urlsplit

import httpcore2
from django.conf import settings

from engine.domain.addresses import check_connection
from engine.domain.connection_targets import Target
from engine.domain.limits import TEXT_CHARACTERS
from engine.generation.base import Fault, GenerationFailure, GenerationRequest, GenerationResult, Outcome
from engine.generation.remote.errors import Answer, host_of
from engine.generation.remote.network import PinnedBackend, checked_addresses
from engine.generation.remote.replies import read, too_large, usage_at_end, with_usage
from engine.generation.remote.requests import Prepared, key_header, prepare

logger = logging.getLogger(__name__)

# A server that is there answers the telephone at once; its answer may take long.
_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 30.0
# A character takes at most six bytes of JSON, and an answer has thinking beside its text.
_BYTES_PER_CHARACTER = 12
# Of an answer that is larger, so much of the end is kept, and no more than so many times the size is read.
_END_BYTES, _MOST_TIMES = 4096, 20
_HEADERS = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "LLM-PO"}
_PORTS = {"http": 80, "https": 443}


class _TooLargeError(Exception):
    """The answer is larger than a text may be. Its argument is the end of it."""


class Client:
    """Connections to servers, kept open between requests; for one event loop.

    No redirect is followed, and no variable of the environment names a proxy.
    """

    def __init__(self) -> None:
        context = httpcore2.default_ssl_context()
        proxy = _proxy(context)
        # The caller decides how many are under way. The proxy itself is the operator's, wherever it is.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            proxy=proxy,
            max_connections=None,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=None if proxy else PinnedBackend(),
        )
        self._proxied = proxy is not None
        # For servers that a backend of ours has started on this machine.
        self._own_pool = httpcore2.AsyncConnectionPool(max_connections=None)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Client:
        await self._stack.enter_async_context(self._pool)
        await self._stack.enter_async_context(self._own_pool)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def ask(self, target: Target, request: GenerationRequest) -> Outcome:
        """The model's reply, or the failure to get one. Raises nothing: whatever a server does is told."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(target.answer_seconds):
                answer = await self._post(target, prepare(target, request))
            outcome = read(target, request, answer, time.monotonic() - started)
        except _TooLargeError as error:
            outcome = with_usage(too_large(target, request), usage_at_end(error.args[0], target))
        except Exception as error:
            fault, reason = _fault_of(error, target)
            outcome = GenerationFailure(request.key, reason, fault)
        if isinstance(outcome, GenerationResult) and not outcome.latency_seconds:
            # There is no answer, which also took time.
            return replace(outcome, model=request.model, latency_seconds=time.monotonic() - started)
        return outcome

    async def _post(self, target: Target, prepared: Prepared) -> Answer:
        headers = _HEADERS | {name.lower(): value for name, value in prepared.headers.items()}
        if target.key:
            name, value = key_header(target)
            headers[name.lower()] = value
        pool = self._pool if target.connection_id else self._own_pool
        if target.connection_id:
            await self._check(target, prepared)
        body = json.dumps(prepared.body).encode()
        most = _BYTES_PER_CHARACTER * TEXT_CHARACTERS.most
        async with pool.stream(
            "POST",
            prepared.url,
            headers=[(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()],
            content=body,
            extensions={"timeout": {"connect": _CONNECT_SECONDS}},
        ) as response:
            received = bytearray()
            n_received = 0
            async for chunk in response.aiter_stream():
                received += chunk
                n_received += len(chunk)
                if n_received > most:
                    # The tokens, which are paid, come at the end.
                    del received[:-_END_BYTES]
                if n_received > _MOST_TIMES * most:
                    break
            if n_received > most:
                raise _TooLargeError(bytes(received))
        found = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return Answer(response.status, found, bytes(received))

    async def _check(self, target: Target, prepared: Prepared) -> None:
        """Check the address as it is now; behind a proxy, which looks the name up, also where it leads."""
        address = prepared.url.partition("?")[0]
        parts = check_connection(address, has_key=bool(target.key))
        if not self._proxied:
            return
        try:
            await checked_addresses(str(parts.hostname), parts.port or _PORTS[parts.scheme])
        except OSError:
            # Where only the proxy knows the names of the world, it alone can tell.
            return


def _proxy(context: ssl.SSLContext) -> httpcore2.Proxy | None:
    if not settings.CONNECTION_PROXY:
        return None
    parts = urlsplit(settings.CONNECTION_PROXY)
    port = parts.port or _PORTS[parts.scheme]
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return httpcore2.Proxy(
        f"{parts.scheme}://{parts.hostname}:{port}",
        auth=auth,
        ssl_context=context if parts.scheme == "https" else None,
    )


def _fault_of(error: Exception, target: Target) -> tuple[Fault, str]:
    """The side at fault for an error on the way, and why, in our words: the library's may hold headers."""
    host = host_of(target)
    cause = error
    if isinstance(error, (httpcore2.ConnectError, httpcore2.ConnectTimeout)) and isinstance(
        error.args[0] if error.args else None, Exception
    ):
        cause = error.args[0]
    match cause:
        case ssl.SSLCertVerificationError():
            found = (
                Fault.ACCESS,
                f"The certificate of {host} is not trusted. Set SSL_CERT_FILE to its issuer's.",
            )
        case httpcore2.LocalProtocolError() | UnicodeEncodeError():
            found = Fault.ACCESS, f"The key or a header for {host} holds characters that cannot be sent."
        case socket.gaierror():
            found = Fault.BUSY, f"{host} is not found."
        case TimeoutError():
            found = Fault.SERVER, f"No answer from {host} within {target.answer_seconds:g} s."
        case httpcore2.ProxyError():
            found = Fault.BUSY, f"The proxy does not lead to {host}."
        case httpcore2.ConnectTimeout() | OSError() | httpcore2.ConnectError():
            found = Fault.BUSY, f"{host} cannot be reached."
        case httpcore2.NetworkError() | httpcore2.ProtocolError():
            found = Fault.SERVER, f"The connection to {host} broke."
        case RecursionError():
            found = Fault.SERVER, f"{host} answered with garbage."
        case ValueError():
            found = Fault.ACCESS, f"{host}: {cause}"
        case _:
            logger.error("Asking %s failed with %s.", host, type(error).__name__)
            found = Fault.WORKER, f"Asking {host} failed ({type(error).__name__})."
    return found

"""The backend for any server that speaks OpenAI's chat protocol: vLLM's own, Ollama, llama.cpp, a vendor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from json import JSONDecodeError
from typing import Any, Literal

import httpx2
import openai
from openai.types.chat import ChatCompletion

from engine.generation.base import (
    BackendError,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Outcomes,
    Take,
    chat_body,
    take_from,
)

# Seconds between signs of life to the caller of a stream while no response finishes.
_TICK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of the server, and the rules for requests to it.

    Attributes
    ----------
    concurrency : int
        Requests under way at once.
    timeout_seconds : float
        The longest wait for one answer; then it is asked for anew.
    retries : int
        Further tries after a timeout, a broken connection, status 408, 409, 429 or 5xx. The ``openai`` client
        waits as long as the server's Retry-After says (up to two minutes), or else longer every time.
    token_limit_field : str
        Some vendors' newer models want the limit on written tokens under another name.
    """

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    concurrency: int = 16
    timeout_seconds: float = 120.0
    retries: int = 4
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"  # noqa: S105 - no secret


class OpenAICompatibleBackend:
    """Asks an :class:`Endpoint`, a fixed number of requests at a time, and yields answers as they come.

    One thread: the event loop runs while the caller waits for the next outcome. Meanwhile the server works on
    whether or not it runs.
    """

    name = "openai"

    def __init__(self, endpoint: Endpoint) -> None:
        self.model = endpoint.model
        self._endpoint = endpoint

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    @cached_property
    def _client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=self._endpoint.base_url,
            # The client insists on a key; servers on one's own machine ignore it.
            api_key=self._endpoint.api_key or "none",
            timeout=self._endpoint.timeout_seconds,
            max_retries=self._endpoint.retries,
        )

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    def generate(self, requests: Sequence[GenerationRequest]) -> Outcomes:
        """Answer every request once; see :class:`~engine.generation.base.Backend`."""
        return self.stream(take_from(requests))

    def stream(self, take: Take) -> Outcomes:
        """Answer what ``take`` hands over; see :class:`~engine.generation.base.ContinuousBackend`.

        A server that cannot be connected to, refuses the key or does not know the usual model is a
        ``BackendError``. An error of one request is that request's failure.
        """
        under_way: set[asyncio.Task[Outcome]] = set()
        try:
            while True:
                for request in take(self._endpoint.concurrency - len(under_way)):
                    under_way.add(self._loop.create_task(self._answer(request)))
                if not under_way:
                    return
                done, under_way = self._loop.run_until_complete(
                    asyncio.wait(under_way, timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                )
                # Hand out finished responses before an error among them ends the stream.
                for task in sorted(done, key=lambda task: task.exception() is not None):
                    yield task.result()
        finally:
            self._cancel(under_way)

    def _cancel(self, tasks: set[asyncio.Task[Outcome]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    async def _answer(self, request: GenerationRequest) -> Outcome:
        started = time.monotonic()
        try:
            completion = await self._client.chat.completions.create(**self._arguments(request))
        except (openai.OpenAIError, JSONDecodeError) as error:
            return self._failure(request, error)
        # A server that answers 200 with anything at all gets past the client.
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            return GenerationFailure(
                request.key, "The server's answer is not a chat completion. Check OPENAI_BASE_URL."
            )
        choice, usage = completion.choices[0], completion.usage
        return GenerationResult(
            key=request.key,
            text=choice.message.content or choice.message.refusal or "",
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            finish_reason="length" if choice.finish_reason == "length" else "stop",
            latency_seconds=time.monotonic() - started,
            model=request.model,
        )

    def _arguments(self, request: GenerationRequest) -> dict[str, Any]:
        body = chat_body(
            request, model=request.model or self.model, token_limit_field=self._endpoint.token_limit_field
        )
        if "top_k" in body:
            # Parameters outside of OpenAI's own protocol go separately.
            body["extra_body"] = {"top_k": body.pop("top_k")}
        return body

    def _failure(self, request: GenerationRequest, error: Exception) -> GenerationFailure:
        """The failure of one request, or ``BackendError`` if the error concerns all requests."""
        where = self._endpoint.base_url
        match error:
            case openai.APITimeoutError():
                seconds = self._endpoint.timeout_seconds
                if isinstance(error.__cause__, httpx2.ConnectTimeout):
                    raise BackendError(f"{where} cannot be reached within {seconds:g} s.") from error
                return GenerationFailure(request.key, f"No answer within {seconds:g} s.")
            case openai.APIConnectionError(__cause__=httpx2.ConnectError()):
                raise BackendError(
                    f"{where} cannot be reached: {error.__cause__}. Is the server up, and "
                    "OPENAI_BASE_URL right?"
                ) from error
            case openai.APIConnectionError():
                return GenerationFailure(request.key, f"The connection broke: {error.__cause__}")
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                raise BackendError(
                    f"{where} refuses access: {_sentence(error)} Is OPENAI_API_KEY right?"
                ) from error
            case openai.NotFoundError() if not request.model:
                raise BackendError(
                    f"{where} does not know {self.model!r}: {_sentence(error)} Are GENERATION_MODEL "
                    "and OPENAI_BASE_URL right?"
                ) from error
            case openai.RateLimitError(code="insufficient_quota"):
                raise BackendError(f"The account at {where} has no quota left: {_sentence(error)}") from error
            case openai.RateLimitError() | openai.InternalServerError() | openai.ConflictError():
                return GenerationFailure(
                    request.key, f"The server answered {error.status_code}: {_sentence(error)}"
                )
            case openai.APIStatusError():
                again = error.status_code == httpx2.codes.REQUEST_TIMEOUT
                reason = f"The server answered {error.status_code}: {_sentence(error)}"
                return GenerationFailure(request.key, reason, retryable=again)
            case _:
                return GenerationFailure(request.key, f"The server's answer cannot be read: {error}")


def _sentence(error: openai.APIStatusError) -> str:
    """The server's words on an error, without the code, and with one full stop at the end."""
    said = error.message.removeprefix(f"Error code: {error.status_code} - ")
    return f"{said.rstrip('. ')}."

"""Input and output of every generation backend.

A backend turns a batch of chat requests into text. It knows nothing of experiments, policies or the database.
The worker builds the requests, calls :meth:`Backend.generate` once per batch, and stores each outcome as it
comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from engine.domain.conversations import Message, as_json
from engine.domain.levels import SamplingParams

__all__ = [
    "Backend",
    "BackendError",
    "ContinuousBackend",
    "GenerationFailure",
    "GenerationRequest",
    "GenerationResult",
    "Outcome",
    "Outcomes",
    "SamplingParams",
    "Take",
    "chat_body",
    "take_from",
]


class BackendError(Exception):
    """The backend as a whole could not serve a batch (not loaded, unreachable, out of memory)."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to write. ``key`` is the caller's; ``seed`` makes the draw reproducible.

    The response continues ``messages``: at most one system message, the first, and the user's last.
    ``model`` names one of several models or adapters that the backend serves; empty means its usual one.
    """

    key: int
    messages: tuple[Message, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    model: str = ""


def chat_body(
    request: GenerationRequest,
    *,
    model: str,
    token_limit_field: str = "max_tokens",  # noqa: S107 - no secret
) -> dict[str, Any]:
    """The body of a call of OpenAI's chat protocol for this request.

    ``token_limit_field``: some vendors' newer models want the limit on written tokens under another name.
    """
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": as_json(request.messages),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": request.seed,
        token_limit_field: sampling.max_tokens,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.top_k:
        # Not in OpenAI's own protocol, but all the free servers know it.
        body["top_k"] = sampling.top_k
    return body


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """One written response.

    ``latency_seconds`` is measured from when the backend took the request to the end of this response.
    ``model`` is empty if the backend's usual model wrote it.
    """

    key: int
    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: Literal["stop", "length"]
    latency_seconds: float
    model: str = ""


@dataclass(frozen=True, slots=True)
class GenerationFailure:
    """One request that failed alone; the rest of its batch is unaffected."""

    key: int
    reason: str
    retryable: bool = True


Outcome: TypeAlias = GenerationResult | GenerationFailure
# A generator rather than any iterator, so that it can be closed.
Outcomes: TypeAlias = Generator[Outcome, None, None]
# Takes the number of further requests that fit, and returns at most so many; none means: none now.
Take: TypeAlias = Callable[[int], Sequence[GenerationRequest]]


class Backend(Protocol):
    """A source of responses. Loaded once per worker process; not required to be thread-safe."""

    name: str
    model: str

    def generate(self, requests: Sequence[GenerationRequest]) -> Outcomes:
        """Answer every request of the batch exactly once, in any order, yielding each as it finishes.

        The same request (text, sampling and seed) gives the same text in every batch, as far
        as the engine behind it can promise that. Closing it cancels what is unfinished, and leaves
        the backend ready for the next batch.

        Raises
        ------
        BackendError
            The whole batch could not be served. Requests already yielded stay answered.
        """
        ...


@runtime_checkable
class ContinuousBackend(Backend, Protocol):
    """A backend that takes on new requests while others are still being written."""

    def stream(self, take: Take) -> Outcomes:
        """Write what ``take`` returns, until nothing is being written and ``take`` returns nothing more.

        ``take`` is called in every round of the backend's loop, with room 0 if there is none. This shows the
        caller that there is progress, and an exception from it ends the stream. Otherwise like
        :meth:`Backend.generate`.
        """
        ...


def take_from(requests: Sequence[GenerationRequest]) -> Take:
    """A ``take`` that returns these requests and no others."""
    waiting = deque(requests)
    return lambda room: [waiting.popleft() for _ in range(min(room, len(waiting)))]

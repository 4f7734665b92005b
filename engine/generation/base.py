"""What every generation backend takes and gives back.

A backend turns a batch of chat requests into text. It knows nothing of experiments, policies or the
database: the worker builds the requests, calls :meth:`Backend.generate` once per batch, and stores each
outcome as it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from engine.levels import SamplingParams

__all__ = [
    "Backend",
    "BackendError",
    "GenerationFailure",
    "GenerationRequest",
    "GenerationResult",
    "SamplingParams",
]


class BackendError(Exception):
    """The backend as a whole could not serve a batch (not loaded, unreachable, out of memory)."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to write. ``key`` is the caller's; ``seed`` makes the draw reproducible."""

    key: int
    user: str
    system: str = ""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """One response written. ``latency_seconds`` runs from the start of the batch to this response's end."""

    key: int
    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: Literal["stop", "length"]
    latency_seconds: float


@dataclass(frozen=True, slots=True)
class GenerationFailure:
    """One request that failed alone; the rest of its batch is unaffected."""

    key: int
    reason: str
    retryable: bool = True


class Backend(Protocol):
    """A source of responses. Loaded once per worker process; not required to be thread-safe."""

    name: str
    model: str

    def generate(
        self, requests: Sequence[GenerationRequest]
    ) -> Iterator[GenerationResult | GenerationFailure]:
        """Answer every request of the batch exactly once, in any order, yielding each as it finishes.

        The same request (text, sampling and seed) gives the same text whatever else is in the batch, as far
        as the engine behind it can promise that.

        Raises
        ------
        BackendError
            The whole batch could not be served. Requests already yielded stay answered.
        """
        ...

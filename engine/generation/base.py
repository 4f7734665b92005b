"""What every generation backend takes and gives back.

A backend turns a batch of chat requests into text. It knows nothing of experiments, policies or the
database: the worker builds the requests, calls :meth:`Backend.generate` once per batch, and stores each
outcome as it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


class BackendError(Exception):
    """The backend as a whole could not serve a batch (not loaded, unreachable, out of memory)."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn.

    ``temperature`` 0 means greedy; ``top_p`` 1 and ``top_k`` 0 mean "no truncation"; generation ends at the
    first of ``stop`` (which is not part of the text), at the end-of-turn token, or after ``max_tokens``.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be at least 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or positive, not {self.top_k}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to write. ``key`` is the caller's; ``seed`` makes the draw reproducible."""

    key: int
    user: str
    system: str = ""
    sampling: SamplingParams = SamplingParams()
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

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[GenerationResult | GenerationFailure]:
        """Answer every request of the batch exactly once, in any order, yielding each as it finishes.

        The same request (text, sampling and seed) gives the same text whatever else is in the batch, as far
        as the engine behind it can promise that.

        Raises
        ------
        BackendError
            The whole batch could not be served. Requests already yielded stay answered.
        """
        ...

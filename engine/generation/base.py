"""Input and output of every generation backend.

A backend turns a batch of chat requests into text. It knows nothing of experiments, policies or the database.
The worker builds the requests, calls :meth:`Backend.generate` once per batch, and stores each outcome as it
comes.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from engine.domain.conversations import Message
from engine.domain.levels import SamplingParams
from engine.domain.replies import Fault, Finish, Usage

__all__ = [
    "Backend",
    "BackendError",
    "ContinuousBackend",
    "Fault",
    "Finish",
    "GenerationFailure",
    "GenerationRequest",
    "GenerationResult",
    "Outcome",
    "Outcomes",
    "SamplingParams",
    "Take",
    "Usage",
    "take_from",
    "unanswerable",
]


class BackendError(Exception):
    """The backend as a whole could not serve a batch (not loaded, unreachable, out of memory)."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to write. ``key`` is the caller's; ``seed`` makes the draw reproducible.

    The response continues ``messages``: at most one system message, the first, and the user's last.
    ``model`` names a connection, or one of several models or adapters that a backend of ours serves; empty
    means its usual one. ``experiment_id``: the experiment that must be allowed to use that connection;
    ``None`` for a request of the operator.
    """

    key: int
    messages: tuple[Message, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    model: str = ""
    experiment_id: int | None = None


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """One reply: a text, or the honest reason why there is none.

    Attributes
    ----------
    text
        What people see; empty is no answer.
    thinking
        What the model thought, apart from the text.
    refusal
        Its own words where it refused in a field made for that.
    marks
        The marks of a chat template that were cut off the end of the text.
    prompt_tokens, cached_tokens, completion_tokens, thinking_tokens
        As the server counts them: cached ones are part of the prompt's, thinking ones of the completion's;
        ``None`` where it does not tell.
    latency_seconds
        From when the backend took the request to the end of this reply.
    model
        The connection or model that was asked by name; empty for the backend's usual one.
    served_model
        The model's own name as the server gives it.
    reason
        With ``Finish.ERROR``: why, in words of our own. ``said``: the server's words, without secrets.
    """

    key: int
    text: str
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: Finish
    latency_seconds: float
    model: str = ""
    thinking: str = ""
    refusal: str = ""
    marks: tuple[str, ...] = ()
    cached_tokens: int | None = None
    thinking_tokens: int | None = None
    served_model: str = ""
    reason: str = ""
    said: str = ""

    @property
    def usage(self) -> Usage:
        """The tokens that it took."""
        return Usage(self.prompt_tokens, self.cached_tokens, self.completion_tokens, self.thinking_tokens)


@dataclass(frozen=True, slots=True)
class GenerationFailure:
    """One request that has no reply; the rest of its batch is unaffected.

    Attributes
    ----------
    reason
        Why, in words of our own, which everybody may read.
    said
        The server's words, without secrets; for editors.
    wait_seconds
        Until when the server wants to be left alone; ``None`` where it does not say.
    usage
        The tokens of an answer that is no reply: it broke off, for instance.
    is_asked_again
        It is no outcome yet, and comes only for its usage: the backend asks again.
    """

    key: int
    reason: str
    fault: Fault = Fault.WORKER
    said: str = ""
    wait_seconds: float | None = None
    usage: Usage = field(default_factory=Usage)
    is_asked_again: bool = False


def unanswerable(key: int, reason: str, *, said: str = "") -> GenerationResult:
    """No answer, as this one request cannot be answered: it is too long for the model, for instance."""
    return GenerationResult(key, "", None, None, Finish.ERROR, 0.0, reason=reason, said=said)


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
        Failures that are asked again may come before.

        The same request (text, sampling and seed) gives the same text in every batch, as far
        as the engine behind it can promise that. Closing it cancels unfinished requests, and leaves
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

"""Backends for tests that are about everything but the text."""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from engine.generation.base import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Outcomes,
    Take,
    take_from,
)


def system_of(request: GenerationRequest) -> str:
    """The system message of a request; empty without one."""
    return next((each.content for each in request.messages if each.role == "system"), "")


def user_of(request: GenerationRequest) -> str:
    """The last message of a request."""
    return request.messages[-1].content


class SkilledBackend:
    """Answers "What is N + 0?" rightly more often the higher the number in its prompt "quality N"."""

    name = "skilled"
    model = "skilled-1"

    def __init__(self, n_policies: int = 3) -> None:
        self.n_policies = n_policies
        self.batches: list[Sequence[GenerationRequest]] = []

    def generate(
        self, requests: Sequence[GenerationRequest]
    ) -> Iterator[GenerationResult | GenerationFailure]:
        self.batches.append(requests)
        for request in requests:
            rng = np.random.default_rng(request.seed)
            quality = int(re.search(r"quality (\d+)", system_of(request))[1])
            right = rng.random() < (quality + 0.5) / self.n_policies
            number = int(re.search(r"What is (\d+)", user_of(request))[1])
            yield GenerationResult(
                key=request.key,
                # No two texts are the same: identical ones are settled without anybody.
                text=f"It is {number if right else number + 1000}. Seed {request.seed:010d}.",
                prompt_tokens=len(user_of(request).split()),
                completion_tokens=1,
                finish_reason="stop",
                latency_seconds=0.01,
            )


def number_in(text: str) -> int:
    """The number that a `SkilledBackend` answered."""
    return int(re.search(r"It is (\d+)", text)[1])


class ScriptedBackend:
    """Writes what ``reply`` says: a text, or the outcome of that one request."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, reply: Callable[[GenerationRequest], str | Outcome]) -> None:
        self.reply = reply
        self.requests: list[GenerationRequest] = []

    def generate(
        self, requests: Sequence[GenerationRequest]
    ) -> Iterator[GenerationResult | GenerationFailure]:
        for request in requests:
            self.requests.append(request)
            reply = self.reply(request)
            if not isinstance(reply, str):
                yield reply
                continue
            yield GenerationResult(
                key=request.key,
                text=reply,
                prompt_tokens=3,
                completion_tokens=len(reply.split()),
                finish_reason="stop",
                latency_seconds=0.25,
                model=request.model,
            )


class BreakingBackend(ScriptedBackend):
    """Breaks down as a whole after some answers."""

    def __init__(self, error: Exception, after: int = 0) -> None:
        super().__init__(lambda request: "fine")
        self.error = error
        self.after = after

    def generate(
        self, requests: Sequence[GenerationRequest]
    ) -> Iterator[GenerationResult | GenerationFailure]:
        yield from super().generate(requests[: self.after])
        raise self.error


class ContinuousScriptedBackend(ScriptedBackend):
    """The same, a few at a time, taking on more as it goes."""

    def __init__(
        self,
        reply: Callable[[GenerationRequest], str | Outcome],
        at_once: int = 4,
    ) -> None:
        super().__init__(reply)
        self.at_once = at_once
        self.most_in_hand = 0

    def generate(self, requests: Sequence[GenerationRequest]) -> Outcomes:
        return self.stream(take_from(requests))

    def stream(self, take: Take) -> Outcomes:
        in_hand: list[GenerationRequest] = []
        while True:
            in_hand += take(self.at_once - len(in_hand))
            self.most_in_hand = max(self.most_in_hand, len(in_hand))
            if not in_hand:
                return
            yield from super().generate([in_hand.pop(0)])

"""What a generation worker does: claim waiting responses, have the backend write them, store each as it comes."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from uuid import UUID

from django.conf import settings

from engine.generation.base import (
    Backend,
    BackendError,
    ContinuousBackend,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Outcomes,
)
from engine.generation.batch_size import BatchSize
from engine.leaks import find_leak
from engine.levels import Composition, compose, parse_level
from engine.models import Policy, Response
from engine.selectors import Offer
from engine.services.generation import Failed, Written, claim_responses, release_claim, store_outcomes

logger = logging.getLogger(__name__)

# Finished texts are stored, and an engine with room looks for more work, this often.
_FLUSH_SECONDS = 0.5
# A stream that never runs dry ends after this long, so that its worker also hears of other things.
_STREAM_SECONDS = 45.0
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class _StoppedError(Exception):
    """The worker was told to stop."""


def write_batch(
    *,
    worker: str,
    backend: Backend,
    offer: Offer | None = None,
    size: BatchSize | None = None,
    stopping: Callable[[], bool] = lambda: False,
    on_progress: Callable[[set[int]], None] = lambda touched: None,
) -> tuple[int, set[int]]:
    """Write waiting responses: one batch, or as long as more come where the backend takes them on meanwhile.

    Parameters
    ----------
    offer : Offer
        What the backend serves: nothing else is claimed. By default everything is.
    size : BatchSize
        How many to have in hand; learns from what it sees. By default the settings' first size.
    stopping : callable
        Asked again and again; once true, what is unfinished is given back and this returns.
    on_progress : callable
        Called whenever results were stored or the claim renewed, with the experiments in which a comparison became
        ready or was discarded.

    Returns
    -------
    tuple
        How many were claimed (0: nothing is waiting), and all the experiments touched.

    Raises
    ------
    BackendError
        The backend is out of order. What it did not finish waits anew, without an attempt spent.
    """
    size = size or BatchSize(settings.GENERATION_BATCH, settings.GENERATION_BATCH_MAX)
    batch = _Batch(worker, offer, size, stopping, on_progress)
    try:
        with closing(batch.outcomes_of(backend)) as outcomes:
            for outcome in outcomes:
                batch.finished(outcome, backend.model)
        batch.give_back("The backend did not answer it.", blameless=False)
    except _StoppedError:
        batch.give_back("The worker was stopped.", blameless=True)
    except Exception as error:
        # An engine may well break down of the very signal that stops the worker.
        out_of_order = isinstance(error, BackendError) or stopping()
        batch.give_back(_storable(f"{type(error).__name__}: {error}"), blameless=out_of_order)
        if isinstance(error, BackendError):
            raise
        logger.exception("A batch failed; what it did not finish waits anew")
    return batch.claimed, batch.touched


class _Batch:
    """The responses under one claim, from the rows to the backend and back."""

    def __init__(
        self,
        worker: str,
        offer: Offer | None,
        size: BatchSize,
        stopping: Callable[[], bool],
        on_progress: Callable[[set[int]], None],
    ) -> None:
        self.claimed = 0
        self.touched: set[int] = set()
        self._worker = worker
        self._offer = offer
        self._size = size
        self._stopping = stopping
        self._on_progress = on_progress
        self._claim: UUID | None = None
        self._closed = False
        self._in_hand: dict[int, Composition] = {}
        self._compositions: dict[int, Composition] = {}
        self._finished: list[Written | Failed] = []
        now = time.monotonic()
        self._started_at = self._flushed_at = self._asked_at = now
        self._window = _Window(now)

    def outcomes_of(self, backend: Backend) -> Outcomes:
        if isinstance(backend, ContinuousBackend):
            yield from backend.stream(self.take)
        elif requests := self.take(self._size.now):
            yield from backend.generate(requests)

    def take(self, room: int) -> Sequence[GenerationRequest]:
        """More work for a backend that has room; also where a long batch stores, renews its claim, and stops."""
        self._tick()
        now = time.monotonic()
        room = min(room, self._size.now - len(self._in_hand))
        worth_asking = room >= self._size.now / 4 or now - self._asked_at >= _FLUSH_SECONDS
        if room <= 0 or self._closed or (self._in_hand and not worth_asking):
            return []
        self._asked_at = now
        requests: list[GenerationRequest] = []
        while len(requests) < room:
            claim = claim_responses(
                worker=self._worker, limit=room - len(requests), joining=self._claim, offer=self._offer
            )
            self._window.saturated &= len(claim.responses) == room - len(requests)
            if not claim.responses:
                break
            self.claimed += len(claim.responses)
            self._claim = claim.token
            requests += filter(None, map(self._request, claim.responses))
            suspects = any(response.crashes for response in claim.responses)
            self._closed = suspects or now - self._started_at > _STREAM_SECONDS
            if self._closed:
                break
        return requests

    def _request(self, response: Response) -> GenerationRequest | None:
        composition = self._compositions.get(response.policy_id)
        if composition is None:
            composition = self._compositions[response.policy_id] = composition_of(response.policy)
        refusal = composition.refusal_for_input(response.task.prompt)
        if refusal is not None:
            self._finished.append(_refused_unasked(response, refusal))
            return None
        self._in_hand[response.pk] = composition
        return request_for(composition, key=response.pk, task=response.task.prompt, seed=response.seed)

    def finished(self, outcome: Outcome, model: str) -> None:
        composition = self._in_hand.pop(outcome.key)
        if isinstance(outcome, GenerationFailure):
            failed = Failed(outcome.key, reason=_storable(outcome.reason), retryable=outcome.retryable)
            self._finished.append(failed)
        else:
            self._finished.append(_written(outcome, composition, model))
            self._window.tokens += outcome.completion_tokens
        self._window.outcomes += 1
        self._measure()
        self._tick()

    def _measure(self) -> None:
        if self._window.outcomes < self._size.now:
            return
        now = time.monotonic()
        if self._window.saturated:
            self._size.measured(tokens=self._window.tokens, seconds=now - self._window.began)
        self._window = _Window(now)

    def _tick(self) -> None:
        if self._stopping():
            raise _StoppedError
        silent = time.monotonic() - self._flushed_at
        if silent >= (_FLUSH_SECONDS if self._finished else settings.CLAIM_SECONDS / 4):
            self.flush()

    def flush(self) -> None:
        """Store what is finished, and say that the rest is still being written."""
        self._flushed_at = time.monotonic()
        if self._claim is None:
            return
        touched = store_outcomes(claim=self._claim, outcomes=self._finished)
        self._finished = []
        self.touched |= touched
        self._on_progress(touched)

    def give_back(self, reason: str, *, blameless: bool) -> None:
        """Store what is finished, and let go of the rest."""
        self.flush()
        if self._claim is not None:
            discarded = release_claim(claim=self._claim, reason=reason, blameless=blameless)
            self.touched |= discarded
            self._on_progress(discarded)


def composition_of(policy: Policy) -> Composition:
    """The policy's levels, in the order of its factors, as one."""
    levels = sorted(policy.levels.all(), key=lambda level: level.factor.position)
    values = (parse_level(level.factor.kind, level.value) for level in levels)
    return compose(values, model=policy.experiment.model)


def request_for(composition: Composition, *, key: int, task: str, seed: int) -> GenerationRequest:
    """What the backend is asked on behalf of a policy."""
    return GenerationRequest(
        key=key,
        user=composition.user(task),
        system=composition.system,
        sampling=composition.sampling,
        seed=seed,
        model=composition.model,
    )


class _Window:
    """A stretch of work, for measuring: it counts if more was waiting all the time."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.outcomes = 0
        self.tokens = 0
        self.saturated = True


def _written(result: GenerationResult, composition: Composition, model: str) -> Written:
    text = _storable(result.text)
    refusal = composition.refusal_for_output(text)
    return Written(
        response_id=result.key,
        text=text if refusal is None else refusal,
        model=result.model or model,
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
        finish_reason=result.finish_reason,
        latency_seconds=result.latency_seconds,
        logprob=result.logprob,
        guardrail="" if refusal is None else "output",
        leak=find_leak(text, instructions=[composition.system, composition.suffix], model=model)[:500],
    )


def _storable(text: str) -> str:
    """PostgreSQL has no NUL in a text and UTF-8 no half of a surrogate pair; a model may write both."""
    return _UNSTORABLE.sub("\ufffd", text)


def _refused_unasked(response: Response, refusal: str) -> Written:
    return Written(
        response_id=response.pk,
        text=refusal,
        model="",
        prompt_tokens=0,
        completion_tokens=0,
        finish_reason="stop",
        latency_seconds=0.0,
        guardrail="input",
    )

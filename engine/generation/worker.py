"""One batch: claim waiting responses, have the backend write them, store each as it comes."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator

from django.conf import settings

from engine.generation.base import (
    Backend,
    BackendError,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
)
from engine.leaks import find_leak
from engine.levels import Composition, compose, parse_level
from engine.models import Response
from engine.services.generation import Claim, Failed, Written, claim_responses, release_claim, store_outcomes

logger = logging.getLogger(__name__)

# Finished texts are stored this often while the rest of the batch is still being written.
_FLUSH_SECONDS = 0.25
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def write_batch(*, worker: str, backend: Backend) -> tuple[int, set[int]]:
    """Write up to ``GENERATION_BATCH`` waiting responses.

    Returns
    -------
    tuple
        How many were claimed (0: nothing is waiting), and the experiments in which a comparison became
        ready or was discarded.

    Raises
    ------
    BackendError
        The backend is out of order. What it did not finish waits anew, without an attempt spent.
    """
    claim = claim_responses(worker=worker, limit=settings.GENERATION_BATCH)
    if not claim.responses:
        return 0, set()
    touched: set[int] = set()
    pending: list[Written | Failed] = []
    flushed_at = time.monotonic()
    try:
        for outcome in _outcomes(claim, backend):
            pending.append(outcome)
            if time.monotonic() - flushed_at >= _FLUSH_SECONDS:
                touched |= store_outcomes(claim=claim.token, outcomes=pending)
                pending, flushed_at = [], time.monotonic()
        touched |= store_outcomes(claim=claim.token, outcomes=pending)
    except Exception as error:
        out_of_order = isinstance(error, BackendError)
        touched |= store_outcomes(claim=claim.token, outcomes=pending)
        touched |= release_claim(
            claim=claim.token, reason=_storable(f"{type(error).__name__}: {error}"), blameless=out_of_order
        )
        if out_of_order:
            raise
        logger.exception(
            "A batch of %d responses failed; what it did not finish waits anew", len(claim.responses)
        )
    return len(claim.responses), touched


def _outcomes(claim: Claim, backend: Backend) -> Iterator[Written | Failed]:
    requests = []
    compositions: dict[int, Composition] = {}
    for response in claim.responses:
        composition = compositions[response.pk] = _composition(response)
        refusal = composition.refusal_for_input(response.task.prompt)
        if refusal is not None:
            yield _refused_unasked(response, refusal)
            continue
        requests.append(
            GenerationRequest(
                key=response.pk,
                user=composition.user(response.task.prompt),
                system=composition.system,
                sampling=composition.sampling,
                seed=response.seed,
            )
        )
    for outcome in backend.generate(requests) if requests else ():
        if isinstance(outcome, GenerationFailure):
            yield Failed(
                response_id=outcome.key, reason=_storable(outcome.reason), retryable=outcome.retryable
            )
        else:
            yield _written(outcome, compositions[outcome.key], backend.model)


def _composition(response: Response) -> Composition:
    levels = sorted(response.policy.levels.all(), key=lambda level: level.factor.position)
    return compose(parse_level(level.factor.kind, level.value) for level in levels)


def _written(result: GenerationResult, composition: Composition, model: str) -> Written:
    text = _storable(result.text)
    refusal = composition.refusal_for_output(text)
    return Written(
        response_id=result.key,
        text=text if refusal is None else refusal,
        model=model,
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
        finish_reason=result.finish_reason,
        latency_seconds=result.latency_seconds,
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

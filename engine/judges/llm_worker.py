"""The judging worker: claims comparisons, asks the language model in both orders, stores the opinion."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from django.conf import settings

from engine.domain import about
from engine.domain.conversations import chat
from engine.domain.levels import SamplingParams
from engine.domain.texts import storable
from engine.generation.base import (
    Backend,
    BackendError,
    ContinuousBackend,
    Fault,
    GenerationFailure,
    GenerationRequest,
    Outcome,
    Outcomes,
    take_from,
)
from engine.judges.llm import UnreadableVerdictError, messages, read_verdict
from engine.models import Judgment, Opinion
from engine.selectors.rubrics import identity, may_tie, rubric_of
from engine.services.claims import StoppedError
from engine.services.opinions import (
    Asked,
    ClaimedOpinions,
    claim_opinions,
    is_halted,
    release_claim,
    renew_claim,
    store_opinion,
)

logger = logging.getLogger(__name__)

_LONGEST_REASON = 1000


class _HaltedError(Exception):
    """The language model was halted in one of the batch's experiments."""


def give_opinions(*, worker: str, backend: Backend, stopping: Callable[[], bool] = lambda: False) -> int:
    """Ask for one batch of waiting opinions; returns how many were claimed (0: nothing is waiting).

    Raises
    ------
    BackendError
        The backend does not work. Its unfinished work waits again, without an attempt spent.
    """
    claim = claim_opinions(worker=worker, limit=settings.JUDGE_BATCH)
    about.note(claim=claim.token)
    release = partial(release_claim, claim=claim.token)
    try:
        _ask(claim, backend, stopping)
        release(reason="The backend did not answer.", blameless=False)
    except StoppedError:
        release(reason="The worker was stopped.", blameless=True)
    except _HaltedError:
        release(reason="", blameless=True)
    except BackendError as error:
        release(reason=storable(str(error)), blameless=True)
        raise
    except Exception as error:
        # The signal that stops the worker may also break its backend.
        release(reason=storable(f"{type(error).__name__}: {error}"), blameless=stopping())
        logger.exception("A batch of opinions failed; the unfinished ones wait again")
    return len(claim.opinions)


def _ask(claim: ClaimedOpinions, backend: Backend, stopping: Callable[[], bool]) -> None:
    opinions: dict[int, Opinion] = {}
    for opinion in claim.opinions:
        if opinion.identity == identity(opinion.comparison.experiment):
            opinions[opinion.pk] = opinion
            continue
        store_opinion(
            claim=claim.token,
            asked=Asked(
                opinion.pk,
                failure="The rubric, the question or the model changed before it was asked.",
                retryable=False,
                outdated=True,
            ),
            model="",
        )
    requests = [request for opinion in opinions.values() for request in _requests(opinion)]
    halves: dict[int, dict[bool, Outcome]] = {}
    renewed_at = time.monotonic()

    def tick() -> None:
        nonlocal renewed_at
        if stopping():
            raise StoppedError
        if time.monotonic() - renewed_at >= settings.CLAIM_SECONDS / 4:
            renewed_at = time.monotonic()
            renew_claim(claim=claim.token)

    with closing(_outcomes(backend, requests, tick)) as outcomes:
        for outcome in outcomes:
            opinion_id, swapped = divmod(outcome.key, 2)
            both = halves.setdefault(opinion_id, {})
            both[bool(swapped)] = outcome
            if len(both) == 2:
                asked = _asked(opinions[opinion_id], both[False], both[True])
                store_opinion(claim=claim.token, asked=asked, model=backend.model)
                if asked.failure and is_halted(opinion_id=opinion_id):
                    raise _HaltedError
            tick()


def _outcomes(backend: Backend, requests: Sequence[GenerationRequest], tick: Callable[[], None]) -> Outcomes:
    if not requests:
        return
    if not isinstance(backend, ContinuousBackend):
        yield from backend.generate(requests)
        return
    take = take_from(requests)

    def take_on(room: int) -> Sequence[GenerationRequest]:
        tick()
        return take(room)

    yield from backend.stream(take_on)


def _requests(opinion: Opinion) -> list[GenerationRequest]:
    """Two requests: one with the left response first, one with the right one first."""
    comparison = opinion.comparison
    experiment = comparison.experiment
    texts = [comparison.left.text, comparison.right.text]
    # At first the most likely answer; if it cannot be read, another one is drawn.
    temperature = 0.0 if opinion.attempts <= 1 else 0.7
    requests = []
    for swapped in (False, True):
        first, second = reversed(texts) if swapped else texts
        system, user = messages(
            question=experiment.question,
            rubric=rubric_of(experiment),
            task=comparison.task.prompt,
            first=first,
            second=second,
            # Drawn after the responses were written, so that none can close its own marker.
            code=f"{opinion.seed:08x}",
            may_tie=may_tie(experiment),
        )
        requests.append(
            GenerationRequest(
                key=2 * opinion.pk + swapped,
                messages=chat(user, system),
                sampling=SamplingParams(temperature=temperature, max_tokens=settings.JUDGE_MAX_TOKENS),
                seed=opinion.seed + opinion.attempts,
            )
        )
    return requests


def _asked(opinion: Opinion, left_first: Outcome, right_first: Outcome) -> Asked:
    both = (left_first, right_first)
    results = [each for each in both if not isinstance(each, GenerationFailure)]
    asked = partial(
        Asked,
        opinion.pk,
        prompt_tokens=sum(each.prompt_tokens for each in results),
        completion_tokens=sum(each.completion_tokens for each in results),
    )
    for failed in both:
        if isinstance(failed, GenerationFailure):
            again = failed.fault in {Fault.WORKER, Fault.SERVER}
            return asked(failure=storable(failed.reason), retryable=again)
    try:
        verdicts = [read_verdict(each.text) for each in results]
    except UnreadableVerdictError as unreadable:
        return asked(failure=storable(str(unreadable)))
    left, right, tie = Judgment.Choice.LEFT, Judgment.Choice.RIGHT, Judgment.Choice.TIE
    return asked(
        left_first={"first": left, "second": right, "tie": tie}[verdicts[0].choice],
        right_first={"first": right, "second": left, "tie": tie}[verdicts[1].choice],
        reason=storable("\n".join(filter(None, (verdict.reason[:_LONGEST_REASON] for verdict in verdicts)))),
    )

"""The judging worker: claims comparisons, asks the language model in both orders, stores the opinion."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from uuid import UUID

from django.conf import settings

from engine.domain import log_context
from engine.domain.conversations import chat
from engine.domain.levels import SamplingParams
from engine.domain.texts import is_blank, storable
from engine.generation.base import (
    Backend,
    BackendError,
    ContinuousBackend,
    Fault,
    Finish,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Outcomes,
)
from engine.generation.remote.backend import RemoteBackend
from engine.judges.llm import UnreadableVerdictError, messages, read_verdict
from engine.models import Charge, Experiment, Judgment, Opinion
from engine.selectors.connection_pauses import asked_from_here, is_probed, pause_seconds
from engine.selectors.rubrics import identity, may_tie, rubric_of
from engine.selectors.spending import overspent_connections
from engine.services.charges import Spent, book
from engine.services.opinions import (
    Asked,
    claim_opinions,
    is_halted,
    release_claim,
    renew_claim,
    store_opinion,
)
from engine.services.worker_holds import StoppedError

logger = logging.getLogger(__name__)

_LONGEST_REASON = 1000
# Shown in place of an empty response.
_NO_ANSWER = "(no answer)"
# A worker that asks connections looks for more this often.
_LOOK_SECONDS = 1.0


class _HaltedError(Exception):
    """The language model was halted in one of the batch's experiments."""


def give_opinions(
    *,
    worker: str,
    backend: Backend,
    stopping: Callable[[], bool] = lambda: False,
    on_progress: Callable[[], None] = lambda: None,
) -> int:
    """Ask about waiting opinions; returns how many were claimed (0: nothing is waiting).

    A worker's own model gets one batch. Connections get more as they answer, so that one that hangs keeps no
    other waiting. ``on_progress`` is called now and then meanwhile.

    Raises
    ------
    BackendError
        The backend does not work. Its unfinished work waits again, without an attempt spent.
    """
    batch = _Batch(worker, backend, stopping, on_progress)
    try:
        batch.ask()
        batch.release("The backend did not answer.", blameless=False)
    except StoppedError:
        batch.release("The worker was stopped.", blameless=True)
    except _HaltedError:
        batch.release("", blameless=True)
    except BackendError as error:
        batch.release(storable(str(error)), blameless=True)
        raise
    except Exception as error:
        # The signal that stops the worker may also break its engine; and no text breaks a remote one.
        blameless = stopping() or batch.is_remote
        batch.release(storable(f"{type(error).__name__}: {error}"), blameless=blameless)
        logger.exception("A batch of opinions failed; the unfinished ones wait again")
    return batch.claimed


class _Batch:
    """The opinions under one claim, on their way to the backend and back."""

    def __init__(
        self,
        worker: str,
        backend: Backend,
        stopping: Callable[[], bool],
        on_progress: Callable[[], None],
    ) -> None:
        self.claimed = 0
        self._worker = worker
        self._backend = backend
        self.is_remote = isinstance(backend, RemoteBackend)
        self._stopping = stopping
        self._on_progress = on_progress
        self._claim: UUID | None = None
        self._opinions: dict[int, Opinion] = {}
        self._halves: dict[int, dict[bool, Outcome]] = {}
        self._requests: list[GenerationRequest] = []
        self._renewed_at = time.monotonic()
        self._looked_at = float("-inf")

    def ask(self) -> None:
        with closing(self._outcomes()) as outcomes:
            for outcome in outcomes:
                self._answered(outcome)
                # A remote backend asks for more now and then, and has other replies that are paid already.
                if not self.is_remote:
                    self._tick()

    def release(self, reason: str, *, blameless: bool) -> None:
        if self._claim is not None:
            release_claim(claim=self._claim, reason=reason, blameless=blameless)

    def _outcomes(self) -> Outcomes:
        if isinstance(self._backend, ContinuousBackend):
            yield from self._backend.stream(self._take)
        elif requests := self._take(2 * settings.JUDGE_BATCH):
            yield from self._backend.generate(requests)

    def _take(self, room: int) -> Sequence[GenerationRequest]:
        self._tick()
        self._claim_more()
        taken, self._requests = self._requests[:room], self._requests[room:]
        return taken

    def _claim_more(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < (_LOOK_SECONDS if self.is_remote else math.inf):
            return
        self._looked_at = now
        rooms = None
        if self.is_remote:
            if self._claim is not None:
                self._on_progress()
            in_hand = Counter(each.comparison.experiment.judge_model for each in self._opinions.values())
            overspent = overspent_connections()
            rooms = {
                each.name: (1 if is_probed(each) else settings.JUDGE_BATCH) - in_hand[each.name]
                for each in asked_from_here()
                if not pause_seconds(each) and each.pk not in overspent
            }
            rooms = {name: room for name, room in rooms.items() if room > 0}
        claim = claim_opinions(
            worker=self._worker, limit=settings.JUDGE_BATCH, joining=self._claim, rooms=rooms
        )
        if not claim.opinions:
            return
        self._claim = claim.token
        log_context.note(claim=claim.token)
        new = [opinion for opinion in claim.opinions if opinion.pk not in self._opinions]
        self.claimed += len(new)
        for opinion in new:
            if opinion.identity == identity(opinion.comparison.experiment):
                self._opinions[opinion.pk] = opinion
                self._requests += _requests(opinion)
                continue
            outdated = Asked(
                opinion.pk,
                failure="The rubric, the question or the model changed before it was asked.",
                retryable=False,
                outdated=True,
            )
            store_opinion(claim=claim.token, asked=outdated, model="")

    def _answered(self, outcome: Outcome) -> None:
        opinion_id, swapped = divmod(outcome.key, 2)
        experiment = self._opinions[opinion_id].comparison.experiment
        model = experiment.judge_model or self._backend.model
        spent = Spent(
            model, outcome.usage, Charge.Purpose.OPINION, experiment.pk, of_worker=not self.is_remote
        )
        both = self._halves.setdefault(opinion_id, {})
        if not (isinstance(outcome, GenerationFailure) and outcome.is_asked_again):
            both[bool(swapped)] = outcome
        if len(both) < 2 or self._claim is None:
            book([spent])
            return
        del self._halves[opinion_id]
        del self._opinions[opinion_id]
        asked = read_both(opinion_id, both[False], both[True])
        store_opinion(claim=self._claim, asked=asked, model=model, spent=[spent])
        # Others go on: requests of this experiment that are under way are few.
        if asked.failure and not self.is_remote and is_halted(opinion_id=opinion_id):
            raise _HaltedError

    def _tick(self) -> None:
        if self._stopping():
            raise StoppedError
        if self._claim is not None and time.monotonic() - self._renewed_at >= settings.CLAIM_SECONDS / 4:
            self._renewed_at = time.monotonic()
            renew_claim(claim=self._claim)


def _requests(opinion: Opinion) -> list[GenerationRequest]:
    """Two requests: one with the left response first, one with the right one first."""
    comparison = opinion.comparison
    return both_orders(
        comparison.experiment,
        comparison.task.prompt,
        (comparison.left.text, comparison.right.text),
        key=opinion.pk,
        # Drawn after the responses were written, so that none can close its own marker.
        code=f"{opinion.seed:08x}",
        seed=opinion.seed + opinion.attempts,
        # At first the most likely answer; if it cannot be read, another one is drawn.
        temperature=0.0 if opinion.attempts <= 1 else 0.7,
    )


def both_orders(
    experiment: Experiment,
    task: str,
    shown: tuple[str, str],
    *,
    key: int,
    code: str,
    seed: int = 0,
    temperature: float = 0.0,
) -> list[GenerationRequest]:
    """The questions about two texts, with the keys 2 × ``key``, and that plus 1 with the texts swapped."""
    texts = [_NO_ANSWER if is_blank(each) else each for each in shown]
    requests = []
    for swapped in (False, True):
        first, second = reversed(texts) if swapped else texts
        system, user = messages(
            question=experiment.question,
            rubric=rubric_of(experiment),
            task=task,
            first=first,
            second=second,
            code=code,
            may_tie=may_tie(experiment),
        )
        requests.append(
            GenerationRequest(
                key=2 * key + swapped,
                messages=chat(user, system),
                sampling=SamplingParams(temperature=temperature, max_tokens=settings.JUDGE_MAX_TOKENS),
                seed=seed,
                model=experiment.judge_model,
                experiment_id=experiment.pk,
            )
        )
    return requests


def read_both(key: int, left_first: Outcome, right_first: Outcome) -> Asked:
    """What the answers to both orders say together."""
    both = (left_first, right_first)
    results = [each for each in both if not isinstance(each, GenerationFailure)]
    asked = partial(Asked, key)
    for failed in both:
        if isinstance(failed, GenerationFailure):
            return asked(
                failure=storable(failed.reason),
                retryable=failed.fault == Fault.WORKER,
                blameless=failed.fault in {Fault.BUSY, Fault.SERVER, Fault.ACCESS},
            )
    for each in results:
        if trouble := _no_verdict(each):
            return asked(failure=trouble, retryable=each.finish_reason == Finish.LENGTH)
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


def _no_verdict(result: GenerationResult) -> str:
    """The reason why this reply is no complete verdict, and the remedy; empty if it may be one."""
    match result.finish_reason:
        case Finish.LENGTH:
            return (
                f"The verdict was cut at {settings.JUDGE_MAX_TOKENS:,} tokens. Raise JUDGE_MAX_TOKENS, or "
                "choose a judge that thinks less."
            )
        case Finish.FILTERED:
            return "The server's filter took the verdict away. Choose another judge."
        case Finish.REFUSED:
            return "The language model refused to judge. Choose another judge."
        case Finish.ERROR:
            return storable(result.reason) or "The language model cannot answer this question."
    return ""

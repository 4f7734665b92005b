"""The generation worker: claims waiting responses, lets the backend write them, stores each as it arrives."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from uuid import UUID

from django.conf import settings

from engine.domain import log_context
from engine.domain.levels import Composition
from engine.domain.texts import storable
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
from engine.generation.responses import ResponseInProgress, Step, composition_of
from engine.generation.speed import Speed
from engine.models import Connection, Experiment, Policy, Response
from engine.selectors.connection_pauses import asked_from_here, by_name, is_probed, pause_seconds
from engine.selectors.offered_models import Offer
from engine.selectors.spending import overspent_connections
from engine.services.charges import Spent
from engine.services.generation import (
    ClaimedResponses,
    Failed,
    Written,
    claim_responses,
    release_claim,
    stopped_experiments,
    store_outcomes,
)
from engine.services.worker_holds import StoppedError

logger = logging.getLogger(__name__)

# Finished texts of an engine are stored, an engine with room looks for more work, and others are told of what
# is ready, this often.
_FLUSH_SECONDS = 0.5
# A busy worker pauses after this long, because other messages wait for it; a remote one has threads for them.
_STREAM_SECONDS = 45.0
# A claim for connections, or storing their replies, costs a few queries. A reply that is lost is paid twice,
# so it does not wait for longer than this.
_ROOM_SECONDS = 0.05


def write_batch(
    *,
    worker: str,
    backend: Backend,
    offer: Offer | None = None,
    speed: Speed | None = None,
    stopping: Callable[[], bool] = lambda: False,
    on_progress: Callable[[set[int]], None] = lambda touched: None,
) -> tuple[int, set[int]]:
    """Write waiting responses as long as more come, within reason: in batches, or joining what is being
    written where the backend can do that.

    Parameters
    ----------
    offer : Offer
        The models that the backend serves: only their responses are claimed. By default all are.
    speed : Speed
        Told how fast the backend writes.
    stopping : callable
        Asked repeatedly; once true, unfinished responses are returned to the queue and this ends.
    on_progress : callable
        Called whenever results were stored or the claim renewed, with the experiments in which a comparison
        became ready or was discarded.

    Returns
    -------
    tuple
        Number of claimed responses (0: nothing is waiting), and all the experiments touched.

    Raises
    ------
    BackendError
        The backend does not work. Its unfinished work waits again, without an attempt spent.
    """
    batch = _Batch(worker, offer, speed or Speed(), stopping, on_progress)
    try:
        with closing(batch.outcomes_of(backend)) as outcomes:
            for outcome in outcomes:
                batch.answered(outcome, backend.model)
        batch.give_back("The backend did not answer it.", blameless=False)
    except StoppedError:
        batch.give_back("The worker was stopped.", blameless=True)
    except BackendError as error:
        batch.give_back(storable(str(error)), blameless=True)
        raise
    except Exception as error:
        # The signal that stops the worker may also break its engine; and no response breaks a remote one.
        blameless = stopping() or batch.is_remote
        batch.give_back(storable(f"{type(error).__name__}: {error}"), blameless=blameless)
        logger.exception("A batch failed; its unfinished responses wait again")
    return batch.claimed, batch.touched


class _Batch:
    """The responses under one claim, on their way from the rows to the backend and back."""

    def __init__(
        self,
        worker: str,
        offer: Offer | None,
        speed: Speed,
        stopping: Callable[[], bool],
        on_progress: Callable[[set[int]], None],
    ) -> None:
        self.claimed = 0
        self.touched: set[int] = set()
        self._worker = worker
        self._offer = offer
        self.is_remote = offer is not None and offer.is_remote
        self._usual_model = "" if offer is None else offer.model
        self._speed = speed
        self._stopping = stopping
        self._on_progress = on_progress
        self._claim: UUID | None = None
        self._closed = False
        self._ran_dry = False
        self._in_hand: dict[int, ResponseInProgress] = {}
        self._asked_next: list[GenerationRequest] = []
        self._compositions: dict[int, Composition] = {}
        self._thinking_is_shown: set[int] = set()
        self._connections: dict[str, Connection] = {}
        self._asked_of: Counter[str] = Counter()
        self._read_at = float("-inf")
        self._dry_until: dict[str, float] = {}
        self._stopped: set[int] = set()
        self._finished: list[Written | Failed] = []
        self._spent: list[Spent] = []
        self._untold: set[int] = set()
        now = time.monotonic()
        self._started_at = self._flushed_at = self._asked_at = self._told_at = now
        self._window = _Window(now)

    def outcomes_of(self, backend: Backend) -> Outcomes:
        if isinstance(backend, ContinuousBackend):
            yield from backend.stream(self.take)
            return
        while requests := self.take(settings.GENERATION_BATCH_MAX):
            yield from backend.generate(requests)

    def take(self, room: int) -> Sequence[GenerationRequest]:
        """More work for a backend that has room; here a long batch also stores, renews its claim, stops."""
        self._tick()
        now = time.monotonic()
        requests, self._asked_next = self._asked_next[:room], self._asked_next[room:]
        return requests + self._claim_more(room - len(requests), now)

    def _claim_more(self, room: int, now: float) -> list[GenerationRequest]:
        if self.is_remote:
            return self._claim_for_connections(now)
        room = min(room, settings.GENERATION_BATCH_MAX - len(self._in_hand))
        # The engine waits for more where nothing is in hand.
        many = not self._ran_dry and (not self._in_hand or room >= settings.GENERATION_BATCH_MAX / 4)
        worth_asking = many or now - self._asked_at >= _FLUSH_SECONDS
        if room <= 0 or self._closed or not worth_asking:
            return []
        self._asked_at = now
        requests: list[GenerationRequest] = []
        self._ran_dry = False
        while len(requests) < room and not (self._ran_dry or self._closed):
            limit = room - len(requests)
            claim = claim_responses(worker=self._worker, limit=limit, joining=self._claim, offer=self._offer)
            self._ran_dry = len(claim.responses) < limit
            self._window.saturated &= not self._ran_dry
            if not claim.responses:
                break
            requests += self._begun(claim)
            suspects = any(response.crashes for response in claim.responses)
            self._closed = suspects or now - self._started_at > _STREAM_SECONDS
        return requests

    def _claim_for_connections(self, now: float) -> list[GenerationRequest]:
        if self._in_hand and now - self._asked_at < _ROOM_SECONDS:
            return []
        self._asked_at = now
        rooms = self._rooms(now)
        if not rooms:
            return []
        claim = claim_responses(
            worker=self._worker,
            limit=sum(rooms.values()),
            joining=self._claim,
            offer=self._offer,
            rooms=rooms,
            stopped=self._stopped,
        )
        requests = self._begun(claim) if claim.responses else []
        writers = Counter(
            self._compositions[response.policy_id].model or self._usual_model for response in claim.responses
        )
        # Who got less than fits has nothing waiting, or not with all its guards.
        dry = {name: now + _FLUSH_SECONDS for name, room in rooms.items() if writers[name] < room}
        self._dry_until |= dry
        self._window.saturated &= not dry
        return requests

    def _begun(self, claim: ClaimedResponses) -> list[GenerationRequest]:
        self.claimed += len(claim.responses)
        self._claim = claim.token
        log_context.note(claim=claim.token)
        self._compose({response.policy_id for response in claim.responses})
        return list(filter(None, map(self._begin, claim.responses)))

    def _rooms(self, now: float) -> dict[str, int]:
        """The further requests that each connection may get: twice as many as it is asked at once, so that it
        never waits for the next claim.
        """
        if now - self._read_at >= _FLUSH_SECONDS:
            self._read_at = now
            self._stopped = stopped_experiments()
            overspent = overspent_connections()
            self._connections = {each.name: each for each in asked_from_here() if each.pk not in overspent}
        rooms: dict[str, int] = {}
        urgent = False
        for name, each in self._connections.items():
            if pause_seconds(each) > 0 or (self._in_hand and self._dry_until.get(name, 0.0) > now):
                continue
            most = 1 if is_probed(each) else 2 * each.at_once
            if (room := most - self._asked_of[name]) > 0:
                rooms[name] = room
                urgent |= room >= 3 * most / 8
        # Few at a time would be many claims; those that are not in need join one that is.
        return rooms if urgent else {}

    def _compose(self, policy_ids: set[int]) -> None:
        new = policy_ids - self._compositions.keys()
        if new:
            if not self.is_remote:
                self._connections = by_name()
            for policy in Policy.objects.composable().filter(pk__in=new):
                self._compositions[policy.pk] = composition_of(policy)
                if policy.experiment.shown_thinking == Experiment.ShownThinking.BOTH:
                    self._thinking_is_shown.add(policy.pk)

    def _begin(self, response: Response) -> GenerationRequest | None:
        making = ResponseInProgress(
            response,
            self._compositions[response.policy_id],
            self._connections,
            thinking_is_shown=response.policy_id in self._thinking_is_shown,
        )
        return self._follow(response.pk, making, making.begin())

    def _follow(self, key: int, making: ResponseInProgress, step: Step) -> GenerationRequest | None:
        if isinstance(step, GenerationRequest):
            self._in_hand[key] = making
            self._asked_of[making.asked_model(self._usual_model)] += 1
            return step
        self._finished.append(step)
        return None

    def answered(self, outcome: Outcome, model: str) -> None:
        """Take the backend's answer: either the response is finished, or there is another request."""
        spent = self._in_hand[outcome.key].spent(outcome, model)
        self._spent.append(replace(spent, of_worker=not self.is_remote))
        if isinstance(outcome, GenerationFailure) and outcome.is_asked_again:
            return
        making = self._in_hand.pop(outcome.key)
        self._asked_of[making.asked_model(self._usual_model)] -= 1
        try:
            step = making.proceed(outcome, model)
        except Exception as error:
            # One text must not end the others.
            logger.exception("A reply cannot be read")
            step = Failed(outcome.key, reason=storable(f"{type(error).__name__}: {error}"))
        request = self._follow(outcome.key, making, step)
        if request is not None:
            self._asked_next.append(request)
        if isinstance(outcome, GenerationResult):
            self._window.tokens += outcome.completion_tokens or 0
        self._window.outcomes += 1
        self._measure()
        # A remote backend asks for more now and then, and has other replies that are paid already.
        if not self.is_remote:
            self._tick()

    def _measure(self) -> None:
        if self._window.outcomes < settings.GENERATION_BATCH_MAX:
            return
        now = time.monotonic()
        if self._window.saturated:
            self._speed.measured(tokens=self._window.tokens, seconds=now - self._window.began)
        self._window = _Window(now)

    def _tick(self) -> None:
        if self._stopping():
            raise StoppedError
        longest = settings.CLAIM_SECONDS / 4
        if self._finished or self._spent:
            longest = _ROOM_SECONDS if self.is_remote else _FLUSH_SECONDS
        if time.monotonic() - self._flushed_at >= longest:
            self.flush()
        if time.monotonic() - self._told_at >= _FLUSH_SECONDS:
            self._tell()

    def flush(self) -> None:
        """Store finished responses, and extend the claim on the rest."""
        self._flushed_at = time.monotonic()
        if self._claim is None:
            return
        self._untold |= store_outcomes(claim=self._claim, outcomes=self._finished, spent=self._spent)
        self._finished, self._spent = [], []

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        self.touched |= self._untold
        touched, self._untold = self._untold, set()
        self._on_progress(touched)

    def give_back(self, reason: str, *, blameless: bool) -> None:
        """Store finished responses, and return the rest to the queue."""
        self.flush()
        if self._claim is not None:
            self._untold |= release_claim(claim=self._claim, reason=reason, blameless=blameless)
            self._tell()


class _Window:
    """A stretch of work for measuring speed: it counts if more responses were waiting all the time."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.outcomes = 0
        self.tokens = 0
        self.saturated = True

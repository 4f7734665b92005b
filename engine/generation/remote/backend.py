"""The backend of a worker that asks connections."""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import itertools
import sys
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from django.conf import settings

from engine.domain.connection_targets import Target
from engine.domain.errors import KeyUnreadableError
from engine.generation.base import (
    Fault,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Outcomes,
    Take,
    take_from,
)
from engine.generation.remote.client import Client
from engine.models import Connection
from engine.selectors.connection_pauses import asked_from_here, is_probed, lent, pause_seconds
from engine.services.connection_pauses import note_failure, note_success
from engine.services.keys import target_of

# Seconds between signs of life to the caller of a stream while no response finishes.
_TICK_SECONDS = 0.05
# Other workers and people change connections; the table of them is read again after so long.
_READ_SECONDS = 0.5
# A request that failed is asked again so often, after 1 second, 2, 4 and so on, before the caller gets it
# back.
_TRIES = 5
# Requests that wait for a connection go back to the caller if it pauses for longer.
_SHORT_PAUSE_SECONDS = 10.0
_MOST_IN_HAND = 10_000
_MOST_FILES = 65_536
# Enough for requests to leave.
_SEND_SECONDS = 0.002


class RemoteBackend:
    """Asks every connection within its own limits, and yields replies as they come.

    One thread: an event loop runs while the caller waits for the next outcome. A request that hangs, and a
    connection that pauses, keep no other one waiting.
    """

    name = "remote"

    def __init__(self, own: Target | None = None) -> None:
        """``own``: the only target, for all requests, of a server that a backend of ours has started."""
        self._own = own
        self.model = settings.OPENAI_MODEL if own is None else own.name
        self._connections: dict[str, Connection] = {}
        self._lent: set[tuple[int, int]] = set()
        self._read_at = float("-inf")

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    @cached_property
    def _client(self) -> Client:
        _allow_files()
        return self._loop.run_until_complete(Client().__aenter__())

    def close(self) -> None:
        """Close the connections to servers."""
        self._loop.run_until_complete(self._client.__aexit__(None, None, None))
        self._loop.close()

    def generate(self, requests: Sequence[GenerationRequest]) -> Outcomes:
        """Answer every request once; see :class:`~engine.generation.base.Backend`."""
        return self.stream(take_from(requests))

    def stream(self, take: Take) -> Outcomes:
        """Answer what ``take`` hands over; see :class:`~engine.generation.base.ContinuousBackend`.

        A failure that is the server's fault is asked again here a few times. Then, or where the connection
        pauses for longer, the caller gets it back. No attempt of the caller's is spent by it.
        """
        lanes: dict[str, _Lane] = {}
        work = _UnderWay(self._loop)
        numbers = itertools.count()
        most = _MOST_IN_HAND if self._own is None else self._own.at_once
        try:
            while True:
                self._read()
                waiting = sum(len(lane.waiting) for lane in lanes.values())
                for request in take(most - waiting - len(work.tasks)):
                    lane = lanes.setdefault(request.model or self.model, _Lane())
                    heapq.heappush(lane.waiting, _Asked(request, next(numbers)))
                for name, lane in lanes.items():
                    yield from self._given_back(name, lane, self._connections.get(name))
                yield from self._begin(lanes, work)
                if not work.tasks and not any(lane.waiting for lane in lanes.values()):
                    return
                work.run(_TICK_SECONDS)
                replies = list(work.finished())
                for reply in replies:
                    self._note(*reply)
                # The next requests leave before the caller stores these replies.
                yield from self._begin(lanes, work)
                work.run(_SEND_SECONDS)
                for reply in replies:
                    yield from self._settled(*reply)
        finally:
            work.cancel()

    def _begin(self, lanes: Mapping[str, _Lane], work: _UnderWay) -> Iterator[Outcome]:
        """Ask for everything that is due and fits; yields the failures of keys and of rights."""
        for name, lane in lanes.items():
            connection = self._connections.get(name)
            while (asked := lane.next(connection, self._own)) is not None:
                if connection is not None and not self._may_use(asked.request, connection):
                    reason = f"{name} is no longer lent to this experiment."
                    yield GenerationFailure(asked.request.key, reason, Fault.ACCESS)
                    continue
                try:
                    target = self._target(connection)
                except KeyUnreadableError as error:
                    failure = GenerationFailure(asked.request.key, str(error), Fault.ACCESS)
                    self._note(lane, asked, failure)
                    yield from self._settled(lane, asked, failure)
                    break
                lane.begin()
                work.add(lane, asked, self._client.ask(target, asked.request))

    def _read(self) -> None:
        if self._own is None and time.monotonic() - self._read_at >= _READ_SECONDS:
            self._connections = {each.name: each for each in asked_from_here()}
            self._lent = lent()
            self._read_at = time.monotonic()

    def _may_use(self, request: GenerationRequest, connection: Connection) -> bool:
        """True if the request's experiment may use the connection now."""
        if connection.everybody or request.experiment_id is None:
            return True
        return (connection.pk, request.experiment_id) in self._lent

    def _target(self, connection: Connection | None) -> Target:
        if self._own is not None:
            return self._own
        if connection is None:
            raise RuntimeError("A lane without a connection asks nothing.")
        # Opened for this request alone: a key may have changed since the last one.
        return target_of(connection)

    def _given_back(self, name: str, lane: _Lane, connection: Connection | None) -> Iterator[Outcome]:
        """Failures of what waits in a lane that asks nothing for a while."""
        if self._own is not None or not lane.waiting:
            return
        if connection is None:
            reason, fault = f"There is no connection {name!r} any more.", Fault.ACCESS
        elif pause_seconds(connection) > _SHORT_PAUSE_SECONDS:
            reason, fault = connection.trouble, Fault.BUSY
        else:
            return
        waiting, lane.waiting = lane.waiting, []
        yield from (GenerationFailure(asked.request.key, reason, fault) for asked in waiting)

    def _note(self, _lane: _Lane, asked: _Asked, outcome: Outcome) -> None:
        """Note whether the connection works."""
        connection = self._connections.get(asked.request.model or self.model)
        if connection is None:
            return
        if isinstance(outcome, GenerationResult) or outcome.fault == Fault.SETTINGS:
            note_success(connection)
        elif outcome.fault != Fault.WORKER:
            note_failure(
                connection,
                outcome.fault,
                reason=outcome.reason,
                said=outcome.said,
                wait_seconds=outcome.wait_seconds,
            )

    def _settled(self, lane: _Lane, asked: _Asked, outcome: Outcome) -> Iterator[Outcome]:
        """The outcome for the caller; none where it is asked again and nothing was paid."""
        if isinstance(outcome, GenerationResult) or outcome.fault in {Fault.SETTINGS, Fault.WORKER}:
            lane.answered += 1
            yield outcome
            return
        if not asked.tries:
            asked.answered_before = lane.answered
        asked.tries += 1
        asked.always_broke &= outcome.fault == Fault.SERVER
        if outcome.fault == Fault.ACCESS or asked.tries >= _TRIES:
            fault: Fault = outcome.fault
            if self._own is not None:
                # A server of our own is a part of this worker.
                fault = Fault.WORKER
            elif fault == Fault.SERVER and not (asked.always_broke and lane.answered > asked.answered_before):
                fault = Fault.BUSY
            yield dataclasses.replace(outcome, fault=fault)
            return
        asked.due = time.monotonic() + 2.0 ** (asked.tries - 1)
        heapq.heappush(lane.waiting, asked)
        if outcome.usage.is_known:
            yield dataclasses.replace(outcome, is_asked_again=True)


class _UnderWay:
    """The requests under way, on an event loop that runs while the caller waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tasks: dict[asyncio.Task[Outcome], tuple[_Lane, _Asked]] = {}
        self._loop = loop
        self._done: list[asyncio.Task[Outcome]] = []

    def add(self, lane: _Lane, asked: _Asked, asking: Coroutine[Any, Any, Outcome]) -> None:
        """Begin a request."""
        task = self._loop.create_task(asking)
        self.tasks[task] = lane, asked
        task.add_done_callback(self._finish)

    def run(self, seconds: float) -> None:
        """Let requests go on until one is finished, and for so long at most."""
        timer = self._loop.call_later(seconds, self._loop.stop)
        self._loop.run_forever()
        timer.cancel()

    def finished(self) -> Iterator[tuple[_Lane, _Asked, Outcome]]:
        """The requests that have come to an end; their places are free."""
        done, self._done = self._done, []
        for task in done:
            lane, asked = self.tasks.pop(task)
            lane.under_way -= 1
            yield lane, asked, task.result()

    def cancel(self) -> None:
        """End the requests that are still under way."""
        for task in self.tasks:
            task.remove_done_callback(self._finish)
            task.cancel()
        if self.tasks:
            self._loop.run_until_complete(asyncio.gather(*self.tasks, return_exceptions=True))

    def _finish(self, task: asyncio.Task[Outcome]) -> None:
        self._done.append(task)
        self._loop.stop()


class _Asked:
    """A request of a lane, in the order in which it is its turn."""

    def __init__(self, request: GenerationRequest, number: int) -> None:
        self.request = request
        self.number = number
        self.tries = 0
        self.due = 0.0
        # Whether it is this request that breaks the server: others were answered since its first try.
        self.always_broke = True
        self.answered_before = 0

    def __lt__(self, other: _Asked) -> bool:
        return (self.due, self.number) < (other.due, other.number)


class _Lane:
    """The requests to one connection."""

    def __init__(self) -> None:
        self.waiting: list[_Asked] = []
        self.under_way = 0
        self.answered = 0
        self._begun: deque[float] = deque()

    def next(self, connection: Connection | None, own: Target | None) -> _Asked | None:
        """The next request, if it is due and fits the connection's limits."""
        limits = own or connection
        now = time.monotonic()
        if limits is None or not self.waiting or self.waiting[0].due > now:
            return None
        most = limits.at_once
        if connection is not None and is_probed(connection):
            most = 1
        if self.under_way >= most or (connection is not None and pause_seconds(connection) > 0):
            return None
        if limits.per_minute is not None:
            while self._begun and self._begun[0] <= now - 60:
                self._begun.popleft()
            if len(self._begun) >= limits.per_minute:
                return None
        return heapq.heappop(self.waiting)

    def begin(self) -> None:
        """Count one more under way."""
        self.under_way += 1
        self._begun.append(time.monotonic())


def _allow_files() -> None:
    """Lift the limit on open files, which requests under way of a few connections would reach."""
    if sys.platform == "win32":
        return  # It has none.
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(most, _MOST_FILES)), most))

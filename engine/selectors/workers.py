"""The workers that were seen, and those that are alive: the one place that decides it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from engine.models import WorkerPulse, clock

_LONGEST_LOADING_SECONDS = 900.0


@dataclass(frozen=True)
class Worker:
    """A worker of a queue, by its latest pulse.

    Attributes
    ----------
    details
        What it said of itself.
    seen_seconds
        How long ago that was.
    """

    queue: str
    name: str
    details: Mapping[str, Any]
    seen_at: datetime
    seen_seconds: float

    @property
    def loading(self) -> bool:
        """True while it loads its model; it stays silent until that is done."""
        return bool(self.details.get("loading"))

    @property
    def trouble(self) -> str:
        """Error of its backend; empty without one."""
        return str(self.details.get("trouble", ""))

    @property
    def alive(self) -> bool:
        """True if it counts as alive. A worker that writes a batch is silent for a while, and one that loads
        its model for minutes.
        """
        patience = settings.CLAIM_SECONDS + 3 * settings.SWEEP_SECONDS
        return self.seen_seconds < (max(patience, _LONGEST_LOADING_SECONDS) if self.loading else patience)


def seen(*queues: str) -> list[Worker]:
    """All workers of these queues that were ever seen, by name."""
    now = clock.now()
    return [
        Worker(
            queue=pulse.queue,
            name=pulse.worker,
            details=pulse.details,
            seen_at=pulse.seen_at,
            seen_seconds=(now - pulse.seen_at).total_seconds(),
        )
        for pulse in WorkerPulse.objects.filter(queue__in=queues).order_by("worker", "queue")
    ]


def latest(queue: str, known: Iterable[Worker] | None = None) -> Worker | None:
    """The worker of a queue that was seen last; of those that are alive, if any is.

    ``known``: the workers of this queue and of others, where they are at hand.
    """
    of_queue = [worker for worker in (seen(queue) if known is None else known) if worker.queue == queue]
    return min(of_queue, key=lambda worker: (not worker.alive, worker.seen_seconds), default=None)


def of_backend(backend: str) -> set[str]:
    """The names of the generation workers with this backend, also of those that are gone."""
    pulses = WorkerPulse.objects.filter(queue="generation", details__backend=backend)
    return set(pulses.values_list("worker", flat=True))


def is_alive(queue: str) -> bool:
    """True if any worker of a queue is alive."""
    return any(worker.alive for worker in seen(queue))

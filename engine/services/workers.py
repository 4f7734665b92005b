"""Signs of life of workers; :mod:`engine.selectors.workers` decides from them which workers are alive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models import WorkerPulse, clock


def note_pulse(queue: str, worker: str, details: Mapping[str, Any] | None = None) -> None:
    """Store that a worker of a queue is alive now.

    ``details``: what it says of itself; ``None`` keeps what it said last.
    """
    news = {"seen_at": clock.now()} | ({} if details is None else {"details": details})
    WorkerPulse.objects.update_or_create(queue=queue, worker=worker, defaults=news)

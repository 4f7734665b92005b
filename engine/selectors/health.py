"""What the workers are doing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Count, QuerySet, Sum
from django.utils import timezone

from engine.models import (
    Comparison,
    Experiment,
    Response,
    WorkerPulse,
)
from engine.selectors.buffer import generation_seconds


@dataclass(frozen=True)
class QueueHealth:
    """What the workers are doing about one experiment."""

    comparisons: dict[str, int]
    responses: dict[str, int]
    oldest_waiting_seconds: float
    generation_seconds: float | None
    tokens: int
    control_seen_seconds: float | None
    generation_seen_seconds: float | None
    last_failure: str
    leaks: int

    @property
    def control_alive(self) -> bool:
        return is_recent(self.control_seen_seconds)

    @property
    def generation_alive(self) -> bool:
        return is_recent(self.generation_seen_seconds)

    @property
    def healthy(self) -> bool:
        return self.control_alive and self.generation_alive and self.oldest_waiting_seconds < 60


def is_recent(seconds: float | None) -> bool:
    """Whether a worker last seen so long ago counts as alive: one busy with a batch is silent for a while."""
    return seconds is not None and seconds < settings.CLAIM_SECONDS + 3 * settings.SWEEP_SECONDS


def queue_health(experiment: Experiment) -> QueueHealth:
    now = timezone.now()
    responses = Response.objects.filter(policy__experiment=experiment)
    waiting = responses.filter(state=Response.State.WAITING)
    oldest = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    troubled = responses.filter(state__in=[Response.State.FAILED, Response.State.WAITING])
    failure = troubled.exclude(failure_reason="").exclude(claimed_by="").order_by("-claimed_at").first()
    return QueueHealth(
        comparisons=_tally(Comparison.objects.filter(experiment=experiment)),
        responses=_tally(responses),
        oldest_waiting_seconds=0.0 if oldest is None else (now - oldest).total_seconds(),
        generation_seconds=generation_seconds(experiment),
        tokens=responses.aggregate(total=Sum("completion_tokens"))["total"] or 0,
        control_seen_seconds=_seen(WorkerPulse.objects.filter(queue="control"), now),
        generation_seen_seconds=_seen(WorkerPulse.objects.filter(queue="generation"), now),
        last_failure="" if failure is None else failure.failure_reason,
        leaks=responses.exclude(leak="").count(),
    )


def _tally(rows: QuerySet[Comparison] | QuerySet[Response]) -> dict[str, int]:
    return Counter(dict(rows.values_list("state").annotate(n=Count("pk")).order_by()))


def _seen(pulses: QuerySet[WorkerPulse], now: datetime) -> float | None:
    latest = pulses.order_by("-seen_at").values_list("seen_at", flat=True).first()
    return None if latest is None else (now - latest).total_seconds()

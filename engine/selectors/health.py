"""What the workers are doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from engine.models import (
    Comparison,
    Experiment,
    Policy,
    Response,
    WorkerPulse,
)
from engine.selectors.buffer import generation_seconds, mean_seconds
from engine.selectors.capabilities import Offer, is_alive, is_recent, unserved_needs

# Workers that went away longer ago are of no interest any more.
_SHOWN = timedelta(hours=1)


@dataclass(frozen=True)
class WorkerHealth:
    """One generation worker: what it runs, and how it does. What it has not told is ``None`` or empty.

    Attributes
    ----------
    others : tuple of str
        The adapters that it serves besides ``model``.
    tokens_per_second : float
        As last measured with enough waiting all the time; an idle worker has none.
    batch_size : int
        How many responses it would have in hand at most.
    in_hand : int
        How many it is writing now, of all experiments.
    gpu_used_bytes, gpu_total_bytes : int
        Memory of its first GPU, whoever uses it.
    loading : bool
        It is loading its model, and will not be heard of until that is done.
    trouble : str
        Why its backend is out of order.
    """

    name: str
    backend: str
    model: str
    others: tuple[str, ...]
    tokens_per_second: float | None
    batch_size: int | None
    in_hand: int
    gpu_used_bytes: int | None
    gpu_total_bytes: int | None
    seen_seconds: float
    alive: bool
    loading: bool
    trouble: str


@dataclass(frozen=True)
class GuardrailCount:
    """How often guardrails acted on one policy's responses, by pattern or by guard model, out of how many written."""

    policy: str
    written: int
    input: int
    output: int
    guard_input: int
    guard_output: int

    @property
    def acted(self) -> int:
        return self.input + self.output + self.guard_input + self.guard_output


@dataclass(frozen=True)
class QueueHealth:
    """What the workers are doing about one experiment.

    Attributes
    ----------
    workers : list of WorkerHealth
        The generation workers seen within the hour, of all experiments, by name.
    queue_seconds : float
        Mean time from planning a response to a worker's taking it, over the last fifty taken.
    guardrails : list of GuardrailCount
        By policy; empty where none ever acted.
    unserved : list of str
        What the experiment needs and no worker that is alive serves.
    needs_workers : bool
        Whether responses are still to be written: not where all were imported ready-made.
    """

    comparisons: dict[str, int]
    responses: dict[str, int]
    oldest_waiting_seconds: float
    generation_seconds: float | None
    tokens: int
    control_seen_seconds: float | None
    generation_seen_seconds: float | None
    last_failure: str
    leaks: int
    workers: list[WorkerHealth]
    queue_seconds: float | None
    guardrails: list[GuardrailCount]
    unserved: list[str]
    needs_workers: bool

    @property
    def control_alive(self) -> bool:
        return is_recent(self.control_seen_seconds)

    @property
    def generation_alive(self) -> bool:
        return is_recent(self.generation_seen_seconds) or any(worker.alive for worker in self.workers)

    @property
    def loading(self) -> bool:
        """Whether no worker can write yet, since those that are alive are still loading their models."""
        alive = [worker for worker in self.workers if worker.alive]
        return bool(alive) and all(worker.loading for worker in alive)

    @property
    def trouble(self) -> str:
        """Why nothing is written of what waits, where all workers that are alive say that their backends are out of order."""
        troubles = [worker.trouble for worker in self.workers if worker.alive]
        stuck = self.responses.get(Response.State.WAITING, 0) and troubles and all(troubles)
        return troubles[0] if stuck else ""

    @property
    def healthy(self) -> bool:
        writing = (
            self.generation_alive
            and not self.unserved
            and not self.trouble
            and self.oldest_waiting_seconds < 60
        )
        return self.control_alive and (writing or not self.needs_workers)


def queue_health(experiment: Experiment) -> QueueHealth:
    """How the queues and workers of an experiment do now."""
    now = timezone.now()
    responses = Response.objects.filter(policy__experiment=experiment)
    waiting = responses.filter(state=Response.State.WAITING)
    oldest = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    troubled = responses.filter(state__in=[Response.State.FAILED, Response.State.WAITING])
    failure = troubled.exclude(failure_reason="").exclude(claimed_by="").order_by("-claimed_at").first()
    totals = responses.aggregate(
        tokens=Sum("completion_tokens"),
        leaks=Count("pk", filter=~Q(leak="")),
        guarded=Count("pk", filter=~Q(guardrail="")),
    )
    pulses = list(WorkerPulse.objects.order_by("worker"))
    writers = [pulse for pulse in pulses if pulse.queue == "generation"]
    return QueueHealth(
        comparisons=_tally(Comparison.objects.filter(experiment=experiment)),
        responses=_tally(responses),
        oldest_waiting_seconds=0.0 if oldest is None else (now - oldest).total_seconds(),
        generation_seconds=generation_seconds(experiment),
        tokens=totals["tokens"] or 0,
        control_seen_seconds=_seen([pulse for pulse in pulses if pulse.queue == "control"], now),
        generation_seen_seconds=_seen(writers, now),
        last_failure="" if failure is None else failure.failure_reason,
        leaks=totals["leaks"],
        workers=_workers(writers, now),
        queue_seconds=_queue_seconds(responses),
        guardrails=_guardrail_counts(experiment) if totals["guarded"] else [],
        unserved=unserved_needs(experiment, writers),
        needs_workers=experiment.responses != Experiment.Responses.IMPORTED,
    )


def _workers(pulses: Sequence[WorkerPulse], now: datetime) -> list[WorkerHealth]:
    in_hand = dict(
        Response.objects.filter(state=Response.State.GENERATING)
        .values_list("claimed_by")
        .annotate(n=Count("pk"))
        .order_by()
    )
    return [
        _worker(pulse.worker, pulse.details, in_hand.get(pulse.worker, 0), now - pulse.seen_at)
        for pulse in pulses
        if now - pulse.seen_at < _SHOWN
    ]


def _worker(name: str, details: Mapping[str, Any], in_hand: int, silent: timedelta) -> WorkerHealth:
    offer = Offer.from_details(details) or Offer(backend="", model="")
    used, total = details.get("gpu_memory") or (None, None)
    return WorkerHealth(
        name=name,
        backend=offer.backend,
        model=offer.model,
        others=offer.others,
        tokens_per_second=details.get("tokens_per_second"),
        batch_size=details.get("batch_size"),
        in_hand=in_hand,
        gpu_used_bytes=used,
        gpu_total_bytes=total,
        seen_seconds=silent.total_seconds(),
        alive=is_alive(silent.total_seconds(), details),
        loading=bool(details.get("loading")),
        trouble=details.get("trouble", ""),
    )


def _queue_seconds(responses: QuerySet[Response]) -> float | None:
    recent = responses.filter(taken_at__isnull=False).order_by("-pk").values_list("created_at", "taken_at")
    return mean_seconds([taken - created for created, taken in recent[:50] if taken])


def _guardrail_counts(experiment: Experiment) -> list[GuardrailCount]:
    written = Q(responses__state=Response.State.DONE)
    acted = {
        name: Count("responses", filter=written & Q(responses__guardrail=name))
        for name in Response.Block.values
    }
    policies = Policy.objects.filter(experiment=experiment).order_by("index")
    return [
        GuardrailCount(
            policy=policy.label,
            written=policy.n_written,
            **{name: getattr(policy, f"n_{name}") for name in acted},
        )
        for policy in policies.annotate(
            n_written=Count("responses", filter=written), **{f"n_{name}": n for name, n in acted.items()}
        )
    ]


def _tally(rows: QuerySet[Comparison] | QuerySet[Response]) -> dict[str, int]:
    return Counter(dict(rows.values_list("state").annotate(n=Count("pk")).order_by()))


def _seen(pulses: Sequence[WorkerPulse], now: datetime) -> float | None:
    return min(((now - pulse.seen_at).total_seconds() for pulse in pulses), default=None)

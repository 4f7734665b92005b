"""What the workers are doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Avg, Count, ExpressionWrapper, F, Q, QuerySet, Sum, fields
from django.utils import timezone

from engine.models import (
    Comparison,
    Experiment,
    Policy,
    Response,
    WorkerPulse,
)
from engine.selectors.buffer import generation_seconds
from engine.selectors.serving import Offer, is_recent, unserved_needs

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
    trouble: str

    @property
    def alive(self) -> bool:
        return is_recent(self.seen_seconds)


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

    @property
    def control_alive(self) -> bool:
        return is_recent(self.control_seen_seconds)

    @property
    def generation_alive(self) -> bool:
        return is_recent(self.generation_seen_seconds)

    @property
    def trouble(self) -> str:
        """Why nothing is written of what waits, where all workers that are alive say that their backends are out of order."""
        troubles = [worker.trouble for worker in self.workers if worker.alive]
        stuck = self.responses.get(Response.State.WAITING, 0) and troubles and all(troubles)
        return troubles[0] if stuck else ""

    @property
    def healthy(self) -> bool:
        return (
            self.control_alive
            and self.generation_alive
            and not self.unserved
            and not self.trouble
            and self.oldest_waiting_seconds < 60
        )


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
        workers=worker_health(),
        queue_seconds=_queue_seconds(responses),
        guardrails=_guardrail_counts(experiment),
        unserved=unserved_needs(experiment),
    )


def worker_health() -> list[WorkerHealth]:
    """The generation workers seen within the hour, by name."""
    now = timezone.now()
    in_hand = dict(
        Response.objects.filter(state=Response.State.GENERATING)
        .values_list("claimed_by")
        .annotate(n=Count("pk"))
        .order_by()
    )
    pulses = WorkerPulse.objects.filter(queue="generation", seen_at__gte=now - _SHOWN).order_by("worker")
    return [
        _worker(pulse.worker, pulse.details, in_hand.get(pulse.worker, 0), now - pulse.seen_at)
        for pulse in pulses
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
        trouble=details.get("trouble", ""),
    )


def _queue_seconds(responses: QuerySet[Response]) -> float | None:
    recent = responses.filter(taken_at__isnull=False).order_by("-pk").values("pk")[:50]
    span = ExpressionWrapper(F("taken_at") - F("created_at"), output_field=fields.DurationField())
    mean = Response.objects.filter(pk__in=list(recent.values_list("pk", flat=True))).aggregate(
        mean=Avg(span)
    )["mean"]
    return None if mean is None else mean.total_seconds()


def _guardrail_counts(experiment: Experiment) -> list[GuardrailCount]:
    if not Response.objects.filter(policy__experiment=experiment).exclude(guardrail="").exists():
        return []
    written = Q(responses__state=Response.State.DONE)
    acted = {
        name: Count("responses", filter=written & Q(responses__guardrail=name))
        for name in ("input", "output", "guard_input", "guard_output")
    }
    policies = Policy.objects.filter(experiment=experiment).order_by("index")
    return [
        GuardrailCount(
            policy=policy.label,
            written=policy.n_written,
            input=policy.n_input,
            output=policy.n_output,
            guard_input=policy.n_guard_input,
            guard_output=policy.n_guard_output,
        )
        for policy in policies.annotate(
            n_written=Count("responses", filter=written), **{f"n_{name}": n for name, n in acted.items()}
        )
    ]


def _tally(rows: QuerySet[Comparison] | QuerySet[Response]) -> dict[str, int]:
    return Counter(dict(rows.values_list("state").annotate(n=Count("pk")).order_by()))


def _seen(pulses: QuerySet[WorkerPulse], now: datetime) -> float | None:
    latest = pulses.order_by("-seen_at").values_list("seen_at", flat=True).first()
    return None if latest is None else (now - latest).total_seconds()

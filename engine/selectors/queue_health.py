"""The workers and the queue of an experiment, in figures."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet, Sum

from engine.models import (
    Comparison,
    Experiment,
    Policy,
    Response,
)
from engine.selectors.offered_models import Offer
from engine.selectors.pairs_ahead import generation_seconds, mean_seconds
from engine.selectors.pulses import Pulse, pulses
from engine.selectors.refused_policies import refused
from engine.selectors.workers import Worker

# Workers gone for longer are not shown.
_SHOWN_SECONDS = 3600.0


@dataclass(frozen=True)
class WorkerHealth:
    """One generation worker: its models and its speed. Unknown values are ``None`` or empty.

    Attributes
    ----------
    others : tuple of str
        The adapters that it serves besides ``model``.
    tokens_per_second : float
        As last measured while more responses waited; an idle worker has none.
    in_hand : int
        Number of responses that it is writing now, of all experiments.
    gpu_used_bytes, gpu_total_bytes : int
        Memory of its first GPU, over all processes.
    loading : bool
        It is loading its model and stays silent until that is done.
    trouble : str
        Error of its backend.
    """

    name: str
    backend: str
    model: str
    others: tuple[str, ...]
    tokens_per_second: float | None
    in_hand: int
    gpu_used_bytes: int | None
    gpu_total_bytes: int | None
    seen_seconds: float
    alive: bool
    loading: bool
    trouble: str


@dataclass(frozen=True)
class GuardrailCount:
    """Actions of guardrails on one policy's responses, and the number of its responses."""

    policy: str
    written: int
    input: int
    output: int
    guard_input: int
    guard_output: int

    @property
    def acted(self) -> int:
        """The number of responses that a guardrail changed or refused."""
        return self.input + self.output + self.guard_input + self.guard_output


@dataclass(frozen=True)
class QueueHealth(Pulse):
    """Work of the workers for one experiment.

    Attributes
    ----------
    workers : list of WorkerHealth
        The generation workers seen within the hour, of all experiments, by name.
    queue_seconds : float
        Mean time from planning a response to a worker's taking it, over the last fifty taken.
    guardrails : list of GuardrailCount
        By policy; empty where none ever acted.
    said : list of str
        The words of servers that fail or refuse, for editors.
    """

    comparisons: dict[str, int]
    responses: dict[str, int]
    generation_seconds: float | None
    tokens: int
    last_failure: str
    leaks: int
    workers: list[WorkerHealth]
    queue_seconds: float | None
    guardrails: list[GuardrailCount]
    said: list[str]


def queue_health(experiment: Experiment) -> QueueHealth:
    """The present state of the queues and workers of an experiment."""
    pulse = pulses([experiment])[experiment.pk]
    responses = Response.objects.filter(policy__experiment=experiment)
    # One pass over what may be many rows.
    by_state = (
        responses.values("state")
        .annotate(
            # A response that the conclusion dropped before a worker had it is marked as failed, but nothing
            # went wrong.
            n=Count("pk", filter=~Q(state=Response.State.FAILED, attempts=0)),
            tokens=Sum("completion_tokens"),
            leaks=Count("pk", filter=~Q(leak="")),
            guarded=Count("pk", filter=~Q(guardrail="")),
        )
        .order_by()
    )
    totals = {row["state"]: row for row in by_state}
    guarded = any(row["guarded"] for row in totals.values())
    return QueueHealth(
        **vars(pulse),
        comparisons=_tally(Comparison.objects.filter(experiment=experiment)),
        responses=Counter({state: row["n"] for state, row in totals.items() if row["n"]}),
        generation_seconds=generation_seconds(experiment),
        tokens=sum(row["tokens"] or 0 for row in totals.values()),
        last_failure=_last_failure(responses, totals.keys()),
        leaks=sum(row["leaks"] for row in totals.values()),
        workers=_workers([worker for worker in pulse.seen if worker.queue == "generation"]),
        queue_seconds=_queue_seconds(responses),
        guardrails=_guardrail_counts(experiment) if guarded else [],
        said=_said(experiment, pulse),
    )


def _said(experiment: Experiment, pulse: Pulse) -> list[str]:
    words = [each.said for each in pulse.waits] + [each.said for each in refused([experiment.pk])]
    return list(dict.fromkeys(filter(None, words)))


def _last_failure(responses: QuerySet[Response], states: Collection[str]) -> str:
    """The reason of the latest failure that still matters; ``states``: those that occur."""
    troubled = {Response.State.FAILED, Response.State.WAITING} & set(states)
    if not troubled:
        return ""
    failed = responses.filter(state__in=troubled).exclude(failure_reason="").exclude(claimed_by="")
    return failed.order_by("-taken_at").values_list("failure_reason", flat=True).first() or ""


def _workers(writers: Sequence[Worker]) -> list[WorkerHealth]:
    in_hand = dict(
        Response.objects.filter(state=Response.State.GENERATING)
        .values_list("claimed_by")
        .annotate(n=Count("pk"))
        .order_by()
    )
    return [
        _health(worker, in_hand.get(worker.name, 0))
        for worker in writers
        if worker.seen_seconds < _SHOWN_SECONDS
    ]


def _health(worker: Worker, in_hand: int) -> WorkerHealth:
    offer = Offer.from_details(worker.details) or Offer(backend="", model="")
    used, total = worker.details.get("gpu_memory") or (None, None)
    return WorkerHealth(
        name=worker.name,
        backend=offer.backend,
        model=offer.model,
        others=offer.others,
        tokens_per_second=worker.details.get("tokens_per_second"),
        in_hand=in_hand,
        gpu_used_bytes=used,
        gpu_total_bytes=total,
        seen_seconds=worker.seen_seconds,
        alive=worker.alive,
        loading=worker.loading,
        trouble=worker.trouble,
    )


def _queue_seconds(responses: QuerySet[Response]) -> float | None:
    recent = responses.filter(taken_at__isnull=False).order_by("-pk").values_list("created_at", "taken_at")
    return mean_seconds([taken - created for created, taken in recent[:50] if taken])


def _guardrail_counts(experiment: Experiment) -> list[GuardrailCount]:
    written = Q(responses__state=Response.State.DONE)
    numbers = {"written": Count("responses", filter=written)} | {
        name: Count("responses", filter=written & Q(responses__guardrail=name))
        for name in Response.Block.values
    }
    policies = Policy.objects.filter(experiment=experiment).order_by("index")
    return [
        GuardrailCount(policy=policy.label, **{name: getattr(policy, f"n_{name}") for name in numbers})
        for policy in policies.annotate(**{f"n_{name}": count for name, count in numbers.items()})
    ]


def _tally(rows: QuerySet[Comparison]) -> dict[str, int]:
    return Counter(dict(rows.values_list("state").annotate(n=Count("pk")).order_by()))

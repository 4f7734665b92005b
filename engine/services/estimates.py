"""The planner's estimates: asked for by pages, computed by a process of their own, kept for the next who asks the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from engine.core import Plan, forecast
from engine.domain.policy_space import combinations, policy_space
from engine.models import Estimate
from engine.selectors.designs import STOPS_ON

_KEPT = timedelta(days=30)
# A page asks every second or two; after it is closed, nobody wants the answer.
_WANTED = timedelta(seconds=20)
_SILENT = timedelta(minutes=10)
_RUNS = 60
_RUNS_OF_MANY = 20
_MANY = 40


@dataclass(frozen=True)
class Question:
    """The settings behind an estimate. Factors and levels go by number: a new name is not a new question."""

    space: str
    levels: Sequence[int]
    excluded: Sequence[Mapping[int, int]]
    delta: float
    epsilon: float
    sampler: str
    stopping: str
    budget: int
    log_odds: float


class _NobodyAsksError(Exception):
    pass


@transaction.atomic
def ask(*, question: Question) -> Estimate:
    """The estimate for these settings, as far as it has come. Where it waits, somebody should be woken to compute it."""
    now = timezone.now()
    stored = json.loads(json.dumps(asdict(question)))
    key = hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()
    Estimate.objects.filter(asked_at__lt=now - _KEPT).delete()
    estimate, _ = Estimate.objects.get_or_create(key=key, defaults={"question": stored})
    Estimate.objects.filter(key=key, state=Estimate.State.RUNNING, beat_at__lt=now - _SILENT).update(
        state=Estimate.State.WAITING, progress=0.0
    )
    Estimate.objects.filter(key=key).update(asked_at=now)
    estimate.refresh_from_db()
    return estimate


def compute_waiting() -> int:
    """Compute what waits and is still wanted, one after the other; returns how many were computed.

    While another process is at it, that one takes what comes, and this one leaves.
    """
    computed = 0
    while (estimate := _claim()) is not None:
        _compute(estimate)
        computed += 1
    return computed


def _claim() -> Estimate | None:
    now = timezone.now()
    running = Estimate.objects.filter(state=Estimate.State.RUNNING, beat_at__gte=now - _SILENT)
    waiting = Estimate.objects.filter(state=Estimate.State.WAITING, asked_at__gte=now - _WANTED)
    estimate = None if running.exists() else waiting.order_by("-asked_at").first()
    if estimate is None:
        return None
    mine = waiting.filter(pk=estimate.pk).update(state=Estimate.State.RUNNING, beat_at=now, progress=0.0)
    return estimate if mine else None


def _compute(estimate: Estimate) -> None:
    row = Estimate.objects.filter(pk=estimate.pk)

    def on_progress(done: int, total: int) -> None:
        now = timezone.now()
        row.update(progress=done / total, beat_at=now)
        if not row.filter(asked_at__gte=now - _WANTED).exists():
            raise _NobodyAsksError

    try:
        plan, log_odds = _plan(estimate.question)
        n_runs = _RUNS if plan.space.n_policies <= _MANY else _RUNS_OF_MANY
        answer = forecast(plan, log_odds=log_odds, n_runs=n_runs, progress=on_progress)
    except _NobodyAsksError:
        row.update(state=Estimate.State.WAITING, progress=0.0)
    except (ValueError, ArithmeticError, MemoryError) as error:
        row.update(state=Estimate.State.FAILED, failure_reason=str(error) or type(error).__name__)
    else:
        row.update(state=Estimate.State.DONE, progress=1.0, answer=asdict(answer))


def _plan(question: dict[str, Any]) -> tuple[Plan, float]:
    settings = dict(question)
    levels = {str(f): [str(level) for level in range(n)] for f, n in enumerate(settings.pop("levels"))}
    excluded = [{f: str(level) for f, level in each.items()} for each in settings.pop("excluded")]
    space = policy_space(settings.pop("space"), levels, combinations(levels, excluded))
    log_odds = settings.pop("log_odds")
    return Plan(space, claim=STOPS_ON, streams=False, **settings), log_odds

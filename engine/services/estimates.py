"""The planner's estimates: pages ask for them, an analysis worker computes them, and others reuse them."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from engine.core import Plan, Simulations, forecast
from engine.domain.claim_settings import Rules
from engine.domain.policy_space import combinations, policy_space
from engine.models import Estimate, clock
from engine.services import worker_holds

_KEPT = timedelta(days=30)
# A page asks every second or two; once it is closed, nobody needs the answer.
_WANTED = timedelta(seconds=20)
_RUNS = 60
# Somebody waits at the page: after this time the estimate ends with the simulations that are done.
_PROCESSOR_SECONDS = 25.0


@dataclass(frozen=True)
class Question:
    """The settings behind an estimate. Names of factors and levels are left out: they change nothing."""

    space: str
    levels: Sequence[int]
    excluded: Sequence[Mapping[int, int]]
    claim: str
    delta: float
    epsilon: float
    capital_moves: bool
    sampler: str
    stopping: str
    budget: int
    log_odds: float

    @property
    def missing(self) -> str:
        """No part of the question: nobody knows beforehand what will be missing."""
        return "against"


@transaction.atomic
def ask(*, question: Question) -> Estimate:
    """The estimate for these settings, as far as it has come.

    While it waits, the caller should wake a worker to compute it.
    """
    now = clock.now()
    stored, key = _stored(question)
    Estimate.objects.filter(asked_at__lt=now - _KEPT).delete()
    estimate, _ = Estimate.objects.get_or_create(key=key, defaults={"question": stored})
    Estimate.objects.filter(key=key).update(asked_at=now)
    estimate.refresh_from_db()
    return estimate


def known(question: Question) -> Estimate | None:
    """The estimate for these settings if it was computed before; ``None`` otherwise. Asks for nothing."""
    _, key = _stored(question)
    return Estimate.objects.filter(key=key, state=Estimate.State.DONE).first()


def _stored(question: Question) -> tuple[dict[str, Any], str]:
    """The question as JSON keeps it, and its key."""
    stored = json.loads(json.dumps(asdict(question)))
    return stored, hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def compute_next(*, worker: str = "", tick: Callable[[], None] = lambda: None) -> bool:
    """Compute the latest estimate that somebody still waits for; returns whether there was one.

    ``tick`` is called again and again meanwhile; an exception from it interrupts the estimate, which keeps
    what it has.
    """
    wanted = _wanted(Estimate.objects.all())
    while (newest := worker_holds.free(wanted).order_by("-asked_at").first()) is not None:
        row = Estimate.objects.filter(pk=newest.pk)
        claim = worker_holds.take(
            row.filter(state=Estimate.State.WAITING), seconds=settings.CLAIM_SECONDS, by=worker
        )
        if (estimate := worker_holds.held(row, claim).first()) is not None:
            _compute(estimate, claim, tick)
            return True
    return False


def _wanted(rows: QuerySet[Estimate]) -> QuerySet[Estimate]:
    return rows.filter(state=Estimate.State.WAITING, asked_at__gte=clock.now() - _WANTED)


def _compute(estimate: Estimate, claim: uuid.UUID, tick: Callable[[], None]) -> None:
    row = Estimate.objects.filter(pk=estimate.pk)
    mine = worker_holds.held(row, claim)
    keep = worker_holds.keeper(
        row, claim, seconds=settings.CLAIM_SECONDS, tick=tick, wanted=_wanted(row).exists
    )

    def store(done: Simulations, n_runs: int) -> None:
        mine.update(progress=len(done.left) / n_runs, simulations=asdict(done))

    try:
        plan, log_odds = plan_of(estimate.question)
        answer = forecast(
            plan,
            log_odds=log_odds,
            n_runs=_RUNS,
            seconds=_PROCESSOR_SECONDS,
            start=Simulations(**estimate.simulations),
            tick=keep,
            progress=store,
        )
    except worker_holds.ClaimLostError:
        worker_holds.release(mine)
    except (ValueError, ArithmeticError, MemoryError) as error:
        worker_holds.release(
            mine, state=Estimate.State.FAILED, failure_reason=str(error) or type(error).__name__
        )
    except worker_holds.StoppedError:
        worker_holds.release(mine)
        raise
    else:
        worker_holds.release(
            mine, state=Estimate.State.DONE, progress=1.0, simulations={}, answer=asdict(answer)
        )


def plan_of(question: dict[str, Any]) -> tuple[Plan, float]:
    """The plan of a stored question, and the spread of the policies in log-odds."""
    asked = Question(**question)
    levels = {str(f): [str(level) for level in range(n)] for f, n in enumerate(asked.levels)}
    excluded = [{str(f): str(level) for f, level in each.items()} for each in asked.excluded]
    space = policy_space(asked.space, levels, combinations(levels, excluded))
    return Plan(space, **Rules.of(asked).plan(), budget=asked.budget), asked.log_odds

"""What takes too long for a page: the forecast, and replays without each annotator. Done in slices.

A slice is claimed by a conditional UPDATE and computed outside of any transaction, so that it holds no lock while clicks come in.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from engine import selectors
from engine.core import Design, Plan, forecast_rest
from engine.core.robustness import Replays, replay, summed_wins
from engine.models import Examination, Experiment, Judgment

SLICE_SECONDS = 2.0
_CLAIM = timedelta(minutes=2)
# Of the annotators, those whose judgments are the most.
MOST_ANNOTATORS = 30
_FORECAST_RUNS = 30
_RUNS_AT_ONCE = 10
_LONGEST_FORECAST = 5_000_000  # steps × K²: some ten seconds for a slice
_GROWTH = 0.1
_FIRST_FORECAST = 20


@transaction.atomic
def request_replays(*, experiment_id: int) -> Examination:
    """Ask for what the decision would be without each annotator; asking again while it is computed changes nothing."""
    examination, _ = Examination.objects.get_or_create(experiment_id=experiment_id)
    examination = Examination.objects.select_for_update(no_key=True).get(pk=examination.pk)
    if examination.replays_wanted_at is None:
        examination.replays_wanted_at = timezone.now()
        examination.replays = {}
        examination.save(update_fields=["replays_wanted_at", "replays"])
    return examination


def examine(*, experiment_id: int) -> bool:
    """Do one slice of what is wanted. Returns whether more remains."""
    experiment = Experiment.objects.get(pk=experiment_id)
    examination, _ = Examination.objects.get_or_create(experiment=experiment)
    now = timezone.now()
    free = Q(claimed_at__isnull=True) | Q(claimed_at__lt=now - _CLAIM)
    if not Examination.objects.filter(free, pk=examination.pk).update(claimed_at=now):
        return False
    examination.refresh_from_db()
    changed: dict[str, Any] = {}
    try:
        if forecast_is_due(experiment, examination):
            changed = {"forecast": _forecast(experiment, examination)}
        elif examination.replays_wanted_at is not None:
            changed = _replays(experiment, examination)
    finally:
        Examination.objects.filter(pk=examination.pk, claimed_at=now).update(claimed_at=None, **changed)
    examination.refresh_from_db()
    return examination.replays_wanted_at is not None or forecast_is_due(experiment, examination)


def forecast_is_due(experiment: Experiment, examination: Examination | None) -> bool:
    """Whether a running experiment has a tenth more comparisons than at its last forecast, or an unfinished one."""
    if experiment.state != Experiment.State.RUNNING:
        return False
    known = {} if examination is None else examination.forecast
    n = selectors.comparison_count(experiment.pk)
    if known.get("n_runs", _FORECAST_RUNS) < _FORECAST_RUNS:
        return True
    return n >= max(_FIRST_FORECAST, (1.0 + _GROWTH) * known.get("comparisons", 0) + _FIRST_FORECAST / 2)


def _forecast(experiment: Experiment, examination: Examination) -> dict[str, Any]:
    """A few more simulated continuations of the experiment as it stood when its forecast began."""
    unfinished = examination.forecast.get("n_runs", _FORECAST_RUNS) < _FORECAST_RUNS
    latest = selectors.latest_snapshot(experiment)
    wins = selectors.wins_matrix(experiment)
    n = int(wins.sum())
    if latest is None:
        return examination.forecast
    n_policies = wins.shape[0]
    longest = max(_LONGEST_FORECAST // n_policies**2, 200)
    budget = min(experiment.budget, n + longest)
    done = examination.forecast["left"] if unfinished else []
    rest = forecast_rest(
        Plan(
            selectors.space(experiment),
            delta=experiment.delta,
            epsilon=experiment.epsilon,
            sampler=experiment.sampler,
            stopping=experiment.stopping,
            budget=budget,
        ),
        wins,
        np.array(latest.peak_evidence),
        n_runs=_RUNS_AT_ONCE,
        seed=len(done),
    )
    return {}



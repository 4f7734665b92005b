"""What takes too long for a page: the forecast, and replays without each annotator. Done in slices.

A slice is claimed by a conditional UPDATE and computed outside of any transaction, so that it holds no lock while clicks come in.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from engine.core import Design, Plan, forecast, forecast_rest
from engine.core.robustness import Replays, replay, summed_wins
from engine.core.types import FloatArray
from engine.models import Examination, Experiment, Judgment
from engine.selectors import counts, designs, judges
from engine.selectors.designs import STOPS_ON

SLICE_SECONDS = 2.0
_CLAIM = timedelta(minutes=2)
# Of the annotators, those whose judgments are the most.
MOST_ANNOTATORS = 30
_FORECAST_RUNS = 40
_LONGEST_FORECAST = 1_000_000  # comparisons × K²: some seconds
_GROWTH = 0.1
_FEWEST_NEWS = 20


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


def outdate(*, experiment: Experiment, replays: bool = True) -> None:
    """Forget what was computed under other settings or judgments; a slice that is under way is dropped when it ends.

    ``replays``: those too; they know nothing of the budget.
    """
    gone: dict[str, Any] = {"replays": {}, "findings": {}} if replays else {}
    Examination.objects.filter(experiment=experiment).update(forecast={}, claimed_at=None, **gone)


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
            changed = {"forecast": _forecast(experiment)}
        elif examination.replays_wanted_at is not None:
            changed = _replays(experiment, examination)
    finally:
        Examination.objects.filter(pk=examination.pk, claimed_at=now).update(claimed_at=None, **changed)
    examination.refresh_from_db()
    return examination.replays_wanted_at is not None or forecast_is_due(experiment, examination)


def to_examine() -> list[int]:
    """Experiments with something left to compute."""
    running = Experiment.objects.filter(
        Q(state=Experiment.State.RUNNING) | Q(examination__replays_wanted_at__isnull=False)
    ).select_related("examination")
    return [
        experiment.pk
        for experiment in running
        if (
            (examination := getattr(experiment, "examination", None)) is not None
            and examination.replays_wanted_at is not None
        )
        or forecast_is_due(experiment, examination)
    ]


def _replays_wanted(examination: Examination | None) -> bool:
    return examination is not None and examination.replays_wanted_at is not None


def forecast_is_due(experiment: Experiment, examination: Examination | None) -> bool:
    """Whether a running experiment has no forecast, or a tenth more comparisons than at its last one.

    Not while its evidence is stale: a forecast goes on from the peaks.
    """
    if experiment.state != Experiment.State.RUNNING or experiment.evidence_stale:
        return False
    if examination is None or not examination.forecast:
        return True
    n = counts.comparison_count(experiment.pk)
    return bool(n >= (1.0 + _GROWTH) * examination.forecast["comparisons"] + _FEWEST_NEWS)


def _forecast(experiment: Experiment) -> dict[str, Any]:
    """Simulated continuations of the experiment as it stands, all side by side; before its first comparison, the planner's."""
    wins = counts.wins_matrix(experiment)
    latest = designs.latest_snapshot(experiment)
    n = int(wins.sum())
    horizon = min(experiment.budget, n + max(_LONGEST_FORECAST // wins.shape[0] ** 2, 200))
    plan = Plan(
        designs.space(experiment),
        claim=STOPS_ON,
        streams=False,
        delta=experiment.delta,
        epsilon=experiment.epsilon,
        sampler=experiment.sampler,
        stopping=experiment.stopping,
        budget=horizon,
    )
    if n == 0:
        rest = forecast(plan, n_runs=_FORECAST_RUNS)
    else:
        peak = np.zeros(wins.shape[0]) if latest is None else np.array(latest.peak_evidence)
        rest = forecast_rest(plan, wins, peak, n_runs=_FORECAST_RUNS)
    return {
        "comparisons": n,
        "horizon": horizon,
        "expected": rest.expected,
        "low": rest.low,
        "high": rest.high,
        "decided": rest.decided,
    }


def _replays(experiment: Experiment, examination: Examination) -> dict[str, Any]:
    """Go on with the replays, from the start where judgments were taken back meanwhile."""
    standing = counts.standing_judgments(experiment.pk)
    so_far = examination.replays
    last = so_far.get("last_judgment") or (standing.order_by("pk").values_list("pk", flat=True).last() or 0)
    until = standing.filter(pk__lte=last)
    n_judgments = until.count()
    if so_far.get("n_judgments") != n_judgments:
        so_far = {}
    annotators = so_far.get("annotators") or _annotators(until)
    without = judges.outcomes_without(experiment, [pk for pk, _, _ in annotators], last)
    sequences = list(without.values())
    deadline = time.monotonic() + SLICE_SECONDS
    rules: dict[str, Any] = {
        "delta": experiment.delta,
        "epsilon": experiment.epsilon,
        "stopping": experiment.stopping,
    }
    reached = replay(
        designs.space(experiment),
        sequences,
        start=Replays(so_far["step"], np.array(so_far["peak_evidence"])) if so_far else None,
        go_on=lambda step: time.monotonic() < deadline,
        **rules,
    )
    total = max(map(len, sequences), default=0)
    if reached.step < total:
        return {
            "replays": {
                "last_judgment": last,
                "n_judgments": n_judgments,
                "annotators": annotators,
                "step": reached.step,
                "total": total,
                "peak_evidence": reached.peak_evidence.tolist(),
            }
        }
    rows = [
        _finding(experiment, annotator, sequence, peak)
        for annotator, sequence, peak in zip(annotators, sequences, reached.peak_evidence, strict=True)
    ]
    findings = {"n_judgments": n_judgments, "at": timezone.now().isoformat(), "rows": rows}
    return {"replays_wanted_at": None, "replays": {}, "findings": findings}


def _annotators(judgments: QuerySet[Judgment]) -> list[tuple[int, str, int]]:
    """Id, name and number of judgments of those with the most."""
    rows = judgments.filter(annotator__isnull=False).values_list("annotator_id", "annotator__username")
    return list(rows.annotate(n=Count("pk")).order_by("-n", "annotator_id")[:MOST_ANNOTATORS])


def _finding(
    experiment: Experiment,
    annotator: tuple[int, str, int],
    sequence: list[tuple[int, int, float]],
    peak: FloatArray,
) -> dict[str, Any]:
    space = designs.space(experiment)
    decision = Design.from_counts(
        space,
        summed_wins(space.n_policies, sequence),
        peak_evidence=peak,
        claim=STOPS_ON,
        streams=False,
        delta=experiment.delta,
        epsilon=experiment.epsilon,
        stopping=experiment.stopping,
    ).decision
    return {
        "annotator": annotator[1],
        "judgments": annotator[2],
        "comparisons": decision.n_comparisons,
        "best": decision.best,
        "reason": str(decision.reason or ""),
        "confidence": decision.confidence,
    }

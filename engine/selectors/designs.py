"""The design of an experiment as its counts stand, and what it said so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import Design
from engine.core.problem import Space
from engine.models import (
    Experiment,
    Snapshot,
)
from engine.policy_space import combinations, policy_space
from engine.selectors.counts import in_flight_matrix, outcomes, wins_matrix


def space(experiment: Experiment) -> Space:
    """What the experiment assumes about the preference probabilities; policy i is its row i."""
    levels = {
        factor.name: [level.name for level in factor.levels.all()]
        for factor in experiment.factors.prefetch_related("levels")
    }
    return policy_space(experiment.space, levels, combinations(levels, experiment.excluded))


def design_seed(experiment: Experiment) -> list[int]:
    """The seed of the next picks: a function of the experiment and of how many it has planned."""
    return [experiment.seed, experiment.planned_count]


def _design_settings(experiment: Experiment) -> dict[str, Any]:
    return {
        "delta": experiment.delta,
        "epsilon": experiment.epsilon,
        "sampler": experiment.sampler,
        "stopping": experiment.stopping,
        "seed": design_seed(experiment),
        "budget": experiment.budget,
    }


def design(experiment: Experiment) -> Design:
    """The experiment's design as its counts stand now."""
    latest = latest_snapshot(experiment)
    wins = wins_matrix(experiment)
    return Design.from_counts(
        space(experiment),
        wins,
        in_flight=in_flight_matrix(experiment),
        peak_evidence=None if latest is None else np.array(latest.peak_evidence),
        **_design_settings(experiment),
    )


def replayed_design(experiment: Experiment) -> Design:
    """The experiment's design told every standing judgment in order, from nothing."""
    replay = Design(
        space=space(experiment),
        **_design_settings(experiment),
    )
    for i, j, outcome in outcomes(experiment):
        replay.tell(i, j, outcome)
    return replay


def latest_snapshot(experiment: Experiment) -> Snapshot | None:
    return experiment.snapshots.order_by("-pk").first()


def expected_left(experiment: Experiment, latest: Snapshot | None = None) -> float | None:
    """Comparisons that a running experiment still needs, where that is known and within its budget.

    ``latest``: its latest snapshot, where the caller has it already.
    """
    if experiment.state != Experiment.State.RUNNING:
        return None
    latest = latest or latest_snapshot(experiment)
    if latest is None or latest.expected_left is None:
        return None
    within_budget = latest.comparisons + latest.expected_left <= experiment.budget
    return latest.expected_left if within_budget else None


def race(experiment: Experiment, most: int = 200) -> list[Snapshot]:
    """The evidence race: at most ``most`` snapshots, evenly spread, the first and the last among them."""
    ids = list(experiment.snapshots.order_by("pk").values_list("pk", flat=True))
    if len(ids) > most:
        picked = np.linspace(0, len(ids) - 1, most).round().astype(int)
        ids = [ids[i] for i in picked]
    return list(experiment.snapshots.filter(pk__in=ids).order_by("pk"))

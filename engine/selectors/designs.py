"""The design of an experiment as its counts stand, and what it said so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import Window
from django.db.models.functions import RowNumber

from engine.core import Claim, Design, Factorial
from engine.core.problem import Space
from engine.domain.policy_space import combinations, policy_space
from engine.models import Experiment, Snapshot
from engine.selectors.counts import in_flight_matrix, outcomes, wins_matrix

# The claim on which an experiment stops; the core's default is the stronger "best".
STOPS_ON = Claim.BEST_IF_ANY


def space(experiment: Experiment) -> Space:
    """The experiment's assumption about the preference probabilities; policy i is its row i."""
    levels = {
        factor.name: [level.name for level in factor.levels.all()]
        for factor in experiment.factors.prefetch_related("levels")
    }
    return policy_space(experiment.space, levels, combinations(levels, experiment.excluded))


def factorial_space(experiment: Experiment) -> Factorial | None:
    """The Bradley-Terry space of the levels; ``None`` if the policies do not separate the levels."""
    levels = {
        factor.name: [level.name for level in factor.levels.all()]
        for factor in experiment.factors.prefetch_related("levels")
    }
    try:
        factorial = policy_space("factorial", levels, combinations(levels, experiment.excluded))
    except ValueError:
        return None
    return factorial if isinstance(factorial, Factorial) else None


def design_seed(experiment: Experiment) -> list[int]:
    """The seed of the next picks: a function of the experiment and of how many it has planned."""
    return [experiment.seed, experiment.planned_count]


def design_settings(experiment: Experiment) -> dict[str, Any]:
    """The settings of the experiment as its design takes them."""
    return {
        "claim": STOPS_ON,
        "streams": False,
        "delta": experiment.delta,
        "epsilon": experiment.epsilon,
        "sampler": experiment.sampler,
        "stopping": experiment.stopping,
        "seed": design_seed(experiment),
        "budget": experiment.budget,
    }


def design(experiment: Experiment, peaks: npt.NDArray[np.float64] | None = None) -> Design:
    """The experiment's design as its counts stand now.

    ``peaks``: the running maximum to go on from, where the caller has it; else the latest snapshot's, or a
    replay's where that snapshot is stale.
    """
    if peaks is None and experiment.evidence_stale:
        peaks = replayed_design(experiment).peak_evidence
    elif peaks is None and (latest := latest_snapshot(experiment)) is not None:
        peaks = np.array(latest.peak_evidence)
    wins = wins_matrix(experiment)
    return Design.from_counts(
        space(experiment),
        wins,
        in_flight=in_flight_matrix(experiment),
        peak_evidence=peaks,
        **design_settings(experiment),
    )


def replayed_design(experiment: Experiment) -> Design:
    """The experiment's design told every standing judgment in order, from nothing."""
    return told_design(experiment, space(experiment), outcomes(experiment))


def told_design(experiment: Experiment, of: Space, told: Iterable[tuple[int, int, float]]) -> Design:
    """A design with the experiment's settings told these outcomes. Reads nothing from the database."""
    replay = Design(space=of, **design_settings(experiment))
    for i, j, outcome in told:
        replay.tell(i, j, outcome)
    return replay


def latest_snapshot(experiment: Experiment) -> Snapshot | None:
    """The newest evidence that was written down, with its leader and runner-up; ``None`` before the first."""
    return experiment.snapshots.select_related("best", "runner_up").order_by("-pk").first()


def race(experiment: Experiment, most: int = 200) -> list[Snapshot]:
    """The evidence race: at most ``most`` snapshots, evenly spread, the first and the last among them.

    Thinned by the database: there is a snapshot for nearly every click.
    """
    snapshots = experiment.snapshots.select_related("best", "runner_up").order_by("pk")
    n = snapshots.count()
    if n > most:
        places = {int(place) for place in np.linspace(1, n, most).round()}
        numbered = snapshots.values("pk").annotate(place=Window(RowNumber(), order_by="pk"))
        snapshots = snapshots.filter(
            pk__in=list(numbered.filter(place__in=places).values_list("pk", flat=True))
        )
    return list(snapshots)

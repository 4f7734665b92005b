"""The design of an experiment as its counts stand, and what it said so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from engine.core import Design, Factorial
from engine.core.problem import Space
from engine.domain.policy_space import combinations, policy_space
from engine.domain.rules import Rules
from engine.models import Examination, Experiment, Snapshot
from engine.selectors.counts import comparison_count, in_flight_matrix, outcomes, wins_matrix

# Shares of simulated continuations that come to a decision: enough for a mean, and too few to trust in the budget.
_MOSTLY = 0.9
_HARDLY = 0.5


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
    own = {"seed": design_seed(experiment), "budget": experiment.budget}
    return Rules.of(experiment).design() | own


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


def extrapolated_left(experiment: Experiment) -> float | None:
    """Comparisons that a running experiment still needs if win rates stay as they are, where that is within its budget."""
    if experiment.state != Experiment.State.RUNNING:
        return None
    latest = latest_snapshot(experiment)
    if latest is None or latest.expected_left is None:
        return None
    within_budget = latest.comparisons + latest.expected_left <= experiment.budget
    return latest.expected_left if within_budget else None


@dataclass(frozen=True)
class Left:
    """Comparisons that simulated continuations of an experiment needed: the mean, and four in five of them.

    ``decided`` is the share that came to a decision within the budget, or within as much of it as was simulated; ``high`` is
    ``None`` where too few did.
    """

    expected: float
    low: float
    high: float | None
    decided: float
    to_the_budget: bool


def forecast_progress(experiment: Experiment) -> float | None:
    """The share of the next forecast's simulations that are done; ``None`` while no worker is at it."""
    held = Examination.objects.filter(experiment=experiment, claim_expires_at__gt=timezone.now())
    simulations = held.values_list("simulations", flat=True).first()
    return simulations["progress"] if simulations else None


def forecast(experiment: Experiment, judged: int | None = None) -> Left | None:
    """The latest forecast, less what has been judged since; ``None`` before the first.

    ``judged``: how many comparisons have been, where the caller knows.
    """
    if experiment.state != Experiment.State.RUNNING:
        return None
    # Fetch only this column: every click runs this query and `replays` is large.
    known = Examination.objects.filter(experiment=experiment).values_list("forecast", flat=True).first()
    if not known:
        return None
    since = (comparison_count(experiment.pk) if judged is None else judged) - known["comparisons"]
    expected, low, high = (max(known[name] - since, 1.0) for name in ("expected", "low", "high"))
    return Left(
        expected,
        low,
        high if known["decided"] >= _MOSTLY else None,
        known["decided"],
        known["horizon"] >= experiment.budget,
    )


@dataclass(frozen=True)
class ToGo:
    """The number of comparisons that a running experiment probably still needs.

    ``at_least``: so many simulated continuations came to no decision that it takes no fewer than this. ``over_budget``: it may
    not be decided within the budget.
    """

    comparisons: float
    at_least: bool
    over_budget: bool


def to_go(experiment: Experiment, latest: Snapshot | None = None) -> ToGo | None:
    """The forecast, before the first one an extrapolation of the win rates; ``None`` if neither is known.

    ``latest``: the latest snapshot, where the caller has it already.
    """
    if experiment.state != Experiment.State.RUNNING:
        return None
    latest = latest or latest_snapshot(experiment)
    n = 0 if latest is None else latest.comparisons
    known = forecast(experiment, judged=n)
    extrapolated = None if latest is None else latest.expected_left
    if known is None:
        if extrapolated is None:
            return None
        return ToGo(extrapolated, at_least=False, over_budget=n + extrapolated > experiment.budget)
    at_least = known.decided < _MOSTLY
    comparisons = known.expected
    if at_least and not known.to_the_budget:
        comparisons = max(comparisons, extrapolated or 0.0)
    # Before the first comparison the forecast rests on the planner's prior, too weak to doubt the budget.
    doubtful = n > 0 and known.to_the_budget and known.decided <= _HARDLY
    return ToGo(comparisons, at_least, over_budget=doubtful or n + comparisons > experiment.budget)


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

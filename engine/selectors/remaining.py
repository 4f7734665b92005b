"""The comparisons that an experiment still needs: simulated, or extrapolated before the first
simulation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from engine.models import Examination, Experiment, Snapshot
from engine.models.worker_holds import in_time
from engine.selectors.snapshots import latest_snapshot

# Shares of simulated continuations that come to a decision: enough for a mean, and too few to trust in the
# budget.
_MOSTLY = 0.9
_HARDLY = 0.5


@dataclass(frozen=True)
class Remaining:
    """The number of comparisons that an experiment probably still needs.

    Attributes
    ----------
    expected
        The mean of simulated continuations; before the first of them, an extrapolation of the win rates.
    between
        The number that four in five simulated continuations took; the upper end is ``None`` where too few of
        them came to a decision. ``None`` for an extrapolation.
    at_least
        True if so many simulated continuations came to no decision that ``expected`` is a lower bound.
    over_budget
        True if the budget may end before the decision.
    """

    expected: float
    between: tuple[float, float | None] | None
    at_least: bool
    over_budget: bool


def remaining_of(experiment: Experiment, latest: Snapshot | None = None) -> Remaining | None:
    """The comparisons that remain; ``None`` if nothing is known about them, or the experiment has none to
    come. A paused one needs as many as before its pause.

    Parameters
    ----------
    latest
        The latest snapshot, where the caller has it already.
    """
    if experiment.state not in {Experiment.State.RUNNING, Experiment.State.PAUSED}:
        return None
    latest = latest or latest_snapshot(experiment)
    return remaining_by(experiment, latest, forecasts([experiment]).get(experiment.pk))


def forecasts(experiments: Collection[Experiment]) -> dict[int, dict[str, Any]]:
    """The newest forecast of each experiment by its id, in one query; empty before the first."""
    # Fetch only this column: every click runs this query and `replays` is large.
    known = Examination.objects.filter(experiment__in=[each.pk for each in experiments])
    return dict(known.values_list("experiment_id", "forecast"))


def remaining_by(
    experiment: Experiment, latest: Snapshot | None, forecast: Mapping[str, Any] | None
) -> Remaining | None:
    """The clicks remaining by the latest snapshot and the forecast; ``None`` where neither says. Reads
    nothing from the database.
    """
    n = 0 if latest is None else latest.comparisons
    extrapolated = None if latest is None else latest.expected_left
    if not forecast:
        if extrapolated is None:
            return None
        return Remaining(extrapolated, None, False, over_budget=n + extrapolated > experiment.budget)
    since = n - forecast["comparisons"]
    expected, low, high = (max(forecast[name] - since, 1.0) for name in ("expected", "low", "high"))
    if since >= forecast["expected"] and extrapolated is not None:
        # It has lasted longer than the simulations: the present evidence knows better until the next ones.
        expected = extrapolated
        low, high = min(low, expected), max(high, expected)
    at_least = forecast["decided"] < _MOSTLY
    to_the_budget = forecast["horizon"] >= experiment.budget
    if at_least and not to_the_budget:
        expected = max(expected, extrapolated or 0.0)
    # Before the first comparison the forecast rests on the planner's prior, too weak to doubt the budget.
    doubtful = n > 0 and to_the_budget and forecast["decided"] <= _HARDLY
    return Remaining(
        expected,
        (low, None if at_least else high),
        at_least,
        over_budget=doubtful or n + expected > experiment.budget,
    )


def extrapolated_remaining(experiment: Experiment, latest: Snapshot | None = None) -> float | None:
    """Comparisons that a running experiment still needs if win rates stay as they are, where the budget
    allows them.

    It follows each comparison, unlike the simulations, so that the queue ahead shrinks in time.
    ``latest``: the latest snapshot, where the caller has it already.
    """
    if experiment.state != Experiment.State.RUNNING:
        return None
    latest = latest or latest_snapshot(experiment)
    if latest is None or latest.expected_left is None:
        return None
    within_budget = latest.comparisons + latest.expected_left <= experiment.budget
    return latest.expected_left if within_budget else None


def forecast_progress(experiment: Experiment) -> float | None:
    """The share of the next forecast's simulations that are done; ``None`` while no worker is at it."""
    held = Examination.objects.filter(in_time(), experiment=experiment)
    simulations = held.values_list("simulations", flat=True).first()
    return simulations["progress"] if simulations else None

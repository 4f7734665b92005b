"""Figures beside a decision: where comparisons went and should go, and what levels are worth."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from .allocation import pairwise_allocation
from .estimation import PairData, fit
from .intervals import effect_intervals
from .maxmin import Solver, maxmin_allocation
from .spaces import BradleyTerry, Factorial, Space
from .structured import prior_precision
from .types import FloatArray, Tally

# Half a win each, so that a pair that met once or never does not count as decided.
_SMOOTHING = 0.5
_SOLVER_GAP = 1e-3
# A policy as good as level with the best would draw all comparisons to itself.
_NEAR_TIE_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class OptimalShares:
    """The division of comparisons among pairs if the win rates were what they are estimated to be.

    Attributes
    ----------
    matrix
        Shape (K, K), symmetric: the share of each pair; the upper triangle sums to 1.
    solver
        The solver of the max-min program; None where the shares have a closed form.
    """

    matrix: FloatArray
    solver: Solver | None = None


def optimal_shares(space: Space, wins: FloatArray) -> OptimalShares | None:
    """The share of comparisons that each pair would get if the win rates were what they are estimated to be.

    The closed form where nothing is assumed, at win rates with half a win more for each side; the max-min
    program in a Bradley-Terry space. `wins` has shape (K, K). None before any comparison, and where the
    estimates tie for the best or no solver can certify its answer.
    """
    if not wins.any():
        return None
    if not isinstance(space, BradleyTerry):
        smoothed = (wins + _SMOOTHING) / (wins + wins.T + 2.0 * _SMOOTHING)
        return OptimalShares(pairwise_allocation(smoothed))
    precision = prior_precision(space, 1.0)
    data = PairData.of(space.features, Tally(wins[None]))
    theta = fit(data, precision, np.zeros((1, space.n_features)))[0]
    try:
        solution = maxmin_allocation(space.features, theta, tolerance=_SOLVER_GAP, gap_floor=_NEAR_TIE_SHARE)
    except (ValueError, ArithmeticError):
        return None
    return OptimalShares(solution.matrix(space.n_policies), solution.solver)


def realised_shares(wins: FloatArray) -> FloatArray:
    """Shape (K, K), symmetric: the share of comparisons that each pair got, from the wins.

    The upper triangle sums to 1, or to 0 before any comparison.
    """
    counts = wins + wins.T
    shares: FloatArray = counts / max(counts.sum() / 2.0, 1.0)
    return shares


@dataclass(frozen=True, slots=True)
class LevelEffect:
    """The win rate of a level against its factor's first, all else being equal, with its interval."""

    factor: str
    level: str
    reference: str
    win_rate: float
    low: float
    high: float


def level_effects(space: Factorial, wins: FloatArray, delta: float) -> list[LevelEffect]:
    """The worth of each level over its factor's first, in win probabilities.

    The intervals hold for all levels and at all times at once with probability 1 - δ, if the levels act as
    the model says, and to second order. `wins` has shape (K, K).
    """
    estimate, low, high = (special.expit(end) for end in effect_intervals(space, Tally(wins[None]), delta))
    names = [
        (factor, str(level), str(levels[0]))
        for factor, levels in space.levels.items()
        for level in levels[1:]
    ]
    return [
        LevelEffect(*name, win_rate=float(estimate[k]), low=float(low[k]), high=float(high[k]))
        for k, name in enumerate(names)
    ]

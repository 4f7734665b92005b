"""Figures beside the decision: shares of comparisons, and what levels are worth."""

import numpy as np
import pytest
from scipy import special

from engine.core import Factorial, Unstructured
from engine.core.allocation import pairwise_allocation
from engine.core.effects import level_effects, optimal_shares, realised_shares
from engine.core.intervals import effect_intervals
from engine.core.maxmin import Solver, maxmin_allocation
from engine.core.types import Tally
from tests.core.conftest import bradley_terry

SPACE = Factorial({"prompt": ["plain", "steps", "short"], "heat": ["low", "high"]})


def expected_wins(scores: np.ndarray, n: int) -> np.ndarray:
    wins = np.round(n * bradley_terry(scores))
    wins = np.triu(wins, 1)
    return wins + np.tril(n - wins.T, -1)


def test_shares_are_symmetric_and_sum_to_one() -> None:
    wins = expected_wins(SPACE.features @ np.array([0.8, 0.3, -0.4]), 30)
    modelled, free = optimal_shares(SPACE, wins), optimal_shares(Unstructured(6), wins)
    assert modelled is not None
    assert free is not None
    assert (modelled.solver, free.solver) == (Solver.INTERIOR_POINT, None)
    for shares in (realised_shares(wins), modelled.matrix, free.matrix):
        np.testing.assert_allclose(shares, shares.T)
        assert np.triu(shares).sum() == pytest.approx(1.0)
        assert np.all(np.diagonal(shares) == 0.0)


def test_with_many_comparisons_the_optimal_shares_are_those_of_the_true_win_rates() -> None:
    scores = SPACE.features @ np.array([0.8, 0.3, -0.4])
    wins = expected_wins(scores, 1_000_000)
    free = optimal_shares(Unstructured(6), wins)
    assert free is not None
    np.testing.assert_allclose(free.matrix, pairwise_allocation(bradley_terry(scores)), atol=1e-3)
    solved = maxmin_allocation(SPACE.features, np.array([0.8, 0.3, -0.4]))
    own = optimal_shares(SPACE, wins)
    assert own is not None
    np.testing.assert_allclose(own.matrix.sum(axis=1), solved.matrix(6).sum(axis=1), atol=0.02)


def test_before_any_comparison_there_is_no_optimum_and_nothing_was_shared() -> None:
    nothing = np.zeros((6, 6))
    assert optimal_shares(SPACE, nothing) is None
    assert optimal_shares(Unstructured(6), nothing) is None
    assert not realised_shares(nothing).any()


def test_effects_are_the_intervals_of_theta_in_win_probabilities() -> None:
    theta = np.array([0.8, 0.3, -0.4])
    wins = expected_wins(SPACE.features @ theta, 200)
    effects = level_effects(SPACE, wins, 0.05)
    assert [(e.factor, e.level, e.reference) for e in effects] == [
        ("prompt", "steps", "plain"),
        ("prompt", "short", "plain"),
        ("heat", "high", "low"),
    ]
    estimate, low, high = effect_intervals(SPACE, Tally(wins[None]), 0.05)
    for k, effect in enumerate(effects):
        assert effect.win_rate == pytest.approx(special.expit(estimate[k]))
        assert (effect.low, effect.high) == pytest.approx((special.expit(low[k]), special.expit(high[k])))
        assert effect.low < special.expit(theta[k]) < effect.high

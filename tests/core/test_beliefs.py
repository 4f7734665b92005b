"""Beliefs: each outcome moves the strengths by one Newton step, in every run as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from engine.core.beliefs import Beliefs
from engine.core.types import FloatArray, Tally

PRECISION = 1.0 / 0.4**2


def newton_step(tally: Tally, theta: FloatArray) -> FloatArray:
    """Shape (R, K): strengths after a step from `theta`, with the whole Hessian."""
    mean = special.expit(theta[:, :, None] - theta[:, None, :])
    weight = tally.counts * mean * (1.0 - mean)
    hessian = np.eye(tally.n_policies) * (weight.sum(axis=2) + PRECISION)[:, :, None] - weight
    gradient = (tally.wins - tally.counts * mean).sum(axis=2) - PRECISION * theta
    return theta + np.linalg.solve(hessian, gradient[..., None])[..., 0]


@pytest.mark.parametrize("n_runs", [1, 3])
def test_an_outcome_moves_all_strengths_by_one_newton_step(n_runs: int) -> None:
    rng = np.random.default_rng(4)
    tally = Tally.empty(5, n_runs)
    beliefs = Beliefs(tally)
    for _ in range(60):
        i = rng.integers(0, 5, n_runs)
        j = (i + rng.integers(1, 5, n_runs)) % 5
        before = beliefs.theta
        tally.record(i, j, rng.choice([0.0, 0.5, 1.0], n_runs))
        beliefs.update(i, j)
        assert beliefs.theta == pytest.approx(newton_step(tally, before), abs=1e-12)
    kept = np.arange(n_runs) == n_runs - 1
    last = beliefs.theta[kept]
    tally.keep(kept)
    beliefs.keep(kept)
    tally.record(np.array([0]), np.array([1]), np.array([1.0]))
    beliefs.update(np.array([0]), np.array([1]))
    assert beliefs.theta == pytest.approx(newton_step(tally, last), abs=1e-12)

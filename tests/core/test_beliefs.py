"""Beliefs: one Newton step for each outcome, in every run as if it were alone, and the chances to be best."""

import numpy as np
import pytest
from scipy import special, stats

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


def dense_log_chances(tally: Tally, theta: FloatArray) -> FloatArray:
    """Shape (K,): log chances of the first run to be the best, from the joint law of all pairs."""
    K = tally.n_policies
    i, j = np.triu_indices(K, 1)
    contrasts = np.eye(K)[i] - np.eye(K)[j]
    met = tally.counts[0, i, j] > 0
    mean = special.expit(contrasts @ theta)
    weight = (tally.counts[0, i, j] * mean * (1.0 - mean))[met]
    # The log-odds that each pair's outcomes point to, as in iteratively reweighted least squares.
    seen = contrasts[met] @ theta + (tally.wins[0, i, j] - tally.counts[0, i, j] * mean)[met] / weight
    total = np.zeros(K)
    for deviation, share in ((0.0, 0.4), (0.5, 0.6)):
        prior = contrasts @ contrasts.T / PRECISION + deviation * np.eye(i.size)
        noisy = prior[np.ix_(met, met)] + np.diag(1.0 / weight)
        gain = prior[:, met] @ np.linalg.inv(noisy)
        log_odds, variance = gain @ seen, np.diag(prior - gain @ prior[met])
        ahead = special.log_ndtr(log_odds / np.sqrt(variance))
        behind = special.log_ndtr(-log_odds / np.sqrt(variance))
        best = np.array([ahead[i == k].sum() + behind[j == k].sum() for k in range(K)])
        likelihood = stats.multivariate_normal(np.zeros(met.sum()), noisy).pdf(seen)
        total += share * likelihood * special.softmax(best)
    return np.log(total / total.sum())


@pytest.mark.parametrize("seed", range(5))
def test_the_chances_follow_from_the_joint_law_of_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tally = Tally.empty(5, 2)
    beliefs = Beliefs(tally)
    for _ in range(50):
        # The last two never meet.
        i = rng.integers(0, 3, 2)
        j = (i + rng.integers(1, 3, 2)) % 5
        tally.record(i, j, rng.choice([0.0, 0.5, 1.0], 2))
        beliefs.update(i, j)
    chances = beliefs.log_chances()
    assert chances is not None
    assert chances[0] == pytest.approx(dense_log_chances(tally, beliefs.theta[0]), abs=1e-9)
    assert np.exp(chances).sum(axis=1) == pytest.approx(1.0)


def told(wins: FloatArray) -> Beliefs:
    """Beliefs after so many wins of each policy against each."""
    tally = Tally.empty(wins.shape[0], 1)
    tally.wins[0], tally.counts[0] = wins, wins + wins.T
    return Beliefs(tally)


def favoured(wins: FloatArray) -> int:
    """The policy that is likeliest to be the best after so many wins of each against each."""
    chances = told(wins).log_chances()
    assert chances is not None
    return int(chances[0].argmax())


def test_strengths_decide_where_they_explain_the_pairs() -> None:
    strengths = np.array([0.8, 0.5, 0.2, -0.1, -0.4, -0.7])
    wins = 60.0 * special.expit(strengths[:, None] - strengths)
    np.fill_diagonal(wins, 0.0)
    # Bad luck of the best against the second in a few comparisons: 12 of 20 went to the second.
    wins[0, 1], wins[1, 0] = 8.0, 12.0
    assert favoured(wins) == 0


def test_head_to_head_results_decide_where_strengths_do_not_explain_the_pairs() -> None:
    # The first beats each other by little, and the second all others by far.
    wins = np.full((6, 6), 20.0)
    np.fill_diagonal(wins, 0.0)
    wins[0, 1:], wins[1:, 0] = 26.0, 14.0
    wins[1, 2:], wins[2:, 1] = 38.0, 2.0
    beliefs = told(wins)
    assert int(beliefs.theta[0].argmax()) == 1
    assert favoured(wins) == 0


def test_chances_are_not_kept_for_many_policies() -> None:
    assert told(np.zeros((64, 64))).log_chances() is not None
    assert told(np.zeros((65, 65))).log_chances() is None

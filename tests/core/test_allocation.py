import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.allocation import (
    best_policy,
    elimination_rate,
    lower_bound,
    pairwise_allocation,
    pairwise_characteristic_time,
)
from engine.core.bernoulli import bernoulli_kl


def with_condorcet_winner(seed: int, K: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(0.1, 0.9, (K, K)), 1)
    mu = upper + np.tril(1 - upper.T, -1) + 0.5 * np.eye(K)
    best = int(rng.integers(K))
    lead = rng.uniform(0.52, 0.9, K)
    mu[best], mu[:, best] = lead, 1 - lead
    mu[best, best] = 0.5
    return mu


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(3, 5))
def test_closed_form_allocation_agrees_with_the_linear_program(seed: int, K: int) -> None:
    """Making i a Condorcet winner costs the sum of ω d(μ, ½) over its conquerors: linear in ω."""
    mu = with_condorcet_winner(seed, K)
    best = int(best_policy(mu))
    rows, columns = np.triu_indices(K, 1)
    omega = cp.Variable(rows.size, nonneg=True)
    costs = []
    for i in set(range(K)) - {best}:
        beaten = np.where(rows == i, mu[rows, columns] < 0.5, (columns == i) & (mu[rows, columns] > 0.5))
        costs.append((beaten * bernoulli_kl(mu[rows, columns], 0.5)) @ omega)
    problem = cp.Problem(cp.Maximize(cp.min(cp.hstack(costs))), [cp.sum(omega) == 1])
    value = problem.solve(solver=cp.CLARABEL)
    assert 1 / pairwise_characteristic_time(mu) == pytest.approx(value, rel=1e-5)

    allocation = pairwise_allocation(mu)
    assert np.array_equal(allocation, allocation.T)
    assert allocation[rows, columns].sum() == pytest.approx(1.0)
    assert np.all(allocation >= 0)
    rate, opponent = elimination_rate(mu)
    others = [i for i in range(K) if i != best]
    assert [allocation[i, opponent[i]] * rate[i] for i in others] == pytest.approx(
        [value] * (K - 1), rel=1e-5
    )


def test_lower_bound_of_a_known_case() -> None:
    mu = np.array([[0.5, 0.75], [0.25, 0.5]])
    information = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    assert pairwise_characteristic_time(mu) == pytest.approx(1 / information)
    assert lower_bound(10.0, 0.05) == pytest.approx(10 * 0.9 * np.log(19))


def test_without_a_condorcet_winner_there_is_no_characteristic_time() -> None:
    with pytest.raises(ValueError, match="no policy beats all others"):
        pairwise_characteristic_time(np.array([[0.5, 0.8, 0.2], [0.2, 0.5, 0.8], [0.8, 0.2, 0.5]]))


def test_estimates_that_rule_nobody_out_still_give_an_allocation() -> None:
    allocation = pairwise_allocation(np.full((2, 3, 3), 0.5))
    assert np.triu(allocation, 1).sum(axis=(1, 2)) == pytest.approx([1.0, 1.0])

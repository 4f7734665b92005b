import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, special

from engine.core.estimation import PairData, fit, information, project, ridge
from engine.core.spaces import BradleyTerry
from engine.core.structured import BradleyTerryModel, log_marginal_bound
from engine.core.types import Tally


def random_data(seed: int, K: int, d: int, n: int) -> tuple[np.ndarray, Tally, list[tuple[int, int]]]:
    rng = np.random.default_rng(seed)
    features, theta = rng.standard_normal((K, d)), rng.standard_normal(d)
    tally, log = Tally.empty(K), []
    for _ in range(n):
        i, j = rng.choice(K, 2, replace=False)
        won = rng.random() < special.expit((features[i] - features[j]) @ theta)
        tally.record(np.array([i]), np.array([j]), np.array([float(won)]))
        log.append((i, j) if won else (j, i))
    return features, tally, log


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 7), st.floats(0.05, 5.0))
def test_one_hot_fit_agrees_with_choix(seed: int, K: int, penalty: float) -> None:
    _, tally, log = random_data(seed, K, 2, 40)
    theta = fit(PairData.of(np.eye(K), tally), penalty * np.eye(K), np.zeros((1, K)))[0]
    # choix penalises with alpha instead of alpha / 2.
    assert theta == pytest.approx(choix.opt_pairwise(K, log, alpha=penalty / 2, tol=1e-10), abs=1e-4)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 60))
def test_the_fit_is_the_maximum_even_for_separable_data(seed: int, d: int, n: int) -> None:
    features, tally, _ = random_data(seed, d + 3, d, n)
    data = PairData.of(features, tally)
    penalty = ridge(np.array([float(n)]))[0] * np.eye(d)
    theta = fit(data, penalty, np.zeros((1, d)))
    mean = special.expit(theta @ data.contrasts.T)
    gradient = (data.wins - data.counts * mean) @ data.contrasts - theta @ penalty
    assert np.abs(gradient).max() < 1e-5


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_the_constrained_fit_is_the_maximum_on_its_plane(seed: int) -> None:
    features, tally, _ = random_data(seed, 6, 3, 80)
    data = PairData.of(features, tally)
    normal, start = np.random.default_rng(seed).standard_normal((2, 1, 3))
    theta = fit(data, 0.1 * np.eye(3), start, normal)[0]
    assert normal[0] @ theta == pytest.approx(float(normal[0] @ start[0]), abs=1e-8)
    plane = np.linalg.svd(normal)[2][1:]

    def loss(x: np.ndarray) -> float:
        at = theta + x @ plane
        return float(0.05 * at @ at - data.log_likelihood(at[None])[0])

    found = optimize.minimize(loss, np.full(2, 0.3))
    assert loss(np.zeros(2)) <= found.fun + 1e-6


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(10, 200))
def test_a_fit_with_slack_stops_within_it(seed: int, n: int) -> None:
    features, tally, _ = random_data(seed, 6, 3, n)
    data, penalty, slack = PairData.of(features, tally), 0.1 * np.eye(3), 1e-6

    def objective(theta: np.ndarray) -> float:
        return float((data.log_likelihood(theta) - 0.05 * np.sum(theta**2, axis=1))[0])

    exact = fit(data, penalty, np.zeros((1, 3)))
    near = fit(data, penalty, np.zeros((1, 3)), slack=slack)
    assert objective(exact) - slack <= objective(near) <= objective(exact) + 1e-12


def test_several_data_sets_are_fitted_as_if_alone() -> None:
    features, first, _ = random_data(1, 5, 2, 50)
    _, second, _ = random_data(2, 5, 2, 10)
    both = Tally(np.concatenate([first.wins, second.wins]))
    together = fit(PairData.of(features, both), np.eye(2), np.zeros((2, 2)))
    for k, tally in enumerate((first, second)):
        alone = fit(PairData.of(features, tally), np.eye(2), np.zeros((1, 2)))[0]
        assert together[k] == pytest.approx(alone, abs=1e-6)


def test_information_is_the_sum_of_outer_products() -> None:
    z = np.random.default_rng(0).standard_normal((5, 3))
    weights = np.arange(10.0).reshape(2, 5)
    expected = [sum(w * np.outer(x, x) for w, x in zip(row, z, strict=True)) for row in weights]
    assert information(z, weights) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("radius", [0.5, 1.0, 100.0])
def test_the_projection_lies_in_the_ball_and_beats_its_neighbours(radius: float) -> None:
    features, tally, _ = random_data(3, 6, 3, 60)
    data = PairData.of(features, tally)
    penalty = 0.2
    estimate = fit(data, penalty * np.eye(3), np.zeros((1, 3)))[0]
    projected = project(data, penalty, estimate, radius)

    def score(theta: np.ndarray) -> np.ndarray:
        return (data.counts[0] * special.expit(data.contrasts @ theta)) @ data.contrasts + penalty * theta

    def distance(theta: np.ndarray) -> float:
        mean = special.expit(data.contrasts @ theta)
        hessian = information(data.contrasts, (data.counts[0] * mean * (1 - mean))[None])[
            0
        ] + penalty * np.eye(3)
        gap = score(theta) - score(estimate)
        return float(gap @ np.linalg.solve(hessian, gap))

    assert np.linalg.norm(projected) <= radius + 1e-9
    if np.linalg.norm(estimate) <= radius:
        assert projected is estimate
    for noise in np.random.default_rng(0).standard_normal((50, 3)):
        other = projected + 0.05 * noise
        other *= min(1.0, radius / np.linalg.norm(other))
        assert distance(projected) <= distance(other) + 1e-6


@pytest.mark.parametrize("n", [3, 30, 300])
def test_the_marginal_bound_lies_just_below_the_integral(n: int) -> None:
    features, tally, _ = random_data(n, 4, 1, n)
    data = PairData.of(features, tally)
    top = float(data.log_likelihood(np.zeros((1, 1)))[0])

    def integrand(theta: float) -> float:
        likelihood = data.log_likelihood(np.array([[theta]]))[0] - top
        return float(np.exp(likelihood - theta**2) / np.sqrt(np.pi))

    exact = np.log(integrate.quad(integrand, -12, 12, limit=400, points=[-1, 0, 1])[0]) + top
    bound = log_marginal_bound(data, 2 * np.eye(1), np.zeros((1, 1)))[0]
    assert exact - 0.2 < bound <= exact + 1e-7


def test_the_estimate_is_a_function_of_the_counts() -> None:
    features, tally, _ = random_data(9, 5, 2, 40)
    space = BradleyTerry(features)
    live = BradleyTerryModel(space, Tally.empty(5))
    fresh = BradleyTerryModel(space, tally)
    live._tally = tally
    live.refresh()
    assert np.array_equal(live.theta, fresh.theta)

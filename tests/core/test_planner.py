from dataclasses import replace

import numpy as np
import pytest

from engine.core import (
    BradleyTerry,
    Design,
    Plan,
    Simulations,
    Unstructured,
    forecast,
    forecasts,
)
from engine.core.allocation import lower_bound, pairwise_characteristic_time

from .conftest import bradley_terry

pytestmark = pytest.mark.slow

STRENGTHS = np.array([0.8, 0.2, 0.0, -0.6])


def test_a_forecast_with_known_strengths_is_what_the_experiment_takes() -> None:
    strengths = np.array([1.2, 0.2, 0.0, -0.6])
    mu = bradley_terry(strengths)
    predicted = forecast(Plan(Unstructured(4)), strengths=strengths, n_runs=24, seed=1)
    taken = []
    for seed in range(12):
        rng, design = np.random.default_rng(seed), Design(Unstructured(4), seed=seed)
        while not design.stopped:
            i, j = design.ask()
            design.tell(i, j, float(rng.random() < mu[i, j]))
        taken.append(design.n_comparisons)
    assert predicted.low <= np.median(taken) <= predicted.high
    assert predicted.expected == pytest.approx(np.mean(taken), rel=0.4)
    assert predicted.expected > lower_bound(pairwise_characteristic_time(mu), 0.05)
    assert predicted.decided == 1.0


def test_closer_policies_take_longer() -> None:
    plan = Plan(Unstructured(4), budget=500)
    near, far = (forecast(plan, log_odds=s, n_runs=8, seed=2) for s in (0.5, 2.0))
    assert near.expected > far.expected
    assert near.decided < far.decided


def test_features_make_it_shorter() -> None:
    features = np.random.default_rng(0).standard_normal((12, 2))
    plain = forecast(Plan(Unstructured(12), budget=500), log_odds=1.2, n_runs=8)
    shared = forecast(Plan(BradleyTerry(features), budget=500), log_odds=1.2, n_runs=8)
    assert shared.expected < 0.7 * plain.expected


def test_a_forecast_goes_on_from_where_it_was_interrupted() -> None:
    plan = Plan(Unstructured(3), budget=200)
    stored: list[tuple[Simulations, int]] = []
    whole = forecast(plan, log_odds=1.5, n_runs=20, progress=lambda *done: stored.append(done))
    assert [(len(done.left), n_runs) for done, n_runs in stored] == [(4, 20), (12, 20), (20, 20)]
    for done, _ in stored:
        assert forecast(plan, log_odds=1.5, n_runs=20, start=done) == whole


def test_what_a_tick_raises_ends_it() -> None:
    steps = iter(range(7))
    with pytest.raises(StopIteration):
        forecast(Plan(Unstructured(3), budget=200), n_runs=4, tick=lambda: next(steps) and None)
    assert next(steps, None) is None


def test_with_little_time_fewer_experiments_are_simulated() -> None:
    plan = Plan(Unstructured(3), budget=200)
    stored: list[Simulations] = []
    forecast(plan, n_runs=20, progress=lambda done, n_runs: stored.append(done))
    few = forecast(plan, n_runs=20, start=replace(stored[0], seconds=10.0), seconds=11.0)
    assert (few.n_runs, few.horizon) == (4, 200)
    assert few.expected == np.mean(stored[0].left)


def test_with_no_time_at_all_the_first_ones_are_cut_short_and_say_so() -> None:
    cut = forecast(Plan(Unstructured(3), budget=200), n_runs=20, seconds=0.0)
    assert (cut.n_runs, cut.horizon, cut.expected, cut.decided) == (4, 1, 1.0, 0.0)


def test_an_experiment_that_is_cut_later_on_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its short runs would have ended, and they are no fair sample."""
    plan = Plan(Unstructured(3), budget=200)
    stored: list[Simulations] = []
    forecast(plan, n_runs=20, progress=lambda done, n_runs: stored.append(done))
    clock = iter([0.0, *[10.0] * 1000])
    monkeypatch.setattr(forecasts.time, "process_time", lambda: next(clock))
    cut = forecast(plan, n_runs=20, start=replace(stored[0], seconds=1.0), seconds=5.0)
    assert (cut.n_runs, cut.horizon) == (4, 200)

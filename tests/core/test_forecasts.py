"""Forecasts before the start: a formula, held against simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from benchmarks.simulate import simulate
from engine.core import (
    SPREADS,
    BradleyTerry,
    Factorial,
    Plan,
    Remaining,
    Unstructured,
    forecast,
    random_strengths,
)
from engine.core.forecasts import comparisons_needed

TWO_BY_THREE = Factorial({"a": ["1", "2"], "b": ["1", "2", "3"]})


@pytest.mark.parametrize(
    ("space", "log_odds", "rules"),
    [
        (Unstructured(3), 0.8, {}),
        (Unstructured(5), 1.2, {"epsilon": 0.05}),
        (Unstructured(4), 1.2, {"stopping": "heuristic"}),
        (Unstructured(4), 1.2, {"sampler": "random"}),
        (TWO_BY_THREE, 0.8, {}),
        (Unstructured(6), 1.2, {}),
    ],
    ids=["three", "margin", "heuristic", "spread", "factorial", "six"],
)
@pytest.mark.slow
def test_it_is_within_a_factor_of_two_of_the_simulated_mean(space, log_odds, rules) -> None:
    strengths = random_strengths(space.n_policies, log_odds)[:12]
    rules = {"claim": "best_if_any", "budget": 800} | rules
    mu = special.expit(strengths[:, :, None] - strengths[:, None, :])
    simulated = simulate(mu, space=space, observe_every=20, **rules).n_comparisons.mean()
    figure = np.minimum(comparisons_needed(Plan(space, **rules), strengths), 800).mean()
    assert simulated / 2 < figure < simulated * 2


@pytest.mark.parametrize(
    ("n_policies", "epsilon", "delta", "simulated"),
    [
        (2, 0.05, 0.05, 90),
        (2, 0.05, 0.2, 42),
        (3, 0.05, 0.05, 216),
        (3, 0.05, 0.2, 124),
        (4, 0.05, 0.05, 317),
        (6, 0.05, 0.05, 559),
        (6, 0.1, 0.2, 189),
        (7, 0.1, 0.05, 354),
        (12, 0.05, 0.05, 989),
        (12, 0.1, 0.2, 456),
    ],
)
def test_good_enough_takes_about_as_many_as_simulated(n_policies, epsilon, delta, simulated) -> None:
    """Two level policies took twice as many by the formula, and twelve with a reserve .6 times as many.

    The simulated means are of 1,000 runs, and of 400 with seven policies and more, with strengths of the
    standard deviation .6.
    """
    plan = Plan(Unstructured(n_policies), claim="good_enough", epsilon=epsilon, delta=delta, budget=4000)
    needed = comparisons_needed(plan, random_strengths(n_policies, 0.6 * np.sqrt(2.0)))
    assert np.minimum(needed, 4000).mean() == pytest.approx(simulated, rel=0.2)


def figure(space=TWO_BY_THREE, log_odds: float = 0.8, **settings) -> float:
    plan = Plan(space, budget=5000, **settings)
    return np.minimum(comparisons_needed(plan, random_strengths(space.n_policies, log_odds)), 5000).mean()


def test_what_makes_it_harder_makes_it_longer() -> None:
    for space in (Unstructured(6), TWO_BY_THREE):
        assert figure(space) < figure(space, log_odds=0.4)
        assert figure(space) < figure(space, delta=0.001)
        assert figure(space) <= figure(space, sampler="random")
    assert figure(Unstructured(6)) < figure(Unstructured(12))
    assert figure(Unstructured(6), stopping="heuristic") < figure(Unstructured(6), stopping="theory")


SAVINGS = [
    ({}, {"space": TWO_BY_THREE}),
    ({"capital_moves": False}, {}),
    ({"capital_moves": False, "space": TWO_BY_THREE}, {"space": TWO_BY_THREE}),
    ({}, {"epsilon": 0.1}),
    ({}, {"delta": 0.1}),
    (
        {"claim": "best_if_any", "epsilon": 0.0},
        {"claim": "best_if_any", "epsilon": 0.0, "space": TWO_BY_THREE},
    ),
    ({"sampler": "random"}, {}),
]


@pytest.mark.parametrize("spreads", [(), *((each,) for each in SPREADS)], ids=str)
@pytest.mark.parametrize(("without", "saving"), SAVINGS, ids=range(len(SAVINGS)))
def test_what_saves_comparisons_never_raises_any_end(without, saving, spreads) -> None:
    """An assumption that saves clicks had raised the forecast."""
    usual = {"space": Unstructured(6), "claim": "good_enough", "epsilon": 0.05, "budget": 10**6}
    strengths = random_strengths(6, *spreads)
    more, less = (forecast(Plan(**usual | rules), strengths) for rules in (without, saving))
    assert less.low <= more.low
    assert less.likely <= more.likely
    assert less.high <= more.high


def test_the_more_policies_differ_and_the_fewer_they_are_the_shorter_it_is() -> None:
    rules = {"claim": "good_enough", "epsilon": 0.05, "budget": 10**6}
    by_spread = [forecast(Plan(Unstructured(6), **rules), random_strengths(6, each)) for each in SPREADS]
    assert [each.likely for each in by_spread] == sorted((each.likely for each in by_spread), reverse=True)
    of_three = forecast(Plan(Unstructured(3), **rules), random_strengths(6)[:, :3])
    assert of_three.likely < forecast(Plan(Unstructured(6), **rules), random_strengths(6)).likely


def test_what_no_budget_suffices_for_is_told_at_the_budget() -> None:
    plan = Plan(TWO_BY_THREE, stopping="theory", budget=500)
    assert forecast(plan, random_strengths(6)) == Remaining(500, None, None)


def test_a_space_that_assumes_nothing_but_in_name_costs_the_same_by_pairs() -> None:
    """In the one-hot space the contrasts with the best are independent: comparing each rival with it is
    optimal.
    """
    plan = {"stopping": "heuristic", "log_odds": 0.8}
    assert figure(BradleyTerry.one_hot(6), **plan) == pytest.approx(figure(Unstructured(6), **plan), rel=0.2)


def test_a_constant_shift_of_all_features_changes_nothing() -> None:
    features = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert figure(BradleyTerry(features)) == pytest.approx(figure(BradleyTerry(features + 7.0)))

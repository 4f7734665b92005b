"""The planner's first figure: a formula, held against simulations."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import BradleyTerry, Factorial, Plan, Unstructured, closed_form, forecast

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
    plan = Plan(space, claim="best_if_any", budget=800, **rules)
    simulated = forecast(plan, log_odds=log_odds, n_runs=12)
    figure = closed_form(plan, log_odds=log_odds)
    assert simulated.expected / 2 < figure.expected < simulated.expected * 2
    assert figure.low <= figure.expected <= figure.high <= plan.budget
    assert (figure.n_runs, figure.horizon) == (0, 800)


@pytest.mark.parametrize(
    ("n_policies", "epsilon", "delta", "simulated"),
    [
        (2, 0.05, 0.05, 82),
        (2, 0.05, 0.2, 38),
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
    assert closed_form(plan, log_odds=0.6 * np.sqrt(2.0)).expected == pytest.approx(simulated, rel=0.2)


def figure(space=TWO_BY_THREE, log_odds: float = 0.8, **settings) -> float:
    return closed_form(Plan(space, budget=5000, **settings), log_odds=log_odds).expected


def test_what_makes_it_harder_makes_it_longer() -> None:
    for space in (Unstructured(6), TWO_BY_THREE):
        assert figure(space) < figure(space, log_odds=0.4)
        assert figure(space) < figure(space, delta=0.001)
        assert figure(space) <= figure(space, sampler="random")
    assert figure(Unstructured(6)) < figure(Unstructured(12))
    assert figure(Unstructured(6), stopping="heuristic") < figure(Unstructured(6), stopping="theory")


def test_capital_that_moves_makes_it_shorter_where_a_simulation_has_it_move() -> None:
    rules = {"claim": "good_enough", "epsilon": 0.05, "budget": 5000}

    def expected(n_policies: int, **settings: bool) -> float:
        return closed_form(Plan(Unstructured(n_policies), **rules, **settings)).expected

    for n_policies in (3, 12):
        stays = expected(n_policies, capital_moves=False)
        assert 0.9 * stays < expected(n_policies) < stays


def test_nothing_moves_where_strengths_are_assumed() -> None:
    rules = {"claim": "good_enough", "epsilon": 0.05, "budget": 5000}
    plans = [Plan(BradleyTerry.one_hot(4), capital_moves=each, **rules) for each in (True, False)]
    assert closed_form(plans[0]) == closed_form(plans[1])


def test_what_no_budget_suffices_for_is_told_at_the_budget() -> None:
    answer = closed_form(Plan(TWO_BY_THREE, stopping="theory", budget=500))
    assert (answer.expected, answer.decided) == (500.0, 0.0)


def test_a_space_that_assumes_nothing_but_in_name_costs_the_same_by_pairs() -> None:
    """In the one-hot space the contrasts with the best are independent: comparing each rival with it is
    optimal.
    """
    plan = {"stopping": "heuristic", "log_odds": 0.8}
    assert figure(BradleyTerry.one_hot(6), **plan) == pytest.approx(figure(Unstructured(6), **plan), rel=0.2)


def test_a_constant_shift_of_all_features_changes_nothing() -> None:
    features = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert figure(BradleyTerry(features)) == pytest.approx(figure(BradleyTerry(features + 7.0)))

"""The range of comparisons that a running experiment still needs."""

import numpy as np
import pytest

from engine.core import Design, Factorial, Remaining, Unstructured

SPACES = [Unstructured(4), Factorial({"a": ["1", "2"], "b": ["1", "2"]})]
RULES = [
    {"claim": "good_enough", "epsilon": 0.05},
    {"claim": "best"},
    {"claim": "best_if_any"},
    {"stopping": "heuristic"},
]


def told(space, n: int, strengths, *, seed: int = 1, **rules) -> Design:
    design, rng = Design(space, seed=seed, **rules), np.random.default_rng(seed)
    for _ in range(n):
        i, j = design.ask()
        design.tell(i, j, float(rng.random() < 1.0 / (1.0 + np.exp(strengths[j] - strengths[i]))))
    return design


@pytest.mark.parametrize("space", SPACES, ids=["free", "factorial"])
@pytest.mark.parametrize("rules", RULES, ids=["good_enough", "best", "if_any", "heuristic"])
def test_every_kind_of_experiment_has_a_range(space, rules) -> None:
    remaining = told(space, 40, [0.2, 0.1, 0.0, 0.0], **rules).remaining
    assert 1.0 <= remaining.low < remaining.likely < remaining.high


def test_nothing_is_said_too_early_nor_after_the_end() -> None:
    assert told(Unstructured(12), 23, np.zeros(12)).remaining is None
    assert told(Unstructured(12), 24, np.zeros(12)).remaining is not None
    decided = told(Unstructured(2), 60, [5.0, 0.0], claim="good_enough", epsilon=0.05)
    assert decided.stopped
    assert decided.remaining is None


def test_the_same_evidence_has_the_same_range() -> None:
    design = told(Unstructured(3), 40, [0.4, 0.2, 0.0])
    again = Design.from_counts(Unstructured(3), design.wins, progress=design.progress)
    assert again.remaining == design.remaining


def test_what_is_nearly_proved_takes_less() -> None:
    def likely(wins: int) -> float:
        counts = [[0, wins], [100 - wins, 0]]
        return Design.from_counts(Unstructured(2), counts, epsilon=0.05, claim="good_enough").remaining.likely

    assert likely(57) < likely(52) / 3


def test_many_policies_have_a_range_in_time() -> None:
    wins = np.zeros((100, 100))
    wins[np.arange(99), np.arange(1, 100)] = 3.0
    assert Design.from_counts(Unstructured(100), wins).remaining.low > 100


def test_the_budget_opens_the_ends_beyond_it() -> None:
    remaining = Remaining(60.0, 120.0, 300.0)
    assert remaining.within(300) == remaining
    assert remaining.within(200) == Remaining(60.0, 120.0, None)
    assert remaining.within(100) == Remaining(60.0, None, None)
    assert remaining.within(50) == Remaining(50, None, None)
    assert remaining.within(200).times(2.0) == Remaining(120.0, 240.0, None)

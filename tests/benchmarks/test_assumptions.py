"""The worlds of the benchmark of assumptions are what they are called, and its rows count what is false."""

import numpy as np
import pytest

from benchmarks.assumptions import WORLDS, Cell, measure, world
from benchmarks.claims import true_claims
from engine.core.types import Claim


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_differs_from_the_plain_one_as_it_says(name: str) -> None:
    plain, other = world("plain"), world(name)
    for t in (1, 101, 5000):
        assert np.allclose(other.at(t) + other.at(t).T, 1.0)
    has_best = true_claims(other.truth[None], Claim.BEST, 0.0).any()
    assert has_best == (name not in ("cycle", "level"))
    good = true_claims(other.truth[None], Claim.GOOD_ENOUGH, 0.05).sum()
    assert good == {"cycle": 0, "level": 2}.get(name, 1)
    if name in ("alternating", "turns"):
        both = other.at(1), other.at(101 if name == "turns" else 2)
        assert np.allclose(sum(both) / 2, plain.truth)
        assert both[0][0, 1] < 0.5 < both[1][0, 1]
    if name == "drift":
        assert other.at(1)[0, 1] < 0.5
        assert np.allclose(other.at(1000), plain.truth)


def test_a_side_that_is_always_left_misleads_and_a_drawn_one_does_not() -> None:
    drawn, fixed = (
        measure(Cell(name, "balanced", "certified", "best_if_any", runs=8, cap=500, seed=1))
        for name in ("plain", "one side")
    )
    assert drawn["wrong"] == 0
    assert fixed["leader_wrong"] > drawn["leader_wrong"]

"""The race of new policies against a champion, and the claim at its end."""

from __future__ import annotations

import numpy as np

from engine.core import Improvement


def raced(clicks: int, gain: float, seed: int = 1) -> Improvement:
    """A race to its end in which each child is better than its parent by so much, in log-odds."""
    rng = np.random.default_rng(seed)
    strengths = [0.0]
    race = Improvement(0, clicks=clicks, seed=seed)
    while race.phase != "ended":
        for parent, n in race.wants().items():
            for _ in range(n):
                race.add(len(strengths), parent)
                strengths.append(strengths[parent] + gain)
        pair = race.ask()
        assert pair is not None
        i, j = pair
        race.tell(i, j, float(rng.random() < 1.0 / (1.0 + np.exp(strengths[j] - strengths[i]))))
    return race


def test_better_children_are_certified_and_worse_ones_are_not_recommended() -> None:
    better = raced(300, 0.4).verdict
    assert better.kind == "certified"
    assert better.policy > 0
    assert better.lower >= 0.5
    assert better.risk <= 0.05
    worse = raced(300, -1.0)
    assert (worse.verdict.kind, worse.verdict.policy) == ("nothing_better", 0)
    assert len(worse.dropped) > 10


def test_showings_of_before_the_champion_was_fixed_do_not_count_for_the_claim() -> None:
    race = Improvement(0, clicks=40)
    race.add(1, 0)
    early = race.show(1, 0)
    while race.phase == "explore":
        race.tell(1, 0, 1.0)
    assert race.phase == "certify"
    race.end(early, 1.0)
    assert race.verdict.share is None
    late = race.show(0, 1)
    open_one = race.verdict.risk
    race.end(late, 0.0)
    assert race.verdict.share == 1.0
    assert race.verdict.risk < open_one == 1.0

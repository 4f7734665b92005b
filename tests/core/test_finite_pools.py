"""Claims on outcomes that are drawn without replacement: the proof of docs/proofs.md, "Finite pools"."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.special import gammaln

from engine.core.bernoulli import log_e_value
from engine.core.evidence import CONCENTRATION
from engine.core.finite_pools import holds_without_replacement

# δ, ε: each near the largest ε at which it is proven.
PROVEN = [
    (0.01, 0.05), (0.01, 0.3), (0.05, 0.0), (0.05, 0.05), (0.05, 0.3), (0.1, 0.24), (0.2, 0.14), (0.36, 0.0)
]  # fmt: skip
LARGEST = 40


def log_e(size: int, margin: float) -> np.ndarray:
    """Shape (size + 1, size + 1): the evidence after w wins and l losses of the rival, in nats."""
    wins, losses = np.meshgrid(np.arange(size + 1.0), np.arange(size + 1.0), indexing="ij")
    return log_e_value(wins.ravel(), losses.ravel(), 0.5 + margin, CONCENTRATION).reshape(wins.shape)


def log_falling(x: float, r: np.ndarray) -> np.ndarray:
    """Log of x (x - 1) … (x - r + 1), for r ≤ x."""
    return gammaln(x + 1.0) - gammaln(x - r + 1.0)


def fewest_wins(size: int, margin: float) -> int:
    return math.ceil((0.5 + margin) * size - 1e-9)


def chance_to_reach(e: np.ndarray, threshold: float, size: int, n_wins: int) -> float:
    """The exact chance that the evidence ever reaches the threshold, over all orders of a pool's outcomes."""
    n_losses = size - n_wins
    arrives = np.zeros((n_wins + 1, n_losses + 1))
    arrives[0, 0] = 1.0
    reached = 0.0
    for n in range(size + 1):
        for w in range(max(0, n - n_losses), min(n, n_wins) + 1):
            here = arrives[w, n - w]
            if e[w, n - w] >= threshold:
                reached += here
                continue
            if w < n_wins:
                arrives[w + 1, n - w] += here * (n_wins - w) / (size - n)
            if n - w < n_losses:
                arrives[w, n - w + 1] += here * (n_losses - n + w) / (size - n)
    return reached


@pytest.mark.parametrize(("delta", "margin"), PROVEN)
def test_a_false_name_is_as_rare_as_promised_in_every_pool(delta: float, margin: float) -> None:
    assert holds_without_replacement(delta, margin)
    e, threshold = log_e(LARGEST, margin), -math.log(delta)
    for size in range(1, LARGEST + 1):
        for n_wins in range(fewest_wins(size, margin), size + 1):
            assert chance_to_reach(e, threshold, size, n_wins) <= delta


@pytest.mark.parametrize(("delta", "margin"), PROVEN)
def test_and_in_a_large_one(delta: float, margin: float) -> None:
    e, size = log_e(300, margin), 300
    assert chance_to_reach(e, -math.log(delta), size, fewest_wins(size, margin)) <= delta


@pytest.mark.parametrize(("delta", "margin"), PROVEN)
@pytest.mark.parametrize("size", [3, 10, 39, 40, 300])
def test_evidence_against_draws_is_evidence_against_a_sample(delta: float, margin: float, size: int) -> None:
    """Wherever the evidence is enough, the sample is no more likely than the draws of the null."""
    e, null = log_e(size, margin), 0.5 + margin
    n = np.add.outer(range(size + 1), range(size + 1))
    wins, losses = np.nonzero((e >= -math.log(delta)) & (n <= size))
    draws = wins * math.log(null) + losses * math.log(1.0 - null)
    for n_wins in range(fewest_wins(size, margin), size + 1):
        possible = (wins <= n_wins) & (losses <= size - n_wins)
        sample = (
            log_falling(n_wins, wins[possible])
            + log_falling(size - n_wins, losses[possible])
            - log_falling(size, (wins + losses)[possible])
        )
        assert np.all(sample <= draws[possible] + 1e-9)


def test_near_its_mean_a_sample_is_more_likely() -> None:
    """So the evidence itself is no supermartingale there, and the proof has to say where it is used."""
    half = np.array([10])
    sample = log_falling(20, half) + log_falling(20, half) - log_falling(40, 2 * half)
    assert sample[0] > 20 * math.log(0.5)


@pytest.mark.parametrize(
    ("delta", "margin"), [(0.37, 0.0), (0.3, 0.1), (0.2, 0.16), (0.1, 0.26), (0.05, 0.35)]
)
def test_beyond_the_bounds_nothing_is_promised(delta: float, margin: float) -> None:
    assert not holds_without_replacement(delta, margin)


class TestNewTasksFirst:
    """The lemma of docs/proofs.md, over all orders of the tasks and against a choice that knows everything.

    A pool is the outcomes of two pairs on each task; a path is the outcomes of the first pair so far.
    """

    POOLS = (
        ((1, 1), (0, 0)),
        ((1, 0), (0, 1), (1, 0)),
        ((1, 1), (1, 1), (0, 0), (0, 1)),
        ((0, 0), (1, 0), (0, 0), (1, 1), (0, 1)),
    )

    @staticmethod
    def chance(pool, goal, *, may_skip: bool) -> Fraction:
        """The largest chance that the path ever is in the goal. A choice that may skip gives a task to the
        other pair, and sees all of its outcomes.
        """

        @cache
        def best(left: tuple, path: tuple) -> Fraction:
            if path in goal:
                return Fraction(1)
            if not left:
                return Fraction(0)
            rests = [(left[:k] + left[k + 1 :], task[0]) for k, task in enumerate(left)]
            asked = sum(best(rest, (*path, outcome)) for rest, outcome in rests) / len(left)
            skipped = sum(best(rest, path) for rest, _ in rests) / len(left) if may_skip else Fraction(0)
            return max(asked, skipped)

        return best(tuple(pool), ())

    @pytest.mark.parametrize("pool", POOLS)
    def test_no_choice_of_when_to_ask_reaches_anything_more_often(self, pool) -> None:
        paths = [path for n in range(1, len(pool) + 1) for path in itertools.product((0, 1), repeat=n)]
        rng = np.random.default_rng(0)
        goals = [{path} for path in paths]
        goals += [{path for path in paths if rng.random() < 0.3} for _ in range(100)]
        for goal in map(frozenset, goals):
            assert self.chance(pool, goal, may_skip=True) == self.chance(pool, goal, may_skip=False)

    @pytest.mark.parametrize("pool", POOLS)
    def test_a_fixed_number_of_draws_has_the_law_of_the_first_ones(self, pool) -> None:
        """The other pair comes first, then after each of its wins, unless too few tasks would be left."""
        n_draws, laws = len(pool) - 1, (Counter[tuple[int, ...]](), Counter[tuple[int, ...]]())
        for order in itertools.permutations(pool):
            path: tuple[int, ...] = ()
            skips, asks = True, len(order) - n_draws
            for own, other in order:
                if skips and asks:
                    skips, asks = bool(other), asks - 1
                elif len(path) < n_draws:
                    path, skips = (*path, own), bool(other)
            for law, drawn in zip(laws, (path, tuple(own for own, _ in order[:n_draws])), strict=True):
                law[drawn] += 1
        assert laws[0] == laws[1]

    def test_on_a_task_that_is_not_new_nothing_holds(self) -> None:
        """Two tasks, the pairs agree: after a win of the other pair, both are left for this one."""
        first = []
        for order in itertools.permutations((1, 0)):
            first += [order[1]] * 2 if order[0] == 0 else list(order)
        assert Fraction(sum(first), len(first)) == Fraction(3, 4)

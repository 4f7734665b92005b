"""Claims on outcomes that are drawn without replacement: the proof of docs/proofs.md, "Finite pools"."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import gammaln

from engine.core.evidence import CONCENTRATION
from engine.core.finite_pools import holds_without_replacement
from engine.core.likelihood import log_e_value

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

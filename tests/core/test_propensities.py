"""The probabilities of the next pick, against the picks themselves."""

import numpy as np
import pytest

from engine.core import Design, Unstructured
from engine.core.samplers import SAMPLERS

WINS = np.array([[0.0, 3.0, 3.0, 2.0], [1.0, 0.0, 2.0, 2.0], [1.0, 2.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0]])


def design(sampler: str, seed: int, wins: np.ndarray = WINS) -> Design:
    return Design.from_counts(Unstructured(4), wins, sampler=sampler, seed=seed)


@pytest.mark.parametrize("sampler", ["random", "eps_greedy"])
@pytest.mark.parametrize("wins", [WINS, np.zeros((4, 4))], ids=["judged", "empty"])
def test_they_are_the_frequencies_of_the_picks(sampler, wins):
    n = 4000
    drawn = np.zeros((4, 4))
    asked = design(sampler, 0, wins)
    shares = asked.propensities()
    for _ in range(n):
        i, j = asked.ask()
        # Cancelled, so that every pick is made from the same counts.
        asked.cancel(i, j)
        drawn[i, j] += 1 / n
        drawn[j, i] += 1 / n
    assert np.array_equal(shares, shares.T)
    assert np.triu(shares, 1).sum() == pytest.approx(1.0)
    assert np.all(np.diag(shares) == 0)
    # Five standard errors of a share at most ½.
    assert np.abs(drawn - shares).max() < 5 * 0.5 / np.sqrt(n)


def test_random_pairs_are_all_alike():
    shares = design("random", 0).propensities()
    assert np.allclose(shares[np.triu_indices(4, 1)], 1 / 6)


@pytest.mark.parametrize("sampler", sorted(set(SAMPLERS) - {"random", "eps_greedy"}))
def test_the_others_do_not_claim_to_know(sampler):
    assert design(sampler, 0).propensities() is None


def test_asking_for_them_does_not_change_the_picks():
    quiet, curious = design("eps_greedy", 7), design("eps_greedy", 7)
    for _ in range(20):
        curious.propensities()
        assert quiet.ask() == curious.ask()

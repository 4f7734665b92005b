"""Evidence against each policy being the best: e-processes, valid at any time and for any sampler.

Only one policy can be the Condorcet winner, so only one of the nulls "policy k is the best" is true, and
the chance that the evidence against it ever reaches log(1/δ) is at most δ [Ville 1939]. No union bound over
policies is needed.
"""

from __future__ import annotations

import numpy as np

from engine.core.likelihood import log_e_value
from engine.core.types import FloatArray, IntArray, Tally

CONCENTRATION = 10.0
# Enough to show most cycles, and a third of a percent of what a decision among 16 policies takes.
MIN_HEAD_TO_HEAD = 10


class PairwiseEvidence:
    """Evidence from head-to-head counts alone: nothing is assumed about the preference probabilities.

    The null for policy k is "μ(k, j) ≥ ½ + ε for all j". Each opponent j gives an e-value against it from
    the comparisons of k with j; the evidence against k is the log of their mean. It depends on the counts
    only, so the order of the outcomes does not matter.

    Parameters
    ----------
    tally
        The data; read again at each `update`.
    epsilon
        Indifference margin ε in [0, ½).
    concentration
        Concentration a of the Beta(a, a) mixture; larger favours close contests.

    Attributes
    ----------
    null_mean
        ½ + ε.
    log_e
        Shape (K, K): log e-value (nats) from opponent j against policy k in row k; -inf on the diagonal.
    per_policy
        Shape (K,): current log evidence (nats) against each policy.
    """

    def __init__(self, tally: Tally, epsilon: float = 0.0, concentration: float = CONCENTRATION) -> None:
        self._tally = tally
        self._concentration = concentration
        self.null_mean = 0.5 + epsilon
        self.log_e = np.zeros_like(tally.wins)
        np.fill_diagonal(self.log_e, -np.inf)
        rows, columns = np.nonzero(tally.counts)
        self.log_e[rows, columns] = self._pair(rows, columns)
        self.per_policy = self.combine(self.log_e)

    def update(self, i: int, j: int) -> None:
        """Take in what has changed in the counts of the pair (i, j)."""
        pair = np.array([i, j])
        self.log_e[pair, pair[::-1]] = self._pair(pair, pair[::-1])
        self.per_policy[pair] = self.combine(self.log_e[pair])

    def leads(self, k: int) -> bool:
        """Whether policy k has met every other a few times, and wins at a rate of ½ + ε or more each time."""
        counts, wins = np.delete(self._tally.counts[k], k), np.delete(self._tally.wins[k], k)
        return bool(np.all((counts >= MIN_HEAD_TO_HEAD) & (wins >= self.null_mean * counts)))

    def combine(self, log_e: FloatArray) -> FloatArray:
        """Log of the mean e-value of each row, over the K - 1 opponents; the diagonal holds -inf."""
        top = log_e.max(axis=1, keepdims=True)
        combined: FloatArray = top[:, 0] + np.log(np.exp(log_e - top).sum(axis=1) / (log_e.shape[1] - 1))
        return combined

    def _pair(self, rows: IntArray, columns: IntArray) -> FloatArray:
        if rows.size == 0:
            return np.empty(0)
        wins = self._tally.wins
        return log_e_value(wins[rows, columns], wins[columns, rows], self.null_mean, self._concentration)

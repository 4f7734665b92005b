"""The paper's sampling rule: track the plug-in optimal allocation, exploring at rate √t."""

from __future__ import annotations

import numpy as np

from engine.core.allocation import pairwise_allocation
from engine.core.sampling import Picks, Situation
from engine.core.types import BoolArray, FloatArray


class Tracking:
    """Sample under-sampled pairs first, else the pair furthest behind its share [LLM-PO, eq. sampling rule].

    The exploration set A_0 is the set of all pairs.

    Parameters
    ----------
    exploration
        c' of the paper: a pair with fewer than c'√t comparisons is sampled first.
    cumulative
        Track the running sum of the allocations (C-tracking) and not t times the latest one (D-tracking,
        the paper's rule). The sum starts from the comparisons that the first call finds.
    """

    def __init__(self, exploration: float = 0.1, *, cumulative: bool = False) -> None:
        self._exploration = exploration
        self._cumulative = cumulative
        self._target: FloatArray | None = None

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return pairs (i, j) with i < j."""
        tally, load = situation.tally, situation.load
        rows, columns = np.triu_indices(tally.n_policies, 1)
        sampled = load[:, rows, columns]
        t = situation.n_asked[:, None]
        win_rate = np.divide(tally.wins, tally.counts, out=np.full_like(load, 0.5), where=tally.counts > 0)
        share = pairwise_allocation(win_rate)[:, rows, columns]
        deficit = self._advance(share, sampled, t) - sampled
        starved = sampled < self._exploration * np.sqrt(t)
        # Tie-breaking noise stays far below one comparison.
        noise = 1e-9 * rng.random(sampled.shape)
        explore = np.argmin(np.where(starved, sampled, np.inf) + noise, axis=1)
        pair = np.where(starved.any(axis=1), explore, np.argmax(deficit + noise, axis=1))
        return rows[pair], columns[pair]

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs."""
        if self._target is not None:
            self._target = self._target[runs]

    def _advance(self, share: FloatArray, sampled: FloatArray, t: FloatArray) -> FloatArray:
        if not self._cumulative:
            return (t + 1.0) * share
        self._target = share + (sampled if self._target is None else self._target)
        return self._target

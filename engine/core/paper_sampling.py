"""The paper's sampling rule: track the plug-in optimal allocation, exploring at rate √t."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import linalg

from .allocation import pairwise_allocation
from .maxmin import MaxMinAllocation, maxmin_allocation
from .sampling import Picks, Situation
from .structured import BradleyTerryModel
from .types import BoolArray, FloatArray, IntArray

# Strengths closer than this share of the widest difference are treated as this far apart: an estimated tie
# would otherwise draw all comparisons.
_GAP_FLOOR = 0.02


class Tracking:
    """Sample under-sampled pairs first, else the pair furthest behind its share [LLM-PO, eq. sampling rule].

    Parameters
    ----------
    exploration
        c' of the paper: a pair of the exploration set A_0 with fewer than c'√t comparisons comes first. A_0
        is the set of all pairs, or in a Bradley-Terry space d pairs whose contrasts span the features.
    cumulative
        Track the running sum of the allocations (C-tracking) and not t times the latest one (D-tracking,
        the paper's rule). The sum starts from the comparisons that the first call finds.
    gamma
        γ_0 of the regularisation γ_t = γ_0 t^(-1/8) of the max-min program in a Bradley-Terry space. It is to
        be small beside 1/U*, which is about 0.001 on the paper's instance, to break ties and no more.
    growth
        In a Bradley-Terry space the program is solved again whenever t has grown by this share.
    """

    def __init__(
        self,
        exploration: float = 0.1,
        *,
        cumulative: bool = False,
        gamma: float = 1e-4,
        growth: float = 0.03,
    ) -> None:
        self._exploration = exploration
        self._cumulative = cumulative
        self._gamma = gamma
        self._growth = growth
        self._target: FloatArray | None = None
        self._solutions: list[MaxMinAllocation | None] = []
        self._solved_at: IntArray = np.zeros(0, dtype=np.int64)
        self._spanning: IntArray | None = None

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return pairs (i, j) with i < j."""
        rows, columns = np.triu_indices(situation.tally.n_policies, 1)
        sampled = situation.load[:, rows, columns]
        t = situation.n_asked[:, None]
        explored = self._exploration_set(situation, rows, columns)
        share = self._share(situation)[:, rows, columns]
        deficit = self._advance(share, sampled, t) - sampled
        starved = sampled < np.maximum(self._exploration * np.sqrt(t), 1.0 - (explored.size == rows.size))
        starved[:, np.setdiff1d(np.arange(rows.size), explored)] = False
        # Tie-breaking noise stays far below one comparison.
        noise = 1e-9 * rng.random(sampled.shape)
        explore = np.argmin(np.where(starved, sampled, np.inf) + noise, axis=1)
        pair = np.where(starved.any(axis=1), explore, np.argmax(deficit + noise, axis=1))
        return rows[pair], columns[pair]

    def propensities(self, situation: Situation) -> FloatArray | None:
        """Deterministic given the history, but for ties."""
        return None

    def keep(self, runs: BoolArray) -> None:
        """Keep the runs that are True in `runs`, of shape (R,), and forget the others."""
        if self._target is not None:
            self._target = self._target[runs]
        if self._solutions:
            self._solutions = [self._solutions[r] for r in np.flatnonzero(runs)]
            self._solved_at = self._solved_at[runs]

    def memory(self) -> dict[str, Any]:
        """Solutions and running sums, as plain data that JSON can hold."""
        return {
            "target": None if self._target is None else self._target.tolist(),
            "solved_at": self._solved_at.tolist(),
            "solutions": [None if solution is None else solution.state() for solution in self._solutions],
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Take up what `memory` gave."""
        target = memory["target"]
        self._target = None if target is None else np.array(target)
        self._solved_at = np.array(memory["solved_at"], dtype=np.int64)
        self._solutions = [
            None if state is None else MaxMinAllocation.from_state(state) for state in memory["solutions"]
        ]

    def _exploration_set(self, situation: Situation, rows: IntArray, columns: IntArray) -> IntArray:
        if situation.model is None:
            return np.arange(rows.size)
        if self._spanning is None:
            features = situation.model.features
            _, _, order = linalg.qr((features[rows] - features[columns]).T, mode="economic", pivoting=True)
            self._spanning = np.asarray(order[: features.shape[1]], dtype=np.int64)
        return self._spanning

    def _share(self, situation: Situation) -> FloatArray:
        """Shape (R, K, K): the plug-in optimal allocation."""
        tally = situation.tally
        if situation.model is None:
            win_rate = np.divide(
                tally.wins, tally.counts, out=np.full_like(tally.wins, 0.5), where=tally.counts > 0
            )
            return pairwise_allocation(win_rate)
        if not self._solutions:
            self._solutions = [None] * tally.n_runs
            self._solved_at = np.zeros(tally.n_runs, dtype=np.int64)
        due = tally.n_comparisons >= self._solved_at * (1.0 + self._growth)
        for run in np.flatnonzero(due & (tally.n_comparisons > 0)):
            self._solutions[run] = self._solve(situation.model, int(run), int(tally.n_comparisons[run]))
            self._solved_at[run] = tally.n_comparisons[run]
        shares = [
            np.zeros(tally.wins.shape[1:]) if solution is None else solution.matrix(tally.n_policies)
            for solution in self._solutions
        ]
        return np.stack(shares)

    def _solve(self, model: BradleyTerryModel, run: int, t: int) -> MaxMinAllocation | None:
        theta = model.theta[run]
        if not np.any(theta):
            return self._solutions[run]
        return maxmin_allocation(
            model.features,
            theta,
            gamma=self._gamma * t ** (-1.0 / 8.0),
            tolerance=1e-2,
            start=self._solutions[run],
            gap_floor=_GAP_FLOOR,
        )

    def _advance(self, share: FloatArray, sampled: FloatArray, t: FloatArray) -> FloatArray:
        if not self._cumulative:
            return (t + 1.0) * share
        self._target = share + (sampled if self._target is None else self._target)
        return self._target

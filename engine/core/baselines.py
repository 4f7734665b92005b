"""Baseline sampling rules that the experiment design is measured against [LLM-PO, section "experiments"]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.core.sampling import Situation
from engine.core.types import Pair


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Every pair equally often: the least compared pair, the first one in lexicographic order."""

    def pick(self, situation: Situation, rng: np.random.Generator) -> Pair:
        """Return (i, j) with i < j."""
        tally = situation.tally
        rows, columns = np.triu_indices(tally.n_policies, 1)
        load = tally.counts[rows, columns] + tally.in_flight[rows, columns]
        pair = int(load.argmin())
        return int(rows[pair]), int(columns[pair])

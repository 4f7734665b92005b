"""The data an experiment has collected, and the decision drawn from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Pair: TypeAlias = tuple[int, int]
Seed: TypeAlias = int | list[int] | np.random.SeedSequence | np.random.Generator | None


class StopReason(StrEnum):
    """Why an experiment is over."""

    CERTIFIED = "certified"
    """Every policy but one is refuted: the one left is the best, at confidence 1 - δ."""
    NO_SINGLE_BEST = "no_single_best"
    """Every policy is refuted: none beats all others (a cycle, or a tie within ε), at confidence 1 - δ."""
    BUDGET = "budget"
    """The budget is spent: `best` is the best guess so far, and `confidence` what it has earned."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the comparisons so far allow one to say.

    Attributes
    ----------
    stopped
        Whether the experiment may end now.
    reason
        Why it may end; None while it runs.
    best
        The best policy: certified, or the best guess while running. None without any comparison, and
        when there is no single best policy.
    confidence
        A lower bound, valid at any time, on how sure the answer is; in [0, 1]. When there is no single
        best policy it is the confidence in that finding.
    evidence
        Per policy, the largest log-evidence so far (nats) against its being the best.
    threshold
        The evidence (nats) at which a policy is refuted.
    runner_up
        The policy other than `best` with the least evidence against it; None when `best` is.
    n_comparisons
        How many comparisons have been judged.
    expected_left
        About how many more comparisons the decision will take; 0 once stopped, None while that cannot
        be told.
    """

    stopped: bool
    reason: StopReason | None
    best: int | None
    confidence: float
    evidence: tuple[float, ...]
    threshold: float
    runner_up: int | None
    n_comparisons: int
    expected_left: float | None


class Tally:
    """Counts of judged and of pending comparisons: all the data a pairwise experiment has.

    Parameters
    ----------
    wins
        Shape (K, K): `wins[i, j]` is the summed outcome of i against j, a tie counting one half to each,
        so that `wins + wins.T` counts the comparisons of each pair.
    in_flight
        Shape (K, K), symmetric: comparisons chosen but not yet judged. None means none.

    Raises
    ------
    ValueError
        If an array has the wrong shape, a negative or non-finite entry, or a non-zero diagonal, if the
        counts are not whole, or if `in_flight` is not symmetric.
    """

    def __init__(self, wins: ArrayLike, in_flight: ArrayLike | None = None) -> None:
        self.wins = _square("wins", wins)
        counts = self.wins + self.wins.T
        # Outcomes such as 0.3 do not add up exactly in binary.
        self.counts = np.rint(counts)
        if np.any(np.abs(counts - self.counts) > 1e-6 * (1 + counts)):
            raise ValueError(
                "wins[i, j] + wins[j, i] must be a whole number of comparisons for every pair: "
                "count a tie as 0.5 to both sides"
            )
        pending = np.zeros_like(self.wins) if in_flight is None else _square("in_flight", in_flight)
        self.in_flight = np.rint(pending).astype(np.int64)
        if np.any(pending != self.in_flight) or np.any(pending != pending.T):
            raise ValueError("in_flight must be a symmetric matrix of whole numbers")
        if pending.shape != self.wins.shape:
            raise ValueError(f"in_flight has shape {pending.shape}, wins has {self.wins.shape}")
        self.n_comparisons = round(float(self.counts.sum()) / 2)

    @property
    def n_policies(self) -> int:
        """Number of policies K."""
        return int(self.wins.shape[0])

    def begin(self, i: int, j: int) -> None:
        """Note that a comparison of i and j is under way."""
        self._check_pair(i, j)
        self.in_flight[i, j] += 1
        self.in_flight[j, i] += 1

    def release(self, i: int, j: int) -> bool:
        """Note that one pending comparison of i and j is over; return whether there was one."""
        self._check_pair(i, j)
        if self.in_flight[i, j] == 0:
            return False
        self.in_flight[i, j] -= 1
        self.in_flight[j, i] -= 1
        return True

    def record(self, i: int, j: int, outcome: float) -> None:
        """Add one judged comparison; `outcome` in [0, 1] is the share of the win that goes to i."""
        self._check_pair(i, j)
        if not 0.0 <= outcome <= 1.0:
            raise ValueError(
                f"outcome must lie in [0, 1] (1: i preferred, 0: j preferred, 0.5: a tie), got {outcome}"
            )
        self.wins[i, j] += outcome
        self.wins[j, i] += 1.0 - outcome
        self.counts[i, j] += 1.0
        self.counts[j, i] += 1.0
        self.n_comparisons += 1

    def _check_pair(self, i: int, j: int) -> None:
        K = self.n_policies
        if not (0 <= i < K and 0 <= j < K):
            raise ValueError(f"policies are numbered 0 to {K - 1}, got the pair ({i}, {j})")
        if i == j:
            raise ValueError(f"a policy is not compared with itself, got the pair ({i}, {j})")


def _square(name: str, values: ArrayLike) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(
            f"{name} must be a square matrix, one row and column per policy; got shape {array.shape}"
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"{name} must hold finite numbers that are not negative")
    if np.any(np.diagonal(array) != 0):
        raise ValueError(f"{name} must have a zero diagonal: a policy is not compared with itself")
    return array

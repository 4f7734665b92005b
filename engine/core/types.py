"""The data an experiment has collected, and the decision drawn from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from typing import Self, TypeAlias

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
    """Counts of judged and of pending comparisons, for R runs side by side.

    A live experiment is one run (R = 1); simulations advance many at once through the same code.

    Parameters
    ----------
    wins
        Shape (R, K, K): `wins[r, i, j]` is the summed outcome of i against j, a tie counting one half to
        each.
    in_flight
        Shape (R, K, K), symmetric: comparisons chosen but not yet judged. None means none.

    Attributes
    ----------
    counts
        Shape (R, K, K): comparisons judged, per pair.
    n_comparisons
        Shape (R,): comparisons judged.
    """

    def __init__(self, wins: FloatArray, in_flight: IntArray | None = None) -> None:
        self.wins = wins.copy()
        # Outcomes such as 0.3 do not add up exactly in binary.
        self.counts = np.rint(wins + np.swapaxes(wins, -1, -2))
        self.in_flight = np.zeros(wins.shape, dtype=np.int64) if in_flight is None else in_flight.copy()
        self.n_comparisons: IntArray = np.rint(self.counts.sum(axis=(1, 2)) / 2).astype(np.int64)

    @classmethod
    def empty(cls, n_policies: int, n_runs: int = 1) -> Self:
        """Runs without any comparison."""
        return cls(np.zeros((n_runs, n_policies, n_policies)))

    @property
    def n_runs(self) -> int:
        """Number of runs R."""
        return int(self.wins.shape[0])

    @property
    def n_policies(self) -> int:
        """Number of policies K."""
        return int(self.wins.shape[1])

    def begin(self, i: IntArray, j: IntArray) -> None:
        """Note in every run r that a comparison of i[r] and j[r] is under way."""
        self._shift(i, j, 1)

    def release(self, i: IntArray, j: IntArray) -> None:
        """Note in every run r that one pending comparison of i[r] and j[r] is over."""
        self._shift(i, j, -1)

    def record(self, i: IntArray, j: IntArray, outcome: FloatArray) -> None:
        """Add one judged comparison to every run: outcome[r] is the share of the win that goes to i[r]."""
        runs = np.arange(self.n_runs)
        self.wins[runs, i, j] += outcome
        self.wins[runs, j, i] += 1.0 - outcome
        self.counts[runs, i, j] += 1.0
        self.counts[runs, j, i] += 1.0
        self.n_comparisons += 1

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs."""
        self.wins = self.wins[runs]
        self.counts = self.counts[runs]
        self.in_flight = self.in_flight[runs]
        self.n_comparisons = self.n_comparisons[runs]

    def _shift(self, i: IntArray, j: IntArray, change: int) -> None:
        runs = np.arange(self.n_runs)
        self.in_flight[runs, i, j] += change
        self.in_flight[runs, j, i] += change


def check_whole(name: str, value: object) -> int:
    """The value as an int.

    Raises
    ------
    ValueError
        If it is not a whole number by type: 3.0 and "3" are not.
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    raise ValueError(f"{name} must be a whole number such as 3, got {value!r}; convert it with int(...)")


def check_real(name: str, value: object) -> float:
    """The value as a float; True counts as 1.

    Raises
    ------
    ValueError
        If it is not a number.
    """
    if isinstance(value, Real | np.bool_):
        return float(value)
    raise ValueError(f"{name} must be a number, got {value!r}")


def check_tally(wins: ArrayLike, in_flight: ArrayLike | None, n_policies: int) -> Tally:
    """Tally of one run from counts given by a caller, checked.

    Raises
    ------
    ValueError
        If an array has the wrong shape, a negative or non-finite entry, or a non-zero diagonal, if the
        counts are not whole, or if `in_flight` is not symmetric.
    """
    checked = _check_square("wins", wins, n_policies)
    counts = checked + checked.T
    if np.any(np.abs(counts - np.rint(counts)) > 1e-6 * (1 + counts)):
        raise ValueError(
            "wins[i, j] + wins[j, i] must be a whole number of comparisons for every pair: "
            "count a tie as 0.5 to both sides"
        )
    pending = (
        np.zeros_like(checked) if in_flight is None else _check_square("in_flight", in_flight, n_policies)
    )
    if np.any(pending != np.rint(pending)) or np.any(pending != pending.T):
        raise ValueError("in_flight must be a symmetric matrix of whole numbers")
    return Tally(checked[None], pending.astype(np.int64)[None])


def _check_square(name: str, values: ArrayLike, n_policies: int) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    if array.shape != (n_policies, n_policies):
        raise ValueError(
            f"{name} must be square, one row and column for each of the {n_policies} policies; "
            f"got shape {array.shape}"
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"{name} must hold finite numbers that are not negative")
    if np.any(np.diagonal(array) != 0):
        raise ValueError(f"{name} must have a zero diagonal: a policy is not compared with itself")
    return array

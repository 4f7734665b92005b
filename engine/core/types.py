"""The data an experiment has collected, and the decision drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .wording import number, two_digits

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Pair: TypeAlias = tuple[int, int]
Seed: TypeAlias = int | list[int] | np.random.SeedSequence | np.random.Generator | None


class Claim(StrEnum):
    """Statements of a stop about the policy that it names. Each is wrong with probability at most δ."""

    BEST = "best"
    """It beats every other policy. Assumes nothing about the preference probabilities."""
    BEST_IF_ANY = "best_if_any"
    """If some policy beats every other, it is this one. Says nothing where none does."""
    GOOD_ENOUGH = "good_enough"
    """It loses to no other policy by more than ε. Assumes nothing about the preference probabilities."""


class StopReason(StrEnum):
    """The reasons why an experiment ends: one vocabulary for core, database, API and exports."""

    CERTIFIED = "certified"
    """The claim that the experiment is to stop on holds, at risk δ. Under another stopping rule its threshold
    is reached, which claims nothing.
    """
    NO_SINGLE_BEST = "no_single_best"
    """Every policy is refuted: none beats all others (a cycle, or a tie within ε), at risk δ. Under another
    stopping rule than "certified" this claims nothing.
    """
    BUDGET = "budget"
    """The budget is spent: `best` is the leader so far, and `confidence` what it has earned."""
    STOPPED = "stopped"
    """Somebody ended it before it was decided. A `Design` never says so; the program that runs it does."""


@dataclass(frozen=True, slots=True)
class ClaimState:
    """The progress of one claim.

    Attributes
    ----------
    claim
        Which one.
    holds
        Whether its own evidence has established it at risk δ.
    policy
        The policy that it names; while it does not hold, the one it comes closest to naming. None before the
        first comparison, and of "best_if_any" where every policy is refuted.
    open
        The rivals that are still to be excluded. Empty where it holds, where it follows from another claim,
        and where `policy` is None. `Decision.open` differs where it follows.
    risk
        The risk, in [0, 1], at which it would just hold by the present evidence; that of the other claim,
        where it follows.
    text
        The claim and its assumptions, in one sentence; what is missing, where it does not hold or follow.
    assumes_model
        Whether it rests on a Bradley-Terry model: the space has one, and head-to-head evidence alone would
        not do.
    qualified
        Whether nothing but the assumption supports that model. See `contradictions.is_qualified`.
    follows_from
        The claim that holds and implies it, where its own evidence does not suffice. It is wrong only where
        that one is, and adds no risk of its own.
    contradicted
        Whether the evidence for another claim establishes the opposite; the text says so. Then one of the two
        errs, which has a probability of at most the sum of their risks, or an assumption does not hold.
    """

    claim: Claim
    holds: bool
    policy: int | None
    open: tuple[int, ...]
    risk: float
    text: str
    assumes_model: bool = False
    qualified: bool = False
    follows_from: Claim | None = None
    contradicted: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Decision:
    """The decision that the comparisons so far allow.

    Attributes
    ----------
    stopped
        Whether the experiment may end now.
    reason
        Why it may end; None while it runs.
    best
        The policy named by the claim that stops the experiment, or the leader while running. None without
        any comparison, and when there is no single best policy.
    confidence
        One minus the risk at which the claim would just hold, in [0, 1]: a bound that is valid at any time,
        under the stopping rules "certified" and "theory". When there is no single best policy it is that of
        this finding.
    claim
        The claim that stops the experiment; None under a stopping rule other than "certified".
    claims
        Every claim that is watched, the one that stops the experiment first. Each errs with probability at
        most δ; one that is picked after a look at several errs with at most `joint_risk`.
    joint_risk
        δ times the number of claims watched, at most 1; 1 under a stopping rule that makes no claim.
    claim_text
        The claim that may be made now, in one sentence, with its assumptions.
    open
        The rivals that the claim which stops the experiment has still to exclude by its own evidence. That is
        `claims[0].open`, except where this claim follows from another one: the experiment goes on, and these
        rivals keep it from stopping. Empty before the first comparison. Under a stopping rule other than
        "certified", the policies other than `best` that are not refuted.
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
    claim: Claim | None = None
    claims: tuple[ClaimState, ...] = ()
    joint_risk: float = 1.0
    claim_text: str = ""
    open: tuple[int, ...] = ()

    def holds(self, claim: Claim | str) -> bool:
        """True if a claim that is watched holds now."""
        return any(state.claim == claim and state.holds for state in self.claims)

    def __repr__(self) -> str:
        state = "running" if self.reason is None else f"stopped ({self.reason})"
        leader = "no leader" if self.best is None else f"policy {self.best} leads"
        if self.reason is StopReason.CERTIFIED:
            leader = f"policy {self.best} {'leads' if self.claim is None else 'is named'}"
        remaining = (
            ""
            if self.stopped or self.expected_left is None
            else f", about {two_digits(self.expected_left):,} remain"
        )
        return (
            f"<Decision after {number(self.n_comparisons, 'comparison')}: {state}, {leader}{remaining}. "
            f"{self.claim_text}>"
        )


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
    ties
        Shape (R, K, K), symmetric: how many of these ended in a tie, as far as ties are told apart. None
        where all count as half of a win and half of a loss.
    n_comparisons, n_ties
        Shape (R,): comparisons judged, and how many of these ended in a tie that is told apart.
    n_in_flight
        Shape (R,): comparisons not yet judged.
    judged, pending
        Shape (R, K): comparisons of each policy that are judged, and that are not yet.
    """

    def __init__(self, wins: FloatArray, in_flight: IntArray | None = None) -> None:
        self.wins = wins.copy()
        # Outcomes such as 0.3 do not add up exactly in binary.
        self.counts = np.rint(wins + np.swapaxes(wins, -1, -2))
        self.ties: FloatArray | None = None
        self.in_flight = np.zeros(wins.shape, dtype=np.int64) if in_flight is None else in_flight.copy()
        self.n_comparisons: IntArray = np.rint(self.counts.sum(axis=(1, 2)) / 2).astype(np.int64)
        self.n_ties: FloatArray = np.zeros(self.n_comparisons.size)
        self.judged: FloatArray = self.counts.sum(axis=2)
        self.pending: IntArray = self.in_flight.sum(axis=2)
        self.n_in_flight: IntArray = self.pending.sum(axis=1) // 2

    @classmethod
    def empty(cls, n_policies: int, n_runs: int = 1) -> Self:
        """R runs of K policies without any comparison."""
        return cls(np.zeros((n_runs, n_policies, n_policies)))

    @property
    def n_runs(self) -> int:
        """Number of runs R."""
        return int(self.wins.shape[0])

    @property
    def n_policies(self) -> int:
        """Number of policies K."""
        return int(self.wins.shape[1])

    def tell_ties_apart(self, known: Sequence[Sequence[Sequence[int]]] | None = None) -> None:
        """Count ties from here on.

        Parameters
        ----------
        known
            The values of `known_ties`, one for each run; by default no comparison so far counts as a tie.

        Raises
        ------
        ValueError
            If there are more ties than the wins allow.
        """
        self.ties = np.zeros_like(self.wins)
        try:
            for run, entries in enumerate(known or ()):
                for i, j, number in entries:
                    self.ties[run, i, j] = self.ties[run, j, i] = number
            fits = bool(np.all((self.ties >= 0.0) & (self.ties <= 2.0 * self.wins)))
        except (TypeError, ValueError, IndexError):
            fits = False
        if not fits:
            raise ValueError(
                "the stored streams need, as 'ties', entries [i, j, number], none above what the wins allow"
            )
        self.n_ties = self.ties.sum(axis=(1, 2)) / 2.0

    def known_ties(self, run: int = 0) -> list[list[int]]:
        """The pairs [i, j, number] of one run with ties that are told apart, i < j, as JSON can hold them."""
        if self.ties is None:
            return []
        pairs = np.argwhere(np.triu(self.ties[run]))
        return [[int(i), int(j), int(self.ties[run, i, j])] for i, j in pairs]

    def set_in_flight(self, in_flight: IntArray) -> None:
        """Replace the comparisons under way, shape (R, K, K)."""
        self.in_flight = in_flight.copy()
        self.pending = self.in_flight.sum(axis=2)
        self.n_in_flight = self.pending.sum(axis=1) // 2

    def begin(self, i: IntArray, j: IntArray) -> None:
        """Note in every run r that a comparison of i[r] and j[r] is under way."""
        self._shift(i, j, 1)

    def release(self, i: IntArray, j: IntArray) -> None:
        """Note in every run r that one pending comparison of i[r] and j[r] is over."""
        self._shift(i, j, -1)

    def record(self, i: IntArray, j: IntArray, outcome: FloatArray) -> None:
        """Add one judged comparison to every run.

        Parameters
        ----------
        i, j
            Shape (R,): the pair of every run.
        outcome
            Shape (R,), in [0, 1]: the share of the win that goes to i.
        """
        runs, i, j, outcome = located(i, j, outcome)
        self.wins[runs, i, j] += outcome
        self.wins[runs, j, i] += 1.0 - outcome
        self.counts[runs, i, j] += 1.0
        self.counts[runs, j, i] += 1.0
        if self.ties is not None:
            self.ties[runs, i, j] += outcome == 0.5
            self.ties[runs, j, i] += outcome == 0.5
            self.n_ties += outcome == 0.5
        self.judged[runs, i] += 1.0
        self.judged[runs, j] += 1.0
        self.n_comparisons += 1

    def keep(self, runs: BoolArray) -> None:
        """Keep the runs that are True in `runs`, of shape (R,), and drop the others."""
        self.wins = self.wins[runs]
        self.counts = self.counts[runs]
        if self.ties is not None:
            self.ties = self.ties[runs]
        self.in_flight = self.in_flight[runs]
        self.judged, self.pending = self.judged[runs], self.pending[runs]
        self.n_comparisons, self.n_ties = self.n_comparisons[runs], self.n_ties[runs]
        self.n_in_flight = self.n_in_flight[runs]

    def _shift(self, i: IntArray, j: IntArray, change: int) -> None:
        runs, i, j = located(i, j)
        self.in_flight[runs, i, j] += change
        self.in_flight[runs, j, i] += change
        self.pending[runs, i] += change
        self.pending[runs, j] += change
        self.n_in_flight += change


def located(*values: IntArray | FloatArray) -> tuple[Any, ...]:
    """Index of every run, followed by the values; plain numbers where there is one run.

    numpy reads and writes a single entry more than ten times faster by plain numbers than by arrays of one.
    The result has one axis fewer then, so callers count axes from the last.

    Parameters
    ----------
    values
        Shape (R,) each: policies, outcomes.
    """
    if values[0].size == 1:
        return 0, *[value.item() for value in values]
    return np.arange(values[0].size), *values


def from_both_sides(*values: tuple[Any, Any]) -> tuple[Any, list[tuple[Any, ...]]]:
    """The index of every run, and values as each side of its pair sees them.

    Parameters
    ----------
    values
        Each as the one side has it and as the other has it, shape (R,) both.

    Returns
    -------
    tuple
        The index, and a list of what to compute with. Of one run, the list has plain numbers, first those of
        the one side, then those of the other. Of many, it has one entry: arrays of shape (2, R).
    """
    n_runs = values[0][0].size
    if n_runs == 1:
        return 0, [tuple(value[side].item() for value in values) for side in (0, 1)]
    return np.arange(n_runs), [tuple(np.array(value) for value in values)]


def check_whole(name: str, value: object, *, least: int | None = None) -> int:
    """The value as an int.

    Parameters
    ----------
    name
        The value's name in the message.
    value
        A caller's value.
    least
        The smallest that is allowed; None for no limit.

    Raises
    ------
    ValueError
        If it is not a whole number by type, as 3.0 and "3" are not, or is too small.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number such as 3, got {value!r}; convert it with int(...)")
    if least is not None and value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")
    return int(value)


def check_real(name: str, value: object) -> float:
    """The value as a float; True counts as 1.

    Parameters
    ----------
    name
        The value's name in the message.
    value
        A caller's value.

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

    Parameters
    ----------
    wins
        Shape (K, K): `wins[i, j]` is the summed outcome of i against j, a tie counting one half to each.
    in_flight
        Shape (K, K), symmetric: comparisons under way; None means none.
    n_policies
        Number of policies K.

    Raises
    ------
    ValueError
        If an array has the wrong shape, a negative or non-finite entry, or a non-zero diagonal. Also if the
        counts are not whole, or `in_flight` is not symmetric.
    """
    checked = _check_square("wins", wins, n_policies)
    counts = checked + checked.T
    if np.any(np.abs(counts - np.rint(counts)) > 1e-6 * (1 + counts)):
        raise ValueError(
            "wins[i, j] + wins[j, i] must be a whole number of comparisons for every pair: "
            "count a tie as 0.5 to both sides"
        )
    return Tally(checked[None], None if in_flight is None else checked_in_flight(in_flight, n_policies))


def checked_in_flight(in_flight: ArrayLike, n_policies: int) -> IntArray:
    """Comparisons of one run that are under way, given by a caller, checked: shape (1, K, K).

    Parameters
    ----------
    in_flight
        Shape (K, K).
    n_policies
        Number of policies K.

    Raises
    ------
    ValueError
        If it has the wrong shape, a negative or non-finite entry, or a non-zero diagonal. Also if it is not a
        symmetric matrix of whole numbers.
    """
    pending = _check_square("in_flight", in_flight, n_policies)
    if np.any(pending != np.rint(pending)) or np.any(pending != pending.T):
        raise ValueError("in_flight must be a symmetric matrix of whole numbers")
    return pending.astype(np.int64)[None]


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

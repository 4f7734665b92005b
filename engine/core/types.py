"""The data an experiment has collected, and the decision drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Pair: TypeAlias = tuple[int, int]
# Runs, and the two policies of each: plain numbers of one run, or arrays.
Pairs: TypeAlias = Sequence[Any]
Seed: TypeAlias = int | list[int] | np.random.SeedSequence | np.random.Generator | None


class Claim(StrEnum):
    """Statements of a stop about the policy that it names. Each is wrong with probability at most δ."""

    BEST = "best"
    """It beats every other policy. Assumes nothing about the preference probabilities."""
    BEST_IF_ANY = "best_if_any"
    """If some policy beats every other, it is this one. Says nothing where none does."""
    GOOD_ENOUGH = "good_enough"
    """It loses to no other policy by more than ε. Assumes nothing about the preference probabilities."""


class Missing(StrEnum):
    """The way proofs count a showing without an outcome."""

    AGAINST = "against"
    """Against each claim. The claims hold whoever leaves, delays or takes back what."""
    ANSWERS = "answers"
    """Not at all. The claims hold if no outcome stays away because of what it says."""


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
class Answers:
    """The word of the answers alone, where some showings have no outcome.

    Attributes
    ----------
    policy
        The policy that the claim would name.
    gamma
        The largest Γ, from 1 on, at which it holds: if outcomes stay away at most Γ times as often where they
        speak against the claim as where they speak for it. Infinite where it holds whatever they say.
    """

    policy: int
    gamma: float


@dataclass(frozen=True, slots=True)
class Remaining:
    """The comparisons that an experiment still needs, before the first one and while it runs.

    Attributes
    ----------
    low, high
        Four in five experiments need between so many and so many. `high` is None where more than the budget
        leaves may be needed.
    likely
        Half of all need fewer; None where that is more than the budget leaves.
    """

    low: float
    likely: float | None
    high: float | None

    def within(self, left: float) -> Remaining:
        """The same where only so many comparisons are left."""
        likely, high = (None if end is None or end > left else end for end in (self.likely, self.high))
        return Remaining(min(self.low, left), likely, high)

    def times(self, factor: float) -> Remaining:
        """The same in another unit, such as hours."""
        likely, high = (None if end is None else factor * end for end in (self.likely, self.high))
        return Remaining(factor * self.low, likely, high)


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
        The risk, in [0, 1], at which it would just hold by the present evidence, and δ for each earlier stage
        that it uses; that of the other claim, where it follows.
    margin
        ε of this claim.
    assumes_model
        Whether it rests on a Bradley-Terry model: the space has one, and head-to-head evidence alone would
        not do. Of "best_if_any" where every policy is refuted, whether that does.
    follows_from
        The claim that holds and implies it, where its own evidence does not suffice. It is wrong only where
        that one is, and adds no risk of its own.
    contradicted
        Whether the evidence for another claim establishes the opposite. Then one of the two errs, which has a
        probability of at most the sum of their risks, or an assumption does not hold.
    n_stages
        The stages whose exclusions it uses, that of now included: where it holds, it is wrong with
        probability at most δ for each.
    """

    claim: Claim
    holds: bool
    policy: int | None
    open: tuple[int, ...]
    risk: float
    margin: float
    assumes_model: bool = False
    follows_from: Claim | None = None
    contradicted: bool = False
    n_stages: int = 1


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A claim that was established, about the policies that were present then.

    Attributes
    ----------
    stage
        The stage that it ended, from 1; see `Design.add`.
    claim
        The claim that stops the experiment.
    policy
        The policy named; None for "no single best".
    among
        The policies that it is about.
    risk
        The probability, at most, that it is wrong: δ for each stage whose exclusions it uses.
    joint_risk
        The probability, at most, that this one or any before it is wrong.
    """

    stage: int
    claim: Claim
    policy: int | None
    among: tuple[int, ...]
    risk: float
    joint_risk: float


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
        most δ for each stage that it uses; one that is picked after a look at several errs with at most
        `joint_risk`.
    joint_risk
        The sum of these risks of all claims watched, at most 1; 1 under a stopping rule that makes no claim.
    assumes_model
        Whether the claim that stops the experiment, or the finding that there is no single best policy, rests
        on a Bradley-Terry model.
    open
        The rivals that the claim which stops the experiment has still to exclude by its own evidence, to name
        `best`. That is `claims[0].open`, except where this claim comes closer to naming another policy, or
        follows from another claim: the experiment goes on, and these rivals keep it from stopping. Empty
        before the first comparison. Under a stopping rule other than "certified", the policies other than
        `best` that are not refuted.
    evidence
        Per policy, the largest log-evidence so far (nats) against its being the best.
    threshold
        The evidence (nats) at which a policy is refuted.
    runner_up
        The policy other than `best` with the least evidence against it; None when `best` is.
    n_comparisons
        How many comparisons have been judged.
    conclusions
        Every conclusion so far, the oldest first, each about the policies that were present.
    """

    stopped: bool
    reason: StopReason | None
    best: int | None
    confidence: float
    evidence: tuple[float, ...]
    threshold: float
    runner_up: int | None
    n_comparisons: int
    claim: Claim | None = None
    claims: tuple[ClaimState, ...] = ()
    joint_risk: float = 1.0
    assumes_model: bool = False
    open: tuple[int, ...] = ()
    conclusions: tuple[Conclusion, ...] = ()

    def holds(self, claim: Claim | str) -> bool:
        """True if a claim that is watched holds now."""
        return any(state.claim == claim and state.holds for state in self.claims)

    def __repr__(self) -> str:
        state = "running" if self.reason is None else f"stopped ({self.reason})"
        leader = "no leader" if self.best is None else f"policy {self.best} leads"
        if self.reason is StopReason.CERTIFIED:
            leader = f"policy {self.best} {'leads' if self.claim is None else 'is named'}"
        claim = "" if self.claim is None else f", claim {self.claim.value!r}"
        return f"<Decision{claim}: {self.n_comparisons:,} compared, {state}, {leader}>"


class Tally:
    """Counts of what was shown, told and is pending, for R runs side by side.

    A live experiment is one run (R = 1); simulations advance many at once through the same code.

    Estimates and samplers look at the answers alone. A proof counts a showing without an outcome against
    itself: what the proof "k does not beat b" counts as a win of k may be more than k has won.

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
    proof_wins, proof_losses
        Shape (R, K, K): summed outcomes of k and of b, as the proof "k does not beat b" counts them, in row k
        and column b.
    proof_ties
        Shape (R, K, K): how many of these are ties that are bet on as such. None where all count as half of
        a win and half of a loss.
    counts_missing
        Whether proofs count open and missing outcomes.
    open
        Shape (R, K, K), symmetric: showings that have begun and not ended.
    missing
        Shape (R, K, K), symmetric: showings that ended without an outcome.
    n_in_flight
        Shape (R,): comparisons not yet judged.
    judged, pending
        Shape (R, K): comparisons of each policy that are judged, and that are not yet.
    joined, present
        Shape (R, K): policies that have joined, and those of them that have not retired.
    everybody
        Whether all are present in all runs.
    """

    def __init__(self, wins: FloatArray, in_flight: IntArray | None = None) -> None:
        self.wins = wins.copy()
        # Outcomes such as 0.3 do not add up exactly in binary.
        self.counts = np.rint(wins + np.swapaxes(wins, -1, -2))
        self.proof_wins = self.wins.copy()
        self.proof_losses: FloatArray = np.swapaxes(wins, -1, -2).copy()
        self.proof_ties: FloatArray | None = None
        self.counts_missing = True
        self.open: FloatArray = np.zeros_like(self.wins)
        self.missing: FloatArray = np.zeros_like(self.wins)
        self.in_flight = np.zeros(wins.shape, dtype=np.int64) if in_flight is None else in_flight.copy()
        self.n_comparisons: IntArray = np.rint(self.counts.sum(axis=(1, 2)) / 2).astype(np.int64)
        self.judged: FloatArray = self.counts.sum(axis=2)
        self.pending: IntArray = self.in_flight.sum(axis=2)
        self.n_in_flight: IntArray = self.pending.sum(axis=1) // 2
        self.set_present(np.ones(wins.shape[:2], dtype=np.bool_))

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

    @property
    def n_present(self) -> IntArray:
        """Shape (R,): number of policies that are present."""
        return np.asarray(self.present.sum(axis=1), dtype=np.int64)

    def set_present(self, present: BoolArray, joined: BoolArray | None = None) -> None:
        """Have these policies be present, shape (R, K); those who ever joined are the same by default."""
        self.present: BoolArray = present.copy()
        self.joined: BoolArray = present.copy() if joined is None else joined.copy()
        self.everybody = bool(present.all())

    def leave_out(self, absent: Sequence[int]) -> None:
        """Have these policies be absent that joined earlier."""
        present = self.joined.copy()
        present[:, list(absent)] = False
        self.set_present(present, self.joined)

    def tell_ties_apart(self) -> None:
        """Count ties from here on."""
        self.proof_ties = np.zeros_like(self.wins)

    def in_proofs(self, run: int = 0) -> list[list[float]]:
        """The counts of one run's proofs, of the pairs i < j where the wins do not tell it.

        As JSON can hold it: i, j, wins, losses and ties of i, the same of j, and how many showings are open
        and are missing.
        """
        parts = [self.proof_wins[run], self.proof_losses[run]]
        parts.append(np.zeros_like(parts[0]) if self.proof_ties is None else self.proof_ties[run])
        both = (*parts, *(part.T for part in parts), self.open[run], self.missing[run])
        wins = self.wins[run]
        told = (parts[0] == wins) & (parts[1] == wins.T) & (parts[0].T == wins.T) & (wins == parts[1].T)
        known = told & (both[2] == 0) & (both[5] == 0) & (both[6] == 0) & (both[7] == 0)
        pairs = np.argwhere(np.triu(~known, 1))
        return [[int(i), int(j), *(float(part[i, j]) for part in both)] for i, j in pairs]

    def recall(self, known: Sequence[Sequence[Sequence[float]]]) -> None:
        """Go on from the values of `in_proofs`, one for each run.

        Raises
        ------
        ValueError
            If one does not fit.
        """
        ties = np.zeros_like(self.wins) if self.proof_ties is None else self.proof_ties
        columns = (self.proof_wins, self.proof_losses, ties)
        try:
            for run, entries in enumerate(known):
                for i, j, *values, n_open, n_missing in entries:
                    first, second = (run, int(i), int(j)), (run, int(j), int(i))
                    for column, of_i, of_j in zip(columns, values[:3], values[3:], strict=True):
                        column[first], column[second] = of_i, of_j
                    self.open[first] = self.open[second] = n_open
                    self.missing[first] = self.missing[second] = n_missing
            fits = all(bool(np.all(column >= 0.0)) for column in (*columns, self.open, self.missing))
        except (TypeError, ValueError, IndexError):
            fits = False
        if not fits:
            raise ValueError(
                "the stored progress needs, as 'proofs', for each pair [i, j, wins, losses and ties of i, "
                "the same of j, open, missing], none below 0"
            )

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

    def answer(self, pairs: Pairs, outcome: Any, sign: int = 1) -> None:
        """Add an outcome to the answers, or with sign -1 take it out.

        Parameters
        ----------
        pairs
            Runs and their two policies, as `located` gives them.
        outcome
            In [0, 1], of their shape: the share of the win that goes to the first.
        """
        runs, i, j = pairs
        _add(self.wins, (runs, i, j), sign * outcome)
        _add(self.wins, (runs, j, i), sign * (1.0 - outcome))
        self.counts[runs, i, j] += sign
        self.counts[runs, j, i] += sign
        self.judged[runs, i] += sign
        self.judged[runs, j] += sign
        self.n_comparisons[runs] += sign

    def count(self, pairs: Pairs, bounds: Bounds, sign: int = 1) -> None:
        """Have the proofs count showings of these pairs within these bounds, or with sign -1 no more."""
        runs, i, j = pairs
        for k, b, won, lost in (
            (i, j, bounds.most, 1.0 - bounds.most),
            (j, i, 1.0 - bounds.least, bounds.least),
        ):
            _add(self.proof_wins, (runs, k, b), sign * won)
            _add(self.proof_losses, (runs, k, b), sign * lost)
            if self.proof_ties is not None:
                self.proof_ties[runs, k, b] += sign * (won == 0.5)
        self.note(pairs, bounds, sign)

    def record(self, i: IntArray, j: IntArray, outcome: FloatArray) -> None:
        """Count an outcome of every run as an answer and in its proofs.

        Parameters
        ----------
        i, j
            Shape (R,): the pair of every run.
        outcome
            Shape (R,), in [0, 1]: the share of the win that goes to i.
        """
        *pairs, won = located(None, i, j, outcome)
        self.answer(pairs, won)
        self.count(pairs, Bounds(won, won))

    def note(self, pairs: Pairs, bounds: Bounds, sign: int) -> None:
        """Count showings that are open or missing as such, or with sign -1 no more."""
        runs, i, j = pairs
        for of, counted in ((self.open, bounds.open), (self.missing, bounds.missing)):
            if counted:
                of[runs, i, j] += sign
                of[runs, j, i] += sign

    def keep(self, runs: BoolArray) -> None:
        """Keep the runs that are True in `runs`, of shape (R,), and drop the others."""
        self.wins = self.wins[runs]
        self.counts = self.counts[runs]
        self.proof_wins, self.proof_losses = self.proof_wins[runs], self.proof_losses[runs]
        if self.proof_ties is not None:
            self.proof_ties = self.proof_ties[runs]
        self.open, self.missing = self.open[runs], self.missing[runs]
        self.in_flight = self.in_flight[runs]
        self.judged, self.pending = self.judged[runs], self.pending[runs]
        self.n_comparisons = self.n_comparisons[runs]
        self.n_in_flight = self.n_in_flight[runs]
        self.present, self.joined = self.present[runs], self.joined[runs]

    def _shift(self, i: IntArray, j: IntArray, change: int) -> None:
        runs, i, j = located(None, i, j)
        self.in_flight[runs, i, j] += change
        self.in_flight[runs, j, i] += change
        self.pending[runs, i] += change
        self.pending[runs, j] += change
        self.n_in_flight += change


@dataclass(frozen=True, slots=True)
class Bounds:
    """The way the outcomes of showings count, of m runs or as numbers of one.

    Attributes
    ----------
    least, most
        In [0, 1], what the outcome of i may be: the proof that i does not beat j counts the most, and the
        proof that j does not beat i the least.
    open
        Whether the outcome may still come.
    missing
        Whether there is no outcome, and none will come.
    """

    least: Any
    most: Any
    open: bool = False
    missing: bool = False

    @property
    def ends(self) -> tuple[Any, Any]:
        """The least and the most."""
        return self.least, self.most


def _add(outcomes: FloatArray, pairs: Any, more: Any) -> None:
    """Add to sums of outcomes. Thirds that are taken out again could leave them just below 0."""
    outcomes[pairs] = np.maximum(outcomes[pairs] + more, 0.0)


def located(runs: IntArray | None, *values: IntArray | FloatArray) -> tuple[Any, ...]:
    """Index of the runs, followed by the values; plain numbers where there is one.

    numpy reads and writes a single entry more than ten times faster by plain numbers than by arrays of one.
    The result has one axis fewer then, so callers count axes from the last.

    Parameters
    ----------
    runs
        Shape (m,): indices of the runs; None for all.
    values
        Shape (m,) each: policies, outcomes.
    """
    if values[0].size == 1:
        return 0 if runs is None else runs.item(), *[value.item() for value in values]
    return np.arange(values[0].size) if runs is None else runs, *values


def from_both_sides(runs: IntArray | None, *values: tuple[Any, Any]) -> tuple[Any, list[tuple[Any, ...]]]:
    """The index of the runs, and values as each side of its pair sees them.

    Parameters
    ----------
    runs
        Shape (m,): indices of the runs; None for all.
    values
        Each as the one side has it and as the other has it, shape (m,) both.

    Returns
    -------
    tuple
        The index, and a list of what to compute with. Of one run, the list has plain numbers, first those of
        the one side, then those of the other. Of many, it has one entry: arrays of shape (2, m).
    """
    n_runs = values[0][0].size
    if n_runs == 1:
        run = 0 if runs is None else runs.item()
        return run, [tuple(value[side].item() for value in values) for side in (0, 1)]
    return np.arange(n_runs) if runs is None else runs, [tuple(np.array(value) for value in values)]


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

"""The face of the engine: an experiment design that is asked for pairs and told outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from engine.core.baselines import RoundRobin
from engine.core.evidence import PairwiseEvidence
from engine.core.planner import extrapolate
from engine.core.problem import Unstructured
from engine.core.sampling import Balanced, Sampler, Situation
from engine.core.stopping import Certified, StoppingRule
from engine.core.types import Decision, FloatArray, IntArray, Pair, Seed, StopReason, Tally

SAMPLERS: dict[str, Callable[[], Sampler]] = {"balanced": Balanced, "round_robin": RoundRobin}
STOPPING_RULES: dict[str, Callable[[PairwiseEvidence, float, ArrayLike | None], StoppingRule]] = {
    "certified": Certified
}

_Option = TypeVar("_Option")


class Design:
    """An adaptive experiment that finds the best of K policies from pairwise comparisons.

    Parameters
    ----------
    space
        What is assumed about the preference probabilities.
    delta
        Risk level δ in (0, ½): a certified answer is wrong with probability at most δ.
    epsilon
        Indifference margin ε in [0, ½): a policy counts as the best only if it beats each other with
        probability at least ½ + ε. With ε = 0, near-ties are fought out to the end.
    sampler
        Sampling rule: "balanced" or "round_robin".
    stopping
        Stopping rule: "certified".
    seed
        Anything `numpy.random.default_rng` takes; it breaks ties between equally good pairs.
    budget
        Number of comparisons after which the experiment ends regardless; None means no limit.

    Raises
    ------
    ValueError
        If a setting is out of range.

    Examples
    --------
    >>> design = Design(Unstructured(3), seed=1)
    >>> while not design.decision.stopped:
    ...     i, j = design.ask()
    ...     design.tell(i, j, 1.0 if i < j else 0.0)
    >>> design.decision.best
    0
    """

    def __init__(
        self,
        space: Unstructured,
        *,
        delta: float = 0.05,
        epsilon: float = 0.0,
        sampler: str = "balanced",
        stopping: str = "certified",
        seed: Seed = 0,
        budget: int | None = None,
    ) -> None:
        _check_settings(delta, epsilon, budget)
        self.space = space
        self.delta = delta
        self.epsilon = epsilon
        self.budget = budget
        self._sampler = _choose("sampler", sampler, SAMPLERS)()
        self._build_stopping = _choose("stopping", stopping, STOPPING_RULES)
        self._rng = np.random.default_rng(seed)
        self._load(Tally(np.zeros((space.n_policies, space.n_policies))), None)

    @classmethod
    def from_counts(
        cls,
        space: Unstructured,
        wins: ArrayLike,
        *,
        in_flight: ArrayLike | None = None,
        peak_evidence: ArrayLike | None = None,
        delta: float = 0.05,
        epsilon: float = 0.0,
        sampler: str = "balanced",
        stopping: str = "certified",
        seed: Seed = 0,
        budget: int | None = None,
    ) -> Self:
        """Rebuild a design from stored counts.

        Its evidence equals, bit by bit, that of a design told the same outcomes in any order, as long as
        outcomes are 0, ½ and 1.

        Parameters
        ----------
        wins
            Shape (K, K): `wins[i, j]` is the summed outcome of i against j; `wins + wins.T` counts the
            comparisons of each pair.
        in_flight
            Shape (K, K), symmetric: comparisons under way. None means none.
        peak_evidence
            Shape (K,): `Design.peak_evidence` as it was stored. Without it a policy that was refuted
            earlier, and whose evidence has fallen back since, counts as open again.

        Raises
        ------
        ValueError
            If an array does not fit the space or is not a valid tally, or a setting is out of range.
        """
        design = cls(
            space,
            delta=delta,
            epsilon=epsilon,
            sampler=sampler,
            stopping=stopping,
            seed=seed,
            budget=budget,
        )
        tally = Tally(wins, in_flight)
        if tally.n_policies != space.n_policies:
            raise ValueError(f"the space has {space.n_policies} policies, wins is for {tally.n_policies}")
        design._load(tally, peak_evidence)
        return design

    def _load(self, tally: Tally, peak_evidence: ArrayLike | None) -> None:
        self._tally = tally
        self._evidence = PairwiseEvidence(tally, self.epsilon)
        self._stopping = self._build_stopping(self._evidence, self.delta, peak_evidence)

    def ask(self) -> Pair:
        """Choose the next pair to compare, and count it as under way.

        Any number of pairs may be under way at a time. The pair comes as the sampler picked it: for
        "balanced" the policy under test and its challenger. The order says nothing about which is better,
        nor about which response to show on which side. A design that has stopped still answers.
        """
        i, j = self._sampler.pick(Situation(self._tally, self._evidence, self._stopping.refuted), self._rng)
        self._tally.begin(i, j)
        return i, j

    def tell(self, i: int, j: int, outcome: float) -> None:
        """Record the outcome of a comparison of policies i and j.

        Outcomes may come in any order, and also for pairs never asked for; one pending comparison of the
        pair, if there is one, is released.

        Parameters
        ----------
        i, j
            The two policies, in either order.
        outcome
            In [0, 1]: 1 where i was preferred, 0 where j was, 0.5 for a tie.

        Raises
        ------
        ValueError
            If the pair or the outcome is out of range; nothing is recorded then.
        """
        self._tally.record(i, j, outcome)
        self._tally.release(i, j)
        self._evidence.update(i, j)
        self._stopping.observe()

    def cancel(self, i: int, j: int) -> None:
        """Release one pending comparison of i and j that will never be judged.

        Raises
        ------
        ValueError
            If none is pending.
        """
        if not self._tally.release(i, j):
            raise ValueError(f"no comparison of {i} and {j} is under way")

    @property
    def n_policies(self) -> int:
        """Number of policies K."""
        return self.space.n_policies

    @property
    def n_comparisons(self) -> int:
        """Number of comparisons judged."""
        return self._tally.n_comparisons

    @property
    def counts(self) -> FloatArray:
        """Shape (K, K): comparisons judged, per pair. A copy."""
        return self._tally.counts.copy()

    @property
    def wins(self) -> FloatArray:
        """Shape (K, K): `wins[i, j]` is the summed outcome of i against j. A copy."""
        return self._tally.wins.copy()

    @property
    def in_flight(self) -> IntArray:
        """Shape (K, K): comparisons under way, per pair. A copy."""
        return self._tally.in_flight.copy()

    @property
    def win_rate(self) -> FloatArray:
        """Shape (K, K): μ̂, the mean outcome of i against j; NaN where they were never compared."""
        counts = self._tally.counts
        return np.divide(self._tally.wins, counts, out=np.full_like(counts, np.nan), where=counts > 0)

    @property
    def evidence(self) -> FloatArray:
        """Shape (K,): current log evidence (nats) against each policy's being the best. A copy."""
        return self._stopping.evidence.copy()

    @property
    def peak_evidence(self) -> FloatArray:
        """Shape (K,): the largest log evidence (nats) so far; store it beside the counts. A copy."""
        return self._stopping.peak_evidence.copy()

    @property
    def decision(self) -> Decision:
        """What the comparisons so far allow one to say."""
        reason = self._reason()
        best = self._best()
        others = [k for k in range(self.n_policies) if k != best]
        peak, risk = self._stopping.peak_evidence, self._stopping.risk
        return Decision(
            stopped=reason is not None,
            reason=reason,
            best=best,
            confidence=float(1.0 - risk[others].max()),
            evidence=tuple(peak.tolist()),
            threshold=self._stopping.threshold,
            runner_up=None if best is None else min(others, key=lambda k: float(peak[k])),
            n_comparisons=self.n_comparisons,
            expected_left=self._expected_left(best, stopped=reason is not None),
        )

    def _reason(self) -> StopReason | None:
        open_policies = np.flatnonzero(~self._stopping.refuted)
        if open_policies.size == 0:
            return StopReason.NO_SINGLE_BEST
        if open_policies.size == 1 and self._stopping.leads(int(open_policies[0])):
            return StopReason.CERTIFIED
        if self.budget is not None and self.n_comparisons >= self.budget:
            return StopReason.BUDGET
        return None

    def _best(self) -> int | None:
        open_policies = np.flatnonzero(~self._stopping.refuted)
        if open_policies.size == 0 or self.n_comparisons == 0:
            return None
        return int(open_policies[self._stopping.evidence[open_policies].argmin()])

    def _expected_left(self, best: int | None, *, stopped: bool) -> float | None:
        if stopped:
            return 0.0
        if best is None:
            return None
        return extrapolate(
            self._tally,
            evidence=self._stopping.evidence,
            refuted=self._stopping.refuted,
            best=best,
            threshold=self._stopping.threshold,
            null_mean=self._evidence.null_mean,
        )


def _check_settings(delta: float, epsilon: float, budget: int | None) -> None:
    if not 0.0 < delta < 0.5:
        raise ValueError(f"delta, the risk level, must lie between 0 and 0.5 (0.05 is usual), got {delta}")
    if not 0.0 <= epsilon < 0.5:
        raise ValueError(f"epsilon, the indifference margin, must be at least 0 and below 0.5, got {epsilon}")
    if budget is not None and budget < 1:
        raise ValueError(f"budget must be at least 1 comparison, or None for no limit, got {budget}")


def _choose(setting: str, name: str, options: dict[str, _Option]) -> _Option:
    if name not in options:
        raise ValueError(f"{setting} must be one of {', '.join(sorted(options))}; got {name!r}")
    return options[name]

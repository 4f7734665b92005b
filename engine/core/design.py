"""The face of the engine: an experiment design that is asked for pairs and told outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from engine.core.ledger import Ledger
from engine.core.planner import extrapolate, extrapolate_separation
from engine.core.problem import Space
from engine.core.samplers import build_sampler
from engine.core.types import (
    Decision,
    FloatArray,
    IntArray,
    Pair,
    Seed,
    StopReason,
    Tally,
    check_real,
    check_tally,
    check_whole,
)


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
        Sampling rule: "balanced"; "tracking", the paper's; or one of the baselines "round_robin", "random",
        "eps_greedy", "thompson" and "rucb".
    stopping
        Stopping rule: "certified"; "heuristic", the threshold of the paper's experiments, or "theory", its
        proven one.
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
        space: Space,
        *,
        delta: float = 0.05,
        epsilon: float = 0.0,
        sampler: str = "balanced",
        stopping: str = "certified",
        seed: Seed = 0,
        budget: int | None = None,
    ) -> None:
        self.space = space
        self.delta, self.epsilon, self.budget = _checked_settings(delta, epsilon, budget)
        self.sampler = sampler
        self.stopping = stopping
        self._sampler = build_sampler(sampler)
        self._rng = np.random.default_rng(seed)
        self._load(Tally.empty(space.n_policies), None)

    @classmethod
    def from_counts(
        cls,
        space: Space,
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
        design._load(check_tally(wins, in_flight, space.n_policies), peak_evidence)
        return design

    def _load(self, tally: Tally, peak_evidence: ArrayLike | None) -> None:
        peak = None if peak_evidence is None else np.asarray(peak_evidence, dtype=np.float64)[None]
        self._tally = tally
        self._ledger = Ledger(
            self.space,
            tally,
            delta=self.delta,
            epsilon=self.epsilon,
            stopping=self.stopping,
            peak_evidence=peak,
        )
        self._rule = self._ledger.rule

    @classmethod
    def replay(cls, space: Space, judgments: Iterable[tuple[int, int, float]], **settings: Any) -> Self:
        """Rebuild a design, peaks included, by telling it judgments (i, j, outcome) in their order.

        To undo a judgment, replay the others: the state is a function of the judgments that stand.

        Parameters
        ----------
        settings
            As for the constructor.
        """
        design = cls(space, **settings)
        for i, j, outcome in judgments:
            design.tell(i, j, outcome)
        return design

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, as plain data that JSON can hold; see `from_state`."""
        return {
            "wins": self.wins.tolist(),
            "in_flight": self.in_flight.tolist(),
            "peak_evidence": self.peak_evidence.tolist(),
            "delta": self.delta,
            "epsilon": self.epsilon,
            "sampler": self.sampler,
            "stopping": self.stopping,
            "budget": self.budget,
            "rng": self._rng.bit_generator.state,
            "memory": self._sampler.memory(),
        }

    @classmethod
    def from_state(cls, space: Space, state: Mapping[str, Any]) -> Self:
        """The design that `state` was taken from: it goes on with the same picks and decisions."""
        settings = {name: value for name, value in state.items() if name not in ("wins", "rng", "memory")}
        design = cls.from_counts(space, state["wins"], **settings)
        design._rng.bit_generator.state = state["rng"]
        design._sampler.recall(state["memory"])
        return design

    def ask(self) -> Pair:
        """Choose the next pair to compare, and count it as under way.

        Any number of pairs may be under way at a time. The pair comes as the sampler picked it: for
        "balanced" the policy under test and its challenger. The order says nothing about which is better,
        nor about which response to show on which side. A design that has stopped still answers.
        """
        i, j = self._sampler.pick(self._ledger.situation(), self._rng)
        self._tally.begin(i, j)
        return int(i[0]), int(j[0])

    def propensities(self) -> FloatArray | None:
        """Shape (K, K), symmetric: the probability that the next `ask` picks each unordered pair.

        None where the sampler is deterministic given the history but for ties, or its draw has no closed form.
        """
        shares = self._sampler.propensities(self._ledger.situation())
        return None if shares is None else np.array(shares[0])

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
            If the pair or the outcome is out of range or no number; nothing is recorded then.
        """
        i, j = self._checked_pair(i, j)
        outcome = check_real("outcome", outcome)
        if not 0.0 <= outcome <= 1.0:
            raise ValueError(
                f"outcome must lie in [0, 1] (1: i preferred, 0: j preferred, 0.5: a tie), got {outcome}"
            )
        first, second = np.array([i]), np.array([j])
        if self._tally.in_flight[0, i, j] > 0:
            self._tally.release(first, second)
        self._ledger.record(first, second, np.array([outcome], dtype=np.float64))

    def cancel(self, i: int, j: int) -> None:
        """Release one pending comparison of i and j that will never be judged.

        Raises
        ------
        ValueError
            If none is pending.
        """
        i, j = self._checked_pair(i, j)
        if self._tally.in_flight[0, i, j] == 0:
            raise ValueError(f"no comparison of {i} and {j} is under way")
        self._tally.release(np.array([i]), np.array([j]))

    @property
    def n_policies(self) -> int:
        """Number of policies K."""
        return self.space.n_policies

    @property
    def n_comparisons(self) -> int:
        """Number of comparisons judged."""
        return int(self._tally.n_comparisons[0])

    @property
    def counts(self) -> FloatArray:
        """Shape (K, K): comparisons judged, per pair. A copy."""
        return np.array(self._tally.counts[0])

    @property
    def wins(self) -> FloatArray:
        """Shape (K, K): `wins[i, j]` is the summed outcome of i against j. A copy."""
        return np.array(self._tally.wins[0])

    @property
    def in_flight(self) -> IntArray:
        """Shape (K, K): comparisons under way, per pair. A copy."""
        return np.array(self._tally.in_flight[0])

    @property
    def win_rate(self) -> FloatArray:
        """Shape (K, K): μ̂, the mean outcome of i against j; NaN where they were never compared."""
        wins, counts = self._tally.wins[0], self._tally.counts[0]
        rate: FloatArray = np.divide(wins, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        return rate

    @property
    def evidence(self) -> FloatArray:
        """Shape (K,): current log evidence (nats) against each policy's being the best. A copy."""
        return np.array(self._rule.evidence[0])

    @property
    def peak_evidence(self) -> FloatArray:
        """Shape (K,): the largest log evidence (nats) so far; store it beside the counts. A copy."""
        return np.array(self._rule.peak_evidence[0])

    @property
    def decision(self) -> Decision:
        """What the comparisons so far allow one to say."""
        established, none_best = (bool(answer[0]) for answer in self._ledger.settled())
        reason = self._reason(established=established, none_best=none_best)
        best = None if none_best or self.n_comparisons == 0 else int(self._ledger.best()[0])
        others = np.arange(self.n_policies) != (-1 if best is None else best)
        peak = self._rule.peak_evidence[0]
        return Decision(
            stopped=reason is not None,
            reason=reason,
            best=best,
            confidence=float(1.0 - self._rule.risk[0, others].max()),
            evidence=tuple(peak.tolist()),
            threshold=float(self._rule.threshold[0]),
            runner_up=None if best is None else int(np.argmin(np.where(others, peak, np.inf))),
            n_comparisons=self.n_comparisons,
            expected_left=self._expected_left(best, stopped=reason is not None),
        )

    def _reason(self, *, established: bool, none_best: bool) -> StopReason | None:
        if none_best:
            return StopReason.NO_SINGLE_BEST
        if established:
            return StopReason.CERTIFIED
        if self.budget is not None and self.n_comparisons >= self.budget:
            return StopReason.BUDGET
        return None

    def _expected_left(self, best: int | None, *, stopped: bool) -> float | None:
        if stopped:
            return 0.0
        if best is None:
            return None
        if (model := self._ledger.model) is not None:
            return extrapolate_separation(
                model.separation(model.covariance(self._tally.counts))[0],
                self.n_comparisons,
                evidence=self._rule.evidence[0],
                refuted=self._rule.refuted[0],
                best=best,
                threshold=float(self._rule.threshold[0]),
            )
        return extrapolate(
            self._tally.wins[0],
            self._tally.counts[0],
            evidence=self._rule.evidence[0],
            refuted=self._rule.refuted[0],
            best=best,
            threshold=float(self._rule.threshold[0]),
            null_mean=self._ledger.evidence.null_mean,
        )

    def _checked_pair(self, i: int, j: int) -> Pair:
        K = self.n_policies
        i, j = check_whole("policy i", i), check_whole("policy j", j)
        if not (0 <= i < K and 0 <= j < K):
            raise ValueError(f"policies are numbered 0 to {K - 1}, got the pair ({i}, {j})")
        if i == j:
            raise ValueError(f"a policy is not compared with itself, got the pair ({i}, {j})")
        return i, j


def _checked_settings(delta: float, epsilon: float, budget: int | None) -> tuple[float, float, int | None]:
    delta, epsilon = check_real("delta", delta), check_real("epsilon", epsilon)
    if not 0.0 < delta < 0.5:
        raise ValueError(f"delta, the risk level, must lie between 0 and 0.5 (0.05 is usual), got {delta}")
    if not 0.0 <= epsilon < 0.5:
        raise ValueError(f"epsilon, the indifference margin, must be at least 0 and below 0.5, got {epsilon}")
    if budget is None:
        return delta, epsilon, None
    budget = check_whole("budget", budget)
    if budget < 1:
        raise ValueError(f"budget must be at least 1 comparison, or None for no limit, got {budget}")
    return delta, epsilon, budget

"""The tally of R runs together with everything that sampling and stopping derive from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from engine.core.evidence import EliminationCost, EvidenceModel, PairwiseEvidence
from engine.core.problem import Unstructured
from engine.core.sampling import Situation
from engine.core.stopping import Certified, StoppingRule, Thresholded
from engine.core.thresholds import HeuristicThreshold, ProvenPairwiseThreshold
from engine.core.types import BoolArray, FloatArray, IntArray, Tally

STOPPING_RULES = ("certified", "heuristic", "theory")


class Ledger:
    """Runs side by side, their evidence and their stopping rule, kept in step with each outcome.

    Parameters
    ----------
    space
        What is assumed about the preference probabilities.
    tally
        The comparisons so far.
    delta, epsilon
        Risk level and indifference margin.
    stopping
        One of `STOPPING_RULES`.
    peak_evidence
        Shape (R, K): running maximum of the evidence to go on from.

    Raises
    ------
    ValueError
        If `stopping` is unknown or `peak_evidence` does not fit.
    """

    def __init__(
        self,
        space: Unstructured,
        tally: Tally,
        *,
        delta: float,
        epsilon: float,
        stopping: str,
        peak_evidence: ArrayLike | None = None,
    ) -> None:
        self.tally = tally
        self.evidence = PairwiseEvidence(tally, epsilon)
        self._models: list[EvidenceModel] = [self.evidence]
        self.rule = self._build_rule(space, delta, epsilon, stopping, peak_evidence)

    def record(self, i: IntArray, j: IntArray, outcome: FloatArray) -> None:
        """Add one judged comparison to every run and bring the evidence up to date."""
        self.tally.record(i, j, outcome)
        for model in self._models:
            model.update(i, j)
        self.rule.observe()

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs."""
        self.tally.keep(runs)
        for model in self._models:
            model.keep(runs)
        self.rule.keep(runs)

    def situation(self) -> Situation:
        """What a sampling rule may look at."""
        return Situation(self.tally, self.evidence, self.rule.refuted, self.rule.threshold)

    def best(self) -> IntArray:
        """Shape (R,): the policy with the least evidence against it among those not refuted, or among all.

        Where the rule's evidence does not tell policies apart, the e-processes do.
        """
        refuted = self.rule.refuted
        out = refuted & ~refuted.all(axis=1, keepdims=True)
        evidence = np.where(out, np.inf, self.rule.evidence)
        order = np.lexsort((self.evidence.per_policy, evidence), axis=-1)
        best: IntArray = order[:, 0]
        return best

    def settled(self) -> tuple[BoolArray, BoolArray]:
        """Whether a best policy is established, and whether it is that there is none: shapes (R,)."""
        refuted = self.rule.refuted
        n_open = np.sum(~refuted, axis=1)
        established = n_open == 1
        if established.any():
            established &= np.any(~refuted & self.rule.leads(), axis=1)
        return established, n_open == 0

    def _build_rule(
        self, space: Unstructured, delta: float, epsilon: float, stopping: str, peak: ArrayLike | None
    ) -> StoppingRule:
        if stopping == "certified":
            return Certified(self.evidence, delta, peak)
        if stopping not in STOPPING_RULES:
            raise ValueError(f"stopping must be one of {', '.join(STOPPING_RULES)}; got {stopping!r}")
        cost = EliminationCost(self.tally, epsilon)
        self._models.append(cost)
        threshold = (
            HeuristicThreshold(delta)
            if stopping == "heuristic"
            else ProvenPairwiseThreshold(delta, space.n_policies)
        )
        return Thresholded(cost, self.tally, threshold, peak)

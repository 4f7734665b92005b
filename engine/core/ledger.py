"""The tally of R runs together with everything that sampling and stopping derive from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from engine.core.evidence import EliminationCost, EvidenceModel, PairwiseEvidence
from engine.core.problem import BradleyTerry, Space
from engine.core.sampling import Situation
from engine.core.stopping import Certified, StoppingRule, Thresholded
from engine.core.structured import (
    BradleyTerryEvidence,
    BradleyTerryModel,
    SeparationStatistic,
    prior_precision,
)
from engine.core.thresholds import (
    PARAMETER_RADIUS,
    HeuristicThreshold,
    ProvenLinearThreshold,
    ProvenPairwiseThreshold,
    Threshold,
)
from engine.core.types import BoolArray, FloatArray, IntArray, Tally

# Standard deviation of the log-odds between two policies that sampling reckons with before there are data.
_TYPICAL_LOG_ODDS = 0.4

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
    exact_from
        Evidence (nats) below which certified evidence in a Bradley-Terry space may be approximate.

    Raises
    ------
    ValueError
        If `stopping` is unknown or `peak_evidence` does not fit.
    """

    def __init__(
        self,
        space: Space,
        tally: Tally,
        *,
        delta: float,
        epsilon: float,
        stopping: str,
        peak_evidence: ArrayLike | None = None,
        exact_from: float = 0.0,
    ) -> None:
        self.tally = tally
        self.evidence = PairwiseEvidence(tally, epsilon)
        self.model = self._posterior = None
        if isinstance(space, BradleyTerry):
            # Only the proven threshold is about the projected estimate.
            radius = PARAMETER_RADIUS if stopping == "theory" else None
            self.model = BradleyTerryModel(space, tally, radius=radius)
            self._posterior = BradleyTerryModel(
                space, tally, prior_precision(space, _TYPICAL_LOG_ODDS), self.model
            )
        self._watched = self._watch(space, epsilon, stopping, exact_from)
        self.rule = self._build_rule(space, delta, stopping, peak_evidence)

    def record(self, i: IntArray, j: IntArray, outcome: FloatArray, *, observe: bool = True) -> None:
        """Add one judged comparison to every run and bring the evidence up to date.

        With observe=False a simulation puts off what takes long (the estimate, and evidence that builds on
        it) until the next comparison that it does observe.
        """
        self.tally.record(i, j, outcome)
        self.evidence.update(i, j)
        if self.model is not None and self._posterior is not None:
            if not observe:
                return
            self.model.refresh()
            self._posterior.refresh()
        if self._watched is not self.evidence:
            self._watched.update(i, j)
        self.rule.observe()

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs."""
        self.tally.keep(runs)
        self.evidence.keep(runs)
        if self.model is not None and self._posterior is not None:
            self.model.keep(runs)
            self._posterior.keep(runs)
        if self._watched is not self.evidence:
            self._watched.keep(runs)
        self.rule.keep(runs)

    def situation(self) -> Situation:
        """What a sampling rule may look at."""
        return Situation(
            self.tally, self.evidence, self.rule.refuted, self.rule.threshold, self.model, self._posterior
        )

    def best(self) -> IntArray:
        """Shape (R,): the best guess, among the policies not refuted if there are any.

        It is the policy with the least evidence against it; where that does not tell, the one that the
        estimate or else the e-processes favour.
        """
        refuted = self.rule.refuted
        out = refuted & ~refuted.all(axis=1, keepdims=True)
        evidence = np.where(out, np.inf, self.rule.evidence)
        favour = self.evidence.per_policy if self.model is None else -self.model.scores
        order = np.lexsort((favour, evidence), axis=-1)
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

    def _watch(self, space: Space, epsilon: float, stopping: str, exact_from: float) -> EvidenceModel:
        if stopping not in STOPPING_RULES:
            raise ValueError(f"stopping must be one of {', '.join(STOPPING_RULES)}; got {stopping!r}")
        if self.model is not None and isinstance(space, BradleyTerry):
            if stopping == "certified":
                return BradleyTerryEvidence(space, self.model, self.tally, self.evidence, exact_from)
            return SeparationStatistic(self.model, self.tally)
        return self.evidence if stopping == "certified" else EliminationCost(self.tally, epsilon)

    def _build_rule(self, space: Space, delta: float, stopping: str, peak: ArrayLike | None) -> StoppingRule:
        if stopping == "certified":
            return Certified(self._watched, delta, peak)
        threshold: Threshold = HeuristicThreshold(delta)
        if stopping == "theory":
            threshold = (
                ProvenPairwiseThreshold(delta, space.n_policies)
                if not isinstance(space, BradleyTerry)
                else ProvenLinearThreshold(delta, space)
            )
        return Thresholded(self._watched, self.tally, threshold, peak)

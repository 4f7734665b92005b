"""Stopping rules: which policies the comparisons have ruled out."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from .evidence import EvidenceModel
from .paper_thresholds import Threshold
from .types import BoolArray, FloatArray, Tally


class StoppingRule(ABC):
    """A stopping rule, watching the evidence of R runs.

    A run may stop once all policies are refuted, or all but one and that one leads the others.

    Parameters
    ----------
    model
        The evidence to watch, in nats.
    peak_evidence
        Shape (R, K): the running maximum to go on from; None starts from the current evidence.
    """

    def __init__(self, model: EvidenceModel, peak_evidence: ArrayLike | None) -> None:
        self._model = model
        self._peak = raised(model.per_policy, peak_evidence)

    @property
    def evidence(self) -> FloatArray:
        """Shape (R, K): current evidence (nats) against each policy."""
        return self._model.per_policy

    @property
    def peak_evidence(self) -> FloatArray:
        """Shape (R, K): the largest evidence (nats) so far."""
        return self._peak

    @property
    @abstractmethod
    def threshold(self) -> FloatArray:
        """Shape (R,): evidence (nats) at which a policy is refuted."""

    @property
    @abstractmethod
    def refuted(self) -> BoolArray:
        """Shape (R, K): policies ruled out."""

    @property
    @abstractmethod
    def risk(self) -> FloatArray:
        """Shape (R, K): the risk level, in [0, 1], at which each policy would just be refuted."""

    def leads(self) -> BoolArray:
        """Shape (R, K): whether the policy, were it the last one not refuted, may be named the best."""
        return self._model.leads()

    def observe(self) -> None:
        """Take note of the evidence after a comparison: raise the running maximum to it."""
        np.maximum(self._peak, self._model.per_policy, out=self._peak)

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally and the evidence have."""
        self._peak = self._peak[runs]


class Certified(StoppingRule):
    """A policy is refuted once its e-process reaches 1/δ: valid at any time, for any sampler.

    A policy once refuted stays so: it is the largest evidence so far that counts [Ville 1939].

    Parameters
    ----------
    model, peak_evidence
        The e-processes to watch, and as for every rule.
    delta
        Risk level δ in (0, ½).
    """

    def __init__(self, model: EvidenceModel, delta: float, peak_evidence: ArrayLike | None = None) -> None:
        super().__init__(model, peak_evidence)
        self._log_inverse_delta = float(-np.log(delta))

    @property
    def threshold(self) -> FloatArray:
        """Shape (R,): log(1/δ)."""
        return np.full(self._peak.shape[0], self._log_inverse_delta)

    @property
    def refuted(self) -> BoolArray:
        """Shape (R, K): policies whose evidence has reached log(1/δ)."""
        return self._peak >= self._log_inverse_delta

    @property
    def risk(self) -> FloatArray:
        """Shape (R, K): 1 over the largest e-value so far, at most 1."""
        risk: FloatArray = np.exp(-np.maximum(self._peak, 0.0))
        return risk


class Thresholded(StoppingRule):
    """A policy is refuted while the paper's test statistic for it exceeds a threshold that grows with t.

    Parameters
    ----------
    model
        The test statistic per policy: its smallest value over the policies other than the best is Z(t).
    tally
        The data, for the number of comparisons t.
    threshold
        The threshold and its inverse in δ.
    peak_evidence
        As for every rule; kept for display only.
    """

    def __init__(
        self, model: EvidenceModel, tally: Tally, threshold: Threshold, peak_evidence: ArrayLike | None = None
    ) -> None:
        super().__init__(model, peak_evidence)
        self._tally = tally
        self._threshold = threshold

    @property
    def threshold(self) -> FloatArray:
        """Shape (R,): the threshold at the comparisons so far; infinite before the rule applies."""
        return self._threshold.at(self._tally)

    @property
    def refuted(self) -> BoolArray:
        """Shape (R, K): policies whose test statistic exceeds the threshold now."""
        return self._model.per_policy > self.threshold[:, None]

    @property
    def risk(self) -> FloatArray:
        """Shape (R, K): the risk level at which the threshold would equal the test statistic."""
        return self._threshold.risk(self._model.per_policy, self._tally)


def raised(evidence: FloatArray, peak_evidence: ArrayLike | None) -> FloatArray:
    """Shape (R, K): running maximum of the evidence (nats), going on from a stored one if there is one.

    Raises
    ------
    ValueError
        If the stored one does not hold one finite number per policy.
    """
    if peak_evidence is None:
        return evidence.copy()
    peak = np.asarray(peak_evidence, dtype=np.float64)
    if peak.shape != evidence.shape:
        raise ValueError(
            f"peak_evidence must hold one number for each of the {evidence.shape[-1]} policies; "
            f"got shape {peak.shape[1:]}"
        )
    if not np.isfinite(peak).all():
        raise ValueError(
            "peak_evidence must hold finite numbers: store `Design.peak_evidence` as it is, or leave it out"
        )
    return np.maximum(evidence, peak)

"""Stopping rules: which policies the comparisons have ruled out."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from engine.core.evidence import PairwiseEvidence
from engine.core.types import BoolArray, FloatArray


class StoppingRule(Protocol):
    """A stopping rule, watching the evidence of one experiment.

    The experiment may stop once all policies are refuted, or all but one and that one leads the others.
    """

    @property
    def evidence(self) -> FloatArray:
        """Shape (K,): current evidence (nats) against each policy."""
        ...

    @property
    def peak_evidence(self) -> FloatArray:
        """Shape (K,): the largest evidence (nats) so far."""
        ...

    @property
    def threshold(self) -> float:
        """Evidence (nats) at which a policy is refuted."""
        ...

    @property
    def refuted(self) -> BoolArray:
        """Shape (K,): policies ruled out."""
        ...

    @property
    def risk(self) -> FloatArray:
        """Shape (K,): the risk level, in [0, 1], at which each policy would just be refuted."""
        ...

    def leads(self, k: int) -> bool:
        """Whether policy k, the last one not refuted, may be named the best."""
        ...

    def observe(self) -> None:
        """Take note of the evidence after a comparison."""
        ...


class Certified:
    """A policy is refuted once its e-process reaches 1/δ: valid at any time, for any sampler.

    A policy once refuted stays so: it is the largest evidence so far that counts [Ville 1939].

    Parameters
    ----------
    model
        The evidence to watch.
    delta
        Risk level δ in (0, ½).
    peak_evidence
        Shape (K,): the running maximum to go on from; None starts from the current evidence.
    """

    def __init__(self, model: PairwiseEvidence, delta: float, peak_evidence: ArrayLike | None = None) -> None:
        self._model = model
        self._threshold = float(-np.log(delta))
        self._peak = model.per_policy.copy()
        if peak_evidence is not None:
            self._resume(np.asarray(peak_evidence, dtype=np.float64))

    @property
    def evidence(self) -> FloatArray:
        """Shape (K,): current log evidence (nats) against each policy."""
        return self._model.per_policy

    @property
    def peak_evidence(self) -> FloatArray:
        """Shape (K,): the largest log evidence (nats) so far."""
        return self._peak

    @property
    def threshold(self) -> float:
        """log(1/δ)."""
        return self._threshold

    @property
    def refuted(self) -> BoolArray:
        """Shape (K,): policies whose evidence has reached log(1/δ)."""
        return self._peak >= self._threshold

    @property
    def risk(self) -> FloatArray:
        """Shape (K,): 1 over the largest e-value so far, at most 1."""
        return np.exp(-np.maximum(self._peak, 0.0))

    def leads(self, k: int) -> bool:
        """Whether policy k leads every other head to head.

        Where some policy is the best, refuting the others is proof enough. Where none is, as in a cycle,
        the last one standing loses to one of the refuted: a few comparisons with each usually show it.
        """
        return self._model.leads(k)

    def observe(self) -> None:
        """Raise the running maximum to the current evidence."""
        np.maximum(self._peak, self._model.per_policy, out=self._peak)

    def _resume(self, peak: FloatArray) -> None:
        if peak.shape != self._peak.shape or np.isnan(peak).any():
            raise ValueError(
                f"peak_evidence must hold one number for each of the {self._peak.size} policies; "
                f"got shape {peak.shape}, or it holds NaN"
            )
        np.maximum(self._peak, peak, out=self._peak)

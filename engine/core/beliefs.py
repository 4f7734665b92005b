"""What the outcomes so far make one expect of the next: it steers, and proves nothing.

The model is Bradley-Terry with a free deviation for each pair, μ(i, j) = σ(θ_i - θ_j + η_ij), θ_i ~
N(prior_i, 0.4²) and η_ij ~ N(0, τ²). τ is estimated, so that the strengths rule where they explain the pairs,
and the pairs speak for themselves where not. Each outcome moves the estimate by one Newton step. With many
policies the step is taken in the two strengths concerned, and τ is fixed, so that it costs no more than O(K).
"""

from __future__ import annotations

import numpy as np
from scipy import special

from .types import BoolArray, FloatArray, IntArray, Tally

# Standard deviation of a strength before there are data.
_STRENGTH = 0.4
# Deviations of pairs are expected at this variance, with the weight of so much squared information.
_DEVIATION = 0.01
_DEVIATION_WEIGHT = 200.0
_DEVIATION_RANGE = (1e-3, 1.0)
# Where deviations are this large, a pair's share in the estimate of their variance is best proportioned.
_TYPICAL_DEVIATION = 0.04
_FIRST_STEPS = 20
# More policies than this share no matrix of covariances.
_MOST_TOGETHER = 64


class Beliefs:
    """Strengths and deviations in R runs, kept up to date with a tally.

    Parameters
    ----------
    tally
        The data; read again at each `update`.
    prior
        Shape (K,): strengths expected beforehand, in log-odds; all equal by default.
    theta
        Shape (R, K): strengths to go on from; estimated from the counts by default.
    curvature
        Shape (R, K): their curvatures, as of when each moved last.

    Attributes
    ----------
    theta
        Shape (R, K): strengths.
    curvature
        Shape (R, K): with many policies, information about each strength; the prior's otherwise.
    """

    def __init__(
        self,
        tally: Tally,
        prior: FloatArray | None = None,
        theta: FloatArray | None = None,
        curvature: FloatArray | None = None,
    ) -> None:
        self._tally = tally
        self._prior: FloatArray = np.zeros(tally.n_policies) if prior is None else prior
        self._together = tally.n_policies <= _MOST_TOGETHER
        self.theta: FloatArray = np.tile(self._prior, (tally.n_runs, 1)) if theta is None else theta.copy()
        self._tau: FloatArray = np.full(tally.n_runs, _DEVIATION)
        self._mean = self._variance = np.zeros((tally.n_runs, 0, 0))
        self.curvature: FloatArray = (
            np.full(self.theta.shape, 1.0 / _STRENGTH**2) if curvature is None else curvature.copy()
        )
        known = theta is not None or not tally.counts.any()
        if self._together:
            self._step_together(0 if known else _FIRST_STEPS)
        elif not known:
            for _ in range(_FIRST_STEPS):
                for k in range(tally.n_policies):
                    self._step_alone(np.full(tally.n_runs, k))

    def update(self, i: IntArray, j: IntArray) -> None:
        """Take in what has changed in the counts of the pair (i[r], j[r]) of every run r."""
        if self._together:
            self._step_together(1)
            return
        self._step_alone(i)
        self._step_alone(j)

    def row(self, k: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the log-odds of k[r] against every policy of run r: shapes (R, K)."""
        runs = np.arange(k.size)
        if self._together:
            return self._mean[runs, k], self._variance[runs, k]
        gap = self.theta[runs, k][:, None] - self.theta
        counts, mean = self._tally.counts[runs, k], special.expit(gap)
        weight = counts * mean * (1.0 - mean)
        tau = self._tau[:, None]
        shrink = 1.0 / (1.0 + tau * weight)
        spread = 1.0 / self.curvature
        variance = (spread[runs, k][:, None] + spread) * shrink**2 + tau * shrink
        return gap + tau * shrink * (self._tally.wins[runs, k] - counts * mean), variance

    def standing(self) -> FloatArray:
        """Shape (R, K): the larger, the likelier is the policy to beat all others."""
        if not self._together:
            return self.theta
        chance = special.log_ndtr(self._mean / np.sqrt(self._variance))
        own = np.arange(self._tally.n_policies)
        chance[:, own, own] = 0.0
        return np.asarray(chance.sum(axis=2), dtype=np.float64)

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally has."""
        self.theta, self._tau, self.curvature = self.theta[runs], self._tau[runs], self.curvature[runs]
        self._mean, self._variance = self._mean[runs], self._variance[runs]

    def _step_alone(self, k: IntArray) -> None:
        """A Newton step in the strength of k[r] alone."""
        runs = np.arange(k.size)
        mean = special.expit(self.theta[runs, k][:, None] - self.theta)
        counts = self._tally.counts[runs, k]
        curvature = np.sum(counts * mean * (1.0 - mean), axis=1) + 1.0 / _STRENGTH**2
        self.curvature[runs, k] = curvature
        gradient = np.sum(self._tally.wins[runs, k] - counts * mean, axis=1)
        gradient -= (self.theta[runs, k] - self._prior[k]) / _STRENGTH**2
        self.theta[runs, k] += gradient / curvature

    def _step_together(self, steps: int) -> None:
        """Newton steps in all strengths at once, and what follows from the last."""
        counts, wins = self._tally.counts, self._tally.wins
        own = np.arange(self._tally.n_policies)
        precision = 1.0 / _STRENGTH**2
        for step in range(steps + 1):
            gap = self.theta[:, :, None] - self.theta[:, None, :]
            mean = special.expit(gap)
            residual = wins - counts * mean
            weight = counts * mean * (1.0 - mean)
            hessian = -weight
            hessian[:, own, own] = weight.sum(axis=2) + precision
            if step < steps:
                gradient = residual.sum(axis=2) - precision * (self.theta - self._prior)
                self.theta = self.theta + np.linalg.solve(hessian, gradient[..., None])[..., 0]
        covariance = np.linalg.inv(hessian)
        spread = np.diagonal(covariance, axis1=1, axis2=2)
        variance = spread[:, :, None] + spread[:, None, :] - 2.0 * covariance
        self._tau = self._deviation(residual, weight)
        tau = self._tau[:, None, None]
        shrink = 1.0 / (1.0 + tau * weight)
        self._mean = gap + tau * shrink * residual
        self._variance = np.maximum(variance * shrink**2 + tau * shrink, 1e-12)

    def _deviation(self, residual: FloatArray, weight: FloatArray) -> FloatArray:
        """Shape (R,): variance of the pairs' deviations, by moments, drawn towards the expected one."""
        info = weight.sum(axis=(1, 2)) / 2.0
        squares = np.sum(weight**2, axis=(1, 2)) / 2.0
        n_pairs = np.divide(info**2, squares, out=np.ones_like(info), where=squares > 0)
        left = np.maximum(1.0 - (self._tally.n_policies - 1) / np.maximum(n_pairs, 1.0), 0.0)
        share = 1.0 / (1.0 + _TYPICAL_DEVIATION * weight) ** 2
        excess = np.sum(share * (residual**2 - left[:, None, None] * weight), axis=(1, 2)) / 2.0
        total = np.sum(share * weight**2, axis=(1, 2)) / 2.0
        found = (excess + _DEVIATION * _DEVIATION_WEIGHT) / (total + _DEVIATION_WEIGHT)
        return np.asarray(np.clip(found, *_DEVIATION_RANGE), dtype=np.float64)

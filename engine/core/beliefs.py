"""Expectations of the next outcome from those so far: they steer, and prove nothing.

The model is Bradley-Terry with a free deviation for each pair, μ(i, j) = σ(θ_i - θ_j + η_ij), θ_i ~
N(prior_i, 0.4²) and η_ij ~ N(0, τ²). τ is estimated, so that the strengths rule where they explain the pairs,
and the pairs speak for themselves where not. Each outcome moves the estimate by one Newton step. With many
policies the step is taken in the two strengths concerned, and τ is fixed, so that it costs no more than O(K).
"""

import math

import numpy as np
from scipy import special

from .types import BoolArray, FloatArray, IntArray, Tally, located

# Standard deviation of a strength before there are data.
_STRENGTH = 0.4
PRECISION = 1.0 / _STRENGTH**2
# Weight of the user's prior strengths. With full weight, expectations that were the exact
# opposite of the truth cost 12% more comparisons. With half of it they cost less than 10% more, and correct
# ones saved as much as with full weight.
_TRUST = 0.5
# Prior of the variance of the pairs' deviations: its value, and its weight as squared information.
_DEVIATION = 0.01
_DEVIATION_WEIGHT = 200.0
_DEVIATION_RANGE = (1e-3, 1.0)
# Where deviations are this large, a pair's share in the estimate of their variance is best proportioned.
_TYPICAL_DEVIATION = 0.04
# The chances to be the best are a mean over two models: strengths explain all pairs, or hardly any. Each
# has a variance of the pairs' deviations, and a weight beforehand.
_MODELS = ((0.0, 0.4), (0.5, 0.6))
# Stands for no information in a denominator.
_NO_WEIGHT = 1e-300
_LEAST_VARIANCE = 1e-12
_FIRST_STEPS = 20
# With more policies, covariances are not kept together in one matrix.
_MOST_TOGETHER = 64


class Beliefs:
    """Strengths and deviations in R runs, kept up to date with a tally.

    Parameters
    ----------
    tally
        The data; read again at each `update`.
    prior
        Shape (K,): prior strengths, in log-odds; all equal by default.
    theta
        Shape (R, K): strengths to go on from; estimated from the counts by default.
    curvature
        Shape (R, K): their curvatures, as of when each moved last.

    Attributes
    ----------
    prior
        Shape (K,): prior strengths, as far as they are believed.
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
        self.prior: FloatArray = np.zeros(tally.n_policies) if prior is None else _TRUST * prior
        self.theta: FloatArray = np.tile(self.prior, (tally.n_runs, 1)) if theta is None else theta.copy()
        self.curvature: FloatArray = (
            np.full(self.theta.shape, PRECISION) if curvature is None else curvature.copy()
        )
        known = theta is not None or not tally.counts.any()
        self._standing: FloatArray | None = None
        self._together: _Together | None = None
        if tally.n_policies <= _MOST_TOGETHER:
            self._together = _Together(tally, self.prior, self.theta)
            for _ in range(0 if known else _FIRST_STEPS):
                self.theta = self._together.step()
        elif not known:
            for _ in range(_FIRST_STEPS):
                for k in range(tally.n_policies):
                    self._step_alone(np.full(tally.n_runs, k))

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the answers to the pair (i[r], j[r]) of these runs; None for all."""
        self._standing = None
        if self._together is not None:
            self.theta = self._together.step_after(i, j, runs)
            return
        self._step_alone(i, runs)
        self._step_alone(j, runs)

    def row(self, runs: IntArray | int, k: IntArray) -> FloatArray:
        """Mean log-odds of each k against every policy of its run, shape (..., K), infinite against itself.

        `runs` and `k` are indices that broadcast.
        """
        if self._together is not None:
            row: FloatArray = self._together.mean[runs, k]
            return row
        gap = self.theta[runs, k][..., None] - self.theta[runs]
        counts, mean = self._tally.counts[runs, k], special.expit(gap)
        weight = counts * mean * (1.0 - mean)
        shrink = 1.0 / (1.0 + _DEVIATION * weight)
        row = gap + _DEVIATION * shrink * (self._tally.wins[runs, k] - counts * mean)
        np.put_along_axis(row, np.asarray(k)[..., None], np.inf, axis=-1)
        return row

    def between(self, runs: IntArray | int, k: IntArray, other: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the log-odds of k against the other one, shaped as the indices broadcast."""
        if self._together is not None:
            return self._together.mean[runs, k, other], self._together.variance[runs, k, other]
        gap = self.theta[runs, k] - self.theta[runs, other]
        counts, mean = self._tally.counts[runs, k, other], special.expit(gap)
        shrink = 1.0 / (1.0 + _DEVIATION * (counts * mean * (1.0 - mean)))
        spread = 1.0 / self.curvature[runs, k] + 1.0 / self.curvature[runs, other]
        residual = self._tally.wins[runs, k, other] - counts * mean
        return gap + _DEVIATION * shrink * residual, spread * shrink**2 + _DEVIATION * shrink

    def favourite(self, runs: IntArray | int, k: IntArray) -> IntArray:
        """The opponent that is expected to beat each k most, shaped as the indices broadcast."""
        row = self.row(runs, k)
        if not self._tally.everybody:
            row = np.where(self._tally.present[runs], row, np.inf)
        favourite: IntArray = row.argmin(axis=-1)
        return favourite

    def standing(self) -> FloatArray:
        """Shape (R, K): the larger, the likelier is the policy to beat all others that are present."""
        if self._together is None:
            return self.theta
        if self._standing is None:
            chance = special.log_ndtr(self._together.mean / np.sqrt(self._together.variance))
            if not self._tally.everybody:
                chance = np.where(self._tally.present[:, None], chance, 0.0)
            self._standing = np.asarray(chance.sum(axis=2), dtype=np.float64)
        return self._standing

    def log_chances(self) -> FloatArray | None:
        """Shape (R, K): log of each policy's chance to beat all others that are present, or None with many.

        The chances of a run add up to 1. They name the leader, and steer nothing: an experiment's evidence
        does not depend on them.
        """
        return None if self._together is None else self._together.log_chances()

    def look_again(self) -> None:
        """Have the standing computed again: somebody has joined or retired."""
        self._standing = None

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally has."""
        self.theta, self.curvature = self.theta[runs], self.curvature[runs]
        self._standing = None
        if self._together is not None:
            self._together.keep(runs)

    def _step_alone(self, k: IntArray, runs: IntArray | None = None) -> None:
        """A Newton step in the strength of k[r] alone."""
        runs, k = located(runs, k)
        theta = self.theta[runs, k]
        mean = special.expit(theta[..., None] - self.theta[runs])
        counts = self._tally.counts[runs, k]
        expected = counts * mean
        curvature = np.sum(expected * (1.0 - mean), axis=-1) + PRECISION
        self.curvature[runs, k] = curvature
        gradient = np.sum(self._tally.wins[runs, k] - expected, axis=-1)
        gradient -= (theta - self.prior[k]) / _STRENGTH**2
        self.theta[runs, k] += gradient / curvature


class _Together:
    """Newton steps in all strengths at once, and what follows from the last, in R runs.

    `mean` and `variance` have shape (R, K, K): of the log-odds of each policy against each; the mean of its
    own is infinite.
    """

    def __init__(self, tally: Tally, prior: FloatArray, theta: FloatArray) -> None:
        self._tally = tally
        self._prior = prior
        self._theta: FloatArray
        self._chance: FloatArray
        self._residual: FloatArray
        self._weight: FloatArray
        self._covariance: FloatArray
        self.mean: FloatArray
        self.variance: FloatArray
        self._look(theta)

    def step(self) -> FloatArray:
        """Take a step and return the strengths after it, shape (R, K)."""
        self._look(self._theta + self._direction())
        return self._theta

    def step_after(self, i: IntArray, j: IntArray, of_runs: IntArray | None) -> FloatArray:
        """Take a step once the answers to the pair (i[r], j[r]) of these runs have changed; None for all."""
        # A pair is the same in either order, to the last bit.
        runs, i, j = located(of_runs, np.minimum(i, j), np.maximum(i, j))
        chance, before = self._chance[runs, i, j], self._weight[runs, i, j]
        expected = self._tally.counts[runs, i, j] * chance
        residual = self._tally.wins[runs, i, j] - expected
        self._residual[runs, i, j], self._residual[runs, j, i] = residual, -residual
        # One pair's weight changes the Hessian by a matrix of rank one [Sherman & Morrison 1950].
        change = expected * (1.0 - chance) - before
        direction = self._direction()
        column = self._covariance[runs, :, i] - self._covariance[runs, :, j]
        contrast = direction[runs, i] - direction[runs, j]
        spread = self._covariance[runs, i, i] - 2.0 * self._covariance[runs, i, j]
        spread += self._covariance[runs, j, j]
        pull = np.asarray(change * contrast / (1.0 + change * spread))
        direction[runs] -= pull[..., None] * column
        theta = self._theta + direction
        if of_runs is not None:
            others = np.ones(theta.shape[0], dtype=np.bool_)
            others[runs] = False
            theta[others] = self._theta[others]
        self._look(theta)
        return self._theta

    def log_chances(self) -> FloatArray:
        """Shape (R, K): log of each policy's chance to beat all others.

        The mean over two models, each with the weight that the outcomes give it.
        """
        models = [self._log_chances(deviation) + math.log(weight) for deviation, weight in _MODELS]
        averaged = np.logaddexp(*models)
        return np.asarray(averaged - np.logaddexp.reduce(averaged, axis=1, keepdims=True))

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally has."""
        self._theta, self._chance = self._theta[runs], self._chance[runs]
        self._residual, self._weight = self._residual[runs], self._weight[runs]
        self._covariance = self._covariance[runs]
        self.mean, self.variance = self.mean[runs], self.variance[runs]

    def _look(self, theta: FloatArray) -> None:
        """Compute everything that depends on the strengths."""
        gap = _gaps(theta)
        chance = special.expit(gap)
        expected = self._tally.counts * chance
        self._theta, self._chance = theta, chance
        self._residual = self._tally.wins - expected
        self._weight = expected * (1.0 - chance)
        info = self._weight.sum(axis=2)
        self._covariance = np.asarray(np.linalg.inv(_hessian(self._weight, info)), dtype=np.float64)
        variance = _of_gaps(self._covariance)
        tau = self._deviation(self._residual, self._weight, info.sum(axis=1))[:, None, None]
        shrink = 1.0 / (1.0 + tau * self._weight)
        deviation = tau * shrink
        self.mean = gap + deviation * self._residual
        _diagonal(self.mean)[...] = np.inf
        self.variance = np.maximum(variance * shrink**2 + deviation, _LEAST_VARIANCE)

    def _log_chances(self, deviation: float) -> FloatArray:
        """Shape (R, K): log of each policy's chance to beat all others times the likelihood of the outcomes.

        Both by a Gaussian approximation at the strengths of the last look. The likelihood lacks factors that
        are the same whatever the deviations are.

        Parameters
        ----------
        deviation
            Variance of the pairs' deviations.
        """
        shrink = 1.0 / (1.0 + deviation * self._weight)
        residual = shrink * self._residual
        weight = shrink * self._weight
        covariance = np.asarray(np.linalg.inv(_hessian(weight, weight.sum(axis=2))), dtype=np.float64)
        gradient = self._gradient(residual)
        direction = np.matmul(covariance, gradient[..., None])[..., 0]
        # Each pair is in this sum twice.
        likelihood = 0.25 * np.sum(np.log(shrink) + deviation * residual * self._residual, axis=(1, 2))
        likelihood += 0.5 * (np.vecdot(gradient, direction) + np.linalg.slogdet(covariance)[1])
        mean = _gaps(self._theta) + shrink * _gaps(direction) + deviation * residual
        _diagonal(mean)[...] = np.inf
        variance = _of_gaps(covariance) * shrink**2 + deviation * shrink
        chances = special.log_ndtr(mean / np.sqrt(np.maximum(variance, _LEAST_VARIANCE)))
        if not self._tally.everybody:
            chances = np.where(self._tally.present[:, None], chances, 0.0)
        chances = chances.sum(axis=2)
        if not self._tally.everybody:
            chances = np.where(self._tally.present, chances, -np.inf)
        chances -= np.logaddexp.reduce(chances, axis=1, keepdims=True)
        return np.asarray(chances + likelihood[:, None])

    def _direction(self) -> FloatArray:
        """Shape (R, K): the Newton step, by the weights of the last look."""
        gradient = self._gradient(self._residual)
        direction: FloatArray = np.matmul(self._covariance, gradient[..., None])[..., 0]
        return direction

    def _gradient(self, residual: FloatArray) -> FloatArray:
        """Shape (R, K): of the log posterior of the strengths, from the pairs' residuals, shape (R, K, K)."""
        gradient: FloatArray = residual.sum(axis=2) - PRECISION * (self._theta - self._prior)
        return gradient

    def _deviation(self, residual: FloatArray, weight: FloatArray, info: FloatArray) -> FloatArray:
        """Shape (R,): variance of the pairs' deviations, by moments, drawn towards the expected one.

        Each pair is in all sums twice.
        """
        n_runs = info.size
        weight, squared_residual = weight.reshape(n_runs, -1), (residual * residual).reshape(n_runs, -1)
        n_pairs = 0.5 * info**2 / np.maximum(np.vecdot(weight, weight), _NO_WEIGHT)
        left = np.maximum(1.0 - (self._tally.n_policies - 1) / np.maximum(n_pairs, 1.0), 0.0)
        share = 1.0 / (1.0 + _TYPICAL_DEVIATION * weight) ** 2
        excess = np.vecdot(share, squared_residual) - left * np.vecdot(share, weight)
        total = np.vecdot(share * weight, weight)
        found = (0.5 * excess + _DEVIATION * _DEVIATION_WEIGHT) / (0.5 * total + _DEVIATION_WEIGHT)
        lowest, highest = _DEVIATION_RANGE
        return np.asarray(np.minimum(np.maximum(found, lowest), highest), dtype=np.float64)


def _gaps(values: FloatArray) -> FloatArray:
    """Shape (R, K, K): each policy's value less each one's, from values of shape (R, K)."""
    gaps: FloatArray = values[:, :, None] - values[:, None, :]
    return gaps


def _hessian(weight: FloatArray, info: FloatArray) -> FloatArray:
    """Shape (R, K, K): the strengths' precision, from the pairs' weights and their sums, shape (R, K)."""
    hessian: FloatArray = -weight
    _diagonal(hessian)[...] = info + PRECISION
    return hessian


def _of_gaps(covariance: FloatArray) -> FloatArray:
    """Shape (R, K, K): variances of the gaps of strengths with this covariance, of the same shape."""
    spread = _diagonal(covariance)
    variance: FloatArray = spread[:, :, None] + spread[:, None, :] - 2.0 * covariance
    return variance


def _diagonal(matrices: FloatArray) -> FloatArray:
    """Shape (R, K): a view of the diagonals of R contiguous K × K matrices."""
    n_runs, n_policies = matrices.shape[:2]
    return matrices.reshape(n_runs, n_policies**2)[:, :: n_policies + 1]

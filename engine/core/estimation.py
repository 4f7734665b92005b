"""Estimation in linear Bradley-Terry spaces: regularised maximum likelihood and what surrounds it.

Everything works on R data sets side by side that share the contrasts z of n pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its optimize is imported at its first use: few processes come to that
from scipy import special

from .types import BoolArray, FloatArray, IntArray, Tally

_MAX_ITERATIONS = 200
_MAX_HALVINGS = 60
# The last step starts from a decrement this small, and squares it.
_DECREMENT_TOLERANCE = 1e-6
# A Newton step that moves no log-odds by more than this needs no line search. The third derivative of a
# logistic likelihood along it is at most this times the second. So the objective gains 4% of the decrement.
_SAFE_REACH = 1.7
# A step with a smaller decrement needs no line search either.
_SAFE_DECREMENT = 0.02


@dataclass(frozen=True, slots=True)
class PairData:
    """Outcomes of n pairs in R data sets.

    Attributes
    ----------
    contrasts
        Shape (n, d): z = x_i - x_j of each pair.
    counts, wins
        Shape (R, n): comparisons of each pair and summed outcomes of its first policy.
    squares
        Shape (n, d²): z zᵀ of each pair.
    """

    contrasts: FloatArray
    counts: FloatArray
    wins: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, features: FloatArray, tally: Tally) -> PairData:
        """The pairs that have been compared in at least one of the R runs; `features` has shape (K, d)."""
        return ComparedPairs(features, tally.counts).data(tally)

    def take(self, runs: IntArray) -> PairData:
        """The data sets with these indices, shape (S,), which may repeat."""
        return PairData(self.contrasts, self.counts[runs], self.wins[runs], self.squares)

    def part(self, sets: slice) -> PairData:
        """Some data sets in a row."""
        return PairData(self.contrasts, self.counts[sets], self.wins[sets], self.squares)

    def joined(self, other: PairData) -> PairData:
        """These data sets and those of `other`, which are about the same pairs."""
        return PairData(
            self.contrasts,
            np.concatenate([self.counts, other.counts]),
            np.concatenate([self.wins, other.wins]),
            self.squares,
        )

    def log_likelihood(self, theta: FloatArray) -> FloatArray:
        """Shape (R,): log-likelihood (nats) at theta, shape (R, d)."""
        logits = theta @ self.contrasts.T
        value: FloatArray = np.sum(self.wins * logits - self.counts * softplus(logits), axis=1)
        return value

    def hessian(self, theta: FloatArray) -> FloatArray:
        """Shape (R, d, d): Fisher matrix, the negative Hessian of the log-likelihood, at theta."""
        mean = special.expit(theta @ self.contrasts.T)
        return self.information(self.counts * mean * (1.0 - mean))

    def information(self, weights: FloatArray) -> FloatArray:
        """Shape (R, d, d): sum over pairs of weight z zᵀ, for weights of shape (R, n)."""
        d = self.contrasts.shape[1]
        return np.reshape(weights @ self.squares, (-1, d, d))


class ComparedPairs:
    """The pairs that have been compared in at least one of R runs, and what their features alone determine.

    `features` has shape (K, d), `counts` (R, K, K).
    """

    def __init__(self, features: FloatArray, counts: FloatArray) -> None:
        self._n_policies = features.shape[0]
        self._both = _compared_cells(counts)
        rows, columns = np.divmod(self._both, self._n_policies)
        self._cells: IntArray = self._both[rows < columns]
        self.rows, self.columns = rows[rows < columns], columns[rows < columns]
        self.contrasts = features[self.rows] - features[self.columns]
        self.squares = outer_squares(self.contrasts)

    def covers(self, counts: FloatArray) -> bool:
        """True if these are the pairs that have been compared in `counts`, shape (R, K, K)."""
        return np.array_equal(self._both, _compared_cells(counts))

    def data(self, tally: Tally) -> PairData:
        """Outcomes of the pairs."""
        return PairData(
            self.contrasts,
            self.of(tally.counts),
            self.of(tally.wins),
            self.squares,
        )

    def of(self, matrices: FloatArray) -> FloatArray:
        """Shape (R, n): the entries of the pairs in matrices of shape (R, K, K)."""
        return matrices.reshape(-1, self._n_policies**2)[:, self._cells]

    def information(self, weights: FloatArray) -> FloatArray:
        """Shape (R, d, d): sum over pairs of weight z zᵀ, for weights of shape (R, n)."""
        d = self.contrasts.shape[1]
        return np.reshape(weights @ self.squares, (-1, d, d))


def _compared_cells(counts: FloatArray) -> IntArray:
    """Shape (2n,): i K + j of the pairs that have been compared in at least one run, in both orders."""
    return np.flatnonzero(counts if counts.shape[0] == 1 else counts.any(axis=0))


def softplus(x: FloatArray) -> FloatArray:
    """log(1 + exp(x)) without overflow, elementwise, shaped like x."""
    value: FloatArray = np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return value


def ridge(n_comparisons: FloatArray) -> FloatArray:
    """Regularisation λ_t = t^(-1/2), shaped like t; t below 1 counts as 1.

    [LLM-PO, theorem "ratio convergence"]
    """
    penalty: FloatArray = 1.0 / np.sqrt(np.maximum(n_comparisons, 1.0))
    return penalty


def information(contrasts: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum over pairs of weight z zᵀ: Fisher matrix H for weights N σ'(θᵀz), Gram matrix V for weights N.

    Shape (R, d, d) from contrasts (n, d) and weights (R, n).
    """
    d = contrasts.shape[1]
    return np.reshape(weights @ outer_squares(contrasts), (-1, d, d))


def outer_squares(contrasts: FloatArray) -> FloatArray:
    """Shape (n, d²): z zᵀ of each contrast z, in a row."""
    n, d = contrasts.shape
    return np.reshape(contrasts[:, :, None] * contrasts[:, None, :], (n, d * d))


def fit(
    data: PairData,
    precision: FloatArray,
    start: FloatArray,
    constraint: FloatArray | None = None,
    centre: FloatArray | None = None,
    *,
    slack: float = 0.0,
) -> FloatArray:
    """Maximise the log-likelihood minus ½ (θ - c)ᵀ precision (θ - c), by Newton's method with backtracking.

    [LLM-PO, eq. reg_mle_def], with precision = λ_t I.

    Parameters
    ----------
    precision
        Shape (R, d, d) or (d, d), positive definite.
    start
        Shape (R, d), as is the result.
    constraint
        Shape (R, d): keep constraintᵀθ at its value in `start`.
    centre
        Shape (R, d): the c of the penalty; zero by default.
    slack
        How far (nats) below the maximum the result may lie; as close as floating point allows by default.

    Raises
    ------
    ArithmeticError
        If it does not converge.
    """
    theta = start.copy()
    # Each data set is left alone once it has converged, so that its neighbours cost and change nothing.
    active, point = np.arange(theta.shape[0]), theta.copy()
    for _ in range(_MAX_ITERATIONS):
        step, decrement = _newton_step(data, precision, point, constraint, centre)
        going_on = decrement > _DECREMENT_TOLERANCE
        largest = decrement.max()
        if largest > _SAFE_DECREMENT:
            large = decrement > _SAFE_DECREMENT
            large &= np.abs(step @ data.contrasts.T).max(axis=1) > _SAFE_REACH
            if large.any():
                own = data.take(np.flatnonzero(large)), _select(precision, large)
                middle = None if centre is None else centre[large]
                length = _step_length(*own, point[large], step[large], decrement[large], centre=middle)
                step[large] *= length[:, None]
        elif slack and largest > _DECREMENT_TOLERANCE:
            # A step that moves no log-odds by more than r changes the Hessian by a factor of at most e^r. So
            # it leaves a decrement of at most e^r ((e^r - 1 - r) / r)² times its own. While that is small, no
            # more nats are left than that.
            reach = np.abs(step @ data.contrasts.T).max(axis=1)
            going_on &= decrement * reach**2 * np.exp(3.0 * reach) > 4.0 * slack
        point += step
        n_going_on = np.count_nonzero(going_on)
        if n_going_on == active.size:
            continue
        theta[active] = point
        if not n_going_on:
            return theta
        active, point, precision = active[going_on], point[going_on], _select(precision, going_on)
        data = data.take(np.flatnonzero(going_on))
        constraint = None if constraint is None else constraint[going_on]
        centre = None if centre is None else centre[going_on]
    raise ArithmeticError("the maximum likelihood fit did not converge; are the features badly scaled?")


def _newton_step(
    data: PairData,
    precision: FloatArray,
    theta: FloatArray,
    constraint: FloatArray | None,
    centre: FloatArray | None,
) -> tuple[FloatArray, FloatArray]:
    """Newton step of each data set, and its decrement: twice the gain that it promises."""
    Z = data.contrasts
    mean = special.expit(theta @ Z.T)
    expected = data.counts * mean
    gradient = (data.wins - expected) @ Z - _times(precision, theta if centre is None else theta - centre)
    hessian = data.information(expected * (1.0 - mean)) + precision
    if constraint is None:
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
    else:
        both = np.linalg.solve(hessian, np.stack([gradient, constraint], axis=2))
        step, direction = both[:, :, 0], both[:, :, 1]
        slide = (constraint * step).sum(axis=1) / (constraint * direction).sum(axis=1)
        step = step - slide[:, None] * direction
    decrement: FloatArray = (gradient * step).sum(axis=1)
    return step, decrement


def _select(precision: FloatArray, runs: BoolArray) -> FloatArray:
    return precision if precision.ndim == 2 else precision[runs]


def _step_length(
    data: PairData,
    precision: FloatArray,
    theta: FloatArray,
    step: FloatArray,
    decrement: FloatArray,
    *,
    centre: FloatArray | None,
) -> FloatArray:
    """Halve the step of each data set until the objective has gained its share."""
    here = _objective(data, precision, theta, centre)
    length = np.ones(theta.shape[0])
    for _ in range(_MAX_HALVINGS):
        there = _objective(data, precision, theta + length[:, None] * step, centre)
        short = there < here + 1e-4 * length * decrement - 1e-9 * (1.0 + np.abs(here))
        if not short.any():
            return length
        length[short] /= 2.0
    raise ArithmeticError(
        "the line search of the maximum likelihood fit failed; are the features badly scaled?"
    )


def _objective(
    data: PairData, precision: FloatArray, theta: FloatArray, centre: FloatArray | None
) -> FloatArray:
    shift = theta if centre is None else theta - centre
    penalty: FloatArray = 0.5 * np.sum(shift * _times(precision, shift), axis=1)
    return data.log_likelihood(theta) - penalty


def _times(precision: FloatArray, theta: FloatArray) -> FloatArray:
    # precision is symmetric
    product: FloatArray = (
        theta @ precision if precision.ndim == 2 else np.matmul(precision, theta[..., None])[..., 0]
    )
    return product


def project(data: PairData, penalty: float, estimate: FloatArray, radius: float) -> FloatArray:
    """Projected estimator: the θ in the ball ‖θ‖ ≤ B whose score is closest to the estimate's.

    argmin of ‖g(θ) - g(ζ)‖ in the norm of H(θ)^-1 [LLM-PO, eq. theta_estimator], for one data set (R = 1),
    with λ_t as `penalty` and the regularised maximum likelihood estimate ζ, shape (d,).

    Raises
    ------
    ArithmeticError
        If the minimisation does not converge.
    """
    if np.linalg.norm(estimate) <= radius:
        return estimate
    Z, counts = data.contrasts, data.counts[0]
    ridge_matrix = penalty * np.eye(Z.shape[1])

    def score(theta: FloatArray) -> FloatArray:
        value: FloatArray = (counts * special.expit(Z @ theta)) @ Z + penalty * theta
        return value

    target = score(estimate)

    def distance(theta: FloatArray) -> float:
        mean = special.expit(Z @ theta)
        hessian = information(Z, (counts * mean * (1.0 - mean))[None])[0] + ridge_matrix
        gap = score(theta) - target
        return float(gap @ np.linalg.solve(hessian, gap))

    inside = {
        "type": "ineq",
        "fun": lambda theta: radius**2 - theta @ theta,
        "jac": lambda theta: -2.0 * theta,
    }
    start = estimate * (radius / np.linalg.norm(estimate))
    scale = max(distance(start), 1e-300)
    result = scipy.optimize.minimize(
        lambda theta: distance(theta) / scale,
        start,
        method="SLSQP",
        constraints=[inside],
        options={"maxiter": 500},
    )
    if not result.success:
        raise ArithmeticError(f"the projection onto the ball did not converge: {result.message}")
    projected: FloatArray = result.x * min(1.0, radius / np.linalg.norm(result.x))
    return projected

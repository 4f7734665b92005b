"""Primal-dual interior-point method for the max-min program on a working set of pairs.

    maximise over ω in the simplex   min over i of f_i(ω) - γ/2 ‖ω‖²,
    f_i(ω) = 1 / (y_iᵀ H(ω)⁻¹ y_i),   H(ω) = Σ_p ω_p a_p a_pᵀ

The f_i see ω only through H, so the Newton system is diagonal plus a matrix of rank d(d+1)/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.linalg import lapack

from .types import FloatArray, IntArray

_MAX_STEPS = 100
_TO_BOUNDARY = 0.95
_FIRST_LEVEL = 0.98
# How many pairs are solved for directly; below the second number Woodbury's formula saves nothing.
_DIRECT_PER_RANK = 4
_DIRECT_AT_LEAST = 320
_SINGULAR = (
    "the interior-point method met a singular system; are features badly scaled, or win rates near 0 and 1?"
)


@dataclass(frozen=True, slots=True)
class _Packing:
    """Symmetric d × d matrices as vectors whose dot products are traces of products."""

    i: IntArray
    j: IntArray
    stretch: FloatArray
    basis: FloatArray

    @classmethod
    @cache
    def of_dimension(cls, d: int) -> _Packing:
        i, j = np.triu_indices(d)
        basis = np.zeros((i.size, d, d))
        basis[np.arange(i.size), i, j] = basis[np.arange(i.size), j, i] = np.where(i == j, 1.0, np.sqrt(0.5))
        return cls(i, j, np.where(i == j, 1.0, np.sqrt(2.0)), basis.reshape(i.size, d * d))


def pack(vectors: FloatArray) -> FloatArray:
    """Packed v vᵀ of each row, shape (n, d(d+1)/2): dot products of these are traces of matrix products."""
    packing = _Packing.of_dimension(vectors.shape[1])
    packed: FloatArray = vectors[:, packing.i] * vectors[:, packing.j] * packing.stretch
    return packed


def project_to_simplex(point: FloatArray) -> FloatArray:
    """Euclidean projection of a point, shape (n,), onto the probability simplex.

    [Held, Wolfe and Crowder 1974]
    """
    ordered = np.sort(point)[::-1]
    excess = np.cumsum(ordered) - 1.0
    size = int(np.flatnonzero(ordered * np.arange(1, point.size + 1) > excess)[-1]) + 1
    projected: FloatArray = np.maximum(point - excess[size - 1] / size, 0.0)
    return projected


def linear_bound(gains: FloatArray, gamma: float) -> float:
    """Largest gainsᵀω - γ/2 ‖ω‖² over the simplex.

    Each f_i is concave and of degree one, hence at most its gradient's dot product with ω. With `gains` a
    convex combination of gradients this bounds the program from above.
    """
    if gamma == 0.0:
        return float(gains.max())
    omega = project_to_simplex(gains / gamma)
    return float(gains @ omega - 0.5 * gamma * omega @ omega)


def maximise_smallest(
    targets: FloatArray, atoms: FloatArray, gamma: float, omega: FloatArray, tolerance: float
) -> tuple[FloatArray, FloatArray]:
    """Solve the program for the given pairs, to a gap relative to the smallest f_i.

    `targets` are y_i, shape (K - 1, d); `atoms` a_p, shape (n, d); `omega`, shape (n,), the positive
    proportions to start from, with H(ω) invertible. Returns proportions, shape (n,), and multipliers of the
    f_i, shape (K - 1,); both sum to 1.

    Raises
    ------
    ArithmeticError
        If the gap stays above the tolerance.
    """
    scale = float(_Curvature.at(targets, atoms, omega).values.min())
    if not 0.0 < scale < np.inf:
        raise ArithmeticError(_SINGULAR)
    # In units of the first level, γ and the barrier start near 1 whatever the problem's size.
    targets = targets * np.sqrt(scale)
    point = _start(_Curvature.at(targets, atoms, omega), omega)
    packed = pack(atoms)
    for _ in range(_MAX_STEPS):
        curvature = _Curvature.at(targets, atoms, point.omega)
        weights = point.multipliers / point.multipliers.sum()
        gains = packed @ (weights @ curvature.gradients)
        smallest = curvature.values.min()
        if not (smallest > 0.0 and np.isfinite(gains).all()):
            raise ArithmeticError(_SINGULAR)
        value = smallest - 0.5 * gamma / scale * point.omega @ point.omega
        if linear_bound(gains, gamma / scale) - value <= tolerance * smallest:
            return point.omega / point.omega.sum(), weights
        point = _advance(point, curvature, packed, gamma / scale)
    raise ArithmeticError("the interior-point method for the allocation did not converge")


@dataclass(frozen=True, slots=True)
class _Point:
    """Primal and dual variables; a step is held in the same form.

    Proportions ω, level u and room f_i - u > 0; multipliers of the room, slack of ω ≥ 0, price of Σω = 1.
    """

    omega: FloatArray
    room: FloatArray
    multipliers: FloatArray
    slack: FloatArray
    level: float
    price: float

    def moved(self, step: _Point, length: float, dual_length: float) -> _Point:
        return _Point(
            self.omega + length * step.omega,
            self.room + length * step.room,
            self.multipliers + dual_length * step.multipliers,
            self.slack + dual_length * step.slack,
            self.level + length * step.level,
            self.price + dual_length * step.price,
        )

    def complementarity(self) -> float:
        total = self.omega @ self.slack + self.multipliers @ self.room
        return float(total) / (self.omega.size + self.room.size)

    def lengths(self, step: _Point) -> tuple[float, float]:
        """Longest primal and dual steps, at most 1 / _TO_BOUNDARY, that keep everything nonnegative."""
        return (
            min(_longest(self.omega, step.omega), _longest(self.room, step.room)),
            min(_longest(self.multipliers, step.multipliers), _longest(self.slack, step.slack)),
        )


@dataclass(frozen=True, slots=True)
class _Curvature:
    """f_i at ω, its gradient in packed H, and what their second derivatives are made of."""

    values: FloatArray
    gradients: FloatArray
    directions: FloatArray
    inverse: FloatArray

    @classmethod
    def at(cls, targets: FloatArray, atoms: FloatArray, omega: FloatArray) -> _Curvature:
        try:
            inverse = np.asarray(np.linalg.inv((atoms * omega[:, None]).T @ atoms), dtype=np.float64)
        except np.linalg.LinAlgError as error:
            raise ArithmeticError(_SINGULAR) from error
        directions = targets @ inverse
        values = 1.0 / np.sum(directions * targets, axis=1)
        return cls(values, pack(directions * values[:, None]), directions, inverse)

    def hessian(self, multipliers: FloatArray) -> FloatArray:
        """Minus the Hessian of Σ multiplier f_i in packed H: positive semidefinite."""
        weighted = self.directions * (multipliers * self.values**2)[:, None]
        basis = _Packing.of_dimension(self.inverse.shape[0]).basis
        information = weighted.T @ self.directions
        kronecker = information[:, None, :, None] * self.inverse[None, :, None, :]
        product = basis @ kronecker.reshape(basis.shape[1], -1) @ basis.T
        radial = (self.gradients * (multipliers / self.values)[:, None]).T @ self.gradients
        hessian: FloatArray = product + product.T - 2.0 * radial
        return hessian


def _start(curvature: _Curvature, omega: FloatArray) -> _Point:
    level = _FIRST_LEVEL * float(curvature.values.min())
    room = curvature.values - level
    multipliers = 1.0 / room
    multipliers /= multipliers.sum()
    # Half of the average: slack that is too large takes longer to come down than too small to come up.
    product = 0.5 * float(multipliers @ room) / room.size
    return _Point(omega, room, multipliers, product / omega, level, float(curvature.values.min()))


class _NewtonSystem:
    """The linearised optimality conditions at a point, for several right-hand sides.

    Eliminating everything but ω, u and the price leaves (D + Φ E Φᵀ) Δω - k Δu + 1 Δprice = right, and two
    bordering rows. D is diagonal and Φ the packed a aᵀ.
    """

    def __init__(self, point: _Point, curvature: _Curvature, packed: FloatArray, gamma: float) -> None:
        self._point = point
        self._curvature = curvature
        self._packed = packed
        self._pull = point.multipliers / point.room
        gradients = curvature.gradients
        core = curvature.hessian(point.multipliers) + (gradients * self._pull[:, None]).T @ gradients
        self._inverse = _DiagonalPlusLowRank(gamma + point.slack / point.omega, packed, core)
        self._dual_residual = (
            -gamma * point.omega + packed @ (point.multipliers @ gradients) + point.slack - point.price
        )
        self._room_residual = curvature.values - point.level - point.room
        self._level_column = packed @ (self._pull @ gradients)
        self._by_level, self._by_price = self._inverse.solve(
            np.stack([self._level_column, np.ones(point.omega.size)], axis=1)
        ).T
        self._border = (
            (self._pull.sum() - self._level_column @ self._by_level, self._level_column @ self._by_price),
            (self._by_level.sum(), -self._by_price.sum()),
        )

    def step(self, omega_target: FloatArray, room_target: FloatArray) -> _Point:
        """Newton step towards ω·slack = omega_target and multipliers·room = room_target."""
        point, gradients = self._point, self._curvature.gradients
        pressure = room_target / point.room - point.multipliers - self._pull * self._room_residual
        push = omega_target / point.omega - point.slack
        right = self._dual_residual + push + self._packed @ (pressure @ gradients)
        base = self._inverse.solve(right[:, None])[:, 0]
        k = self._level_column
        level_aim = 1.0 - point.multipliers.sum() - pressure.sum() + k @ base
        price_aim = 1.0 - point.omega.sum() - base.sum()
        (a, b), (c, d) = self._border
        determinant = a * d - b * c
        level = (d * level_aim - b * price_aim) / determinant
        price = (a * price_aim - c * level_aim) / determinant
        omega = base + self._by_level * level - self._by_price * price
        moved_values = gradients @ (self._packed.T @ omega)
        return _Point(
            omega=omega,
            room=moved_values - level + self._room_residual,
            multipliers=pressure - self._pull * (moved_values - level),
            slack=push - point.slack / point.omega * omega,
            level=float(level),
            price=float(price),
        )


class _DiagonalPlusLowRank:
    """Solves (diag(D) + Φ E Φᵀ) X = columns for positive D of very different sizes.

    Woodbury's formula is only stable for large entries of D. It is used for those, if there are many. The
    pairs with the smallest entries, those in use, are solved for directly.
    """

    def __init__(self, diagonal: FloatArray, factor: FloatArray, core: FloatArray) -> None:
        rank = core.shape[0]
        core[np.arange(rank), np.arange(rank)] += 1e-15 * np.trace(core)
        scaled = factor @ _cholesky(core)
        size = min(diagonal.size, max(_DIRECT_PER_RANK * rank, _DIRECT_AT_LEAST))
        self._eliminates = size < diagonal.size
        if self._eliminates:
            order = np.argpartition(diagonal, size - 1)
            self._direct, self._eliminated = order[:size], order[size:]
            self._diagonal = diagonal[self._eliminated]
            self._kept, self._rest = scaled[self._direct], scaled[self._eliminated]
            self._inner = _cholesky(np.eye(rank) + self._rest.T @ (self._rest / self._diagonal[:, None]))
            schur = self._kept @ _cholesky_solve(self._inner, self._kept.T)
            own = diagonal[self._direct]
        else:
            schur = scaled @ scaled.T
            own = diagonal
        schur.ravel()[:: size + 1] += own
        self._balance = 1.0 / np.sqrt(np.diagonal(schur))
        schur *= self._balance
        schur *= self._balance[:, None]
        self._schur = _cholesky(schur)

    def solve(self, columns: FloatArray) -> FloatArray:
        """Solution, shaped like the columns."""
        if not self._eliminates:
            return self._solve_direct(columns)
        eliminated = columns[self._eliminated] / self._diagonal[:, None]
        carried = _cholesky_solve(self._inner, self._rest.T @ eliminated)
        direct = self._solve_direct(columns[self._direct] - self._kept @ carried)
        total = carried + _cholesky_solve(self._inner, self._kept.T @ direct)
        solution: FloatArray = np.empty_like(columns)
        solution[self._direct] = direct
        solution[self._eliminated] = eliminated - self._rest @ total / self._diagonal[:, None]
        return solution

    def _solve_direct(self, columns: FloatArray) -> FloatArray:
        balance = self._balance[:, None]
        return _cholesky_solve(self._schur, columns * balance) * balance


def _cholesky(matrix: FloatArray) -> FloatArray:
    """Lower triangular factor; LAPACK directly, since matrices this small drown in wrappers."""
    # Transposed, a symmetric matrix is the same, and in the order that LAPACK wants.
    factor, info = lapack.dpotrf(matrix.T, lower=1)
    if info != 0:
        raise ArithmeticError(_SINGULAR)
    result: FloatArray = factor
    return result


def _cholesky_solve(factor: FloatArray, columns: FloatArray) -> FloatArray:
    solution, _ = lapack.dpotrs(factor, columns, lower=1)
    result: FloatArray = solution
    return result


def _advance(point: _Point, curvature: _Curvature, packed: FloatArray, gamma: float) -> _Point:
    """One predictor-corrector step [Mehrotra 1992]."""
    system = _NewtonSystem(point, curvature, packed, gamma)
    predicted = system.step(np.zeros_like(point.omega), np.zeros_like(point.room))
    length, dual_length = (min(1.0, x) for x in point.lengths(predicted))
    before = point.complementarity()
    after = point.moved(predicted, length, dual_length).complementarity()
    target = before * max((after / before) ** 3, 0.02)
    step = system.step(
        target - predicted.omega * predicted.slack, target - predicted.room * predicted.multipliers
    )
    length, dual_length = (min(1.0, _TO_BOUNDARY * x) for x in point.lengths(step))
    return point.moved(step, length, dual_length)


def _longest(values: FloatArray, change: FloatArray) -> float:
    """Largest step along `change` that keeps positive `values` nonnegative."""
    steepest = float(np.min(change / values))
    return -1.0 / steepest if steepest < 0.0 else np.inf

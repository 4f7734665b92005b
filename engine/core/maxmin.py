"""Optimal sampling proportions in a linear Bradley-Terry space, with a proof of how good they are.

    maximise over ω in the simplex   min over i of f_i(ω) - γ/2 ‖ω‖²,
    f_i(ω) = (θᵀz_i)² / (2 z_iᵀ H(ω)⁻¹ z_i),   H(ω) = Σ_p ω_p σ'(θᵀz_p) z_p z_pᵀ

[LLM-PO, eq. empirical opt]. An optimal ω needs at most about d² pairs. So the program is solved on a working
set. The pairs that would gain most are added to it until a bound over all pairs proves the answer.

Where our own solver cannot prove it, CVXPY solves the working sets, and the same bound has to prove its
answer too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np
from scipy import special

from .interior_point import linear_bound, maximise_smallest
from .types import BoolArray, FloatArray, IntArray

_MAX_ROUNDS = 60
_UNUSED = 2e-3
# Pairs this close to being useful, relative to the level, join the working set too: it saves rounds.
_NEARLY_USEFUL = 0.1
# Rounds in which unused pairs are dropped. Dropping them in every round might never end.
_THINNED_ROUNDS = 4
# Share of the tolerance that the working set may use up. The other pairs have the rest.
_OWN_SHARE = 0.6
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)
_SINGULAR = "the max-min program met a singular matrix; are features badly scaled, or win rates near 0 and 1?"


class Solver(StrEnum):
    """The solver of a max-min program."""

    INTERIOR_POINT = "interior_point"
    """Our own interior-point method."""
    CVXPY = "cvxpy"
    """The reference: Clarabel by way of CVXPY."""


@dataclass(frozen=True, slots=True)
class MaxMinAllocation:
    """A solution with its proof.

    Attributes
    ----------
    pairs
        Shape (n, 2): the pairs with a positive proportion, each as (i, j) with i < j.
    proportions
        Shape (n,): their proportions, which sum to 1.
    value
        The objective at this allocation.
    upper_bound
        A bound that no allocation can exceed.
    separation
        The smallest f_i at this allocation: its inverse is U*(μ) where γ = 0 [LLM-PO, theorem
        "combinatorial structure"].
    solver
        The solver that found the proportions. The proof is the same for both.
    """

    pairs: IntArray
    proportions: FloatArray
    value: float
    upper_bound: float
    separation: float
    solver: Solver

    @property
    def relative_gap(self) -> float:
        """The largest distance of the value from the optimum, relative to the smallest f_i."""
        return (self.upper_bound - self.value) / self.separation

    def is_certified(self, tolerance: float) -> bool:
        """True if the relative gap is proved to be at most the tolerance, such as 1e-4.

        A negative gap is a rounding error. If that exceeds the tolerance, nothing is proved.
        """
        return abs(self.relative_gap) <= tolerance

    def matrix(self, n_policies: int) -> FloatArray:
        """Shape (K, K), symmetric: the proportion of each pair."""
        omega = np.zeros((n_policies, n_policies))
        omega[self.pairs[:, 0], self.pairs[:, 1]] = self.proportions
        return omega + omega.T

    def state(self) -> dict[str, Any]:
        """The solution as plain data that JSON can hold."""
        return asdict(self) | {"pairs": self.pairs.tolist(), "proportions": self.proportions.tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The solution that `state` was taken from."""
        return cls(
            pairs=np.array(state["pairs"], dtype=np.int64).reshape(-1, 2),
            proportions=np.array(state["proportions"], dtype=np.float64),
            value=state["value"],
            upper_bound=state["upper_bound"],
            separation=state["separation"],
            solver=Solver(state["solver"]),
        )


def maxmin_allocation(
    features: FloatArray,
    theta: FloatArray,
    *,
    gamma: float = 0.0,
    tolerance: float = 1e-4,
    start: MaxMinAllocation | None = None,
    gap_floor: float = 0.0,
    solver: Solver | str | None = None,
) -> MaxMinAllocation:
    """Solve the max-min program to a certified relative gap.

    Parameters
    ----------
    features
        Shape (K, d), of which the differences span all d dimensions.
    theta
        Shape (d,).
    gamma
        Regularisation γ ≥ 0; positive makes the solution unique.
    tolerance
        Largest relative gap to accept.
    start
        An earlier solution for the same features to start our own solver from: faster where θ has moved
        little.
    gap_floor
        Treat a policy less far below the best than this share of the largest distance as that far below.
    solver
        None for our own solver, and CVXPY where that cannot certify the gap. "interior_point" for our own
        alone. "cvxpy" for CVXPY alone, with all pairs at once: slow, and a check of our own.

    Returns
    -------
    The allocation; its `solver` says what has found it.

    Raises
    ------
    ValueError
        If two policies tie for the best at θ, so that no allocation separates them, or `solver` is unknown.
    ArithmeticError
        If the gap stays above the tolerance. Where CVXPY is not installed, the message says how to get it.
    ImportError
        If `solver` is "cvxpy" and CVXPY is not installed.
    """
    if solver is not None and solver not in set(Solver):
        raise ValueError(f"solver must be None or one of {', '.join(Solver)}; got {solver!r}")
    program = _Program(features, theta, gap_floor)
    if solver == Solver.CVXPY:
        return _by_cvxpy(program, gamma, tolerance, np.arange(program.rows.size))
    try:
        # An overflow on the way ends in a gap that is too large or not a number.
        with np.errstate(all="ignore"):
            return _by_interior_point(program, gamma, tolerance, start)
    except ArithmeticError as error:
        if solver is not None:
            raise
        try:
            return _by_cvxpy(program, gamma, tolerance, program.first_working_set()[0])
        except ImportError as missing:
            raise ArithmeticError(f"{error}; {missing}") from error
        except ArithmeticError as second:
            raise ArithmeticError(f"{error}; the reference solver fails too: {second}") from error


def _by_interior_point(
    program: _Program, gamma: float, tolerance: float, start: MaxMinAllocation | None
) -> MaxMinAllocation:
    working, omega = program.first_working_set() if start is None else program.resume(start)
    # A first working set is a guess, so that solving it to the last digit would be wasted.
    precision = _OWN_SHARE * tolerance if start is not None else max(0.01, _OWN_SHARE * tolerance)
    for round_ in range(_MAX_ROUNDS):
        atoms = program.atoms(working)
        omega, weights = maximise_smallest(program.targets, atoms, gamma, omega, precision)
        precision = _OWN_SHARE * tolerance
        solution, excess = program.certified(working, omega, weights, gamma, Solver.INTERIOR_POINT)
        if solution.is_certified(tolerance):
            return solution
        if round_ < _THINNED_ROUNDS:
            used = _in_use(atoms, omega)
            working, omega = working[used], omega[used]
        working, omega = program.grow(working, omega, excess, solution.separation)
    raise ArithmeticError(_too_wide(solution, tolerance))


def _by_cvxpy(program: _Program, gamma: float, tolerance: float, working: IntArray) -> MaxMinAllocation:
    try:
        from .semidefinite import maximise_smallest_by_cvxpy  # noqa: PLC0415 - optional, and a second to import
    except ImportError as error:
        raise ImportError(
            "the reference solver needs CVXPY, which is not installed: pip install llmpo-core[reference]"
        ) from error
    while True:
        omega, weights = maximise_smallest_by_cvxpy(program.targets, program.atoms(working), gamma)
        solution, excess = program.certified(working, omega, weights, gamma, Solver.CVXPY)
        if solution.is_certified(tolerance):
            return solution
        grown, _ = program.grow(working, omega, excess, solution.separation)
        if grown.size == working.size:
            raise ArithmeticError(_too_wide(solution, tolerance))
        working = grown


def _too_wide(solution: MaxMinAllocation, tolerance: float) -> str:
    return (
        f"the max-min allocation cannot be certified: its relative gap is {abs(solution.relative_gap):.1e}, "
        f"above the tolerance of {tolerance:.1e}"
    )


def _in_use(atoms: FloatArray, omega: FloatArray) -> BoolArray:
    """A mask of the pairs with more than a trace of the comparisons; all if those leave H near singular."""
    used: BoolArray = omega > _UNUSED * omega.max()
    weighted = atoms * omega[:, None]
    least, least_used = (np.linalg.eigvalsh(weighted[m].T @ atoms[m])[0] for m in (slice(None), used))
    return used if least_used > 0.1 * least else np.ones_like(used)


class _Program:
    """The program's vectors at one estimate: y_i of every rival, and a_p of every pair on demand."""

    def __init__(self, features: FloatArray, theta: FloatArray, gap_floor: float) -> None:
        self.rows, self.columns = np.triu_indices(features.shape[0], 1)
        scores = features @ theta
        self._best = int(scores.argmax())
        others = np.arange(features.shape[0]) != self._best
        gap = scores[self._best] - scores[others]
        gap = np.maximum(gap, gap_floor * gap.max())
        if np.any(gap <= 0.0):
            raise ValueError("two policies tie for the best at this θ: no allocation separates them")
        self._features = features
        slope = special.expit(scores[self.rows] - scores[self.columns])
        self._weight = slope * (1.0 - slope)
        # The program does not depend on the basis, its rounding errors do: use one in which the atoms of all
        # pairs have no correlations. The second round removes what rounding left of them in the first.
        for _ in range(2):
            self._features = self._decorrelated()
        # f_i = 1 / (yᵀH⁻¹y) with y = z_i √2 / |θᵀz_i|.
        contrasts = self._features[others] - self._features[self._best]
        self.targets = contrasts * (np.sqrt(2.0) / gap)[:, None]

    def atoms(self, working: IntArray) -> FloatArray:
        """Shape (n, d): √σ'(θᵀz) z of the given pairs, so that H(ω) sums ω a aᵀ."""
        contrasts = self._features[self.rows[working]] - self._features[self.columns[working]]
        atoms: FloatArray = np.sqrt(self._weight[working])[:, None] * contrasts
        return atoms

    def _decorrelated(self) -> FloatArray:
        """Shape (K, d): the features in the basis in which H(ω) at equal proportions is the identity."""
        weight = np.zeros((self._features.shape[0], self._features.shape[0]))
        weight[self.rows, self.columns] = self._weight / self._weight.size
        weight += weight.T
        laplacian = np.diag(weight.sum(axis=1)) - weight
        try:
            root = np.linalg.cholesky(self._features.T @ laplacian @ self._features)
            return np.asarray(np.linalg.solve(root, self._features.T).T, dtype=np.float64)
        except np.linalg.LinAlgError as error:
            raise ArithmeticError(_SINGULAR) from error

    def gains(self, matrix: FloatArray) -> FloatArray:
        """Shape (P,): aᵀ matrix a of every pair."""
        inner = self._features @ matrix @ self._features.T
        own = np.diagonal(inner)
        gains: FloatArray = self._weight * (
            own[self.rows] + own[self.columns] - 2.0 * inner[self.rows, self.columns]
        )
        return gains

    def certified(
        self, working: IntArray, omega: FloatArray, weights: FloatArray, gamma: float, solver: Solver
    ) -> tuple[MaxMinAllocation, FloatArray]:
        """The solution with its proof, and how much each pair exceeds those in use, shape (P,).

        The bound holds whatever the proportions and the weights of the rivals are; it is tight at the
        optimum.
        """
        atoms = self.atoms(working)
        directions = _solved((atoms * omega[:, None]).T @ atoms, self.targets)
        values = 1.0 / np.sum(directions * self.targets, axis=1)
        gains = self.gains((directions * (weights * values**2)[:, None]).T @ directions)
        smallest = float(values.min())
        if not (smallest > 0.0 and np.isfinite(gains).all()):
            raise ArithmeticError(_SINGULAR)
        value, bound = smallest - 0.5 * gamma * float(omega @ omega), linear_bound(gains, gamma)
        solution = MaxMinAllocation(
            pairs=np.stack([self.rows[working], self.columns[working]], axis=1),
            proportions=omega,
            value=value,
            # Where γ dominates, the last digits of both are all that is left of the separation.
            upper_bound=bound + _ROUNDING * (abs(value) + abs(bound)),
            separation=smallest,
            solver=solver,
        )
        return solution, gains - gains[working] @ omega + gamma * omega @ omega

    def first_working_set(self) -> tuple[IntArray, FloatArray]:
        """Every pair with the best policy, and the pairs that gain most at the uniform allocation."""
        d = self._features.shape[1]
        atoms = self.atoms(np.arange(self.rows.size))
        directions = _solved(atoms.T @ atoms / self.rows.size, self.targets)
        values = 1.0 / np.sum(directions * self.targets, axis=1)
        # The rivals hardest to separate count most.
        share = (values.min() / values) ** 4
        gains = self.gains((directions * (share * values**2)[:, None]).T @ directions)
        size = min(d * (d + 1), gains.size)
        chosen = np.zeros(gains.size, dtype=np.bool_)
        chosen[np.argpartition(-gains, size - 1)[:size]] = True
        chosen |= (self.rows == self._best) | (self.columns == self._best)
        working = np.flatnonzero(chosen)
        return working, np.full(working.size, 1.0 / working.size)

    def resume(self, start: MaxMinAllocation) -> tuple[IntArray, FloatArray]:
        """The pairs that the earlier solution uses, moved away from the boundary."""
        i, j = start.pairs[:, 0], start.pairs[:, 1]
        working = i * self._features.shape[0] - i * (i + 1) // 2 + j - i - 1
        used = _in_use(self.atoms(working), start.proportions)
        omega = start.proportions[used]
        return working[used], 0.9 * omega / omega.sum() + 0.1 / omega.size

    def grow(
        self, working: IntArray, omega: FloatArray, excess: FloatArray, level: float
    ) -> tuple[IntArray, FloatArray]:
        """Add the pairs that would gain most, or nearly would gain, in excess of those in the working set."""
        excess = excess.copy()
        excess[working] = -np.inf
        size = min(max(self._features.shape[1] ** 2, working.size), excess.size - 1)
        new = np.argpartition(-excess, size)[:size]
        new = new[excess[new] > -_NEARLY_USEFUL * level]
        # Near the boundary the interior-point method crawls, so every pair gets a fair start.
        grown = np.concatenate([working, new])
        start = np.concatenate([0.7 * omega, np.zeros(new.size)]) + 0.3 / grown.size
        return grown, start


def _solved(matrix: FloatArray, rows: FloatArray) -> FloatArray:
    """Rows times the inverse of a symmetric matrix, shaped like the rows."""
    try:
        return np.asarray(rows @ np.linalg.inv(matrix), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise ArithmeticError(_SINGULAR) from error

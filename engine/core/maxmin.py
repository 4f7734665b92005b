"""Optimal sampling proportions in a linear Bradley-Terry space, with a proof of how good they are.

    maximise over ω in the simplex   min over i of f_i(ω) - γ/2 ‖ω‖²,
    f_i(ω) = (θᵀz_i)² / (2 z_iᵀ H(ω)⁻¹ z_i),   H(ω) = Σ_p ω_p σ'(θᵀz_p) z_p z_pᵀ

[LLM-PO, eq. empirical opt]. An optimal ω needs at most about d² pairs. So the program is solved on a working
set, to which the pairs that would gain most are added until a bound over all pairs proves the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from scipy import special

from .interior_point import linear_bound, maximise_smallest
from .types import BoolArray, FloatArray, IntArray

_MAX_ROUNDS = 60
_UNUSED = 2e-3
# Pairs this close to being useful, relative to the level, come along: it saves rounds.
_NEARLY_USEFUL = 0.1
# Pairs out of use are dropped in the first rounds only: for ever, that could go round in circles.
_THINNED_ROUNDS = 4
# Share of the tolerance that the working set may use up, the other pairs having the rest.
_OWN_SHARE = 0.6


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
        What no allocation can exceed.
    separation
        The smallest f_i at this allocation: its inverse is U*(μ) where γ = 0 [LLM-PO, theorem
        "combinatorial structure"].
    """

    pairs: IntArray
    proportions: FloatArray
    value: float
    upper_bound: float
    separation: float

    @property
    def relative_gap(self) -> float:
        """How far the value may be from the optimum, relative to the smallest f_i."""
        return (self.upper_bound - self.value) / self.separation

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
        pairs = np.array(state["pairs"], dtype=np.int64).reshape(-1, 2)
        return cls(**(dict(state) | {"pairs": pairs, "proportions": np.array(state["proportions"])}))


def maxmin_allocation(
    features: FloatArray,
    theta: FloatArray,
    *,
    gamma: float = 0.0,
    tolerance: float = 1e-4,
    start: MaxMinAllocation | None = None,
    gap_floor: float = 0.0,
    solver: str = "interior_point",
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
        An earlier solution for the same features to start from: faster where θ has moved little.
    gap_floor
        Treat a policy less far below the best than this share of the largest distance as that far below.
    solver
        "interior_point", or "cvxpy" for Clarabel by way of CVXPY, which is slow, needs that package, and
        takes neither tolerance nor start; its upper bound is Clarabel's own.

    Raises
    ------
    ValueError
        If two policies tie for the best at θ, so that no allocation separates them, or `solver` is unknown.
    ArithmeticError
        If the gap stays above the tolerance.
    """
    program = _Program(features, theta, gap_floor)
    if solver == "cvxpy":
        # CVXPY takes a second to import, and a web application never needs it.
        from .conic import solve_by_cvxpy  # noqa: PLC0415

        everything = np.arange(program.rows.size)
        omega, bound = solve_by_cvxpy(program.targets, program.atoms(everything), gamma)
        return program.solution(everything, omega, gamma, bound)
    if solver != "interior_point":
        raise ValueError(f"solver must be interior_point or cvxpy; got {solver!r}")
    working, omega = program.first_working_set() if start is None else program.resume(start)
    # A first working set is a guess, so that solving it to the last digit would be wasted.
    precision = _OWN_SHARE * tolerance if start is not None else max(0.01, _OWN_SHARE * tolerance)
    for round_ in range(_MAX_ROUNDS):
        atoms = program.atoms(working)
        omega, weights = maximise_smallest(program.targets, atoms, gamma, omega, precision)
        precision = _OWN_SHARE * tolerance
        directions = program.targets @ np.linalg.inv((atoms * omega[:, None]).T @ atoms)
        values = 1.0 / np.sum(directions * program.targets, axis=1)
        gains = program.gains((directions * (weights * values**2)[:, None]).T @ directions)
        solution = program.solution(working, omega, gamma, linear_bound(gains, gamma))
        if solution.relative_gap <= tolerance:
            return solution
        excess = gains - gains[working] @ omega + gamma * omega @ omega
        if round_ < _THINNED_ROUNDS:
            used = _in_use(atoms, omega)
            working, omega = working[used], omega[used]
        working, omega = program.grow(working, omega, excess, solution.separation)
    raise ArithmeticError(
        f"the max-min allocation did not converge: relative gap {solution.relative_gap:.1e}"
    )


def _in_use(atoms: FloatArray, omega: FloatArray) -> BoolArray:
    """Which pairs have more than a trace of the comparisons; all of them if those alone leave H near singular."""
    used: BoolArray = omega > _UNUSED * omega.max()
    weighted = atoms * omega[:, None]
    least, least_used = (np.linalg.eigvalsh(weighted[m].T @ atoms[m])[0] for m in (slice(None), used))
    return used if least_used > 0.1 * least else np.ones_like(used)


class _Program:
    """The program's vectors at one estimate: y_i of every rival, and a_p of every pair on demand."""

    def __init__(self, features: FloatArray, theta: FloatArray, gap_floor: float) -> None:
        self.rows, self.columns = np.triu_indices(features.shape[0], 1)
        scores = features @ theta
        # The program does not depend on the basis, its rounding errors do: use one without correlations.
        root = np.linalg.cholesky(np.atleast_2d(np.cov(features.T, bias=True)))
        features = np.asarray(np.linalg.solve(root, features.T).T, dtype=np.float64)
        self._features = features
        slope = special.expit(scores[self.rows] - scores[self.columns])
        self._weight = slope * (1.0 - slope)
        self._best = int(scores.argmax())
        others = np.arange(features.shape[0]) != self._best
        gap = scores[self._best] - scores[others]
        gap = np.maximum(gap, gap_floor * gap.max())
        if np.any(gap <= 0.0):
            raise ValueError("two policies tie for the best at this θ: no allocation separates them")
        # f_i = 1 / (yᵀH⁻¹y) with y = z_i √2 / |θᵀz_i|.
        self.targets = (features[others] - features[self._best]) * (np.sqrt(2.0) / gap)[:, None]

    def atoms(self, working: IntArray) -> FloatArray:
        """Shape (n, d): √σ'(θᵀz) z of the given pairs, so that H(ω) sums ω a aᵀ."""
        contrasts = self._features[self.rows[working]] - self._features[self.columns[working]]
        atoms: FloatArray = np.sqrt(self._weight[working])[:, None] * contrasts
        return atoms

    def gains(self, matrix: FloatArray) -> FloatArray:
        """Shape (P,): aᵀ matrix a of every pair."""
        inner = self._features @ matrix @ self._features.T
        own = np.diagonal(inner)
        gains: FloatArray = self._weight * (
            own[self.rows] + own[self.columns] - 2.0 * inner[self.rows, self.columns]
        )
        return gains

    def solution(self, working: IntArray, omega: FloatArray, gamma: float, bound: float) -> MaxMinAllocation:
        """Package proportions of the given pairs with an upper bound on the program."""
        atoms = self.atoms(working)
        directions = self.targets @ np.linalg.inv((atoms * omega[:, None]).T @ atoms)
        smallest = float(np.min(1.0 / np.sum(directions * self.targets, axis=1)))
        return MaxMinAllocation(
            pairs=np.stack([self.rows[working], self.columns[working]], axis=1),
            proportions=omega,
            value=smallest - 0.5 * gamma * float(omega @ omega),
            upper_bound=bound,
            separation=smallest,
        )

    def first_working_set(self) -> tuple[IntArray, FloatArray]:
        """Every pair with the best policy, and the pairs that gain most at the uniform allocation."""
        d = self._features.shape[1]
        atoms = self.atoms(np.arange(self.rows.size))
        directions = self.targets @ np.linalg.inv(atoms.T @ atoms / self.rows.size)
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

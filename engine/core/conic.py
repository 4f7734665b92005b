"""The max-min program as a semidefinite program for CVXPY: slow, and an independent check of the solver."""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np

from .types import FloatArray

# CVXPY's functions are only partly typed.
cp: Any = cvxpy


def solve_by_cvxpy(targets: FloatArray, atoms: FloatArray, gamma: float) -> tuple[FloatArray, float]:
    """Maximise min 1 / (yᵀH(ω)⁻¹y) - γ/2 ‖ω‖² over the simplex by Clarabel, H(ω) = Σ ω a aᵀ.

    u ≤ 1 / (yᵀH⁻¹y) is the linear matrix inequality H(ω) - u y yᵀ ⪰ 0.

    Parameters
    ----------
    targets
        Shape (K - 1, d): y of every rival of the best policy.
    atoms
        Shape (P, d): a of every pair.
    gamma
        Regularisation γ ≥ 0.

    Returns
    -------
    Proportions, shape (P,), and the optimal value that the solver claims.

    Raises
    ------
    ArithmeticError
        If the solver gives up.
    """
    n_pairs, d = atoms.shape
    # One equation per entry of the upper triangle: the solver stumbles over repeated ones.
    rows, columns = np.triu_indices(d)
    products = atoms[:, rows] * atoms[:, columns]
    omega = cp.Variable(n_pairs, nonneg=True)
    level = cp.Variable()
    fisher = cp.Variable((d, d), symmetric=True)
    constraints = [cp.sum(omega) == 1, fisher[rows, columns] == products.T @ omega]
    constraints += [fisher - level * np.outer(target, target) >> 0 for target in targets]
    problem = cp.Problem(cp.Maximize(level - 0.5 * gamma * cp.sum_squares(omega)), constraints)
    try:
        problem.solve(solver=cp.CLARABEL)
    except cp.SolverError as error:
        raise ArithmeticError(f"CVXPY could not solve the max-min program: {error}") from error
    if omega.value is None:
        raise ArithmeticError(f"CVXPY could not solve the max-min program: {problem.status}")
    proportions = np.maximum(omega.value, 0.0)
    return proportions / proportions.sum(), float(problem.value)

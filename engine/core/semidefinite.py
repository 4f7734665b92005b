"""The max-min program as a semidefinite program for CVXPY: slow, and independent of our own solver.

It is the reference that tests compare with, and the second way where our own solver cannot certify its
answer. Nothing else in this package imports CVXPY, which takes a second to load and is optional.
"""

from typing import Any

import cvxpy
import numpy as np

from .types import FloatArray

# CVXPY's functions are only partly typed.
cp: Any = cvxpy
# The bound is of first order in the errors of the proportions, which are the roots of Clarabel's gap. Its
# default of 1e-8 left a certified gap above 1e-4 in one program of twenty.
_GAP = 1e-10


def maximise_smallest_by_cvxpy(
    targets: FloatArray, atoms: FloatArray, gamma: float
) -> tuple[FloatArray, FloatArray]:
    """Maximise min 1 / (yᵀH(ω)⁻¹y) - γ/2 ‖ω‖² over the simplex by Clarabel, H(ω) = Σ ω a aᵀ.

    u ≤ 1 / (yᵀH⁻¹y) is the linear matrix inequality H(ω) - u y yᵀ ⪰ 0 [Boyd and Vandenberghe 2004, A.5.5].
    Nothing is said about how good the answer is: the caller certifies it.

    Parameters
    ----------
    targets
        Shape (K - 1, d): y of every rival of the best policy.
    atoms
        Shape (n, d): a of every pair that may be used; they span all d dimensions.
    gamma
        Regularisation γ ≥ 0.

    Returns
    -------
    Proportions, shape (n,), and multipliers of the rivals, shape (K - 1,); both are nonnegative and sum to 1.

    Raises
    ------
    ArithmeticError
        If Clarabel gives up.
    """
    n_pairs, d = atoms.shape
    # In units of the level at equal proportions, as our own solver does, so that numbers are near 1.
    curvature = np.linalg.lstsq(atoms.T @ atoms / n_pairs, targets.T)[0].T
    scale = float(np.min(1.0 / np.sum(curvature * targets, axis=1)))
    if not 0.0 < scale < np.inf:
        raise ArithmeticError("the max-min program is too close to singular for CVXPY")
    targets = targets * np.sqrt(scale)
    # One equation per entry of the upper triangle: the solver stumbles over repeated ones.
    rows, columns = np.triu_indices(d)
    products = atoms[:, rows] * atoms[:, columns]
    omega = cp.Variable(n_pairs, nonneg=True)
    level = cp.Variable()
    fisher = cp.Variable((d, d), symmetric=True)
    rooms = [fisher - level * np.outer(target, target) >> 0 for target in targets]
    constraints = [cp.sum(omega) == 1, fisher[rows, columns] == products.T @ omega, *rooms]
    problem = cp.Problem(cp.Maximize(level - 0.5 * gamma / scale * cp.sum_squares(omega)), constraints)
    try:
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=_GAP, tol_gap_rel=_GAP, tol_feas=_GAP)
    except BaseException as error:
        # Clarabel is written in Rust, whose panics are no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ArithmeticError(f"CVXPY could not solve the max-min program: {error}") from error
    if omega.value is None:
        raise ArithmeticError(f"CVXPY could not solve the max-min program: {problem.status}")
    prices = np.array(
        [target @ room.dual_value @ target for target, room in zip(targets, rooms, strict=True)]
    )
    return _shares(omega.value), _shares(prices)


def _shares(values: FloatArray) -> FloatArray:
    """The values without what rounding made negative, scaled to sum to 1."""
    positive = np.maximum(values, 0.0)
    if not positive.sum() > 0.0:
        raise ArithmeticError(
            "CVXPY's answer to the max-min program is not usable: all its numbers are zero or not finite"
        )
    shares: FloatArray = positive / positive.sum()
    return shares

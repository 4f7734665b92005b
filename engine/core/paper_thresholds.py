"""Thresholds on the paper's test statistic Z(t), proven and heuristic."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy  # its optimize is imported at its first use: few processes come to that
from numpy.typing import ArrayLike
from scipy import special

from .estimation import information, ridge
from .spaces import BradleyTerry
from .types import FloatArray, Tally

# B: the paper's instances have θ of norm 1. Scale the features so that it is a fair assumption.
PARAMETER_RADIUS = 1.0


class Threshold(Protocol):
    """A threshold δ ↦ Z on the test statistic, for R runs."""

    def at(self, tally: Tally) -> FloatArray:
        """Shape (R,): the threshold (nats) now."""
        ...

    def risk(self, statistic: FloatArray, tally: Tally) -> FloatArray:
        """Shape (R, K): the risk, in [0, 1], at which each statistic would just suffice."""
        ...


@dataclass(frozen=True, slots=True)
class HeuristicThreshold:
    """2 log((log t + 1)/δ) for risk level `delta`. [LLM-PO, section "experiments"]"""

    delta: float

    def at(self, tally: Tally) -> FloatArray:
        """Shape (R,): the threshold (nats) now."""
        return heuristic_threshold(self.delta, tally.n_comparisons)

    def risk(self, statistic: FloatArray, tally: Tally) -> FloatArray:
        """Shape (R, K): the δ whose threshold equals the statistic, at most 1."""
        t = np.maximum(tally.n_comparisons, 1)[:, None]
        risk: FloatArray = np.minimum(1.0, (np.log(t) + 1.0) * np.exp(-statistic / 2.0))
        return risk


class ProvenPairwiseThreshold:
    """ρ(δ, t) with the smallest constant that the paper's proof allows. [LLM-PO, eq. unstructed_stop]"""

    def __init__(self, delta: float, n_policies: int) -> None:
        self._delta = delta
        self._n_pairs = n_policies * (n_policies - 1) // 2
        self._log_constant = pairwise_log_constant(delta, self._n_pairs)

    def at(self, tally: Tally) -> FloatArray:
        """Shape (R,): the threshold (nats) now."""
        return pairwise_threshold(self._delta, tally.n_comparisons, self._log_constant, self._n_pairs)

    def risk(self, statistic: FloatArray, tally: Tally) -> FloatArray:
        """Shape (R, K): δ where the threshold is passed, 1 elsewhere: the proof is for this δ only."""
        return np.where(statistic > self.at(tally)[:, None], self._delta, 1.0)


class ProvenLinearThreshold:
    """β(δ, t) of the linear Bradley-Terry space, with its gate on exploration. [LLM-PO, eq. stop]

    β = (2 (1 + 2LB) (√(Ψ_t(δ)/m_0) + √λ_t B))², where L is the longest contrast and B the radius of the
    parameter ball. m_0 is the smallest σ' within it, and λ_t the ridge of the estimate. It is infinite until
    Λ_min(V_t) ≥ c √t and t ≥ t_0.

    Ψ_t has another λ: λ(t), which its lemma introduces as a lower bound on Λ_min(V_t), here the gate c √t.
    λ_0 = λ(t_0) is the precision of that proof's Gaussian mixture and fixed in advance. The paper starts its
    rule after n_0 comparisons of each pair of A_0; t_0 = d here, one comparison of each pair of a spanning
    set.

    Parameters
    ----------
    delta
        Risk level δ.
    space
        The features.
    radius
        B: θ is assumed to lie in the ball of this radius.
    gate
        c > 0.
    """

    def __init__(
        self, delta: float, space: BradleyTerry, radius: float = PARAMETER_RADIUS, gate: float = 0.1
    ) -> None:
        self._delta = delta
        self._radius = radius
        self._gate = gate
        rows, columns = np.triu_indices(space.n_policies, 1)
        self._features = space.features
        self._longest = float(np.linalg.norm(space.features[rows] - space.features[columns], axis=1).max())
        flat = special.expit(radius * self._longest)
        self._least_slope = max(float(flat * (1.0 - flat)), 1e-300)

    def at(self, tally: Tally) -> FloatArray:
        """Shape (R,): the threshold (nats) now; infinite before every direction is explored."""
        rows, columns = np.nonzero(np.triu(tally.counts.any(axis=0), 1))
        gram = information(self._features[rows] - self._features[columns], tally.counts[:, rows, columns])
        t = np.maximum(tally.n_comparisons, 1).astype(np.float64)
        d = self._features.shape[1]
        floor, floor_at_start = self._gate * np.sqrt(t), self._gate * np.sqrt(d)
        eigenvalues = np.linalg.eigvalsh(gram)
        log_det = np.sum(np.log(np.maximum(eigenvalues, 1e-300)), axis=1)
        ratio = floor_at_start / floor
        # log det(V_t)/λ(t)^d + d log λ(t)/λ_0 of the paper, λ(t) cancelling.
        volume = log_det - d * np.log(floor_at_start)
        psi = (1.0 + ratio) * (2.0 * np.log(1.0 / self._delta) + volume + d * np.log1p(ratio))
        slack = np.sqrt(np.maximum(psi, 0.0) / self._least_slope) + np.sqrt(ridge(t)) * self._radius
        beta = (2.0 * (1.0 + 2.0 * self._longest * self._radius) * slack) ** 2
        return np.where((eigenvalues[:, 0] >= floor) & (t >= d), beta, np.inf)

    def risk(self, statistic: FloatArray, tally: Tally) -> FloatArray:
        """Shape (R, K): δ where the threshold is passed and 1 elsewhere."""
        return np.where(statistic > self.at(tally)[:, None], self._delta, 1.0)


def heuristic_threshold(delta: float, n_comparisons: ArrayLike) -> FloatArray:
    """The threshold (nats) of the paper's own experiments: 2 log((log t + 1)/δ); t below 1 counts as 1.

    Not proven: it ignores how many pairs there are. [LLM-PO, section "experiments"]
    """
    t = np.maximum(np.asarray(n_comparisons, dtype=np.float64), 1.0)
    threshold: FloatArray = 2.0 * np.log((np.log(t) + 1.0) / delta)
    return threshold


def pairwise_threshold(
    delta: float, n_comparisons: ArrayLike, log_constant: float, n_pairs: int
) -> FloatArray:
    """The proven threshold ρ(δ, t) = log(C t² log(1/δ)^(2|S|+1) / δ), in nats [LLM-PO, eq. unstructed_stop].

    t below 1 counts as 1, and `log_constant` comes from `pairwise_log_constant`.
    """
    t = np.maximum(np.asarray(n_comparisons, dtype=np.float64), 1.0)
    return _pairwise_threshold(delta, np.log(t), log_constant, n_pairs)


def pairwise_log_constant(delta: float, n_pairs: int) -> float:
    """The smallest log C for which ρ(δ, t) is proven [LLM-PO, eq. beta-condition-unstructured].

    The condition bounds a sum over all t ≥ 1 by δ. The first ten thousand terms are summed one by one. The
    others are summed in blocks on a grid of log t, each at the larger of its ends.

    Raises
    ------
    ArithmeticError
        If no constant can be found.
    """

    def log_excess(log_constant: float) -> float:
        return _log_error_sum(delta, n_pairs, log_constant) - float(np.log(delta))

    # The deviation inequality behind the condition holds for thresholds of |S| + 1 and more.
    lower = n_pairs + 1.0 - float(_pairwise_threshold(delta, np.zeros(1), 0.0, n_pairs)[0])
    upper = lower + 10.0
    while log_excess(upper) > 0.0:
        upper = lower + 2.0 * (upper - lower)
        if upper > 1e9:
            raise ArithmeticError("no constant satisfies the condition on the threshold ρ(δ, t)")
    return float(scipy.optimize.brentq(log_excess, lower, upper, xtol=1e-9))


def _pairwise_threshold(delta: float, log_t: FloatArray, log_constant: float, n_pairs: int) -> FloatArray:
    spread = (2 * n_pairs + 1) * np.log(np.log(1.0 / delta))
    threshold: FloatArray = log_constant + 2.0 * log_t + spread - np.log(delta)
    return threshold


def _log_error_sum(delta: float, n_pairs: int, log_constant: float) -> float:
    """Log of an upper bound on the sum over t of the deviation probabilities."""
    single = np.log(np.arange(1.0, 10_000.0))
    # Powers of log t hold the terms up until log t is about |S|; from there they fall like 1/t.
    block_ends = np.linspace(np.log(10_000.0), 40.0 * n_pairs + 400.0, 20_000)
    log_t = np.concatenate([single, block_ends])
    threshold = _pairwise_threshold(delta, log_t, log_constant, n_pairs)
    # ceil(x) <= x + 1 keeps the bound smooth in C and on the safe side.
    log_term = n_pairs + 1.0 + n_pairs * np.log((threshold * log_t + 1.0) * threshold / n_pairs) - threshold
    terms, ends = np.split(log_term, [single.size])
    blocks = np.maximum(ends[:-1], ends[1:]) + block_ends[1:] + np.log1p(-np.exp(-np.diff(block_ends)))
    tail = ends[-1] + block_ends[-1] + np.log(2.0)
    return float(special.logsumexp(np.concatenate([terms, blocks, [tail]])))

"""Optimal sampling proportions and fundamental data requirements where nothing is assumed about μ."""

import numpy as np

from .bernoulli import bernoulli_kl
from .types import FloatArray, IntArray

# Nats: what a comparison brings at win rates of 0.5 ± 0.0007.
NEAR_TIE_RATE = 1e-6


def best_policy(mu: FloatArray) -> IntArray:
    """The policy with the largest worst-case winning probability [LLM-PO, eq. optpolicy].

    Shape (...) from `mu` of shape (..., K, K), whose diagonal is not looked at: argmax over i of min over j ≠
    i of mu[i, j].
    """
    own = np.eye(mu.shape[-1], dtype=np.bool_)
    best: IntArray = np.argmax(np.where(own, np.inf, mu).min(axis=-1), axis=-1)
    return best


def elimination_rate(mu: FloatArray) -> tuple[FloatArray, IntArray]:
    """Largest information (nats) that one comparison brings against each policy, and the opponent for it.

    d_i* = max of d(mu[i, j], ½) over the j that beat i [LLM-PO, corollary "optimal ratio"]. Both have shape
    (..., K): a policy that nobody beats has the rate 0 and itself as opponent.
    """
    # The information grows as mu falls below one half, so the toughest opponent is the smallest entry.
    toughest = np.where(np.eye(mu.shape[-1], dtype=np.bool_), 0.5, mu)
    opponent = np.argmin(toughest, axis=-1)
    rate = bernoulli_kl(np.take_along_axis(toughest, opponent[..., None], axis=-1)[..., 0].clip(max=0.5), 0.5)
    return rate, np.where(rate > 0.0, opponent, np.arange(mu.shape[-1]))


def pairwise_allocation(mu: FloatArray) -> FloatArray:
    """Optimal sampling proportions ω* in closed form [LLM-PO, corollary "optimal ratio"].

    Shape (..., K, K) as `mu`, symmetric: the proportion of each pair; the upper triangle sums to 1. A
    policy other than the best that nobody beats, as can happen to estimates, is compared with the best at the
    rate of a near-tie.
    """
    K = mu.shape[-1]
    best = best_policy(mu)[..., None]
    rate, opponent = elimination_rate(mu)
    opponent = np.where(opponent == np.arange(K), best, opponent)
    weight = 1.0 / np.maximum(rate, NEAR_TIE_RATE)
    np.put_along_axis(weight, best, 0.0, axis=-1)
    weight /= weight.sum(axis=-1, keepdims=True)
    directed = np.zeros(mu.shape)
    np.put_along_axis(directed, opponent[..., None], weight[..., None], axis=-1)
    return directed + np.swapaxes(directed, -1, -2)


def pairwise_characteristic_time(mu: FloatArray) -> float:
    """T*(μ): comparisons per nat that any δ-PAC design needs [LLM-PO, theorem "lower bound"].

    Raises
    ------
    ValueError
        If there is no Condorcet winner, so that no amount of data could name it.
    """
    best = int(best_policy(mu))
    others = np.arange(mu.shape[0]) != best
    if np.any(mu[best, others] <= 0.5):
        raise ValueError(
            "no policy beats all others with probability above 1/2, so there is no best one to find"
        )
    rate, _ = elimination_rate(mu)
    return float(np.sum(1.0 / rate[others]))


def lower_bound(characteristic_time: float, delta: float) -> float:
    """Least expected number of comparisons of any δ-PAC design: T* kl(δ, 1 - δ), for δ in (0, ½).

    [LLM-PO, theorem "lower bound"]
    """
    return characteristic_time * float(bernoulli_kl(delta, 1.0 - delta))

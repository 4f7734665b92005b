"""Bernoulli likelihoods in log space, elementwise over arrays."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .types import BoolArray, FloatArray

# Below this the regularised incomplete beta function loses digits on its way to underflow.
_SMALLEST_TRUSTED_CDF = 1e-280
_MAX_FRACTION_TERMS = 10_000
# So many e-values of single pairs are kept in each process: about 5 MB.
_KEPT = 2**14
# Parts of a mixture: share, share of the concentration, and whether it is cut off at ½ and not at the null's
# edge. The last part is the wide one. Where the null is a fair coin, it takes 15% off the comparisons of a
# proof if win rates are anywhere from ½ to 1. It adds 1% where the closest rival needs most of them.
_PARTS: tuple[tuple[float, float, bool], ...] = ((0.6, 1.0, False), (0.4, 0.1, False))
# Where the null begins above ½: a policy is mostly claimed to be good enough that beats the others, some of
# them by far. By exact expected numbers of comparisons, the wide part saves 1 to 3% with six policies or
# more, and costs 2% against a mean of ½.
_PARTS_WITH_MARGIN: tuple[tuple[float, float, bool], ...] = (
    (0.25, 1.0, False),
    (0.5, 1.0, True),
    (0.25, 0.25, True),
)


def bernoulli_kl(p: ArrayLike, q: ArrayLike) -> FloatArray:
    """Kullback-Leibler divergence d(p, q) between Bernoulli distributions, in nats.

    Means in [0, 1], which broadcast; infinite where q excludes what p allows. [LLM-PO, theorem "lower bound"]
    """
    p = np.asarray(p, dtype=np.float64)
    divergence: FloatArray = special.rel_entr(p, q) + special.rel_entr(1.0 - p, np.subtract(1.0, q))
    return divergence


def log_lower_beta(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> FloatArray:
    """Log of the lower incomplete beta integral, ∫_0^x q^(a-1) (1-q)^(b-1) dq.

    Stays accurate where the integral itself underflows, with a and b of a million and more. a and b are
    positive and of equal shape, to which x in (0, 1) broadcasts.
    """
    a = np.array(a, dtype=np.float64, ndmin=1)
    b = np.array(b, dtype=np.float64, ndmin=1)
    cdf = special.betainc(a, b, x)
    tail = cdf < _SMALLEST_TRUSTED_CDF
    result: FloatArray
    if not np.count_nonzero(tail):
        result = special.betaln(a, b) + np.log(cdf)
        return result
    result = special.betaln(a, b) + np.log(np.where(tail, 1.0, cdf))
    result[tail] = _log_lower_beta_tail(a[tail], b[tail], np.broadcast_to(x, a.shape)[tail])
    return result


def _log_lower_beta_tail(a: FloatArray, b: FloatArray, x: FloatArray) -> FloatArray:
    """The same integral by its continued fraction, which converges fast for x far below a / (a + b).

    Modified Lentz evaluation of [DLMF, 8.17.22].
    """
    tiny = 1e-300
    fraction = np.ones_like(a)
    ratio_up = np.ones_like(a)
    ratio_down = 1.0 - (a + b) * x / (a + 1.0)
    ratio_down = 1.0 / np.where(np.abs(ratio_down) < tiny, tiny, ratio_down)
    fraction = fraction * ratio_down
    # An element is left alone once converged, so that its value does not depend on its neighbours.
    active: BoolArray = np.ones(a.shape, dtype=np.bool_)
    for m in range(1, _MAX_FRACTION_TERMS):
        s, t, y = a[active], b[active], x[active]
        up, down, value = ratio_up[active], ratio_down[active], fraction[active]
        for coefficient in (
            m * (t - m) * y / ((s + 2 * m - 1.0) * (s + 2 * m)),
            -(s + m) * (s + t + m) * y / ((s + 2 * m) * (s + 2 * m + 1.0)),
        ):
            down = 1.0 + coefficient * down
            down = 1.0 / np.where(np.abs(down) < tiny, tiny, down)
            up = 1.0 + coefficient / up
            up = np.where(np.abs(up) < tiny, tiny, up)
            change = up * down
            value = value * change
        ratio_up[active], ratio_down[active], fraction[active] = up, down, value
        active[active] = np.abs(change - 1.0) > 1e-14
        if not active.any():
            result: FloatArray = a * np.log(x) + b * np.log1p(-x) - np.log(a) + np.log(fraction)
            return result
    raise ArithmeticError("the continued fraction of the incomplete beta function did not converge")


@lru_cache
def _log_prior(concentration: float, null_mean: float) -> float:
    return float(log_lower_beta(concentration, concentration, null_mean)[0])


def log_e_value(
    wins: ArrayLike,
    losses: ArrayLike,
    null_mean: float,
    concentration: float,
    *,
    narrow: bool = False,
    ties: ArrayLike | None = None,
) -> FloatArray:
    """Log e-value against "the mean is at least `null_mean`", from wins and losses.

    The likelihood ratio of a mixture of means below `null_mean` against the null's edge. As comparisons
    arrive it is a supermartingale from 1 under the null, whatever rule chose them. The mixture is mostly a
    Beta(a, a) cut off at the edge, with a wide part for means far below it. Where the edge is ½ the wide part
    is 40% and a Beta(a/10, a/10). Where it is above ½ a quarter is the first, one half the same cut off at ½,
    and one quarter a Beta(a/4, a/4) cut off at ½.

    Parameters
    ----------
    wins, losses
        Non-negative, equal shape; a tie adds one half to both.
    null_mean
        Edge of the null, in [½, 1).
    concentration
        The mixture's a > 0: larger puts more weight on means near one half.
    narrow
        Whether to leave out the wide part, because other evidence is quick where means are far below.
    ties
        Of the wins' shape: how many of the comparisons were ties that are bet on as such. For a mean q of the
        mixture an outcome D has the factor D q / p₀ + (1 - D) (1 - q) / (1 - p₀). It is linear in D: that of
        a tie is the average of a win's and of a loss's. Other ties have half of a win and half of a loss, the
        geometric mean of the two, which is less. The e-value with ties is a lower bound.

    Returns
    -------
    Array of the inputs' shape (at least one-dimensional), in nats.
    """
    w = np.array(wins, dtype=np.float64, ndmin=1)
    v = np.array(losses, dtype=np.float64, ndmin=1)
    t = None if ties is None or not np.count_nonzero(ties) else np.array(ties, dtype=np.float64, ndmin=1)
    parts = _parts(null_mean, concentration, narrow)
    return _log_mixture(w, v, t, null_mean, parts.reshape(parts.shape + w.ndim * (1,)))


@lru_cache(maxsize=_KEPT)
def log_e_value_of_pair(
    wins: float, losses: float, ties: float, null_mean: float, concentration: float, *, narrow: bool
) -> float:
    """`log_e_value` of one pair, as a number (nats); the last 16,384 are kept.

    The same counts come again: of other pairs, and whenever judgments are told anew after an undo.
    """
    parts = _parts(null_mean, concentration, narrow)
    return float(_log_mixture(wins, losses, ties or None, null_mean, parts))


def log_e_value_above(wins: float, losses: float, mean: float, concentration: float) -> float:
    """Log e-value (nats) against "the mean is at most `mean`", which lies in (0, 1).

    At ½ it is that of `log_e_value`. It never rises with `mean` up to the share of wins, and is at most 0
    from there on. So the means that it excludes are all those below some end.
    """
    edge, parts = 1.0 - mean, []
    for share, narrowness, _ in _PARTS:
        a = narrowness * concentration
        parts.append((a, edge, math.log(share) - _log_prior(a, edge)))
    return float(_log_mixture(losses, wins, None, edge, np.array(parts).T))


def _log_mixture(w: Any, v: Any, t: Any, null_mean: float, parts: FloatArray) -> FloatArray:
    """The log e-value: of arrays, or of numbers. The axes after the first two of the parts are theirs."""
    a, cut, constant = parts
    if t is None:
        likelihood = log_lower_beta(w + a, v + a, cut) + constant
    else:
        w, v = w - 0.5 * t, v - 0.5 * t
        won, lost = w + a, v + a
        as_losses, bound = _below_ties(won, lost, t, null_mean, cut)
        likelihood = log_lower_beta(won, lost + as_losses, cut) + bound + constant
    mixture = np.logaddexp.reduce(likelihood, axis=0)
    result: FloatArray = mixture - w * math.log(null_mean) - v * math.log1p(-null_mean)
    return result


@lru_cache
def _parts(null_mean: float, concentration: float, narrow: bool) -> FloatArray:
    """Shape (3, P): of each part of a mixture the exponent, where it is cut off, and its log weight."""
    parts = _PARTS_WITH_MARGIN if null_mean > 0.5 else _PARTS
    if narrow:
        parts = parts[:-1]
    whole = sum(share for share, _, _ in parts)
    found = []
    for share, narrowness, below_half in parts:
        a, cut = narrowness * concentration, 0.5 if below_half else null_mean
        found.append((a, cut, math.log(share / whole) - _log_prior(a, cut)))
    return np.array(list(zip(*found, strict=True)))


def exact_log_e_value(
    wins: FloatArray,
    losses: FloatArray,
    null_mean: float,
    concentration: float,
    *,
    narrow: bool = False,
    ties: FloatArray,
) -> FloatArray:
    """Shape (n,): the e-value itself of which `log_e_value` with ties is a lower bound, in nats.

    The factor of a tie is the average of a win's and of a loss's. So the e-value is the average of the one
    without ties over all ways to make each tie a win or a loss.
    """
    number = ties.astype(np.int64)
    first = np.cumsum(number + 1) - (number + 1)
    place = np.repeat(np.arange(number.size), number + 1)
    as_wins = np.arange(place.size) - first[place]
    tied, as_losses = number[place], number[place] - as_wins
    without = log_e_value(
        (wins - 0.5 * ties)[place] + as_wins,
        (losses - 0.5 * ties)[place] + as_losses,
        null_mean,
        concentration,
        narrow=narrow,
    )
    ways = special.gammaln(tied + 1.0) - special.gammaln(as_wins + 1.0) - special.gammaln(as_losses + 1.0)
    weighted = without + ways - tied * math.log(2.0)
    top = np.maximum.reduceat(weighted, first)
    exact: FloatArray = top + np.log(np.add.reduceat(np.exp(weighted - top[place]), first))
    return exact


def _below_ties(
    wins: FloatArray, losses: FloatArray, ties: Any, null_mean: float, cut: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Losses y and a constant c with T(q)^ties ≥ e^c (1 - q)^y for all q, T(q) being the factor of a tie.

    T falls linearly from 1 / (2 - 2 p₀) at 0, so that T(q)^ties / (1 - q)^y is least where its derivative is
    0. By the choice of y that is where the likelihood is largest, so that the bound loses a few hundredths of
    a nat and leaves a beta integral.
    """
    start = 0.5 / (1.0 - null_mean)
    slope = start - 0.5 / null_mean
    # The likelihood is largest at the smaller root of a quadratic equation.
    square = slope * (wins + losses + ties)
    linear = wins * (start + slope) + losses * start + ties * slope
    root = 2.0 * wins * start / (linear + np.sqrt(linear * linear - 4.0 * square * wins * start))
    peak = np.minimum(root, cut)
    factor = start - slope * peak
    as_losses = ties * slope * (1.0 - peak) / factor
    return as_losses, ties * np.log(factor) - as_losses * np.log1p(-peak)

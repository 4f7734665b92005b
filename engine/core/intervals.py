"""Intervals that hold at all times at once, whatever rule chose the comparisons.

Adaptive sampling biases win rates, and ordinary intervals looked at while data arrive miss more often than
they say. The intervals here come from likelihood-ratio martingales, so one may look at any time [Robbins
1970, "Statistical Methods Related to the Law of the Iterated Logarithm"].
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import special

from .bernoulli import log_e_value_above
from .estimation import PairData, fit
from .evidence import CONCENTRATION
from .mixture import null_precision, ridge_allowance
from .spaces import BradleyTerry
from .structured import log_marginal_bound, prior_precision
from .types import FloatArray, Tally

_BISECTIONS = 50
_BISECTIONS_OF_ONE = 20
# Share of δ that is kept for the pairs of policies that join.
FOR_NEWCOMERS = 0.05
# More at once would only take more memory; fewer, and most of the time would go to calls.
_ENTRIES_AT_ONCE = 2**18
# Arrays that the search for ends holds at once.
_ARRAYS_OF_A_SEARCH = 16


def win_rate_intervals(
    wins: FloatArray, counts: FloatArray, delta: float, n_first: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Intervals for every preference probability μ(i, j), simultaneously over pairs and over time.

    μ is left out where the likelihood of a Beta(½, ½) mixture exceeds its own as many times as one over the
    pair's share of δ; any interval ever misses with probability at most δ. Lower and upper ends, shape (K, K)
    each; 0 and 1 where there are no comparisons.

    `n_first` is how many policies the experiment began with, all by default. A part of δ is kept for those
    that may join, and the more have joined the less of it is left for one.
    """
    n_policies = wins.shape[0]
    n_first = n_policies if n_first is None else n_first
    # Of policy k against each before it.
    k = np.arange(n_policies, dtype=np.float64)
    arrival = np.maximum(k - n_first + 1.0, 1.0)
    shares = np.where(
        k < n_first,
        (1.0 - FOR_NEWCOMERS) / (n_first * (n_first - 1) / 2.0),
        FOR_NEWCOMERS / (arrival * (arrival + 1.0)) / np.maximum(k, 1.0),
    )
    allowed = -np.log(delta * shares)
    low, high = np.empty_like(wins), np.empty_like(wins)
    for rows in _blocks(n_policies, _ARRAYS_OF_A_SEARCH * n_policies):
        of_pair = np.maximum(allowed[rows, None], allowed)
        low[rows], high[rows] = _ends(wins[rows], counts[rows], of_pair)
    return low, high


def win_rate_at_least(won: float, lost: float, delta: float) -> float:
    """The lower end of an interval, at any time, for the win rate of one policy against another one.

    Both are chosen before the first of the comparisons that count. The win rate is ever below it with
    probability at most δ. Showings without an outcome are to count as lost. It reaches ½ as the e-value of
    `Succession` reaches 1/δ, where no outcome is a tie.

    To bound the win rate of whoever is the champion against the original, count what was shown since it
    became the champion, with δ/(s(s+1)) for the s-th champion.
    """
    excluded, not_excluded = 0.0, 1.0
    for _ in range(_BISECTIONS_OF_ONE):
        middle = 0.5 * (excluded + not_excluded)
        if log_e_value_above(won, lost, middle, CONCENTRATION) >= -math.log(delta):
            excluded = middle
        else:
            not_excluded = middle
    return excluded


def _blocks(n_rows: int, entries: int) -> Iterator[slice]:
    """Rows that are worked on at once, so that whole matrices of all pairs are held as seldom as can be.

    ``entries``: how many each row has.
    """
    size = max(1, _ENTRIES_AT_ONCE // entries)
    for start in range(0, n_rows, size):
        yield slice(start, start + size)


def _ends(wins: FloatArray, counts: FloatArray, allowed: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends, shaped as the wins: where the log-ratio of the likelihoods becomes `allowed`."""
    losses = counts - wins
    mixture = special.betaln(wins + 0.5, losses + 0.5) - special.betaln(0.5, 0.5)

    def excluded(mean: FloatArray) -> FloatArray:
        likelihood = special.xlogy(wins, mean) + special.xlog1py(losses, -mean)
        outside: FloatArray = mixture - likelihood > allowed
        return outside

    estimate = np.divide(wins, counts, out=np.full_like(wins, 0.5), where=counts > 0)
    ends = []
    for outer in (np.zeros_like(wins), np.ones_like(wins)):
        inner, outer = estimate.copy(), outer.copy()  # noqa: PLW2901
        for _ in range(_BISECTIONS):
            middle = 0.5 * (inner + outer)
            out = excluded(middle).astype(np.bool_)
            outer, inner = np.where(out, middle, outer), np.where(out, inner, middle)  # noqa: PLW2901
        ends.append(outer)
    return ends[0], ends[1]


def effect_intervals(
    space: BradleyTerry, tally: Tally, delta: float, contrasts: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Estimates of linear combinations of θ with intervals, simultaneous over combinations and over time.

    By default the entries of θ: in a `Factorial` space, what each level is worth over its factor's first. The
    confidence set {θ: marginal likelihood ≤ likelihood(θ)/δ} holds at all times. The ellipsoid used here
    approximates it to second order around the largest likelihood. An ellipsoid around the estimate, whose
    prior has no place in the set, would leave out clear differences before they had been looked at.

    Estimates, lower and upper ends, shape (m,) each, in log-odds, for `contrasts` of shape (m, d): for
    policies i and j, `features[i] - features[j]`. `tally` has one run.
    """
    combinations = np.eye(space.n_features) if contrasts is None else contrasts
    ellipsoid = _Ellipsoid.of(space, tally, delta)
    return combinations @ ellipsoid.estimate, *ellipsoid.ends(combinations)


@dataclass(frozen=True, slots=True)
class _Ellipsoid:
    """The confidence set of `effect_intervals`.

    Attributes
    ----------
    estimate, centre
        Shape (d,): θ, and where its likelihood is largest.
    radius
        How far the set reaches, in the norm of the Hessian.
    hessian
        Shape (d, d): curvature of minus the log-likelihood at the centre.
    """

    estimate: FloatArray
    centre: FloatArray
    radius: float
    hessian: FloatArray

    @classmethod
    def of(cls, space: BradleyTerry, tally: Tally, delta: float) -> Self:
        """That of one run; the parameters are those of `effect_intervals`."""
        precision, ridge = prior_precision(space, 1.0), null_precision(space)
        data = PairData.of(space.features, tally)
        theta = fit(data, precision, np.zeros((1, space.n_features)))
        likeliest = fit(data, ridge, theta)
        largest = data.log_likelihood(likeliest) - 0.5 * (likeliest @ ridge * likeliest).sum(axis=1)
        regret = largest + ridge_allowance(space) - log_marginal_bound(data, precision, theta)
        radius = float(np.sqrt(2.0 * (np.log(1.0 / delta) + max(float(regret[0]), 0.0))))
        return cls(theta[0], likeliest[0], radius, data.hessian(likeliest)[0] + ridge)

    def ends(self, combinations: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of linear combinations of θ, shape (m, d): shape (m,) each."""
        solved = np.linalg.solve(self.hessian, combinations.T).T
        reach = self.radius * np.sqrt(np.sum(combinations * solved, axis=1))
        centre = combinations @ self.centre
        return centre - reach, centre + reach


def contrast_intervals(space: BradleyTerry, tally: Tally, delta: float) -> tuple[FloatArray, FloatArray]:
    """Intervals of the log-odds of every two policies, simultaneous over pairs and over time.

    Lower and upper ends, shape (K, K) each; see `effect_intervals`.
    """
    K, features = space.n_policies, space.features
    ellipsoid = _Ellipsoid.of(space, tally, delta)
    low, high = np.empty((K, K)), np.empty((K, K))
    for rows in _blocks(K, features.size):
        contrasts = (features[rows, None] - features[None]).reshape(-1, space.n_features)
        low[rows], high[rows] = (ends.reshape(-1, K) for ends in ellipsoid.ends(contrasts))
    return low, high

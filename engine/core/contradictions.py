"""Tests of the assumptions against the data: levels that add up, and one best policy.

None of this is part of the guarantee.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from .bernoulli import bernoulli_kl
from .estimation import PairData, fit
from .spaces import BradleyTerry
from .structured import prior_precision
from .types import FloatArray, IntArray, Tally

# Log-odds between policies that a misfit is measured against are held back by no more than this.
_LOOSE_LOG_ODDS = 10.0
# A large departure from the model. With interactions this large among the log-odds of the pairs, the
# Bradley-Terry model mostly names a wrong winner where the best are close.
_RELEVANT_LOG_ODDS = 0.3
# Pseudo-comparisons that shrink each pair's tie rate to the overall rate.
_TIE_PRIOR = 10.0
# Nats by which each win rate of a cycle must differ from one half. That is about what a single two-sided test
# at the 5% level asks for.
_CYCLE_NATS = 2.0
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Misfit:
    """The misfit of the Bradley-Terry model, against a model with one free win rate per pair.

    Attributes
    ----------
    deviance
        Twice the log-likelihood (nats) that the model loses.
    freedom
        Pairs compared, less the parameters that the data determine.
    p_value
        Share of data sets simulated from the fit whose deviance is at least as large.
    power
        Share of data sets with a large departure (log-odds off by 0.3 on average, at random) for which p
        would be at most `level`. Where it is low, a large p-value says nothing.
    level
        The p-value from which on the model counts as contradicted.
    """

    deviance: float
    freedom: int
    p_value: float
    power: float
    level: float

    @property
    def contradicted(self) -> bool:
        """True if the data speak against the model."""
        return self.p_value <= self.level

    @property
    def has_power(self) -> bool:
        """True if a large departure would more likely than not have been found."""
        return self.power >= 0.5


def is_qualified(tested: Misfit | None, *, assumes_model: bool) -> bool:
    """True if nothing but the assumption supports the model that a claim rests on.

    Not where the claim is proved head to head. Nor where the test of the model would probably have found a
    large departure, and has not. Such a test misses small departures, which decide where policies are close.
    """
    return assumes_model and (tested is None or tested.contradicted or not tested.has_power)


def misfit(
    space: BradleyTerry,
    wins: FloatArray,
    ties: FloatArray,
    *,
    level: float = 0.01,
    n_simulated: int = 199,
    n_departures: int = 100,
    seed: int = 0,
) -> Misfit | None:
    """Test of the Bradley-Terry model by a parametric bootstrap; None where there is nothing to test.

    Simulated data tie as often as the real ones. Ties make win rates vary less, so that a bootstrap without
    them would find hardly any misfit. The number of comparisons of each pair is taken as given. It was in
    truth chosen in the light of earlier outcomes, so that the p-value is an indication and not exact. The
    usual chi-square limit would be worse: adaptive designs leave most pairs with a handful of comparisons.

    Parameters
    ----------
    wins, ties
        Shape (K, K): summed outcomes, and ties by `summed_ties`. The wins do not tell them.
    level
        The p-value from which on the model counts as contradicted.
    n_simulated, n_departures
        Data sets simulated from the fit, and with a departure, for the power.

    Raises
    ------
    ValueError
        If `ties` does not fit `wins`.
    """
    _check_ties(wins, ties)
    data = PairData.of(space.features, Tally(wins[None]))
    if data.contrasts.shape[0] == 0:
        return None
    freedom = data.contrasts.shape[0] - int(np.linalg.matrix_rank(data.contrasts))
    if freedom <= 0:
        return None
    precision = prior_precision(space, _LOOSE_LOG_ODDS)
    theta = fit(data, precision, np.zeros((1, space.n_features)))
    logits = (theta @ data.contrasts.T)[0]
    rng = np.random.default_rng(seed)
    departures = logits + _RELEVANT_LOG_ODDS * rng.standard_normal((n_departures, logits.size))
    n_drawn = n_simulated + n_departures
    mean = special.expit(np.concatenate([np.tile(logits, (n_simulated, 1)), departures]))
    rows, columns = np.nonzero(np.triu(wins + wins.T, 1))
    drawn = _draw_wins(rng, data.counts[0], ties[rows, columns], mean)
    both = replace(
        data,
        counts=np.repeat(data.counts, n_drawn + 1, axis=0),
        wins=np.concatenate([data.wins, drawn]),
    )
    deviance = _deviance(both, fit(both, precision, np.repeat(theta, n_drawn + 1, axis=0)))
    chance = np.sort(deviance[1 : n_simulated + 1])

    def p_values(observed: FloatArray) -> FloatArray:
        beyond = n_simulated - np.searchsorted(chance, observed - _ROUNDING)
        return np.asarray((1 + beyond) / (1 + n_simulated), dtype=np.float64)

    return Misfit(
        deviance=float(deviance[0]),
        freedom=freedom,
        p_value=float(p_values(deviance[:1])[0]),
        power=float(np.mean(p_values(deviance[n_simulated + 1 :]) <= level)),
        level=level,
    )


def summed_ties(n_policies: int, outcomes: Iterable[tuple[int, int, float]]) -> FloatArray:
    """Shape (K, K), symmetric: ties among the outcomes (i, j, D) of each pair, D in [0, 1] being that of i.

    An outcome between a tie and a win counts 4 D (1 - D), as `ties_within` has it.
    """
    wins, undecided = np.zeros((n_policies, n_policies)), np.zeros((n_policies, n_policies))
    for i, j, outcome in outcomes:
        wins[i, j] += outcome
        wins[j, i] += 1.0 - outcome
        share = 4.0 * outcome * (1.0 - outcome)
        undecided[i, j] += share
        undecided[j, i] += share
    return ties_within(wins, undecided)


def ties_within(wins: FloatArray, undecided: FloatArray) -> FloatArray:
    """Ties with which outcomes vary as those of several people who judge one pair do, as far as wins allow.

    Shape (K, K), symmetric: no more than twice the wins of either side, of which each tie is half a win.
    `wins` are summed outcomes D, and `undecided`, symmetric, the sums of 4 D (1 - D), by which an outcome
    varies less than a decided one.
    """
    return np.minimum(undecided, 2.0 * np.minimum(wins, wins.T))


def _check_ties(wins: FloatArray, ties: FloatArray) -> None:
    if ties.shape != wins.shape:
        raise ValueError(f"ties must have the shape of wins, {wins.shape}; got {ties.shape}")
    most = 2.0 * np.minimum(wins, wins.T)
    if np.any(ties != ties.T) or np.any(ties < 0.0) or np.any(ties > most + _ROUNDING * (1.0 + most)):
        raise ValueError(
            "ties must be symmetric and lie between 0 and what wins allow: "
            "each tie is half a win for either side"
        )


def _draw_wins(
    rng: np.random.Generator, counts: FloatArray, ties: FloatArray, mean: FloatArray
) -> FloatArray:
    """Shape (m, n): summed outcomes of n pairs in m data sets, with ties as often as in the data."""
    rate = (ties + _TIE_PRIOR * ties.sum() / counts.sum()) / (counts + _TIE_PRIOR)
    rate = np.minimum(rate, 2.0 * np.minimum(mean, 1.0 - mean))
    whole = np.broadcast_to(np.rint(counts).astype(np.int64), mean.shape)
    tied = rng.binomial(whole, rate)
    decided = 1.0 - rate
    won = np.divide(mean - 0.5 * rate, decided, out=np.full_like(mean, 0.5), where=decided > 0.0)
    return np.asarray(rng.binomial(whole - tied, np.clip(won, 0.0, 1.0)) + 0.5 * tied, dtype=np.float64)


def _deviance(data: PairData, theta: FloatArray) -> FloatArray:
    mean = special.expit(theta @ data.contrasts.T)
    rate = data.wins / data.counts
    deviance: FloatArray = 2.0 * np.sum(data.counts * bernoulli_kl(rate, mean), axis=1)
    return deviance


@dataclass(frozen=True, slots=True)
class Cycle:
    """Three policies of which each beats the next, and the last the first.

    Attributes
    ----------
    policies
        Each is ahead of the one after it.
    strength
        Smallest log-likelihood ratio (nats) of the three win rates against one half.
    """

    policies: tuple[int, int, int]
    strength: float


def strongest_cycle(wins: FloatArray, ties: FloatArray, among: IntArray) -> Cycle | None:
    """The cycle of three that the data speak for most, if any, among some policies.

    Ties are left out: the decided outcomes of two equal policies are fair coins. Where every two of some
    policies have met, any longer cycle contains one of three. `wins` and `ties` have shape (K, K), the latter
    by `summed_ties`.

    Raises
    ------
    ValueError
        If `ties` does not fit `wins`.
    """
    _check_ties(wins, ties)
    own = np.maximum(wins - 0.5 * ties, 0.0)[np.ix_(among, among)]
    counts = own + own.T
    rate = np.divide(own, counts, out=np.full_like(own, 0.5), where=counts > 0)
    edge = np.where(rate > 0.5, counts * bernoulli_kl(rate, 0.5), 0.0)
    around = np.minimum(np.minimum(edge[:, :, None], edge[None, :, :]), edge.T[:, None, :])
    if around.size == 0 or around.max() < _CYCLE_NATS:
        return None
    a, b, c = (int(among[index]) for index in np.unravel_index(np.argmax(around), around.shape))
    return Cycle((a, b, c), float(around.max()))

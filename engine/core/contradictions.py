"""Whether the data speak against what is assumed: that levels add up, and that there is one best policy.

None of this is part of the guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from engine.core.estimation import PairData, fit
from engine.core.likelihood import bernoulli_kl
from engine.core.problem import BradleyTerry
from engine.core.structured import prior_precision
from engine.core.types import FloatArray, IntArray, Tally

# Log-odds between policies that a misfit is measured against are held back by no more than this.
_LOOSE_LOG_ODDS = 10.0


@dataclass(frozen=True, slots=True)
class Misfit:
    """How badly the Bradley-Terry model fits, against a model with one free win rate per pair.

    Attributes
    ----------
    deviance
        Twice the log-likelihood (nats) that the model loses.
    freedom
        Pairs compared, less the parameters that the data determine.
    p_value
        Share of data sets simulated from the fit whose deviance is at least as large.
    """

    deviance: float
    freedom: int
    p_value: float


def misfit(space: BradleyTerry, wins: FloatArray, *, n_simulated: int = 199, seed: int = 0) -> Misfit | None:
    """Test of the Bradley-Terry model by a parametric bootstrap.

    The number of comparisons of each pair is taken as given. It was in truth chosen in the light of earlier
    outcomes, and simulated data know no ties, so that the p-value is an indication and not exact. The usual
    chi-square limit would be worse: adaptive designs leave most pairs with a handful of comparisons.

    Returns
    -------
    The test, or None where the pairs compared leave nothing to test.
    """
    data = PairData.of(space.features, Tally(wins[None]))
    if data.contrasts.shape[0] == 0:
        return None
    freedom = data.contrasts.shape[0] - int(np.linalg.matrix_rank(data.contrasts))
    if freedom <= 0:
        return None
    precision = prior_precision(space, _LOOSE_LOG_ODDS)
    theta = fit(data, precision, np.zeros((1, space.n_features)))
    mean = special.expit(theta @ data.contrasts.T)[0]
    counts = data.counts[0].astype(np.int64)
    drawn = np.random.default_rng(seed).binomial(counts, mean, size=(n_simulated, counts.size))
    both = replace(
        data,
        counts=np.repeat(data.counts, n_simulated + 1, axis=0),
        wins=np.concatenate([data.wins, drawn.astype(np.float64)]),
    )
    start = np.repeat(theta, n_simulated + 1, axis=0)
    deviance = _deviance(both, fit(both, precision, start))
    beyond = int(np.sum(deviance[1:] >= deviance[0] - 1e-9))
    return Misfit(float(deviance[0]), freedom, (1 + beyond) / (1 + n_simulated))


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


def strongest_cycle(wins: FloatArray, among: IntArray, least: float = 2.0) -> Cycle | None:
    """The cycle of three that the data speak for most, if any.

    Where every two of some policies have met, any longer cycle contains one of three.

    Parameters
    ----------
    wins
        Shape (K, K): summed outcomes.
    among
        The policies to look at.
    least
        Nats by which each of the three win rates must differ from one half; 2 is about what a single
        two-sided test at the 5% level asks for.
    """
    own = wins[np.ix_(among, among)]
    counts = own + own.T
    rate = np.divide(own, counts, out=np.full_like(own, 0.5), where=counts > 0)
    edge = np.where(rate > 0.5, counts * bernoulli_kl(rate, 0.5), 0.0)
    around = np.minimum(np.minimum(edge[:, :, None], edge[None, :, :]), edge.T[:, None, :])
    if around.size == 0 or around.max() < least:
        return None
    a, b, c = (int(among[index]) for index in np.unravel_index(np.argmax(around), around.shape))
    return Cycle((a, b, c), float(around.max()))

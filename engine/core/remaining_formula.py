"""The number of comparisons that a decision still takes, by a formula.

It is quick and fresh, and rougher than the simulated continuations of `forecasts.forecast_remaining`.
"""

from __future__ import annotations

import numpy as np

from .bernoulli import bernoulli_kl
from .ledger import Ledger
from .types import FloatArray

# A few ties' worth of both outcomes, which keeps lucky first comparisons from promising too much.
_SHRINKAGE = 3.0
# Standard deviations by which a win rate may be off. One that seems to be at the null would take forever. Of
# .4, .55 and .7 the first made the mean estimate equal to the mean truth.
_UNSURE = 0.4
# Nats below which a policy is not separated from the best.
_LEAST_SEPARATION = 0.5


def expected_remaining(ledger: Ledger, best: int | None) -> float | None:
    """Comparisons still needed if the win rates stay as they are, in the first run, which has not stopped.

    `best` is the policy that the decision would name, if any. At least one; None while it cannot be told.
    """
    expected = _expected(ledger, best)
    return None if expected is None else max(expected, 1.0)


def _expected(ledger: Ledger, best: int | None) -> float | None:
    tally, rule = ledger.tally, ledger.rule
    if best is None:
        return None
    if (proof := ledger.head_to_head()) is not None:
        b = proof.nearest(0, int(ledger.leader()[0]))
        k = proof.rivals(0, b)
        missing = proof.threshold - proof.log_capital(np.array(0), k, np.array(b))
        speed = _speeds(tally.wins[0, k, b], tally.counts[0, k, b], proof.evidence.null_mean, unsure=_UNSURE)
        # Outcomes that are ties vary less, so that bets on them are larger.
        if ledger.streams is not None:
            speed /= 1.0 - 2.0 * ledger.streams.n_ties[0] / (2.0 * ledger.streams.n_told[0] + _SHRINKAGE)
        return _summed(missing, speed)
    needed = ~rule.refuted[0]
    needed[best] = False
    missing = np.maximum(rule.threshold[0] - rule.evidence[0, needed], 0.0)
    if ledger.model is not None:
        return _in_model(missing, ledger.separation()[0, needed], int(tally.n_comparisons[0]))
    if not needed.any() or not tally.judged[0, needed].all():
        return None
    # Each policy is refuted by its most informative opponent [LLM-PO, corollary "optimal ratio"]. The largest
    # of several rates allows for luck by itself.
    against_all = _speeds(tally.wins[0, needed], tally.counts[0, needed], ledger.evidence.null_mean)
    return _summed(missing, np.where(tally.counts[0, needed] > 0, against_all, 0.0).max(axis=1))


def _speeds(wins: FloatArray, counts: FloatArray, null_mean: float, *, unsure: float = 0.0) -> FloatArray:
    """Evidence (nats) that one comparison brings if win rates stay as they are, drawn a little towards ½.

    0 where a policy is not beaten on the face of it. The evidence is to exclude a win rate of `null_mean` or
    more. The mean counts of rates `unsure` standard deviations below and above the one that it seems to be.
    """
    total = counts + 2.0 * _SHRINKAGE
    mean = (wins + _SHRINKAGE) / total
    off = unsure * np.sqrt(mean * (1.0 - mean) / total)
    below, above = (
        bernoulli_kl(np.clip(rate, 0.0, null_mean), null_mean) for rate in (mean - off, mean + off)
    )
    return np.where(mean < null_mean, 0.5 * (below + above), 0.0)


def _summed(missing: FloatArray, speed: FloatArray) -> float | None:
    """Comparisons until each policy lacks no more evidence, one policy after the other.

    `missing` and `speed` have shape (m,), in nats. None while some policy is not beaten on the face of it.
    """
    if np.any(speed <= 0.0):
        return None
    return float(np.sum(missing / speed))


def _in_model(missing: FloatArray, separation: FloatArray, n_comparisons: int) -> float | None:
    """Comparisons until no evidence is missing in a Bradley-Terry space, where each tells about all policies.

    `missing`, shape (m,), is of each policy not yet refuted, `separation` that of each from the best, which
    grows in proportion to the comparisons; both in nats. None while some policy is not separated from the
    best at all, or none is left to refute.
    """
    if separation.size == 0 or np.any(separation < _LEAST_SEPARATION):
        return None
    return float(np.max(missing / separation) * n_comparisons)

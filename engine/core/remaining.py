"""The range of comparisons that a decision still takes, by what has been measured so far.

Strengths are drawn from their posterior. For each draw the comparisons follow from the evidence that is
missing and the evidence that one comparison brings; then luck is added, as that of a random walk that has to
reach a threshold. docs/algorithm.md, "Forecasts", has the formulas.
"""

import numpy as np
from scipy import special

from .bernoulli import bernoulli_kl
from .claims import InModel
from .evidence import CONCENTRATION
from .ledger import Ledger
from .sampling import Situation
from .structured import BradleyTerryModel
from .types import FloatArray, Remaining

# Before this many comparisons, and so many a policy, nothing is said.
_FEWEST = 20
_FEWEST_EACH = 2
_DRAWS = 200
# Of more policies than this the strengths are drawn one by one, by fewer draws.
_TOGETHER = 64
_DRAWS_OF_MANY = 50
# The policies that may be named in a draw: those that stand best.
_NAMED = 12
# How different policies may be: standard deviations of their strengths, equally likely beforehand.
_SCALES = np.array([0.15, 0.3, 0.6, 1.0, 1.6])
_NEWTON_STEPS = 12
_STEPS = 3
# The comparisons that a Bradley-Terry model's prior is worth, for each feature.
_PRIOR_WORTH = 4.0
# A few ties' worth of other outcomes.
_TIES_SHRINKAGE = 1.5
# The least that a comparison is taken to bring, and the least evidence that luck is scaled by, in nats.
_LEAST_RATE, _LEAST_MISSING = 1e-6, 0.5
# Chosen by simulated experiments, others than those of `benchmarks.forecasts`. A range is a bit narrower than
# that of the draws. Pair by pair the logarithm of the number is drawn towards that at a typical rate (nats a
# comparison), and grows with the comparisons a policy, since those that last are the hard ones.
_TO_TYPICAL, _TYPICAL_RATE, _LATE, _STRETCH = 0.33, 0.264, 0.15, 0.87


def expected_remaining(ledger: Ledger) -> Remaining | None:
    """The comparisons that the first run, which has not stopped, still needs; None while too little is known.

    The same evidence always has the same range.
    """
    n, K = int(ledger.tally.n_comparisons[0]), int(ledger.tally.n_present[0])
    if K < 2 or n < max(_FEWEST, _FEWEST_EACH * K):
        return None
    rng = np.random.default_rng(0)
    situation, strengths = ledger.situation(), drawn_strengths(ledger)
    drawn = (
        _pair_by_pair(ledger, situation, strengths, rng)
        if situation.posterior is None
        else _in_model(ledger, situation.posterior, strengths, rng)
    )
    low, middle, high = np.quantile(drawn, (0.1, 0.5, 0.9))
    ends = middle + _STRETCH * (np.array([low, middle, high]) - middle)
    return Remaining(*np.maximum(np.exp(ends), 1.0).tolist())


def drawn_strengths(ledger: Ledger) -> FloatArray:
    """Shape (M, K): strengths in the first run, drawn from their posterior, by the evidence alone."""
    K, rng = ledger.tally.n_policies, np.random.default_rng(1)
    if (posterior := ledger.situation().posterior) is not None:
        root = np.linalg.cholesky(posterior.covariance(ledger.tally.counts)[0])
        theta = posterior.theta[0] + rng.standard_normal((_DRAWS, root.shape[0])) @ root.T
        return np.asarray(theta @ posterior.features.T)
    tally, beliefs = ledger.estimates()
    if K > _TOGETHER:
        noise = rng.standard_normal((_DRAWS_OF_MANY, K))
        return np.asarray(beliefs.theta[0] + noise / np.sqrt(beliefs.curvature[0]))
    wins, counts = tally.wins[0], tally.counts[0]
    theta = np.zeros((_SCALES.size, K))
    precision = _SCALES[:, None] ** -2.0
    for _ in range(_NEWTON_STEPS):
        mean = special.expit(theta[:, :, None] - theta[:, None, :])
        gradient = (wins - counts * mean).sum(axis=2) - precision * theta
        weight = counts * mean * (1.0 - mean)
        hessian = (weight.sum(axis=2) + precision)[:, :, None] * np.eye(K) - weight
        theta = theta + np.linalg.solve(hessian, gradient[..., None])[..., 0]
    gap = theta[:, :, None] - theta[:, None, :]
    likelihood = (wins * special.log_expit(gap)).sum(axis=(1, 2)) - 0.5 * (precision * theta**2).sum(axis=1)
    evidence = likelihood - K * np.log(_SCALES) - 0.5 * np.linalg.slogdet(hessian)[1]
    up_to = np.rint(_DRAWS * np.cumsum(special.softmax(evidence))).astype(np.int64)
    scale = np.searchsorted(up_to, np.arange(_DRAWS), side="right")
    root = np.linalg.cholesky(np.linalg.inv(hessian))[scale]
    noise = rng.standard_normal((_DRAWS, K, 1))
    return np.asarray(theta[scale] + np.matmul(root, noise)[..., 0])


def _pair_by_pair(
    ledger: Ledger, situation: Situation, strengths: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Shape (M,): logarithm of each draw's comparisons until one policy is named, each rival ruled out on its
    own.
    """
    K, present = ledger.tally.n_policies, ledger.tally.present[0]
    named = np.argsort(np.where(present, -strengths.mean(axis=0), np.inf))[: min(_NAMED, present.sum())]
    rivals = np.arange(K)[:, None]
    null = ledger.evidence.null_mean
    # Shape (K, C): what is still to be shown against each rival, for each policy that may be named.
    missing = np.tile((situation.threshold[0] - ledger.rule.evidence[0])[:, None], named.size)
    if (proof := situation.proof) is not None:
        null = proof.evidence.null_mean
        missing = proof.threshold - proof.log_capital(np.array(0), rivals, named)
    missing = np.where((rivals == named) | ~present[:, None], 0.0, np.maximum(missing, 0.0))
    mean = special.expit(strengths[:, :, None] - strengths[:, None, named])
    rate = np.maximum(bernoulli_kl(np.minimum(mean, null), null), _LEAST_RATE)
    if ledger.streams is not None:
        # Outcomes that are ties vary less, so that bets on them are larger.
        rate /= 1.0 - ledger.streams.n_ties[0] / (ledger.streams.n_told[0] + _TIES_SHRINKAGE)
    known = ledger.tally.counts[0][:, named] + CONCENTRATION
    needed = missing / rate
    for _ in range(_STEPS):
        # The mixture over win rates costs half of a logarithm.
        needed = np.where(missing > 0.0, (missing + 0.5 * np.log1p(needed / known)) / rate, 0.0)
    total = needed.sum(axis=1)
    draws, best = np.arange(total.shape[0]), total.argmin(axis=1)
    total, each = np.maximum(total[draws, best], 1.0), needed[draws, :, best]
    drawn = np.log(total) + _luck(each, missing[:, best].T, total, rng)
    typical = np.log(np.maximum(missing.sum(axis=0).min(), _LEAST_MISSING) / _TYPICAL_RATE)
    late = _LATE * np.log(ledger.tally.n_comparisons[0] / present.sum())
    return np.asarray(drawn + _TO_TYPICAL * (typical - np.median(drawn)) + late)


def _in_model(
    ledger: Ledger, posterior: BradleyTerryModel, strengths: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Shape (M,): the same of each draw in a Bradley-Terry space, where a comparison tells about all."""
    features = posterior.features
    n = ledger.tally.n_comparisons[0] + _PRIOR_WORTH * features.shape[1]
    present = ledger.tally.present[0]
    draws, best = np.arange(strengths.shape[0]), np.where(present, strengths, -np.inf).argmax(axis=1)
    covariance = posterior.covariance(ledger.tally.counts)[0]
    inner = features @ covariance @ features.T
    own = np.diag(inner)
    variance = own[best][:, None] + own - 2.0 * inner[best]
    gap = strengths[draws, best][:, None] - strengths + ledger.situation().log_odds_margin
    rate = np.maximum(gap**2 / (2.0 * np.maximum(variance, _LEAST_RATE) * n), _LEAST_RATE)
    proof, leader = ledger.stopping_proof(), int(ledger.leader()[0])
    against = ledger.rule.evidence[0]
    if isinstance(proof, InModel):
        against, leader = proof.against()[0], proof.nearest(0, leader)
    threshold = ledger.rule.threshold[0]
    # The evidence is about the leader. Of another policy hardly anything is known.
    missing = np.where(best[:, None] == leader, np.maximum(threshold - against, 0.0), threshold)
    missing[draws, best] = 0.0
    missing[:, ~present] = 0.0
    needed = missing / rate
    for _ in range(_STEPS):
        needed = np.where(
            missing > 0.0, (missing + 0.5 * features.shape[1] * np.log1p(needed / n)) / rate, 0.0
        )
    last = needed.argmax(axis=1)
    total = np.maximum(needed[draws, last], 1.0)
    return np.asarray(np.log(total) + _luck(total[:, None], missing[draws, last][:, None], total, rng))


def _luck(each: FloatArray, missing: FloatArray, total: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Shape (M,): what luck adds to the logarithm of the total, of rivals that need `each`, shape (M, m).

    Evidence is a random walk whose variance is twice its drift.
    """
    variance = (2.0 * each**2 / np.maximum(missing, _LEAST_MISSING)).sum(axis=1) / total**2
    spread = np.sqrt(np.log1p(variance))
    return np.asarray(spread * rng.standard_normal(total.size) - 0.5 * spread**2)

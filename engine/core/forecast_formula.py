"""The number of comparisons that a decision takes, by a formula: the characteristic time times the threshold.

Says at once what `forecasts.forecast` simulates in seconds, less exactly.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import special

from .allocation import NEAR_TIE_RATE
from .bernoulli import bernoulli_kl, log_e_value
from .capital import FEWEST_TO_MOVE, KEPT_FOR_NEWCOMERS, RESERVE
from .claims import names_at_risk
from .evidence import CONCENTRATION, MIN_HEAD_TO_HEAD
from .forecasts import Forecast, Plan
from .paper_thresholds import heuristic_threshold, pairwise_log_constant, pairwise_threshold
from .pooled_evidence import SHARES
from .spaces import BradleyTerry
from .types import BoolArray, Claim, FloatArray

_DRAWS = 512
# The threshold grows with the logarithm of the time, so that the fixed point is reached in a few steps.
_STEPS = 8
# Gaps between two policies for which the needed comparisons are computed; those between follow.
_GRID = 64
# Halvings of the logarithm of the comparisons: to a thousandth.
_HALVINGS = 14
# The proof of the policy that is named ends with about so much for each 1 that it began with.
_GAIN = 1.15
# Samplers that go where the evidence is missing; the others spread their comparisons over all pairs.
_ADAPTIVE = {"balanced", "tracking"}


def closed_form(plan: Plan, *, log_odds: float = 0.4) -> Forecast:
    """Forecast an experiment before its first comparison, in milliseconds.

    For each of several hundred random strengths the comparisons follow from a formula (docs/algorithm.md,
    "Forecasts"); nothing is simulated. The same plan always has the same forecast.

    Parameters
    ----------
    plan
        The experiment. `pending` is not looked at, nor are restarts in a Bradley-Terry space.
    log_odds
        As for `forecasts.forecast`.

    Returns
    -------
    The forecast. Its `n_runs` is 0, since nothing was simulated.
    """
    scores = _scores(plan, log_odds, np.random.default_rng(0))
    K = plan.space.n_policies
    best = scores.argmax(axis=1)
    rivals = np.arange(K) != best[:, None]
    gap = (scores.max(axis=1, keepdims=True) - scores)[rivals].reshape(-1, K - 1)
    sorted_gap = np.sort(gap, axis=1)
    if not isinstance(plan.space, BradleyTerry):
        needed = _pairwise(plan, sorted_gap)
    elif plan.stopping == "theory":
        # Its proof asks for more than any budget has.
        needed = np.full(best.size, np.inf)
    else:
        resistance = _resistance(plan.space)[best][rivals].reshape(-1, K - 1)
        shared = _shared(plan, resistance / _rate(plan, gap), plan.space.n_features, log_odds)
        needed = np.minimum(_pairwise(plan, sorted_gap), shared)
    needed = np.minimum(needed, plan.budget)
    low, high = np.quantile(needed, [0.1, 0.9])
    return Forecast(
        expected=float(needed.mean()),
        low=float(low),
        high=float(high),
        decided=float(np.mean(needed < plan.budget)),
        n_runs=0,
        horizon=plan.budget,
    )


def _pairwise(plan: Plan, gap: FloatArray) -> FloatArray:
    """Shape (M,): comparisons where each rival is ruled out by its own with the best policy.

    `gap`, shape (M, K - 1), is the strength of the best policy less that of each rival, the smallest first.
    """
    K = plan.space.n_policies
    if plan.stopping == "certified":
        return _proven(plan, gap, _capital(plan))
    rate = _rate(plan, gap)
    total = np.full(gap.shape[0], float(K))
    for _ in range(_STEPS):
        each = _threshold(plan, total)[:, None] / rate
        total = each.sum(axis=1)
    return total if plan.sampler in _ADAPTIVE else _spread(each)


def _spread(each: FloatArray) -> FloatArray:
    """Shape (M,): comparisons if all pairs are compared equally often, from each rival's need."""
    K = each.shape[1] + 1
    spread: FloatArray = each.max(axis=1) * (K * (K - 1) / 2.0)
    return spread


def _proven(plan: Plan, gap: FloatArray, divided_by: float) -> FloatArray:
    """Shape (M,): comparisons until the evidence against each rival is `divided_by` / δ."""
    # Needs are a smooth function of a gap's root: they change most where policies are close.
    grid = np.linspace(0.0, np.sqrt(gap.max()), _GRID) ** 2
    alone, either = _needs(plan, special.expit(-grid), np.log(divided_by / plan.delta))
    each = np.interp(gap, grid, alone)
    # Luck may name either of the two best policies.
    each[:, 0] = np.interp(gap[:, 0], grid, either)
    if Claim(plan.claim) is Claim.BEST_IF_ANY:
        each = np.maximum(each, MIN_HEAD_TO_HEAD)
    if plan.sampler not in _ADAPTIVE:
        return _spread(each)
    # While the second best is ahead, the others are compared with it. The chance of that is taken halfway.
    lead = 2.0 * special.expit(gap[:, 0]) - 1.0
    behind = special.ndtr(-lead * np.sqrt(0.5 * each[:, 0]))
    needed: FloatArray = each[:, 0] + (1.0 + behind) * each[:, 1:].sum(axis=1)
    return needed


def _needs(plan: Plan, mean: FloatArray, threshold: float) -> tuple[FloatArray, FloatArray]:
    """Comparisons, of two policies, after which the evidence is at the threshold (nats) on average.

    The average is over luck: a standard deviation more wins than expected, and one less. Shape (G,) each, as
    the win rates of the weaker policy: of evidence against that one, and against the one with fewer wins.
    """
    null = 0.5 + plan.epsilon

    def reached(n: FloatArray, *, either: bool) -> BoolArray:
        luck = np.sqrt(n * mean * (1.0 - mean))
        wins = np.clip([n * mean - luck, n * mean + luck], 0.0, n)
        fewer = np.minimum(wins, n - wins) if either else wins
        evidence = log_e_value(fewer, n - fewer, null, CONCENTRATION).mean(axis=0)
        return np.asarray(evidence >= threshold)

    def least(*, either: bool) -> FloatArray:
        # No more than the budget is asked for, and the evidence of far more takes long.
        low, high = np.zeros(mean.shape), np.full(mean.shape, np.log(plan.budget + 1.0))
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            enough = reached(np.exp(middle), either=either)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        n: FloatArray = np.exp(high)
        return n

    return least(either=False), least(either=True)


def _capital(plan: Plan) -> float:
    """The factor by which the evidence that does the work must exceed 1/δ."""
    K = plan.space.n_policies
    if (claim := Claim(plan.claim)) is not Claim.BEST_IF_ANY:
        margin = plan.epsilon if claim is Claim.GOOD_ENOUGH else 0.0
        at_risk = float(names_at_risk(K, margin))
        if isinstance(plan.space, BradleyTerry):
            # Nothing moves, and nothing is kept for who joins.
            return at_risk
        if at_risk == 1.0:
            at_risk /= 1.0 - KEPT_FOR_NEWCOMERS
        if not plan.capital_moves:
            return at_risk / (1.0 - RESERVE)
        return at_risk / _GAIN if K >= FEWEST_TO_MOVE else at_risk
    # The opponent that does the work is the favourite: its comparisons count in both parts.
    head_to_head, favourite, _ = SHARES
    return 1.0 / (favourite + head_to_head / (K - 1))


def _rate(plan: Plan, gap: FloatArray) -> FloatArray:
    """Nats that one comparison with the best policy brings against a rival; shaped like the gaps."""
    return np.maximum(bernoulli_kl(special.expit(-gap), 0.5 + plan.epsilon), NEAR_TIE_RATE)


def _threshold(plan: Plan, total: FloatArray) -> FloatArray:
    if plan.stopping == "heuristic":
        return heuristic_threshold(plan.delta, total)
    n_pairs = plan.space.n_policies * (plan.space.n_policies - 1) // 2
    return pairwise_threshold(plan.delta, total, _log_constant(plan.delta, n_pairs), n_pairs)


# A tenth of a second, and asked for in every step.
_log_constant = cache(pairwise_log_constant)


def _shared(plan: Plan, hardness: FloatArray, d: int, log_odds: float) -> FloatArray:
    """Shape (M,): comparisons where all pairs are compared alike and tell about all policies.

    `hardness`, shape (M, K - 1), has the comparisons per nat against each rival.
    """
    total: FloatArray = np.full(hardness.shape[0], float(plan.space.n_policies))
    hardest: FloatArray = hardness.max(axis=1)
    for _ in range(_STEPS):
        threshold = (
            heuristic_threshold(plan.delta, total)
            if plan.stopping == "heuristic"
            else np.log(1.0 / plan.delta) + 0.5 * d * np.log1p(total * log_odds**2 / (4.0 * d))
        )
        total = np.asarray(hardest * threshold, dtype=np.float64)
    return total


def _scores(plan: Plan, log_odds: float, rng: np.random.Generator) -> FloatArray:
    """Shape (M, K): random strengths, as `forecasts.forecast` draws them."""
    space = plan.space
    scores: FloatArray
    if not isinstance(space, BradleyTerry):
        scores = rng.standard_normal((_DRAWS, space.n_policies)) * (log_odds / np.sqrt(2.0))
        return scores
    precision = _mean_contrast(space) * (space.n_features / log_odds**2)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    scores = rng.standard_normal((_DRAWS, space.n_features)) @ root.T @ space.features.T
    return scores


def _mean_contrast(space: BradleyTerry) -> FloatArray:
    """Shape (d, d): mean of z zᵀ over all pairs."""
    K, total = space.n_policies, space.features.sum(axis=0)
    mean: FloatArray = (K * space.features.T @ space.features - np.outer(total, total)) / (K * (K - 1) / 2.0)
    return mean


def _resistance(space: BradleyTerry) -> FloatArray:
    """Shape (K, K): zᵀA⁻¹z of every pair, A being the mean of z zᵀ. Comparing all pairs alike, so many tell
    what one would.
    """
    inner = space.features @ np.linalg.solve(_mean_contrast(space), space.features.T)
    own = np.diag(inner)
    resistance: FloatArray = own[:, None] + own - 2.0 * inner
    return resistance

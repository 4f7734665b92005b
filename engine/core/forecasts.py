"""The range of comparisons that an experiment takes, before the first one.

For random strengths the comparisons follow from a formula: the characteristic time times the threshold
(docs/algorithm.md, "Forecasts").
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from .allocation import NEAR_TIE_RATE
from .bernoulli import bernoulli_kl, log_e_value
from .capital import FEWEST_TO_MOVE, KEPT_FOR_NEWCOMERS, RESERVE
from .claims import names_at_risk
from .evidence import CONCENTRATION, MIN_HEAD_TO_HEAD
from .paper_thresholds import heuristic_threshold, pairwise_log_constant, pairwise_threshold
from .pooled_evidence import SHARES
from .spaces import BradleyTerry, Space
from .types import BoolArray, Claim, FloatArray, Remaining

# How different policies may be: the standard deviation of the log-odds between two of them.
SPREADS = (0.2, 0.4, 0.8, 1.4, 2.3)
_DRAWS = 512
# Standard deviation of the logarithm of an experiment's comparisons, by luck alone. It is the same for all
# experiments: what needs fewer comparisons then never has a higher range.
_LUCK = 0.5
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of the experiment to forecast, as for `Design`."""

    space: Space
    delta: float = 0.05
    claim: Claim | str = Claim.BEST
    epsilon: float = 0.0
    capital_moves: bool = True
    sampler: str = "balanced"
    stopping: str = "certified"
    budget: int = 20_000


def forecast(plan: Plan, strengths: FloatArray) -> Remaining:
    """Forecast an experiment before its first comparison, in milliseconds.

    The same strengths always have the same forecast, and an assumption that saves comparisons lowers it or
    leaves it.

    Parameters
    ----------
    strengths
        Shape (M, K): what they may be, such as `random_strengths`.
    """
    # Infinities would leave no quantiles.
    needed = np.minimum(comparisons_needed(plan, strengths), 100.0 * plan.budget)
    needed *= np.exp(_LUCK * np.random.default_rng(1).standard_normal(needed.size))
    return Remaining(*np.quantile(needed, (0.1, 0.5, 0.9)).tolist()).within(plan.budget)


def random_strengths(n_policies: int, *spreads: float) -> FloatArray:
    """Shape (M, K): strengths of policies that differ so much, each of `SPREADS` equally often by default.

    Fewer policies are the first ones of more.
    """
    rng = np.random.default_rng(0)
    # By rows, so that a policy has the same strengths whatever the number of policies is.
    usual = np.array([rng.standard_normal(_DRAWS) for _ in range(n_policies)]).T / np.sqrt(2.0)
    return np.concatenate([spread * usual for spread in spreads or SPREADS])


def comparisons_needed(plan: Plan, strengths: FloatArray) -> FloatArray:
    """Shape (M,): comparisons for strengths of shape (M, K), on average over luck."""
    K = plan.space.n_policies
    best = strengths.argmax(axis=1)
    rivals = np.arange(K) != best[:, None]
    gap = (strengths.max(axis=1, keepdims=True) - strengths)[rivals].reshape(-1, K - 1)
    sorted_gap = np.sort(gap, axis=1)
    if not isinstance(plan.space, BradleyTerry):
        return _pairwise(plan, sorted_gap)
    if plan.stopping == "theory":
        # Its proof asks for more than any budget has.
        return np.full(best.size, np.inf)
    resistance = _resistance(plan.space)[best][rivals].reshape(-1, K - 1)
    shared = _shared(plan, resistance / _rate(plan, gap), plan.space.n_features, strengths.std())
    return np.minimum(_pairwise(plan, sorted_gap), shared)


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
        shared, kept = at_risk, KEPT_FOR_NEWCOMERS if at_risk == 1.0 else 0.0
        at_risk /= 1.0 - kept
        if not plan.capital_moves:
            at_risk /= 1.0 - RESERVE
        elif K >= FEWEST_TO_MOVE:
            at_risk /= _GAIN
        # In a Bradley-Terry space nothing moves, and nothing is kept for who joins. Here it never costs more
        # than elsewhere, so that the assumption never raises a forecast.
        return min(shared, at_risk) if isinstance(plan.space, BradleyTerry) else at_risk
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


def _shared(plan: Plan, hardness: FloatArray, d: int, spread: float) -> FloatArray:
    """Shape (M,): comparisons where all pairs are compared alike and tell about all policies.

    `hardness`, shape (M, K - 1), has the comparisons per nat against each rival.
    """
    total: FloatArray = np.full(hardness.shape[0], float(plan.space.n_policies))
    hardest: FloatArray = hardness.max(axis=1)
    for _ in range(_STEPS):
        threshold = (
            heuristic_threshold(plan.delta, total)
            if plan.stopping == "heuristic"
            else np.log(1.0 / plan.delta) + 0.5 * d * np.log1p(total * spread**2 / (2.0 * d))
        )
        total = np.asarray(hardest * threshold, dtype=np.float64)
    return total


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

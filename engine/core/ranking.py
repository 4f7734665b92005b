"""Every policy's place: how strong it is, how often it wins, and what the evidence has settled about it."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

from .beliefs import Beliefs
from .intervals import contrast_intervals, win_rate_intervals
from .spaces import BradleyTerry, Space
from .types import BoolArray, FloatArray, IntArray, Tally


class Place(StrEnum):
    """The place of a policy, as far as the evidence settles it."""

    LEADS = "leads"
    """The leader, or the policy that a claim has named."""
    OPEN = "open"
    """It may still be the best."""
    RULED_OUT = "ruled_out"
    """The evidence excludes that it beats every other policy."""
    RETIRED = "retired"
    """It takes no part any more."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A win rate, in [0, 1], with an interval that holds at any time, at once with all others of a ranking.

    In a Bradley-Terry space it holds only to second order, and only if the model holds.

    Attributes
    ----------
    estimate
        The expected rate.
    low, high
        Ends of the interval.
    """

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy in a ranking.

    Attributes
    ----------
    policy
        Its index.
    label
        Its name.
    log_odds
        Estimated strength in log-odds; a ranking's strengths add up to 0.
    field
        Its mean win rate against the other policies, each with the same weight.
    leader
        Its win rate against the policy that leads; for that policy itself against the runner-up.
    place
        Whether it leads, is open, or is ruled out.
    """

    policy: int
    label: str
    log_odds: float
    field: Rate
    leader: Rate
    place: Place


def rates(
    space: Space, tally: Tally, beliefs: Beliefs, delta: float, n_first: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Win rates of all pairs of the first run, with intervals: expected, lower and upper, shape (K, K) each.

    The intervals miss no μ(i, j) at any time with probability at least 1 - δ. Where nothing is assumed they
    rest on each pair's own comparisons. In a Bradley-Terry space they rest on all, hold only to second order,
    and only if the model holds. `n_first` is how many policies the experiment began with.
    """
    K = tally.n_policies
    expected = np.empty((K, K))
    for k in range(K):
        special.expit(beliefs.row(0, np.array(k)), out=expected[k])
    if isinstance(space, BradleyTerry):
        low, high = contrast_intervals(space, tally, delta)
        for end in (low, high):
            special.expit(end, out=end)
    else:
        low, high = win_rate_intervals(tally.wins[0], tally.counts[0], delta, n_first)
    np.fill_diagonal(expected, 0.5)
    return np.clip(expected, low, high, out=expected), low, high


def mean_over_rivals(values: FloatArray) -> FloatArray:
    """Shape (K,): mean of each row without its diagonal."""
    mean: FloatArray = (values.sum(axis=1) - np.diagonal(values)) / (values.shape[0] - 1)
    return mean


def order_of(against_leader: FloatArray, standing: FloatArray, retired: BoolArray, leader: int) -> IntArray:
    """Shape (K,): the policies as ranked: the leader, the others by win rate against it, those retired.

    Of equal ones, the policy with the larger standing comes first.
    """
    place = retired.astype(np.int64)
    place[leader] = -1
    order: IntArray = np.lexsort((-standing, -against_leader, place))
    return order

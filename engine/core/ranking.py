"""Every policy's place: how strong it is, how often it wins, and what the evidence has settled about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

from .beliefs import Beliefs
from .intervals import contrast_intervals, win_rate_intervals
from .problem import BradleyTerry, Space
from .types import FloatArray, IntArray, Tally


class Place(StrEnum):
    """What is settled about a policy."""

    LEADS = "leads"
    """The best guess, or the policy that a claim has named."""
    OPEN = "open"
    """It may still be the best."""
    RULED_OUT = "ruled_out"
    """The evidence excludes that it beats every other policy."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A win rate: what is expected, and an interval that holds at any time, at once with all others of a ranking."""

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
    strength
        Estimated strength in log-odds; those of a ranking add up to 0.
    field
        Its mean win rate against the other policies, each with the same weight.
    leader
        Its win rate against the policy that leads; for that policy itself against the runner-up.
    place
        What is settled about it.
    """

    policy: int
    label: str
    strength: float
    field: Rate
    leader: Rate
    place: Place


def rates(
    space: Space, tally: Tally, beliefs: Beliefs, delta: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Expected win rates of all pairs of the first run, with lower and upper ends: shapes (K, K).

    The intervals miss no μ(i, j) at any time with probability at least 1 - δ. Where nothing is assumed they rest on each
    pair's own comparisons; in a Bradley-Terry space on all, if the model holds.
    """
    K = tally.n_policies
    expected = np.array([special.expit(beliefs.row(np.array([k]))[0][0]) for k in range(K)])
    if isinstance(space, BradleyTerry):
        low, high = (special.expit(end) for end in contrast_intervals(space, tally, delta))
    else:
        low, high = win_rate_intervals(tally.wins[0], tally.counts[0], delta)
    np.fill_diagonal(expected, 0.5)
    return np.clip(expected, low, high), low, high


def field(values: FloatArray) -> FloatArray:
    """Shape (K,): mean of each row without its diagonal."""
    mean: FloatArray = (values.sum(axis=1) - np.diagonal(values)) / (values.shape[0] - 1)
    return mean


def order_of(standing: FloatArray, ruled_out: FloatArray, leader: int) -> IntArray:
    """Indices of the policies: the leader, those that are open, and those ruled out, each by their standing."""
    last = ruled_out.copy()
    last[leader] = -1
    order: IntArray = np.lexsort((-standing, last))
    return order

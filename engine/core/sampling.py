"""Sampling rules: which pair of policies to compare next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.core.evidence import PairwiseEvidence
from engine.core.likelihood import bernoulli_kl
from engine.core.types import BoolArray, FloatArray, Pair, Tally


@dataclass(frozen=True, slots=True)
class Situation:
    """What a sampling rule may look at.

    Attributes
    ----------
    tally
        Judged and pending comparisons.
    evidence
        Evidence from head-to-head counts.
    refuted
        Shape (K,): policies that the stopping rule has already ruled out.
    """

    tally: Tally
    evidence: PairwiseEvidence
    refuted: BoolArray


class Sampler(Protocol):
    """A sampling rule. It keeps no state, so that a run can be rebuilt from its counts."""

    def pick(self, situation: Situation, rng: np.random.Generator) -> Pair:
        """Return the next pair to compare, two different policies."""
        ...


@dataclass(frozen=True, slots=True)
class Balanced:
    """Compare the policy least refuted so far with the opponent most likely to refute it.

    At the optimal allocation every suboptimal policy is refuted at the same speed [LLM-PO, corollary
    "optimal ratio"]; this rule balances the evidence itself instead of tracking a plug-in estimate of that
    allocation. Pending comparisons count at the evidence they are expected to bring.

    Parameters
    ----------
    optimism
        Scale of the lower confidence bound by which opponents are ranked: larger explores more opponents.
    """

    optimism: float = 0.1

    def pick(self, situation: Situation, rng: np.random.Generator) -> Pair:
        """Return (k, j): the policy under test and its challenger."""
        tally, null_mean = situation.tally, situation.evidence.null_mean
        evidence = expected_evidence(situation)
        tested = _policy_under_test(evidence, situation.refuted, rng)

        counts = tally.counts[tested] + tally.in_flight[tested]
        # A pending comparison is taken to split evenly until it is judged.
        mean = (tally.wins[tested] + 0.5 * tally.in_flight[tested] + 0.5) / (counts + 1.0)
        total = tally.n_comparisons + tally.in_flight.sum() / 2
        bound = mean - np.sqrt(self.optimism * np.log(total + 2.0) / (counts + 1.0))
        promise = bernoulli_kl(np.clip(bound, 0.0, null_mean), null_mean)
        promise[tested] = -np.inf
        return tested, _argmax_random(promise, rng)


def expected_evidence(situation: Situation) -> FloatArray:
    """Evidence against each policy once the pending comparisons are in, at their current win rates.

    Returns
    -------
    Shape (K,), in nats.
    """
    tally, evidence = situation.tally, situation.evidence
    expected = evidence.per_policy.copy()
    waiting = np.flatnonzero(tally.in_flight.any(axis=1))
    if waiting.size:
        mean = (tally.wins[waiting] + 0.5) / (tally.counts[waiting] + 1.0)
        gain = bernoulli_kl(np.minimum(mean, evidence.null_mean), evidence.null_mean)
        expected[waiting] = evidence.combine(evidence.log_e[waiting] + tally.in_flight[waiting] * gain)
    return expected


def _policy_under_test(evidence: FloatArray, refuted: BoolArray, rng: np.random.Generator) -> int:
    """The policy least refuted so far, leaving out the best guess: the one with the least evidence of all.

    The best guess is tested itself once it is the only one left.
    """
    candidates = np.flatnonzero(~refuted)
    if candidates.size == 0:
        candidates = np.arange(evidence.size)
    order = np.lexsort((rng.random(candidates.size), evidence[candidates]))
    return int(candidates[order[min(1, candidates.size - 1)]])


def _argmax_random(values: FloatArray, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(values == values.max())))

"""Sampling rules: which pair of policies to compare next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import special

from engine.core.evidence import PairwiseEvidence
from engine.core.likelihood import bernoulli_kl
from engine.core.structured import BradleyTerryModel
from engine.core.types import BoolArray, FloatArray, IntArray, Tally

Picks = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class Situation:
    """What a sampling rule may look at, in R runs side by side.

    Attributes
    ----------
    tally
        Judged and pending comparisons.
    evidence
        Evidence from head-to-head counts.
    refuted
        Shape (R, K): policies that the stopping rule has already ruled out.
    threshold
        Shape (R,): evidence (nats) at which a policy is ruled out.
    model
        The paper's estimate in a linear Bradley-Terry space; None where nothing is assumed about μ.
    posterior
        The same with a prior that does not vanish, which early data cannot throw far off.
    """

    tally: Tally
    evidence: PairwiseEvidence
    refuted: BoolArray
    threshold: FloatArray
    model: BradleyTerryModel | None = None
    posterior: BradleyTerryModel | None = None

    @property
    def load(self) -> FloatArray:
        """Shape (R, K, K): comparisons judged and pending."""
        return self.tally.counts + self.tally.in_flight

    @property
    def n_asked(self) -> FloatArray:
        """Shape (R,): comparisons judged and pending."""
        asked: FloatArray = self.tally.n_comparisons + self.tally.in_flight.sum(axis=(1, 2)) / 2.0
        return asked


class Sampler(Protocol):
    """A sampling rule."""

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return the next pair of every run: two arrays of shape (R,), different from each other in each run."""
        ...

    def propensities(self, situation: Situation) -> FloatArray | None:
        """Shape (R, K, K), symmetric: the probability of each unordered pair to be picked next.

        None where the rule is deterministic given the history but for ties, or draws in a way that has no
        closed form.
        """
        ...

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs from what the rule remembers."""
        ...


class Stateless:
    """Base of sampling rules that remember nothing, so that a run can be taken up from its counts."""

    __slots__ = ()

    def propensities(self, situation: Situation) -> FloatArray | None:
        """Not known."""
        return None

    def keep(self, runs: BoolArray) -> None:
        """Nothing to drop."""


@dataclass(frozen=True, slots=True)
class Balanced(Stateless):
    """Compare the policy least refuted so far with the opponent that promises to refute it soonest.

    In a Bradley-Terry space, compare the pair that tells most about that policy's distance from the best.

    At the optimal allocation every suboptimal policy is refuted at the same speed [LLM-PO, corollary
    "optimal ratio"]; this rule balances the evidence itself instead of tracking a plug-in estimate of that
    allocation. Pending comparisons count at the evidence they are expected to bring. It keeps no state.

    Parameters
    ----------
    optimism
        Scale of the lower confidence bound on the tested policy's win rates: larger explores more opponents.
    prior_weight, prior_lead
        Before its own comparisons say more, the least refuted opponent is taken to win against the tested policy
        with probability ½ + `prior_lead`, and one with an e-value x times as large with ½ + `prior_lead` / x.
        That counts as much as `prior_weight` comparisons. Most of a policy's comparisons so go to those that
        may well be the best, which beats every other.
    """

    optimism: float = 0.05
    prior_weight: float = 40.0
    prior_lead: float = 0.1

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return the policies under test and their challengers; in a Bradley-Terry space, pairs with i < j."""
        if situation.posterior is not None:
            return _most_telling_pair(situation, situation.posterior, rng)
        tally, evidence = situation.tally, situation.evidence
        runs = np.arange(tally.n_runs)
        log_e, per_policy = expected_evidence(situation)
        tested = policy_under_test(per_policy, situation.refuted, rng)

        pending = tally.in_flight[runs, tested]
        count = tally.counts[runs, tested] + pending
        weight = count + self.prior_weight
        prior = 0.5 - self.prior_lead * np.exp(per_policy.min(axis=1, keepdims=True) - per_policy)
        # A pending comparison is taken to split evenly until it is judged.
        mean = (tally.wins[runs, tested] + 0.5 * pending + self.prior_weight * prior) / weight
        width = np.sqrt(self.optimism * np.log(situation.n_asked + 2.0)[:, None] / weight)
        speed = bernoulli_kl(np.clip(mean - width, 0.0, evidence.null_mean), evidence.null_mean)
        # Opponents share the evidence evenly, so one of them alone needs log(K - 1) more, and a nat for the
        # mixture. The floor keeps a finished opponent from looking infinitely quick.
        goal = situation.threshold + np.log(tally.n_policies - 1) + 1.0
        missing = np.maximum(goal[:, None] - log_e[runs, tested], 0.1 * goal[:, None])
        promise = speed / missing
        promise[runs, tested] = -np.inf
        return tested, argmax_random(promise, rng)


def _most_telling_pair(situation: Situation, model: BradleyTerryModel, rng: np.random.Generator) -> Picks:
    """The pair whose comparison most reduces the variance of θᵀ(x_k - x_best), k being least separated from it.

    One comparison of contrast z takes σ'(θᵀz) (zᵀH⁻¹z_k)² / (1 + σ'(θᵀz) zᵀH⁻¹z) off that variance
    [Sherman & Morrison 1950]. Pending comparisons count in H.
    """
    features = model.features
    covariance = model.covariance(situation.load)
    separation = model.separation(covariance)
    runs, best = np.arange(model.best.size), model.best
    separation[runs, best] = np.inf
    open_rivals = ~situation.refuted & np.isfinite(separation)
    hidden = situation.refuted & open_rivals.any(axis=1, keepdims=True)
    rival = argmax_random(-np.where(hidden, np.inf, separation), rng)

    target = features[rival] - features[best]
    shift = np.matmul(covariance, target[..., None])[..., 0] @ features.T
    spread = np.matmul(features @ covariance, features.T)
    rows, columns = np.triu_indices(features.shape[0], 1)
    own = np.diagonal(spread, axis1=1, axis2=2)
    variance = own[:, rows] + own[:, columns] - 2.0 * spread[:, rows, columns]
    mean = special.expit(model.scores[:, rows] - model.scores[:, columns])
    weight = mean * (1.0 - mean)
    gain = weight * (shift[:, rows] - shift[:, columns]) ** 2 / (1.0 + weight * variance)
    pair = argmax_random(gain, rng)
    return rows[pair], columns[pair]


def expected_evidence(situation: Situation) -> tuple[FloatArray, FloatArray]:
    """Evidence once the pending comparisons are in, should they fall at the current win rates.

    Returns
    -------
    Log e-values, shape (R, K, K), and log evidence per policy, shape (R, K), in nats.
    """
    tally, evidence = situation.tally, situation.evidence
    waiting = np.nonzero(tally.in_flight.any(axis=2))
    if waiting[0].size == 0:
        return evidence.log_e, evidence.per_policy
    mean = (tally.wins[waiting] + 0.5) / (tally.counts[waiting] + 1.0)
    gain = bernoulli_kl(np.minimum(mean, evidence.null_mean), evidence.null_mean)
    log_e, per_policy = evidence.log_e.copy(), evidence.per_policy.copy()
    log_e[waiting] += tally.in_flight[waiting] * gain
    per_policy[waiting] = evidence.combine(log_e[waiting])
    return log_e, per_policy


def policy_under_test(evidence: FloatArray, refuted: BoolArray, rng: np.random.Generator) -> IntArray:
    """The policy least refuted so far, leaving out the best guess: the one with the least evidence of all.

    The best guess is tested itself once it is the only one left.

    Parameters
    ----------
    evidence
        Shape (R, K), in nats.
    refuted
        Shape (R, K).

    Returns
    -------
    Shape (R,).
    """
    n_open = np.sum(~refuted, axis=1)
    masked = np.where(refuted & (n_open > 0)[:, None], np.inf, evidence)
    order = np.lexsort((rng.random(masked.shape), masked), axis=-1)
    return np.where(n_open == 1, order[:, 0], order[:, 1])


def argmax_random(values: FloatArray, rng: np.random.Generator) -> IntArray:
    """Index of the largest value along the last axis; among equals, one at random."""
    ties = values == values.max(axis=-1, keepdims=True)
    choice: IntArray = np.argmax(np.where(ties, rng.random(values.shape), -1.0), axis=-1)
    return choice

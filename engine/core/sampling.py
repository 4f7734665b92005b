"""Sampling rules: which pair of policies to compare next."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy import special

from .bernoulli import bernoulli_kl
from .claims import HeadToHead
from .evidence import PairwiseEvidence
from .pooled_evidence import LOG_SHARES, StreamedEvidence
from .structured import BradleyTerryModel
from .types import BoolArray, FloatArray, IntArray, Tally

Picks = tuple[IntArray, IntArray]
# A bet that has still to find out the odds grows at about this share of the best one's rate.
_BET_EFFICIENCY = 0.7
# Weight, in comparisons, of the prior of a pair's win rate: ½, or the rate that the user expects. The rate of
# the estimated strengths would be a worse prior. It holds on to a wrong policy for too long, and took half as
# many comparisons again on the paper's instance.
_PROOF_PRIOR = 20.0
# Scale of the confidence bounds from which the length of a proof is estimated. With a smaller one, a policy
# that was unlucky at first is never tried again. The comparisons then go to one that is hardly within the
# margin.
_PROOF_OPTIMISM = 0.2
# A proof against a rival that is still open after n comparisons is charged this share of n besides its
# estimate. Where the win rate is close to the margin, the estimate alone says "nearly done" for thousands of
# comparisons.
_PROOF_WAIT = 0.5
# Comparisons per policy for which the strengths that the user expects decide whom to prove first. Over a
# longer time, expectations opposite to the truth took up to three times as many comparisons, and correct ones
# saved no more.
_PRIOR_LASTS = 2.0
# The policy to prove meets each open rival at least this share as often as the rival that it meets most.
# Otherwise two weak policies that are level meet thousands of times before they meet those that beat them.
_LEAST_MET = 0.05
# Smallest lead over a rival that is assumed, so that the number of comparisons needed stays finite.
_LEAST_LEAD = 1e-3
MANY = 64
_MOST_PROOFS = 16
# Comparisons per policy for which head-to-head evidence alone chooses the opponents. The forecast of the
# streams rests on early guesses. When it was followed at once, leaders stayed wrong for longer, and pairs
# that strengths do not explain took more comparisons.
_PLAIN_FIRST = 30
# With at least so many policies it is quicker to rule out the others before the last one is proved the best.
_TWO_PHASES_FROM = 12


@dataclass(frozen=True, slots=True)
class Situation:
    """The data that a sampling rule may look at, in R runs side by side.

    Attributes
    ----------
    tally
        Judged and pending comparisons.
    evidence
        Evidence from head-to-head counts.
    refuted
        Shape (R, K): policies that the stopping rule has already ruled out, and those that are absent.
    threshold
        Shape (R,): evidence (nats) at which a policy is ruled out.
    model
        The paper's estimate in a linear Bradley-Terry space; None where nothing is assumed about μ.
    posterior
        The same with a prior that does not vanish, which early data cannot throw far off.
    proof
        The head-to-head proofs of the claim that stops the run; None where it is not proved that way.
    streams
        Evidence that pools opponents, and what is expected of each pair; None without it.
    log_odds_margin
        Log-odds by which the claim that stops the run allows a policy to lose.
    """

    tally: Tally
    evidence: PairwiseEvidence
    refuted: BoolArray
    threshold: FloatArray
    model: BradleyTerryModel | None = None
    posterior: BradleyTerryModel | None = None
    proof: HeadToHead | None = None
    streams: StreamedEvidence | None = None
    log_odds_margin: float = 0.0

    @property
    def load(self) -> FloatArray:
        """Shape (R, K, K): comparisons judged and pending."""
        return self.tally.counts + self.tally.in_flight

    @property
    def n_asked(self) -> FloatArray:
        """Shape (R,): comparisons judged and pending."""
        asked: FloatArray = np.add(self.tally.n_comparisons, self.tally.n_in_flight, dtype=np.float64)
        return asked


@runtime_checkable
class Sampler(Protocol):
    """A sampling rule. It works on R runs side by side; a live design is one run.

    It may look at whatever a `Situation` shows. Claims hold for any rule that does not know outcomes
    beforehand. `Stateless` fills in all but `pick`.
    """

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Choose the next pair of every run.

        Parameters
        ----------
        situation
            All that the rule may look at.
        rng
            Source of the rule's randomness.

        Returns
        -------
        i and j, shape (R,) each, different from each other in each run.
        """
        ...

    def propensities(self, situation: Situation) -> FloatArray | None:
        """Shape (R, K, K), symmetric: the probability of each unordered pair to be picked next.

        None where the rule is deterministic given the history but for ties, or draws in a way that has no
        closed form.
        """
        ...

    def keep(self, runs: BoolArray) -> None:
        """Keep the runs that are True in `runs`, of shape (R,), and forget the others."""
        ...

    def memory(self) -> dict[str, Any]:
        """The memory of the rule, as plain data that JSON can hold."""
        ...

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restore the state that `memory` returned, also after a round trip through JSON."""
        ...


class Stateless:
    """Base of sampling rules that remember nothing, so that a run can be taken up from its counts."""

    __slots__ = ()

    def propensities(self, situation: Situation) -> FloatArray | None:
        """Not known."""
        return None

    def keep(self, runs: BoolArray) -> None:
        """Nothing to drop."""

    def memory(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Nothing to take up."""


@dataclass(frozen=True, slots=True)
class Balanced(Stateless):
    """Compare the rival with the least evidence against it and the opponent that may refute it soonest.

    In a Bradley-Terry space, compare the pair that tells most about that policy's distance from the best.

    At the optimal allocation every suboptimal policy is refuted at the same speed [LLM-PO, corollary "optimal
    ratio"]. This rule balances the evidence itself instead of tracking a plug-in estimate of that allocation.
    Pending comparisons count at the evidence they are expected to bring. It keeps no state.

    Parameters
    ----------
    optimism
        Scale of the lower confidence bound on the tested policy's win rates: larger explores more opponents.
    prior_weight, prior_lead
        Before its own comparisons say more, an opponent is taken to win against the tested policy with a
        probability. For the one with the least evidence against it this is ½ + `prior_lead`, for one with an
        e-value x times as large ½ + `prior_lead` / x. That counts as much as `prior_weight` comparisons. Most
        of a policy's comparisons so go to those that may well be the best, which beats every other.
    """

    optimism: float = 0.05
    prior_weight: float = 40.0
    prior_lead: float = 0.1

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return the policies under test and challengers; in a Bradley-Terry space, pairs with i < j."""
        if situation.posterior is not None:
            return _most_telling_pair(situation, situation.posterior, rng)
        if situation.proof is None:
            return self._refute(situation, rng)
        directly = _is_to_prove(situation, situation.proof)
        if directly.all():
            return self._prove(situation, situation.proof, rng)
        i, j = self._refute(situation, rng)
        if directly.any():
            b, k = self._prove(situation, situation.proof, rng)
            i, j = np.where(directly, b, i), np.where(directly, k, j)
        return i, j

    def _refute(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """The policy under test and its opponent.

        Head-to-head evidence chooses them at first, and wherever it alone counts: to prove that none is best.
        """
        plain = situation.n_asked < _PLAIN_FIRST * situation.tally.n_present
        if situation.proof is not None:
            plain |= situation.refuted.all(axis=1)
        if situation.streams is None or not plain.any():
            return self._refute_soonest(situation, rng)
        i, j = self._refute_soonest(replace(situation, streams=None), rng)
        if not plain.all():
            other_i, other_j = self._refute_soonest(situation, rng)
            i, j = np.where(plain, i, other_i), np.where(plain, j, other_j)
        return i, j

    def _refute_soonest(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """The policy under test and the opponent that promises to refute it soonest."""
        tally, evidence, streams = situation.tally, situation.evidence, situation.streams
        runs = np.arange(tally.n_runs)
        per_policy = expected_evidence(situation)
        tested = (
            policy_under_test(per_policy, situation.refuted, rng)
            if streams is None
            else _tested_with_leader(streams.standing(), per_policy, situation.refuted, rng)
        )

        pending = tally.in_flight[runs, tested]
        count = tally.counts[runs, tested] + pending
        weight = count + self.prior_weight
        prior = 0.5 - self.prior_lead * np.exp(per_policy.min(axis=1, keepdims=True) - per_policy)
        # A pending comparison is taken to split evenly until it is judged.
        mean = (tally.wins[runs, tested] + 0.5 * pending + self.prior_weight * prior) / weight
        width = np.sqrt(self.optimism * np.log(situation.n_asked + 2.0)[:, None] / weight)
        speed = bernoulli_kl(_within(mean - width, 0.0, evidence.null_mean), evidence.null_mean)
        log_e = _expected_rows(situation, (runs, tested))
        if streams is None:
            # Opponents share the evidence evenly, so one of them alone needs log(K - 1) more, and a nat for
            # the mixture.
            goal = situation.threshold + np.log(np.maximum(tally.n_present - 1, 1)) + 1.0
            promise = speed / _missing(goal[:, None], log_e)
        else:
            promise = self._promise_with_streams(situation, streams, tested, speed, log_e)
        promise[runs, tested] = -np.inf
        if not tally.everybody:
            promise[~tally.present] = -np.inf
        return tested, argmax_random(promise, rng)

    def _promise_with_streams(
        self,
        situation: Situation,
        streams: StreamedEvidence,
        tested: IntArray,
        speed: FloatArray,
        log_e: FloatArray,
    ) -> FloatArray:
        """Shape (R, K): share of the missing evidence that a comparison promises, in its quickest stream."""
        runs = np.arange(tested.size)
        head_to_head, favourite, bets = (situation.threshold - share for share in LOG_SHARES)
        alone = head_to_head + np.log(np.maximum(situation.tally.n_present - 1, 1)) + 1.0
        promise = speed / _missing(alone[:, None], log_e)
        by_bets = speed / _missing(bets, streams.log_bets[runs, tested])[:, None]
        np.maximum(promise, _BET_EFFICIENCY * by_bets, out=promise)
        liked = streams.beliefs.favourite(runs, tested)
        by_favourite = speed[runs, liked] / _missing(favourite + 1.0, streams.log_favourite[runs, tested])
        promise[runs, liked] = np.maximum(promise[runs, liked], by_favourite)
        last = np.flatnonzero(situation.refuted.sum(axis=1) == situation.tally.n_policies - 1)
        if last.size:
            # The last one standing has only to be shown ahead of those that it has hardly met.
            ahead = situation.evidence.ahead()[last, tested[last]]
            promise[last] = np.where(ahead, 0.0, 1.0 / (1.0 + situation.load[last, tested[last]]))
        return promise

    def _prove(self, situation: Situation, proof: HeadToHead, rng: np.random.Generator) -> Picks:
        """The policy whose proof promises to take fewest comparisons, and the rival that needs most."""
        tally, null = situation.tally, proof.evidence.null_mean
        runs = np.arange(tally.n_runs)
        policies = _worth_proving(situation, proof, rng)

        def against(by_policy: FloatArray | IntArray) -> FloatArray:
            # [r, k, c]: of policy k against the c-th that is worth proving, by rows. Picking out columns
            # would take milliseconds where there are thousands of policies.
            rows = by_policy[runs[:, None], policies]
            return np.ascontiguousarray(rows.swapaxes(1, 2), dtype=np.float64)

        pending = against(tally.in_flight)
        counts = against(tally.counts)
        weight = counts + pending + _PROOF_PRIOR
        expected = _expected_beforehand(situation, policies)
        mean = (counts - against(tally.wins) + 0.5 * pending + _PROOF_PRIOR * expected) / weight
        width = np.sqrt(_PROOF_OPTIMISM * np.log(situation.n_asked + 2.0)[:, None, None] / weight)
        speed = bernoulli_kl(_within(mean - width, 0.0, null - _LEAST_LEAD), null)
        rivals = np.arange(tally.n_policies)[:, None]
        missing = proof.threshold - proof.log_capital(runs[:, None, None], rivals, policies[:, None])
        if (held_back := proof.evidence.held_back()) is not None:
            missing -= held_back[runs[:, None, None], rivals, policies[:, None]]
        waiting = pending > 0.0
        if waiting.any():
            missing[waiting] -= pending[waiting] * bernoulli_kl(np.minimum(mean[waiting], null), null)
        need = np.maximum(missing, 0.0) / speed
        need[runs[:, None], policies, np.arange(policies.shape[1])] = 0.0
        waited = np.where(missing > 0.0, counts, 0.0).max(axis=1)
        cost = need.sum(axis=1) + _PROOF_WAIT * waited
        cost[_out(situation, proof)[runs[:, None], policies]] = np.inf
        choice = argmax_random(-cost, rng)
        b = policies[runs, choice]
        needed = need[runs, :, choice]
        met = (counts + pending)[runs, :, choice]
        unmet = (needed > 0.0) & (met < _LEAST_MET * met.max(axis=1, keepdims=True))
        first_unmet = np.where(unmet, 1.0 / (1.0 + met), 0.0)
        needed = np.where(unmet.any(axis=1, keepdims=True), first_unmet, needed)
        needed[runs, b] = -1.0
        if not tally.everybody:
            needed[~tally.present] = -1.0
        return b, argmax_random(needed, rng)


def _is_to_prove(situation: Situation, proof: HeadToHead) -> BoolArray:
    """Shape (R,): whether to prove one policy now, and not to rule out others first."""
    if proof.evidence.null_mean > 0.5:
        return np.ones(situation.tally.n_runs, dtype=np.bool_)
    n_open = np.sum(~situation.refuted, axis=1)
    # Once all are ruled out, only "none is the best" remains to be proved.
    to_prove: BoolArray = (n_open > 0) & ((situation.tally.n_present < _TWO_PHASES_FROM) | (n_open == 1))
    return to_prove


def _worth_proving(situation: Situation, proof: HeadToHead, rng: np.random.Generator) -> IntArray:
    """Shape (R, C): policies that a proof may be worth while for; of many, those of the best standing."""
    tally, streams = situation.tally, situation.streams
    if streams is None or tally.n_policies <= MANY:
        return np.tile(np.arange(tally.n_policies), (tally.n_runs, 1))
    standing = np.where(_out(situation, proof), -np.inf, streams.standing())
    # Among equals, as in the beginning, those to look at are drawn.
    order = np.lexsort((rng.random(standing.shape), -standing), axis=-1)
    policies: IntArray = order[:, :_MOST_PROOFS]
    return policies


def _out(situation: Situation, proof: HeadToHead) -> BoolArray:
    """Shape (R, K): policies that are no longer to be proved. What cannot be the best may be good enough."""
    out: BoolArray = situation.refuted & (proof.evidence.null_mean == 0.5)
    return out if situation.tally.everybody else out | ~situation.tally.present


def _expected_beforehand(situation: Situation, policies: IntArray) -> FloatArray | float:
    """Shape (R, K, C): the win rates of every policy against each of ``policies`` that the strengths expected
    beforehand give. They are ½ where none were given, and soon after the start.
    """
    if situation.streams is None or not situation.streams.beliefs.prior.any():
        return 0.5
    prior = situation.streams.beliefs.prior
    win_rate = special.expit(prior[:, None] - prior[policies][:, None])
    fading = np.exp(-situation.n_asked / (_PRIOR_LASTS * prior.size))[:, None, None]
    expected: FloatArray = 0.5 + (win_rate - 0.5) * fading
    return expected


def _most_telling_pair(situation: Situation, model: BradleyTerryModel, rng: np.random.Generator) -> Picks:
    """The pair that tells most about θᵀ(x_k - x_best), k being least separated from its null.

    That is θᵀ(x_k - x_best) at or above the margin. Without the margin, two policies that are level would get
    all comparisons. A claim that allows them to be level would never be proved against the others.

    One comparison of contrast z takes σ'(θᵀz) (zᵀH⁻¹z_k)² / (1 + σ'(θᵀz) zᵀH⁻¹z) off that variance
    [Sherman & Morrison 1950]. Pending comparisons count in H.
    """
    features = model.features
    covariance = model.covariance(situation.load)
    separation = model.separation(covariance, situation.log_odds_margin)
    runs, best = np.arange(model.best.size), model.best
    separation[runs, best] = np.inf
    open_rivals = ~situation.refuted & np.isfinite(separation)
    hidden = situation.refuted & open_rivals.any(axis=1, keepdims=True)
    rival = argmax_random(-np.where(hidden, np.inf, separation), rng)

    target = features[rival] - features[best]
    shift = np.matmul(covariance, target[..., None])[..., 0] @ features.T
    spread = np.matmul(features @ covariance, features.T)
    rows, columns = model.pairs
    own = np.diagonal(spread, axis1=1, axis2=2)
    variance = own[:, rows] + own[:, columns] - 2.0 * spread[:, rows, columns]
    scores = model.scores
    mean = special.expit(scores[:, rows] - scores[:, columns])
    weight = mean * (1.0 - mean)
    gain = weight * (shift[:, rows] - shift[:, columns]) ** 2 / (1.0 + weight * variance)
    if not situation.tally.everybody:
        present = situation.tally.present
        gain[~(present[:, rows] & present[:, columns])] = -np.inf
    pair = argmax_random(gain, rng)
    return rows[pair], columns[pair]


def expected_evidence(situation: Situation) -> FloatArray:
    """Shape (R, K): evidence (nats) per policy once what is pending came out at the current win rates."""
    streams, evidence = situation.streams, situation.evidence
    current = evidence.per_policy if streams is None else streams.per_policy
    if not situation.tally.n_in_flight.any():
        return current
    waiting = np.nonzero(situation.tally.pending)
    per_policy = current.copy()
    if streams is None:
        per_policy[waiting] = evidence.combine(_expected_rows(situation, waiting), waiting)
    else:
        per_policy[waiting] += _expected_gain(situation, waiting).sum(axis=1)
        if (held_back := evidence.held_back()) is not None:
            per_policy += held_back.sum(axis=2)
    return per_policy


def _expected_rows(situation: Situation, rows: tuple[IntArray, ...]) -> FloatArray:
    """Shape (m, K): the log e-values (nats) of m policies, given as runs and policies,
    with what is pending.
    """
    log_e = situation.evidence.log_e[rows]
    if (held_back := situation.evidence.held_back()) is not None:
        log_e += held_back[rows]
    if situation.tally.pending[rows].any():
        log_e += _expected_gain(situation, rows)
    return log_e


def _expected_gain(situation: Situation, rows: tuple[IntArray, ...]) -> FloatArray:
    """Shape (m, K): the evidence (nats) that pending comparisons of m policies are expected to bring."""
    tally, null = situation.tally, situation.evidence.null_mean
    mean = (tally.wins[rows] + 0.5) / (tally.counts[rows] + 1.0)
    gain: FloatArray = tally.in_flight[rows] * bernoulli_kl(np.minimum(mean, null), null)
    return gain


def _within(values: FloatArray, low: float, high: float) -> FloatArray:
    """The values cut off at both ends. `np.clip` takes longer than all of this on a few values."""
    cut: FloatArray = np.minimum(np.maximum(values, low), high)
    return cut


def policy_under_test(evidence: FloatArray, refuted: BoolArray, rng: np.random.Generator) -> IntArray:
    """Shape (R,): the policy with the least evidence against it, but for the leader.

    The leader is tested itself once it is the only one left, or once none is.
    """
    n_open = refuted.shape[1] - refuted.sum(axis=1)
    masked = np.where(refuted & (n_open > 0)[:, None], np.inf, evidence)
    order = np.lexsort((rng.random(masked.shape), masked), axis=-1)
    return np.where(n_open <= 1, order[:, 0], order[:, 1])


def _tested_with_leader(
    standing: FloatArray, evidence: FloatArray, refuted: BoolArray, rng: np.random.Generator
) -> IntArray:
    """Shape (R,): the same, where the leader is the policy of the best standing."""
    runs = np.arange(standing.shape[0])
    n_open = refuted.shape[1] - refuted.sum(axis=1)
    out = refuted & (n_open > 0)[:, None]
    leader = np.where(out, -np.inf, standing).argmax(axis=1)
    masked = np.where(out, np.inf, evidence)
    rivals = np.flatnonzero(n_open > 1)
    masked[runs[rivals], leader[rivals]] = np.inf
    tested: IntArray = np.lexsort((rng.random(masked.shape), masked), axis=-1)[:, 0]
    return tested


def _missing(goal: FloatArray, evidence: FloatArray) -> FloatArray:
    """Evidence (nats) missing to a goal; the floor keeps what is finished from looking infinitely quick."""
    missing: FloatArray = np.maximum(goal - evidence, 0.1 * goal)
    return missing


def argmax_random(values: FloatArray, rng: np.random.Generator) -> IntArray:
    """Index of the largest value along the last axis; among equals, one at random."""
    ties = values == values.max(axis=-1, keepdims=True)
    choice: IntArray = np.argmax(np.where(ties, rng.random(values.shape), -1.0), axis=-1)
    return choice

"""Claims of a stop, and their proofs head to head, which assume nothing about μ.

For policies k and b let E_kb be an e-process against "μ(k, b) ≥ ½ + ε", that is "k beats b by ε or more".
Policy b is named once E_kb / K has reached 1/δ for every other k. If the claim about b is false, the null of
some j(b) is true. The mean of E_{j(b) b} over these b is then an e-process. Naming any of them makes it 1/δ
or more, which has probability at most δ [Ville 1939]. Strengths expected beforehand make it a weighted mean,
and stakes (`capital.Stakes`) have its weights move. Of two policies with a margin there is no mean to take:
see `names_at_risk`.

E_kb counts a showing without an outcome, and one that may still have one, as a win of k. So the claims hold
whoever leaves or delays what (docs/proofs.md, "Counting against the claim").
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from .capital import Stakes
from .evidence import PairwiseEvidence
from .mixture import BradleyTerryEvidence
from .types import BoolArray, FloatArray, IntArray, located

NOBODY = -1
# Comparing the evidence of more policies than this takes long.
_FEW = 64
# This share of the initial capital follows the prior strengths. If they mislead, a proof needs
# log 1.5 = .41 nats more.
BY_EXPECTATION = 1.0 / 3.0
# Scale of Gumbel errors with the standard deviation of strengths in `beliefs`, 0.4.
_GUMBEL_SCALE = 0.4 * math.sqrt(6.0) / math.pi


def log_weights(prior: FloatArray | None, n_policies: int) -> FloatArray:
    """Shape (K,): log of what each policy's proof begins with over an equal share; zeros without a prior.

    The weights are fixed before the first outcome and their mean is 1. So a false claim is as rare as with
    equal weights [Genovese, Roeder & Wasserman 2006]. They follow the chance to be the strongest, with Gumbel
    errors in the strengths [McFadden 1974]. `prior` has shape (K,), in log-odds.
    """
    if prior is None:
        return np.zeros(n_policies)
    chance = special.softmax(prior / _GUMBEL_SCALE)
    weights: FloatArray = np.log(1.0 - BY_EXPECTATION + BY_EXPECTATION * n_policies * chance)
    return weights


def names_at_risk(n_policies: int, margin: float) -> int:
    """The number of names that a proof divides its risk among: all that could be false at the same time.

    Two policies cannot both beat each other by a margin above 0, so that one of their two names at most is
    false.
    """
    return 1 if n_policies == 2 and margin > 0.0 else n_policies


def starting_capital(n_policies: int, margin: float, prior: FloatArray | None) -> FloatArray:
    """Shape (K,): logarithms of the capital that the proof of each policy begins with, by prior strengths."""
    at_risk = names_at_risk(n_policies, margin)
    # One name alone has all there is, whatever was expected.
    weights = log_weights(None if at_risk == 1 else prior, n_policies)
    return np.asarray(weights - math.log(at_risk), dtype=np.float64)


class HeadToHead:
    """The policies that are proved, head to head, to lose to no other by the margin or more, in R runs.

    A policy once named stays named, whatever is told later.

    Parameters
    ----------
    evidence
        E-processes of the pairs, with the margin; updated by its owner.
    delta
        Risk level δ.
    named
        Shape (R,): policies named earlier, `NOBODY` where none was.
    log_start
        Shape (K,): logarithms of the capital that the proof of each policy begins with.
    stakes
        Capital that moves, in place of shares that stay; updated by `move`. Where it is given, it holds what
        the proofs begin with.

    Attributes
    ----------
    threshold
        log(1/δ), in nats.
    log_start
        As given.
    """

    def __init__(
        self,
        evidence: PairwiseEvidence,
        delta: float,
        named: IntArray | None = None,
        *,
        log_start: FloatArray,
        stakes: Stakes | None = None,
    ) -> None:
        self.evidence = evidence
        self.threshold = float(-np.log(delta))
        self._stakes = stakes
        self.log_start = log_start
        self._n_policies = log_start.size
        # Shape (R, K, K): the evidence in the proof of the column's policy against the row's (nats).
        self._log_capital: FloatArray = evidence.log_e + (log_start if stakes is None else stakes.log_share)
        self._n_passed: IntArray = (self._log_capital >= self.threshold).sum(axis=1)
        n_runs = evidence.log_e.shape[0]
        self.named: IntArray = np.full(n_runs, NOBODY) if named is None else named.copy()

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the evidence about the pair (i[r], j[r]) of these runs."""
        at, i, j = located(runs, i, j)
        for k, b in ((i, j), (j, i)):
            log_share = self.log_start[b] if self._stakes is None else self._stakes.log_share[at, k, b]
            before, now = self._log_capital[at, k, b], self.evidence.log_e[at, k, b] + log_share
            self._log_capital[at, k, b] = now
            passed = (now >= self.threshold).astype(np.int64)
            self._n_passed[at, b] += passed - (before >= self.threshold)

    def move(self, runs: IntArray, to: IntArray) -> None:
        """Have the capital of these runs, shape (m,), move to two policies of each, shape (m, 2)."""
        if self._stakes is None:
            return
        n = self._n_policies
        rivals = np.tile(np.arange(n), 2 * runs.size)
        of_run, b = np.repeat(runs, 2 * n), np.repeat(to.ravel(), n)
        others = rivals != b
        price = np.full(rivals.size, np.inf)
        price[others] = self.evidence.most(of_run[others], rivals[others], b[others])
        self._stakes.move(runs, to, self.evidence.log_e[runs], price.reshape(runs.size, 2, n))
        capital = self.evidence.log_e[runs] + self._stakes.log_share[runs]
        self._log_capital[runs] = capital
        self._n_passed[runs] = (capital >= self.threshold).sum(axis=1)

    def log_capital(self, runs: IntArray, k: IntArray, b: IntArray) -> FloatArray:
        """The evidence (nats) in the proofs of b against rivals k, which broadcast; -inf where k is b.

        Compare it with the threshold.
        """
        capital: FloatArray = self._log_capital[runs, k, b]
        return capital

    def against_being_best(self, of: Any = ...) -> FloatArray:
        """Evidence (nats) against policies' beating every other: what all names have against them together.

        It is part of the same e-process as a wrong name, so that both together have one δ. Shape (R, K), or
        what `of` selects of it.
        """
        # Sums round by the order in memory.
        capital = np.ascontiguousarray(self._log_capital[of])
        top = capital.max(axis=-1, keepdims=True)
        return np.asarray(top[..., 0] + np.log(np.exp(capital - top).sum(axis=-1)), dtype=np.float64)

    def observe(self) -> None:
        """Name the policies that are proved by now, where none was before."""
        proved = self.proved()
        if not np.count_nonzero(proved):
            return
        fresh = proved.any(axis=1) & (self.named == NOBODY)
        for run in np.flatnonzero(fresh):
            self.named[run] = self._strongest(run, np.flatnonzero(proved[run]))

    def proved(self) -> BoolArray:
        """Shape (R, K): policies that the present evidence proves."""
        proved: BoolArray = self._n_passed == self._n_policies - 1
        return proved

    def nearest(self, run: int, leader: int) -> int:
        """The policy that a run comes closest to naming: the one named, or that with the fewest rivals left.

        Where several have as few, it is `leader`.
        """
        if self.named[run] != NOBODY:
            return int(self.named[run])
        fewest = np.flatnonzero(self._n_passed[run] == self._n_passed[run].max())
        return leader if leader in fewest or fewest.size > _FEW else self._strongest(run, fewest)

    def rivals(self, run: int, b: int) -> IntArray:
        """Shape (m,): the policies whose evidence against beating b is below the threshold, in one run."""
        missing = ~(self._log_capital[run, :, b] >= self.threshold)
        missing[b] = False
        return np.flatnonzero(missing)

    def risk(self, run: int, b: int) -> float:
        """The δ, in [0, 1], at which the present evidence of one run would just name b."""
        return math.exp(min(0.0, -float(self._against(run, np.array([b])).min())))

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the evidence and the stakes have."""
        self._log_capital = self._log_capital[runs]
        self._n_passed = self._n_passed[runs]
        self.named = self.named[runs]

    def _strongest(self, run: int, policies: IntArray) -> int:
        return int(policies[np.argmax(self._against(run, policies).min(axis=0))])

    def _against(self, run: int, policies: IntArray) -> FloatArray:
        """Shape (K, m): what the proofs of m policies have (nats); infinite against themselves."""
        capital = self.log_capital(np.array(run), np.arange(self._n_policies)[:, None], policies)
        capital[policies, np.arange(policies.size)] = np.inf
        return capital


class InModel:
    """Head-to-head proofs in a Bradley-Terry space, which may also go through the model, in R runs.

    Let LR_kb be the mixture likelihood over the largest likelihood with θᵀ(x_k - x_b) ≥ logit(½ + ε). Under
    the model every LR_kb whose null is true lies below one and the same e-process: the mixture over the
    likelihood of the true θ. So the model's part needs no factor K: b is named once s LR_kb + (1 - s) E_kb /
    K ≥ 1/δ for every other k.

    Only the policy that the estimate puts first is considered.

    Parameters
    ----------
    evidence
        Evidence of the model, with the margin; updated by its owner.
    pairwise
        E-processes of the pairs, with the margin; updated by its owner.
    delta
        Risk level δ.
    named
        Shape (R,): policies named earlier, `NOBODY` where none was.
    """

    def __init__(
        self,
        evidence: BradleyTerryEvidence,
        pairwise: PairwiseEvidence,
        delta: float,
        named: IntArray | None = None,
    ) -> None:
        self._evidence = evidence
        self._pairwise = pairwise
        self.threshold = float(-np.log(delta))
        n_runs = pairwise.log_e.shape[0]
        self.named: IntArray = np.full(n_runs, NOBODY) if named is None else named.copy()

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Nothing to take in: the evidence is read when it is asked for."""

    def move(self, runs: IntArray, to: IntArray) -> None:
        """Nothing to move: a proof through the model needs no factor K."""

    def observe(self) -> None:
        """Name the policies that are proved by now, where none was before."""
        leader = self._evidence.leader
        proved = self.against().min(axis=1) >= self.threshold
        self.named = np.where((self.named == NOBODY) & proved, leader, self.named)

    def nearest(self, run: int, leader: int) -> int:
        """The policy that a run has named, or else the leader of its proof; ``leader`` is not needed."""
        return int(self.named[run] if self.named[run] != NOBODY else self._evidence.leader[run])

    def rivals(self, run: int, b: int) -> IntArray:
        """Shape (m,): the policies whose evidence against beating b is below the threshold, in one run."""
        if self._evidence.leader[run] != b:
            return np.delete(np.arange(self._pairwise.log_e.shape[1]), b)
        return np.flatnonzero(self.against()[run] < self.threshold)

    def risk(self, run: int, b: int) -> float:
        """The δ, in [0, 1], at which the present evidence of one run would just name b."""
        if self._evidence.leader[run] != b:
            return 1.0
        return float(np.exp(min(0.0, -self.against()[run].min())))

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the evidence has."""
        self.named = self.named[runs]

    def against(self) -> FloatArray:
        """Shape (R, K): evidence (nats) against each policy beating the estimate's first, infinite for it."""
        b = self._evidence.leader
        runs = np.arange(b.size)
        share, pairwise_share = self._evidence.log_shares
        head_to_head = self._pairwise.log_e[runs, :, b] - np.log(self._pairwise.log_e.shape[1])
        against = np.logaddexp(self._evidence.structured + share, head_to_head + pairwise_share)
        against[runs, b] = np.inf
        return np.asarray(against, dtype=np.float64)


Proof: TypeAlias = HeadToHead | InModel

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

import math
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from .capital import KEPT_FOR_NEWCOMERS, NO_CAPITAL, Stakes
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


def starting_capital(
    present: BoolArray, margin: float, prior: FloatArray | None, reserve: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Shape (K,) each: logarithms of the stakes on each rival, and the accounts, of policies by strengths.

    `present`, shape (K,), are the policies that the experiment begins with, and `reserve` is what is kept for
    those that join.
    """
    n = int(np.count_nonzero(present))
    if names_at_risk(n, margin) == 1:
        # One name alone has all there is, whatever was expected.
        kept = KEPT_FOR_NEWCOMERS if reserve else 0.0
        log_share, account = np.full(present.size, math.log1p(-kept)), np.full(present.size, kept)
    else:
        log_share = np.asarray(log_weights(prior, present.size) - math.log(n), dtype=np.float64)
        account = np.exp(log_share)
    if reserve:
        log_share, account = log_share + math.log1p(-reserve), (1.0 - reserve) * account
    return np.where(present, log_share, NO_CAPITAL), np.where(present, account, 0.0)


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
    stakes
        The capital of the proofs.

    Attributes
    ----------
    threshold
        log(1/δ), in nats.
    stakes
        As given.
    """

    def __init__(
        self,
        evidence: PairwiseEvidence,
        delta: float,
        named: IntArray | None = None,
        *,
        stakes: Stakes,
    ) -> None:
        self.evidence = evidence
        self.threshold = float(-np.log(delta))
        self.stakes = stakes
        self._n_policies = stakes.account.shape[1]
        # Shape (R, K, K): the evidence in the proof of the column's policy against the row's (nats).
        self._log_capital: FloatArray = evidence.log_e + stakes.log_share
        # Shape (R, K): how many rivals each proof excludes; -1 for who is absent.
        self._n_passed: IntArray = (self._log_capital >= self.threshold).sum(axis=1)
        n_runs = evidence.log_e.shape[0]
        self.named: IntArray = np.full(n_runs, NOBODY) if named is None else named.copy()
        if stakes.excluded is not None:
            self._look(np.arange(n_runs))

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the evidence about the pair (i[r], j[r]) of these runs."""
        at, i, j = located(runs, i, j)
        for k, b in ((i, j), (j, i)):
            before = self._log_capital[at, k, b]
            now = self.evidence.log_e[at, k, b] + self.stakes.log_share[at, k, b]
            self._log_capital[at, k, b] = now
            if self.stakes.excluded is not None:
                self._look_at(at, k, b)
                continue
            passed = (now >= self.threshold).astype(np.int64)
            self._n_passed[at, b] += passed - (before >= self.threshold)

    def take_back(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Have the exclusions fall that an outcome of these pairs brought, which was a slip.

        A name that it completed stays.
        """
        if self.stakes.excluded is None:
            return
        at, i, j = located(runs, i, j)
        excluded, present = self.stakes.excluded, self.stakes.tally.present
        for k, b in ((i, j), (j, i)):
            fall = (self._log_capital[at, k, b] < self.threshold) & (self.named[at] != b)
            fall &= present[at, k] & present[at, b] & (excluded[at, k, b] == self.stakes.stage[at])
            excluded[at, k, b] *= ~fall
            self._n_passed[at, b] -= fall

    def move(self, runs: IntArray, to: IntArray) -> None:
        """Have the capital of these runs, shape (m,), move to two policies of each, shape (m, 2)."""
        price = np.stack([self._prices(runs, to[:, own]) for own in (0, 1)], axis=1)
        self.stakes.move(runs, to, self.evidence.log_e[runs], price)
        self._look(runs)

    def join(self, runs: IntArray, n: IntArray, champion: IntArray | None) -> None:
        """Take up a policy that is present by now in each of these runs, shape (m,).

        `champion`, shape (m,), is the policy that a new stage begins with; None within a stage.
        """
        excluded = self.exclusions()
        excluded[runs, n], excluded[runs, :, n] = 0, 0
        if champion is None:
            self.stakes.join(runs, n, self.evidence.log_e[runs])
        else:
            # Of the exclusions in this stage those of its name stay: if one is wrong, so is the conclusion.
            own, stage = excluded[runs], self.stakes.stage[runs]
            fall = own == stage[:, None, None]
            fall[np.arange(runs.size), :, self.named[runs]] &= (self.named[runs] == NOBODY)[:, None]
            excluded[runs] = np.where(fall, 0, own)
            price = self._prices(runs, champion)
            if not self.stakes.moves:
                # Without replacement nothing has a price: only pairs that have still to meet are staked on.
                tally = self.stakes.tally
                met = (tally.proof_wins + tally.proof_losses)[runs, :, champion] > 0.0
                price = np.where(met, np.inf, price)
            self.stakes.renew(runs, champion, n, price)
        self.named[runs] = NOBODY
        self._look(runs)

    def begin_stage(self, runs: IntArray) -> None:
        """Begin a new stage of these runs, shape (m,), with all who are present: nothing is excluded, and
        only what comes from now on counts.
        """
        self.exclusions()[runs] = 0
        n = self._n_policies
        price = np.stack([self._prices(runs, np.full(runs.size, b)) for b in range(n)], axis=2)
        present = self.stakes.tally.present[runs[0]]
        margin = self.evidence.null_mean - 0.5
        self.stakes.begin_stage(runs, *starting_capital(present, margin, None), price)
        self.named[runs] = NOBODY
        self._look(runs)

    def leave(self, runs: IntArray, r: IntArray) -> None:
        """Have a policy that is absent by now leave each of these runs, shape (m,).

        Where it was open in the proof of b, all other capital of b is capped at what this proof has against
        it, and the exclusions of the stage fall.
        """
        excluded = self.exclusions()
        tally = self.stakes.tally
        self.stakes.open_up(runs, self.evidence.log_e[runs])
        self._look(runs)
        for b in range(self._n_policies):
            hit = (r != b) & tally.present[runs, b] & (excluded[runs, r, b] == 0)
            at, gone = runs[hit], r[hit]
            if at.size:
                whom = np.full(at.size, b)
                cap, price = self._log_capital[at, gone, b], self._prices(at, whom)
                # Without replacement nothing has a price: the proof ends here.
                self.stakes.cap(at, whom, cap if self.stakes.moves else np.full(at.size, NO_CAPITAL), price)
                own = excluded[at, :, b]
                excluded[at, :, b] = np.where(own == self.stakes.stage[at][:, None], 0, own)
        self.stakes.leave(runs, r)
        self.named[runs[self.named[runs] == r]] = NOBODY
        self._look(runs)

    def exclusions(self) -> IntArray:
        """Exclusions, with those of the present evidence if this is the first event."""
        if self.stakes.excluded is None:
            self.stakes.excluded = np.zeros(self._log_capital.shape, dtype=np.int64)
            passed = self._log_capital >= self.threshold
            named = np.flatnonzero(self.named != NOBODY)
            passed[named, :, self.named[named]] = True
            self.stakes.excluded[passed] = 1
            own = np.arange(self._n_policies)
            self.stakes.excluded[:, own, own] = 0
        return self.stakes.excluded

    def _prices(self, runs: IntArray, b: IntArray) -> FloatArray:
        """Shape (m, K): the most (nats) that E_kb may be for one b of each run; infinite for b itself."""
        n = self._n_policies
        rivals = np.tile(np.arange(n), runs.size)
        of_run, of = np.repeat(runs, n), np.repeat(b, n)
        others = rivals != of
        price = np.full(rivals.size, np.inf)
        price[others] = self.evidence.most(of_run[others], rivals[others], of[others])
        return price.reshape(runs.size, n)

    def _look(self, runs: IntArray) -> None:
        """Compute everything that depends on the stakes of these runs."""
        capital = self.evidence.log_e[runs] + self.stakes.log_share[runs]
        self._log_capital[runs] = capital
        passed = capital >= self.threshold
        if self.stakes.excluded is not None:
            excluded, present = self.stakes.excluded[runs], self.stakes.tally.present[runs]
            fresh = passed & (excluded == 0) & present[:, :, None] & present[:, None, :]
            excluded = np.where(fresh, self.stakes.stage[runs][:, None, None], excluded)
            self.stakes.excluded[runs] = excluded
            passed = (excluded > 0) | ~present[:, :, None]
            own = np.arange(self._n_policies)
            passed[:, own, own] = False
            self._n_passed[runs] = np.where(present, passed.sum(axis=1), -1)
            return
        self._n_passed[runs] = passed.sum(axis=1)

    def _look_at(self, at: Any, k: Any, b: Any) -> None:
        """The same for the proofs of b against k in these runs, once somebody has joined or retired."""
        excluded, present = self.exclusions(), self.stakes.tally.present
        both = present[at, k] & present[at, b]
        fresh = (self._log_capital[at, k, b] >= self.threshold) & both & (excluded[at, k, b] == 0)
        excluded[at, k, b] += fresh * self.stakes.stage[at]
        self._n_passed[at, b] += fresh

    def log_capital(self, runs: IntArray, k: IntArray, b: IntArray) -> FloatArray:
        """The evidence (nats) in the proofs of b against rivals k, which broadcast; -inf where k is b.

        Compare it with the threshold. It is infinite against who is absent, and no less than the threshold
        against who is excluded.
        """
        capital: FloatArray = self._log_capital[runs, k, b]
        if self.stakes.excluded is not None:
            excluded = self.stakes.excluded[runs, k, b] > 0
            capital = np.where(excluded, np.maximum(capital, self.threshold), capital)
            capital = np.where(self.stakes.tally.present[runs, k] | (k == b), capital, np.inf)
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
        if not self.stakes.tally.everybody:
            # Who is left alone has nobody to lose to, and is not named for it.
            proved &= (self.stakes.tally.n_present > 1)[:, None]
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
        capital = self.log_capital(np.array(run), np.arange(self._n_policies), np.array(b))
        missing = ~(capital >= self.threshold)
        missing[b] = False
        return np.flatnonzero(missing)

    def risk(self, run: int, b: int) -> float:
        """The δ, in [0, 1], at which the present evidence of one run would just name b."""
        least = float(self._against(run, np.array([b])).min())
        return math.exp(min(0.0, -least)) if least < math.inf else 1.0

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
    stakes
        What each policy has head to head; it does not move.
    """

    def __init__(
        self,
        evidence: BradleyTerryEvidence,
        pairwise: PairwiseEvidence,
        delta: float,
        named: IntArray | None = None,
        *,
        stakes: Stakes,
    ) -> None:
        self._evidence = evidence
        self._pairwise = pairwise
        self.stakes = stakes
        self.threshold = float(-np.log(delta))
        n_runs = pairwise.log_e.shape[0]
        self.named: IntArray = np.full(n_runs, NOBODY) if named is None else named.copy()

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Nothing to take in: the evidence is read when it is asked for."""

    def take_back(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Nothing to take back: a model assumes that no answer is changed because of what it says."""

    def move(self, runs: IntArray, to: IntArray) -> None:
        """Nothing to move: a proof through the model needs no factor K."""

    def join(self, runs: IntArray, n: IntArray, champion: IntArray | None) -> None:
        """Take up a policy in each of these runs, shape (m,). It has nothing head to head, and needs nothing.

        There are no stages: everything that a model says at any time errs with at most δ together.
        """
        excluded = self.exclusions()
        excluded[runs, n], excluded[runs, :, n] = 0, 0
        self.stakes.join(runs, n, self._pairwise.log_e[runs])
        self.named[runs] = NOBODY

    def leave(self, runs: IntArray, r: IntArray) -> None:
        """Have a policy leave each of these runs, shape (m,).

        Where it was still open, the proof goes on in the model alone.
        """
        excluded = self.exclusions()
        for b in range(excluded.shape[1]):
            hit = (r != b) & (excluded[runs, r, b] == 0)
            at = runs[hit]
            nothing = np.full((at.size, 1), NO_CAPITAL)
            self.stakes.cap(at, np.full(at.size, b), nothing[:, 0], np.zeros_like(nothing))
            excluded[at, :, b] = 0
        self.stakes.leave(runs, r)
        self.named[runs[self.named[runs] == r]] = NOBODY

    def exclusions(self) -> IntArray:
        """Exclusions, with those of the name if this is the first event."""
        if self.stakes.excluded is None:
            self.stakes.excluded = np.zeros_like(self._pairwise.log_e, dtype=np.int64)
            named = np.flatnonzero(self.named != NOBODY)
            self.stakes.excluded[named, :, self.named[named]] = 1
        return self.stakes.excluded

    def observe(self) -> None:
        """Name the policies that are proved by now, where none was before."""
        leader = self._evidence.leader
        if self.stakes.excluded is not None:
            runs = np.arange(leader.size)
            passed = self.against() >= self.threshold
            self.stakes.excluded[runs, :, leader] |= passed & self.stakes.tally.present
        proved = self.against().min(axis=1) >= self.threshold
        if not self.stakes.tally.everybody:
            proved &= self.stakes.tally.n_present > 1
        self.named = np.where((self.named == NOBODY) & proved, leader, self.named)

    def nearest(self, run: int, leader: int) -> int:
        """The policy that a run has named, or else the leader of its proof; ``leader`` is not needed."""
        return int(self.named[run] if self.named[run] != NOBODY else self._evidence.leader[run])

    def rivals(self, run: int, b: int) -> IntArray:
        """Shape (m,): the policies whose evidence against beating b is below the threshold, in one run."""
        if self._evidence.leader[run] != b:
            return np.flatnonzero(
                self.stakes.tally.present[run] & (np.arange(self.stakes.tally.n_policies) != b)
            )
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
        head_to_head = self._pairwise.log_e[runs, :, b] + self.stakes.log_share[runs, :, b]
        against = np.logaddexp(self._evidence.structured + share, head_to_head + pairwise_share)
        if self.stakes.excluded is not None:
            excluded = self.stakes.excluded[runs, :, b] > 0
            against = np.where(excluded, np.maximum(against, self.threshold), against)
            against[~self.stakes.tally.present] = np.inf
        against[runs, b] = np.inf
        return np.asarray(against, dtype=np.float64)


Proof: TypeAlias = HeadToHead | InModel

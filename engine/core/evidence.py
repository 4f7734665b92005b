"""Evidence against each policy being the best, from head-to-head counts alone.

Only one policy can be the Condorcet winner, so only one of the nulls "policy k is the best" is true. The
chance that an e-process against it ever reaches 1/δ is at most δ [Ville 1939]. No union bound over policies
is needed.
"""

from types import EllipsisType
from typing import Any, Protocol

import numpy as np

from .bernoulli import bernoulli_kl, exact_log_e_value, log_e_value, log_e_value_of_pair
from .types import BoolArray, FloatArray, IntArray, Tally, from_both_sides, located

# Prior standard deviation 0.08 of a win rate: the best of 5 to 50 on the paper's instance, by a few percent.
CONCENTRATION = 20.0
# Enough to show most cycles, and less than a percent of what a decision among 16 policies takes.
MIN_HEAD_TO_HEAD = 10
# Stands for no weight. A logarithm of -inf would make differences that are no number.
NO_WEIGHT = -690.0


class EvidenceModel(Protocol):
    """Evidence against each policy being the best, kept up to date with a tally of R runs."""

    @property
    def per_policy(self) -> FloatArray:
        """Shape (R, K): current evidence (nats)."""
        ...

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the counts of the pair (i[r], j[r]) of these runs; None for all."""
        ...

    def leads(self) -> BoolArray:
        """Shape (R, K): whether the data show the policy ahead of every other."""
        ...

    def keep(self, runs: BoolArray) -> None:
        """Keep the runs that are True in `runs`, of shape (R,), and drop the others, after the tally has."""
        ...


class PairwiseEvidence:
    """E-process per policy that assumes nothing about the preference probabilities.

    The null for policy k is "μ(k, j) ≥ ½ + ε for all j". Each opponent j gives an e-value against it from
    the comparisons of k with j; the evidence against k is the log of their mean. It depends on the counts
    only, ties included where the tally tells them apart, so the order of the outcomes does not matter.

    Parameters
    ----------
    tally
        The data; read again at each `update`.
    epsilon
        Indifference margin ε in [0, ½).
    concentration
        Concentration a of the Beta(a, a) mixture; larger favours close contests.
    narrow
        Whether to leave out the mixture's wide part. A policy that loses its first few comparisons then has
        little evidence against it, so that it is not left alone for long.

    Attributes
    ----------
    null_mean
        ½ + ε.
    log_e
        Shape (R, K, K): log e-value (nats) from opponent j against policy k in row k; -inf on the diagonal.
    log_weights
        Shape (R, K, K): log of the share of opponent j in the mean against policy k. None as long as all have
        the same.
    """

    def __init__(
        self,
        tally: Tally,
        epsilon: float = 0.0,
        concentration: float = CONCENTRATION,
        *,
        narrow: bool = False,
        log_weights: FloatArray | None = None,
    ) -> None:
        self._tally = tally
        self.log_weights = log_weights
        self._narrow = narrow
        self._concentration = concentration
        self.null_mean = 0.5 + epsilon
        # Evidence against beating one policy is read more often than evidence of one policy: have it
        # together.
        self.log_e: FloatArray = np.zeros_like(tally.wins).swapaxes(1, 2)
        self.log_e[:, np.arange(tally.n_policies), np.arange(tally.n_policies)] = -np.inf
        compared = np.nonzero(tally.proof_wins + tally.proof_losses)
        if compared[0].size:
            self.log_e[compared] = self._pairs(*compared)
        self._per_policy = self.combine(self.log_e)
        # Where `_per_policy` is not up to date: nothing reads some margins for a long time.
        self._changed: tuple[Any, ...] | EllipsisType | None = None

    @property
    def per_policy(self) -> FloatArray:
        """Shape (R, K): current log evidence (nats) against each policy."""
        if self._changed is not None:
            self._per_policy[self._changed] = self.combine(self.log_e[self._changed], self._changed)
            self._changed = None
        return self._per_policy

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the counts of the pair (i[r], j[r]) of these runs."""
        runs, sides = from_both_sides(runs, (i, j), (j, i))
        for k, b in sides:
            self.log_e[runs, k, b] = self._pairs(runs, k, b)
        self._changed = (runs, np.array([i, j])) if self._changed is None else ...

    def leads(self) -> BoolArray:
        """Shape (R, K): whether the policy has met every other a few times, winning at ½ + ε or more.

        Where some policy is the best, refuting the others is proof enough. Where none is, as in a cycle,
        the last one standing loses to one of the refuted: a few comparisons with each usually show it.
        """
        return np.asarray(self.ahead().all(axis=2), dtype=np.bool_)

    def ahead(self) -> BoolArray:
        """Shape (R, K, K): whether the row met the column a few times, winning ½ + ε; true for itself."""
        counts, wins = self._tally.counts, self._tally.wins
        ahead: BoolArray = (counts >= MIN_HEAD_TO_HEAD) & (wins >= self.null_mean * counts)
        if not self._tally.everybody:
            ahead |= ~self._tally.present[:, None, :]
        return ahead | np.eye(self._tally.n_policies, dtype=np.bool_)

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally has."""
        self._per_policy = self.per_policy[runs]
        self.log_e = self.log_e[runs]
        if self.log_weights is not None:
            self.log_weights = self.log_weights[runs]

    def weigh(self) -> FloatArray:
        """The weights of opponents, which are kept from here on."""
        if self.log_weights is None:
            self.log_weights = np.full(self.log_e.shape, -np.log(self._tally.n_policies - 1))
            self._changed = ...
        return self.log_weights

    def join(self, runs: IntArray, n: IntArray) -> None:
        """Have the means of these runs, shape (m,), take in a policy n of each that is present by now.

        The mean against each other policy stays what it is: a part of it goes to the newcomer.
        """
        tally, log_weights = self._tally, self.weigh()
        share = 1.0 / tally.n_present[runs].astype(np.float64)
        mean = self.combine(self.log_e[runs], (runs,))
        weights = log_weights[runs] + np.log1p(-share)[:, None, None]
        place = np.arange(runs.size)
        weights[place, :, n] = np.log(share)[:, None] + mean
        equal = -np.log(np.maximum(tally.n_present[runs] - 1, 1))[:, None]
        weights[place, n] = np.where(tally.present[runs], equal, NO_WEIGHT)
        log_weights[runs] = np.maximum(weights, NO_WEIGHT)
        self._changed = ...

    def combine(self, log_e: FloatArray, of: Any = ...) -> FloatArray:
        """Log of the mean e-value (nats) over the K - 1 opponents; the policy's own entry is -inf.

        `of` are the index of the runs and policies that `log_e` has.
        """
        if self.log_weights is not None:
            weighted = np.ascontiguousarray(log_e + self.log_weights[of])
            top = weighted.max(axis=-1, keepdims=True)
            return np.asarray(top[..., 0] + np.log(np.exp(weighted - top).sum(axis=-1)), dtype=np.float64)
        # Sums round by the order in memory, and a policy's evidence must not depend on its neighbours.
        log_e = np.ascontiguousarray(log_e)
        top = log_e.max(axis=-1, keepdims=True)
        n_opponents = self._tally.n_policies - 1
        combined: FloatArray = top[..., 0] + np.log(np.exp(log_e - top).sum(axis=-1) / n_opponents)
        return combined

    def of_counts(self, wins: Any, losses: Any, ties: Any) -> Any:
        """Log e-values (nats) against "the mean is at least ½ + ε", from counts of one shape, or numbers."""
        mixture = (self.null_mean, self._concentration)
        if isinstance(wins, float):
            return log_e_value_of_pair(wins, losses, ties or 0.0, *mixture, narrow=self._narrow)
        return log_e_value(wins, losses, *mixture, narrow=self._narrow, ties=ties)

    def most(self, runs: IntArray, k: IntArray, b: IntArray) -> FloatArray:
        """Shape (m,): log e-values (nats) if all that is open is won by b; exact where `log_e` is a bound."""
        tally = self._tally
        won, lost, n_open = (each[runs, k, b] for each in (tally.proof_wins, tally.proof_losses, tally.open))
        n_open = n_open * tally.counts_missing
        mixture = (self.null_mean, self._concentration)
        if tally.proof_ties is None:
            return log_e_value(won - n_open, lost + n_open, *mixture, narrow=self._narrow)
        tied = tally.proof_ties[runs, k, b]
        return exact_log_e_value(won - n_open, lost + n_open, *mixture, narrow=self._narrow, ties=tied)

    def held_back(self) -> FloatArray | None:
        """Shape (R, K, K): evidence (nats) that open showings hold back until they end; None where none is.

        Samplers add it: to them an open showing is under way, and not yet a loss.
        """
        tally = self._tally
        pairs = np.nonzero(tally.open * tally.counts_missing)
        if not pairs[0].size:
            return None
        ties = None if tally.proof_ties is None else tally.proof_ties[pairs]
        won = tally.proof_wins[pairs] - tally.open[pairs]
        held_back = np.zeros_like(tally.wins)
        held_back[pairs] = self.of_counts(won, tally.proof_losses[pairs], ties) - self.log_e[pairs]
        return held_back

    def with_missing(self, k: IntArray, b: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log e-values (nats) of the first run for each number of missing outcomes that k may have won.

        Of all pairs, shape (m,), one after the other: the log e-values, how many k has won of the missing,
        and how many are missing.
        """
        tally = self._tally
        n_missing = tally.missing[0, k, b].astype(np.int64)
        first = np.cumsum(n_missing + 1) - (n_missing + 1)
        place = np.repeat(np.arange(k.size), n_missing + 1)
        won = (np.arange(place.size) - first[place]).astype(np.float64)
        missing, rows, columns = n_missing[place].astype(np.float64), k[place], b[place]
        tied = None if tally.proof_ties is None else tally.proof_ties[0, rows, columns]
        n_open = tally.open[0, rows, columns]
        told = tally.proof_wins[0, rows, columns] + (-missing if tally.counts_missing else n_open)
        log_e = log_e_value(
            told + won,
            tally.proof_losses[0, rows, columns] + missing - won,
            self.null_mean,
            self._concentration,
            narrow=self._narrow,
            ties=tied,
        )
        return log_e, won, missing

    def _pairs(self, runs: IntArray | int, rows: IntArray, columns: IntArray) -> FloatArray:
        tally, pairs = self._tally, (runs, rows, columns)
        tied = None if tally.proof_ties is None else tally.proof_ties[pairs]
        won, lost = tally.proof_wins[pairs], tally.proof_losses[pairs]
        # Exactly 0 without a comparison, as for pairs that never had one.
        log_e: FloatArray = self.of_counts(won, lost, tied) * (won + lost > 0.0)
        return log_e


class EliminationCost:
    """The price, in nats of likelihood, of turning each policy into a Condorcet winner.

    The infimum over Alt of the paper's Z(t) is the smallest of these over the policies other than the best
    [LLM-PO, eq. unstructed_stop]. For policy i it sums N_ij d(μ̂(i, j), ½) over the opponents that lead i.
    """

    def __init__(self, tally: Tally, epsilon: float = 0.0) -> None:
        self._tally = tally
        self._null_mean = 0.5 + epsilon
        self._per_policy = elimination_cost(tally.wins, tally.counts, self._null_mean)

    @property
    def per_policy(self) -> FloatArray:
        """Shape (R, K): cost (nats) of each policy; 0 for one that no other leads."""
        return self._per_policy

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the counts of the pair (i[r], j[r]) of these runs."""
        runs, i, j = located(runs, i, j)
        both = np.array([i, j])
        self._per_policy[runs, both] = elimination_cost(
            self._tally.wins[runs, both], self._tally.counts[runs, both], self._null_mean
        )

    def leads(self) -> BoolArray:
        """Shape (R, K): whether no other policy leads the policy, so that the estimate lies in 𝓗."""
        return self._per_policy <= 0.0

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally has."""
        self._per_policy = self._per_policy[runs]


def elimination_cost(wins: FloatArray, counts: FloatArray, null_mean: float = 0.5) -> FloatArray:
    """Sum over opponents of N d(μ̂, ½ + ε) where μ̂ = wins / counts is below ½ + ε [LLM-PO, eq. stop].

    Shape (...), in nats, from wins and counts of shape (..., K).
    """
    win_rate = np.divide(wins, counts, out=np.full_like(wins, null_mean), where=counts > 0)
    cost: FloatArray = np.sum(counts * bernoulli_kl(np.minimum(win_rate, null_mean), null_mean), axis=-1)
    return cost

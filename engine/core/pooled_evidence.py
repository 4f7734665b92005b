"""Evidence against each policy being the best that pools its comparisons with different opponents.

If policy k beats every other by ε, each of its comparisons has a conditional mean of at least ½ + ε,
whichever the opponent is. So any bet against k that is fixed before the outcome is fair or worse. Wealth from
such bets is an e-process against k's being the best. Averaging head-to-head evidence over K - 1 opponents
costs log(K - 1) nats; these streams do not pay that.

* Favourite: a Beta mixture over the comparisons of k with its favourite opponent. That is the one expected to
  beat it most as the comparison is shown.
* Bets: every comparison of k is bet on as it is expected to end, never in k's favour.

Both are set as a showing begins and kept with it, whatever is told before it ends. So they depend on the
order in which showings begin and end. Their state is a few numbers per policy and per open showing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from .beliefs import Beliefs
from .bernoulli import log_e_value, log_e_value_of_pair
from .evidence import CONCENTRATION, PairwiseEvidence
from .types import BoolArray, Bounds, FloatArray, IntArray, Tally, from_both_sides, located

# Shares of head-to-head evidence, of the favourite's stream and of the bets in the evidence against a policy.
SHARES = (0.1, 0.5, 0.4)
LOG_SHARES = tuple(math.log(share) for share in SHARES)
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
# Weight of a nat of evidence, relative to a nat of belief, in the choice of the leader.
_EVIDENCE_WEIGHT = 1.0
# Who bets everything on an outcome has nothing left where it does not come.
_LEAST_EXPECTED = 1e-9
_FOR_POLICIES = ("won", "lost", "log_bets", "theta", "curvature")
_PER_RUN = ("n_told", "n_ties")


@dataclass(frozen=True, slots=True)
class Bets:
    """The bets on showings, as they were set when these began; one showing in each of m runs.

    Attributes
    ----------
    stakes
        Shape (2, m): the bets against the first and the second policy of each pair.
    favourite
        Shape (2, m): whether the showing is of the favourite's stream of either.
    """

    stakes: FloatArray
    favourite: BoolArray


class StreamedEvidence:
    """E-process per policy: the average of head-to-head evidence and of two streams, in R runs.

    Parameters
    ----------
    tally
        The data; read again at each `update`.
    pairwise
        Head-to-head evidence; updated by its owner beforehand.
    prior
        Shape (K,): prior strengths, in log-odds.
    memory
        The values of `memory`, one for each run; None starts the streams now.

    Attributes
    ----------
    beliefs
        The estimates of all pairs.
    won, lost
        Shape (R, K): outcomes of each policy against its favourite opponent of the time.
    log_favourite
        Shape (R, K): log evidence (nats) of the favourite's stream.
    log_bets
        Shape (R, K): log wealth (nats) of the bets.
    log_capital
        Shape (R, K): log of what the evidence against each policy began with, 0 for those of the beginning.
    log_least
        Shape (R,): the least that any policy that was not ruled out had at an arrival, 0 before the first.
    """

    def __init__(
        self,
        tally: Tally,
        pairwise: PairwiseEvidence,
        prior: FloatArray | None = None,
        memory: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        shape = (tally.n_runs, tally.n_policies)
        self._pairwise = pairwise
        self.null_mean = pairwise.null_mean
        self._null_logit = float(special.logit(self.null_mean))
        self.won, self.lost, self.log_bets = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.n_told, self.n_ties = np.zeros(tally.n_runs), np.zeros(tally.n_runs)
        theta = curvature = None
        if memory is not None:
            self.won, self.lost, self.log_bets, theta, curvature = (
                recalled(memory, name, shape[1:]) for name in _FOR_POLICIES
            )
            self.n_told, self.n_ties = (recalled(memory, name, ()) for name in _PER_RUN)
        self.log_capital, self.log_least = np.zeros(shape), np.zeros(tally.n_runs)
        if memory is not None and "capital" in memory[0]:
            self.log_capital = recalled(memory, "capital", shape[1:])
            self.log_least = recalled(memory, "least", ())
        self.beliefs = Beliefs(tally, prior, theta, curvature)
        self.log_favourite = self._favourite_evidence(self.won, self.lost)
        self._tally = tally
        self._per_policy = self._combine(...)
        self._standing: FloatArray | None = None

    @property
    def log_e(self) -> FloatArray:
        """Shape (R, K, K): head-to-head log e-values (nats)."""
        return self._pairwise.log_e

    @property
    def per_policy(self) -> FloatArray:
        """Shape (R, K): current log evidence (nats) against each policy."""
        return self._per_policy

    def standing(self) -> FloatArray:
        """Shape (R, K): the larger, the likelier is the policy to be the best.

        The beliefs' standing, less the head-to-head evidence: the former is better where strengths explain
        the pairs, the latter where they do not.
        """
        if self._standing is None:
            self._standing = self.beliefs.standing() - _EVIDENCE_WEIGHT * self._pairwise.per_policy
        return self._standing

    def favour(self) -> FloatArray:
        """Shape (R, K): the larger, the likelier is the policy to be the best.

        It names the leader and ranks. It is a better guess than the standing, which steers and which the
        evidence of experiments so far depends on.
        """
        chances = self.beliefs.log_chances()
        return self.standing() if chances is None else chances

    def bets(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> Bets:
        """The bets on a showing of i and j, shape (m,) each, that begins now; they are fixed from here on.

        `runs` are the runs' indices; None for all.
        """
        at, sides = from_both_sides(runs, (i, j), (j, i))
        # Ties pull a win rate towards ½. What a bet can win is decided by the other outcomes.
        decided = 1.0 - self.n_ties[at] / (self.n_told[at] + 4.0)
        favourite, stakes = [], []
        for k, other in sides:
            favourite.append(self.beliefs.favourite(at, k) == other)
            mean, variance = self.beliefs.between(at, k, other)
            stakes.append(self._stake(mean / decided - self._null_logit, np.sqrt(variance) / decided))
        shape = (2, i.size)
        return Bets(np.reshape(stakes, shape), np.reshape(favourite, shape))

    def settle(
        self,
        i: IntArray,
        j: IntArray,
        bets: Bets,
        bounds: Bounds,
        *,
        sign: int,
        runs: IntArray | None = None,
    ) -> None:
        """Have the bets on showings count outcomes within these bounds, or with sign -1 no more."""
        at, sides = from_both_sides(
            runs, (i, j), tuple(bets.stakes), tuple(bets.favourite), (bounds.most, 1.0 - bounds.least)
        )
        null = self.null_mean
        for k, stake, favourite, won in sides:
            # Where the null is a fair coin, a bet on a tie returns the stake.
            counts = favourite & ((won != 0.5) | (null != 0.5))
            if np.count_nonzero(counts):
                self.won[at, k] += sign * counts * won
                self.lost[at, k] += sign * counts * (1.0 - won)
                self.log_favourite[at, k] = self._favourite_evidence(self.won[at, k], self.lost[at, k])
            self.log_bets[at, k] += sign * np.log1p(stake * (null - won))

    def answer(self, outcome: Any, sign: int, at: Any) -> None:
        """Count an answer of these runs, in [0, 1], or with sign -1 no more; later bets depend on it."""
        self.n_told[at] += sign
        self.n_ties[at] += sign * 4.0 * outcome * (1.0 - outcome)

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the evidence about the pair (i[r], j[r]) of these runs."""
        self._standing = None
        at, i, j = located(runs, i, j)
        both = np.array([i, j])
        self._per_policy[at, both] = self._combine((at, both))

    def join(self, runs: IntArray, n: IntArray, ruled_out: BoolArray) -> None:
        """Take up a policy n in each of these runs, shape (m,), after the head-to-head evidence has.

        Another policy may be the best from here on than before. So the newcomer begins with the least that
        any that may be the best has now, or had at an earlier arrival.

        `ruled_out` has shape (R, K).
        """
        open_ones = self._tally.joined[runs] & ~ruled_out[runs]
        open_ones[np.arange(runs.size), n] = False
        least = np.where(open_ones, self._per_policy[runs], 0.0).min(axis=1)
        self.log_least[runs] = np.minimum(self.log_least[runs], least)
        self.log_capital[runs, n] = self.log_least[runs]

    def look_again(self) -> None:
        """Compute everything again: somebody has joined or retired."""
        self._standing = None
        self._per_policy = self._combine(...)
        self.beliefs.look_again()

    def leads(self) -> BoolArray:
        """Shape (R, K): whether the policy has met every other a few times and won at ½ + ε or more."""
        return self._pairwise.leads()

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally and the head-to-head evidence have."""
        self.beliefs.keep(runs)
        self._standing = None
        self.won, self.lost, self.log_bets = self.won[runs], self.lost[runs], self.log_bets[runs]
        self.log_favourite, self._per_policy = self.log_favourite[runs], self._per_policy[runs]
        self.n_told, self.n_ties = self.n_told[runs], self.n_ties[runs]
        self.log_capital, self.log_least = self.log_capital[runs], self.log_least[runs]

    def memory(self, run: int = 0) -> dict[str, Any]:
        """State of one run beside its counts, as plain data that JSON can hold."""
        memory: dict[str, Any] = {
            "won": self.won[run].tolist(),
            "lost": self.lost[run].tolist(),
            "log_bets": self.log_bets[run].tolist(),
            "theta": self.beliefs.theta[run].tolist(),
            "curvature": self.beliefs.curvature[run].tolist(),
            "n_told": float(self.n_told[run]),
            "n_ties": float(self.n_ties[run]),
        }
        if (log_weights := self._pairwise.log_weights) is not None:
            memory |= {
                "capital": self.log_capital[run].tolist(),
                "least": float(self.log_least[run]),
                "weights": log_weights[run].tolist(),
            }
        return memory

    def _stake(self, mean: FloatArray, deviation: FloatArray) -> FloatArray:
        """The bet against a policy whose log-odds, less the null's, have this mean and standard deviation."""
        null, null_logit = self.null_mean, self._null_logit
        # The expectation of min(log-odds, null's), so that the bet is small while the side is in doubt.
        ahead = mean / deviation
        behind = special.ndtr(-ahead)
        below = mean * behind - deviation * np.exp(-0.5 * (ahead * ahead)) / _ROOT_TWO_PI
        # The bet is multiplied by the square of the chance that the policy is behind. Without it, bets lost
        # evidence while that was in doubt and never won it back. One nat against the closest rival was gone
        # when that was ruled out.
        expected = np.maximum(special.expit(null_logit + below * (behind * behind)), _LEAST_EXPECTED)
        stake: FloatArray = (null - expected) / (null * (1.0 - null))
        return stake

    def _favourite_evidence(self, won: Any, lost: Any) -> Any:
        if isinstance(won, float):
            return log_e_value_of_pair(won, lost, 0.0, self.null_mean, CONCENTRATION, narrow=True)
        return log_e_value(won, lost, self.null_mean, CONCENTRATION, narrow=True)

    def _combine(self, of: Any) -> FloatArray:
        """Log of the weighted mean of the e-values of these runs and policies."""
        of_head_to_head, of_favourite, of_bets = LOG_SHARES
        streams = np.logaddexp(self.log_favourite[of] + of_favourite, self.log_bets[of] + of_bets)
        combined = np.logaddexp(self._pairwise.per_policy[of] + of_head_to_head, streams)
        return np.asarray(combined + self.log_capital[of], dtype=np.float64)


def recalled(memory: Sequence[Mapping[str, Any]], name: str, shape: tuple[int, ...]) -> FloatArray:
    """One part of the stored states of R runs, shape (R, *shape).

    Raises
    ------
    ValueError
        If it is missing, or does not hold finite numbers in this shape.
    """
    try:
        values = np.array([np.asarray(each[name], dtype=np.float64) for each in memory])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the stored streams are incomplete or hold no numbers: {error}") from error
    if values.shape != (len(memory), *shape) or not np.isfinite(values).all():
        raise ValueError(f"the stored streams need one finite number per policy as {name!r}")
    return values

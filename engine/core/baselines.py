"""Baseline sampling rules that the experiment design is measured against [LLM-PO, section "experiments"]."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from .allocation import best_policy
from .sampling import Picks, Situation, Stateless, argmax_random
from .structured import BradleyTerryModel
from .types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class RoundRobin(Stateless):
    """Every pair equally often: the least compared pair, the first one in lexicographic order."""

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return pairs (i, j) with i < j."""
        rows, columns = np.triu_indices(situation.tally.n_policies, 1)
        pair = np.argmin(situation.load[:, rows, columns], axis=1)
        return rows[pair], columns[pair]


@dataclass(frozen=True, slots=True)
class RandomPair(Stateless):
    """A pair uniformly at random."""

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return pairs (i, j) with i < j."""
        return _random_pair(situation, rng)

    def propensities(self, situation: Situation) -> FloatArray:
        """Shape (R, K, K), symmetric: one over the number of pairs, for each."""
        return _uniform(situation)


@dataclass(frozen=True, slots=True)
class EpsGreedy(Stateless):
    """The empirically best policy against its strongest opponent; at times a random pair.

    Parameters
    ----------
    exploration
        Probability ε of a random pair.
    """

    exploration: float = 0.1

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return (best policy, its strongest opponent), or a random pair."""
        best, threat = _best_and_threats(situation)
        opponent = argmax_random(threat, rng)
        i, j = _random_pair(situation, rng)
        explore = rng.random(best.size) < self.exploration
        return np.where(explore, i, best), np.where(explore, j, opponent)

    def propensities(self, situation: Situation) -> FloatArray:
        """Shape (R, K, K): greedy share, split among equally strong opponents, and that of exploration."""
        best, threat = _best_and_threats(situation)
        strongest = threat == threat.max(axis=1, keepdims=True)
        greedy = np.zeros_like(situation.load)
        runs = np.arange(best.size)
        greedy[runs, best] = strongest / strongest.sum(axis=1, keepdims=True)
        greedy += greedy.transpose(0, 2, 1)
        return self.exploration * _uniform(situation) + (1.0 - self.exploration) * greedy


@dataclass(frozen=True, slots=True)
class ThompsonSampling(Stateless):
    """Double Thompson sampling: a likely winner and its likeliest conqueror, both from Beta posteriors.

    [Wu & Liu 2016, "Double Thompson Sampling for Dueling Bandits"], without comparing a policy with itself.
    In a Bradley-Terry space both are the winners of draws of θ from its Gaussian approximation.

    Parameters
    ----------
    alpha
        Scale of the confidence bounds that leave out hopeless policies and settled opponents.
    """

    alpha: float = 0.51

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return (policy, opponent)."""
        if situation.model is not None:
            return _posterior_winner_and_rival(situation, situation.model, rng)
        tally = situation.tally
        runs = np.arange(tally.n_runs)
        upper = _upper_bound(situation, self.alpha)
        beaten_at_most = np.sum(upper > 0.5, axis=2)
        hopeful = beaten_at_most == beaten_at_most.max(axis=1, keepdims=True)
        rows, columns = np.triu_indices(tally.n_policies, 1)
        drawn = rng.beta(tally.wins[:, rows, columns] + 1.0, tally.wins[:, columns, rows] + 1.0)
        wins = np.zeros_like(tally.wins)
        wins[:, rows, columns] = drawn > 0.5
        wins[:, columns, rows] = drawn < 0.5
        copeland = wins.sum(axis=2)
        policy = argmax_random(np.where(hopeful, copeland, -1.0), rng)

        beats = rng.beta(tally.wins[runs, :, policy] + 1.0, tally.wins[runs, policy] + 1.0)
        # The lower bound on an opponent beating the policy is one minus the policy's upper bound.
        beats[upper[runs, policy] < 0.5] -= 2.0
        beats[runs, policy] = -np.inf
        return policy, argmax_random(beats, rng)


@dataclass(frozen=True, slots=True)
class RUCB(Stateless):
    """Relative upper confidence bound: a plausible winner against the opponent most likely to beat it.

    [Zoghi et al. 2014, "Relative Upper Confidence Bound for the K-Armed Dueling Bandit Problem"]. The
    hypothesised best policy is the empirically best one; it is kept as the champion half of the time.

    Parameters
    ----------
    alpha
        Scale of the confidence bounds, above ½.
    """

    alpha: float = 0.51

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """Return (champion, challenger)."""
        runs = np.arange(situation.tally.n_runs)
        upper = _upper_bound(situation, self.alpha)
        plausible = np.all(upper >= 0.5, axis=2)
        plausible |= ~plausible.any(axis=1, keepdims=True)
        champion = argmax_random(plausible.astype(np.float64), rng)
        best = best_policy(_win_rate(situation))
        champion = np.where(plausible[runs, best] & (rng.random(runs.size) < 0.5), best, champion)
        threat = upper[runs, :, champion]
        threat[runs, champion] = -np.inf
        return champion, argmax_random(threat, rng)


def _best_and_threats(situation: Situation) -> tuple[IntArray, FloatArray]:
    """The empirically best policy, shape (R,), and how well each other one does against it, shape (R, K)."""
    runs = np.arange(situation.tally.n_runs)
    win_rate = _win_rate(situation)
    best = best_policy(win_rate)
    threat = -win_rate[runs, best]
    threat[runs, best] = -np.inf
    return best, threat


def _uniform(situation: Situation) -> FloatArray:
    K = situation.tally.n_policies
    share = (1.0 - np.eye(K)) / (K * (K - 1) / 2)
    return np.broadcast_to(share, (situation.tally.n_runs, K, K))


def _random_pair(situation: Situation, rng: np.random.Generator) -> Picks:
    rows, columns = np.triu_indices(situation.tally.n_policies, 1)
    pair = rng.integers(rows.size, size=situation.tally.n_runs)
    return rows[pair], columns[pair]


def _posterior_winner_and_rival(
    situation: Situation, model: BradleyTerryModel, rng: np.random.Generator
) -> Picks:
    root = np.linalg.cholesky(model.covariance(situation.load))
    runs = np.arange(situation.tally.n_runs)

    def drawn_scores() -> FloatArray:
        noise = rng.standard_normal((runs.size, root.shape[1], 1))
        scores: FloatArray = (model.theta + np.matmul(root, noise)[..., 0]) @ model.features.T
        return scores

    winner = drawn_scores().argmax(axis=1)
    second = drawn_scores()
    second[runs, winner] = -np.inf
    return winner, second.argmax(axis=1)


def _win_rate(situation: Situation) -> FloatArray:
    """Shape (R, K, K): estimate of μ, which is ½ where nothing is known."""
    if situation.model is not None:
        scores = situation.model.scores
        estimate: FloatArray = special.expit(scores[:, :, None] - scores[:, None, :])
        return estimate
    tally = situation.tally
    rate: FloatArray = np.divide(
        tally.wins, tally.counts, out=np.full_like(tally.wins, 0.5), where=tally.counts > 0
    )
    return rate


def _upper_bound(situation: Situation, alpha: float) -> FloatArray:
    """Shape (R, K, K): upper confidence bounds on μ, ½ on the diagonal.

    Pending comparisons narrow the bounds, so that parallel ones spread out.
    """
    load, own = situation.load, np.arange(situation.tally.n_policies)
    log_t = np.log(np.maximum(situation.n_asked, 1.0))[:, None, None]
    if situation.model is None:
        width = np.sqrt(np.divide(alpha * log_t, load, out=np.full_like(load, 1.0), where=load > 0))
        bound = np.where(load > 0, _win_rate(situation) + width, 1.0)
    else:
        model = situation.model
        spread = np.matmul(model.features @ model.covariance(load), model.features.T)
        variance = np.diagonal(spread, axis1=1, axis2=2)
        variance = variance[:, :, None] + variance[:, None, :] - 2.0 * spread
        gap = model.scores[:, :, None] - model.scores[:, None, :]
        bound = special.expit(gap + np.sqrt(alpha * log_t * np.maximum(variance, 0.0)))
    bound[:, own, own] = 0.5
    return bound

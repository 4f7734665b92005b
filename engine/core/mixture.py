"""Certified evidence in a linear Bradley-Terry space: averaged likelihoods over the largest under a null.

A likelihood averaged over a prior pays half a logarithm of the information for each feature. A restart takes
what is believed at a moment as the prior, and only later outcomes into the average and under the null. It is
an e-process from that moment on, and pays for the ratio of two informations only. Averaged with the one from
the beginning it saves comparisons, while the one from the beginning keeps early and easy decisions quick.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .estimation import PairData, fit
from .evidence import PairwiseEvidence
from .pooled_evidence import StreamedEvidence
from .spaces import BradleyTerry
from .structured import BradleyTerryModel, log_determinant, marginal_bound_at, prior_precision
from .types import BoolArray, FloatArray, IntArray, Tally

# Standard deviations of a typical log-odds θᵀz under the prior, and their weights. They are a factor of 2.5
# apart, so that one always fits. Most weight is on win rates around 60%.
_PRIOR_SCALES = (0.16, 0.4, 1.0, 2.5)
_PRIOR_LOG_WEIGHTS = np.log([0.15, 0.45, 0.3, 0.1])
# Index of the scale that sampling assumes, and whose posterior a restart begins with.
_TYPICAL = 1
TYPICAL_LOG_ODDS = _PRIOR_SCALES[_TYPICAL]
# A restart is due once even the policy closest to the leader is separated from it by so many nats per
# feature. Waiting longer gives the restart a sharper prior, which saves evidence, but loses the comparisons
# until then.
_RESTARTS_AT = (0.4, 0.8)
# Shares of the average from the beginning and of the restarts, which count as 1 until their first outcome.
_SHARES = (0.25, 0.375, 0.375)
# The null's likelihood is maximised with this much of the prior's precision left in. That bounds it from
# above for every θ whose typical log-odds is below _LARGEST_LOG_ODDS (a win rate of 0.99995).
_NULL_RIDGE = 1e-4
_LARGEST_LOG_ODDS = 10.0
# How far (nats) below the largest likelihood a fit may end; the bound of the null makes up for it.
_SLACK = 1e-6
_CHUNK = 4_000_000


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Data sets of R runs: all outcomes of each, and below them those since each restart.

    Attributes
    ----------
    data
        The m data sets.
    runs
        Shape (m,): the run of each; 0 to R - 1 for the first R.
    log_shares
        Shape (m,): logarithm of its share in the run's evidence.
    mixture
        Shape (m,): log of its likelihood averaged over its prior (nats), from below.
    free
        Shape (m, d): the θ of its largest likelihood, with the ridge of the null.
    covariance
        Shape (m, d, d): inverse of the Fisher matrix there, with that ridge.
    idle
        Shape (R,): shares of the restarts that have no outcomes yet.
    mode
        Shape (R, d): mode of the posterior of θ under the typical prior.
    """

    data: PairData
    runs: IntArray
    log_shares: FloatArray
    mixture: FloatArray
    free: FloatArray
    covariance: FloatArray
    idle: FloatArray
    mode: FloatArray


class Mixture:
    """Averaged likelihoods in R runs, from the beginning and from each restart.

    Parameters
    ----------
    space
        The features.
    model
        The estimate.
    tally
        The data.
    starts
        The values of `memory`, one for each run; None where there was no restart.

    Raises
    ------
    ValueError
        If `starts` does not fit.
    """

    def __init__(
        self,
        space: BradleyTerry,
        model: BradleyTerryModel,
        tally: Tally,
        *,
        starts: Sequence[Sequence[ArrayLike]] | None = None,
    ) -> None:
        self._model = model
        self.tally = tally
        priors = np.stack([prior_precision(space, scale) for scale in _PRIOR_SCALES])
        self._null_precision = null_precision(space)
        self._restart_precision = priors[_TYPICAL]
        self._due = np.multiply(_RESTARTS_AT, space.n_features)
        shares = np.array(_SHARES)
        self._log_shares = np.log(shares)
        self._shares = shares
        n_runs, d = tally.n_runs, space.n_features
        # All priors of all runs, run by run.
        self._precisions = np.tile(priors, (n_runs, 1, 1))
        self._log_dets = log_determinant(self._precisions)
        # For each restart and run: the comparisons and wins so far, and the posterior. Restarts that have not
        # begun hold zeros.
        self._n_begun: IntArray = np.zeros(n_runs, dtype=np.int64)
        self._begun_at: FloatArray = np.full((self._due.size, n_runs), np.inf)
        self._wins: FloatArray = np.zeros((self._due.size, *tally.wins.shape))
        self._centre: FloatArray = np.zeros((self._due.size, n_runs, d))
        self._precision: FloatArray = np.zeros((self._due.size, n_runs, d, d))
        self._log_det: FloatArray = np.zeros((self._due.size, n_runs))
        self._outcomes: Outcomes | None = None
        for run, begun in enumerate(starts or ()):
            for wins in begun:
                self._begin(np.array([run]), self._checked(wins, run)[None])

    def outcomes(self) -> Outcomes:
        """The data sets as of the last refresh, with their averaged likelihoods."""
        if self._outcomes is None:
            self._outcomes = self._compute()
        return self._outcomes

    def mode(self) -> FloatArray:
        """Shape (R, d): mode of the posterior of θ under the prior of `TYPICAL_LOG_ODDS`."""
        return self.outcomes().mode

    def refresh(self) -> None:
        """Have everything computed again when it is next needed."""
        self._outcomes = None

    def consider(self, separation: FloatArray) -> None:
        """Restart the runs where that is due.

        `separation`, shape (R, K), has the nats by which each policy is separated from the leader, infinite
        for itself.
        """
        waiting = self._n_begun < self._due.size
        if waiting.any():
            due_from = np.append(self._due, np.inf)[self._n_begun]
            due = np.flatnonzero(waiting & (separation.min(axis=1) >= due_from))
            if due.size:
                self._begin(due, self.tally.wins[due])
                self.refresh()

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally and the model have."""
        self._n_begun = self._n_begun[runs]
        self._begun_at = self._begun_at[:, runs]
        self._wins, self._centre = self._wins[:, runs], self._centre[:, runs]
        self._precision, self._log_det = self._precision[:, runs], self._log_det[:, runs]
        n_priors = np.count_nonzero(runs) * len(_PRIOR_SCALES)
        self._precisions, self._log_dets = self._precisions[:n_priors], self._log_dets[:n_priors]
        self.refresh()

    def memory(self, run: int = 0) -> list[list[list[float]]]:
        """The wins at each restart of one run, as plain data that JSON can hold."""
        begun: list[list[list[float]]] = self._wins[: self._n_begun[run], run].tolist()
        return begun

    def _checked(self, wins: ArrayLike, run: int) -> FloatArray:
        """Shape (K, K): stored wins at a restart of a run, which have to be a part of the wins."""
        checked = np.asarray(wins, dtype=np.float64)
        fits = checked.shape == self.tally.wins.shape[1:] and self._n_begun[run] < self._due.size
        if not fits or not np.all((checked >= 0.0) & (checked <= self.tally.wins[run])):
            raise ValueError(
                "the stored streams need, as 'starts', the wins at up to "
                f"{self._due.size} restarts, none above the wins now"
            )
        return checked

    def forget(self) -> None:
        """Take answers that were taken back out of the restarts that they came before."""
        for slot in range(self._due.size):
            wins = np.minimum(self._wins[slot], self.tally.wins)
            changed = np.flatnonzero((wins != self._wins[slot]).any(axis=(1, 2)))
            if changed.size:
                self._restart(np.full(changed.size, slot), changed, wins[changed])

    def _begin(self, runs: IntArray, wins: FloatArray) -> None:
        """Restart these runs, shape (m,), at these wins, shape (m, K, K)."""
        self._restart(self._n_begun[runs], runs, wins)
        self._n_begun[runs] += 1

    def _restart(self, slot: IntArray, runs: IntArray, wins: FloatArray) -> None:
        data = PairData.of(self._model.features, Tally(wins))
        centre = fit(data, self._restart_precision, np.zeros((runs.size, self._centre.shape[2])))
        self._begun_at[slot, runs] = wins.sum(axis=(1, 2))
        self._wins[slot, runs] = wins
        self._centre[slot, runs] = centre
        self._precision[slot, runs] = data.hessian(centre) + self._restart_precision
        self._log_det[slot, runs] = log_determinant(self._precision[slot, runs])

    def _compute(self) -> Outcomes:
        data, theta = self._model.data(), self._model.theta
        n_runs, n_priors = self.tally.n_runs, len(_PRIOR_SCALES)
        # Until its first outcome a restart is worth exactly 1; the bounds would make it a little less.
        counting = self._begun_at < self.tally.n_comparisons
        slot, run = np.nonzero(counting)
        compared = self._model.compared
        wins = compared.of(self._wins[slot, run])
        counts = wins + compared.of(self._wins[slot, run].swapaxes(1, 2))
        runs = np.concatenate([np.arange(n_runs), run])
        later = PairData(
            data.contrasts, data.counts[run] - np.rint(counts), data.wins[run] - wins, data.squares
        )
        # Everything is fitted at once, as if each were a run of its own. This is all priors of all runs, the
        # restarts, and the fits that bound the nulls.
        n_first = n_runs * n_priors
        n_averaged = n_first + run.size
        repeated = np.repeat(np.arange(n_runs), n_priors)
        every = np.concatenate([repeated, n_runs + np.arange(run.size), np.arange(runs.size)])
        whole = data.joined(later)
        sets = whole.take(every)
        d = theta.shape[1]
        null = np.broadcast_to(self._null_precision, (runs.size, d, d))
        precision = np.concatenate([self._precisions, self._precision[slot, run], null])
        centre = np.zeros((every.size, d))
        centre[n_first:n_averaged] = self._centre[slot, run]
        modes = fit(sets, precision, theta[runs[every]], centre=centre, slack=_SLACK)
        hessian = sets.hessian(modes) + precision
        averaged = slice(n_averaged)
        bounds = marginal_bound_at(
            sets.part(averaged),
            precision[averaged],
            modes[averaged],
            centre=centre[averaged],
            log_det=np.concatenate([self._log_dets, self._log_det[slot, run]]),
            hessian=hessian[averaged],
        )
        first = bounds[:n_first].reshape(n_runs, n_priors)
        mixture = np.logaddexp.reduce(first + _PRIOR_LOG_WEIGHTS, axis=1)
        return Outcomes(
            data=whole,
            runs=runs,
            log_shares=self._log_shares[np.concatenate([np.zeros(n_runs, dtype=np.int64), slot + 1])],
            mixture=np.concatenate([mixture, bounds[n_first:]]),
            free=modes[n_averaged:],
            covariance=np.asarray(np.linalg.inv(hessian[n_averaged:]), dtype=np.float64),
            idle=(self._shares[1:, None] * ~counting).sum(axis=0),
            mode=modes[_TYPICAL:n_first:n_priors],
        )


def null_precision(space: BradleyTerry) -> FloatArray:
    """Shape (d, d): the ridge with which likelihoods are maximised under a null."""
    return _NULL_RIDGE * prior_precision(space, 1.0)


def ridge_allowance(space: BradleyTerry) -> float:
    """The most (nats) that this ridge takes off the likelihood of a θ within `_LARGEST_LOG_ODDS`."""
    return 0.5 * _NULL_RIDGE * _LARGEST_LOG_ODDS**2 * space.n_features


class BradleyTerryEvidence:
    """E-process per policy in a linear Bradley-Terry space.

    The null for policy k is "θᵀ(x_k - x_j) ≥ logit(½ + ε) for all j". The e-value against it is a mixture of
    likelihoods over a Gaussian prior, over the largest likelihood under the null. Both are replaced by bounds
    on the safe side. The mixture has its variational lower bound at the Laplace approximation, the null its
    one constraint against the estimated best policy. It is averaged over the restarts, and with the e-process
    that assumes nothing about μ, which is faster where features are as many as policies.

    Parameters
    ----------
    space
        The features.
    model
        The estimate.
    mixture
        The averaged likelihoods; refreshed by its owner.
    pairwise
        The e-processes from head-to-head counts, with the indifference margin; updated by its owner.
    streams
        Evidence to average with in place of `pairwise`, which it contains; updated by its owner.

    Attributes
    ----------
    structured
        Shape (R, K): log evidence (nats) of the model alone, as of the last update. It is against θᵀ(x_k -
        x_b) being at least the margin, b being the leader, and for the leader itself the runner-up.
    plain
        Shape (R, K): log evidence (nats) without the streams.
    leader
        Shape (R,): the policy that the estimate puts first.
    separation
        Shape (R, K): nats by which the estimate separates each policy from the null against the leader, to
        second order; infinite for the leader.
    log_shares
        Logarithms of the shares of the model's evidence and of that from head-to-head counts.
    """

    def __init__(
        self,
        space: BradleyTerry,
        model: BradleyTerryModel,
        mixture: Mixture,
        pairwise: PairwiseEvidence,
        *,
        streams: StreamedEvidence | None = None,
    ) -> None:
        self._streams = streams
        self._model = model
        self._mixture = mixture
        self._tally = mixture.tally
        self._pairwise = pairwise
        self._margin = float(special.logit(pairwise.null_mean))
        self._null_precision = null_precision(space)
        self._null_allowance = ridge_allowance(space)
        pairwise_share = space.pairwise_share
        self.log_shares = (float(np.log1p(-pairwise_share)), float(np.log(pairwise_share)))
        n_runs = pairwise.per_policy.shape[0]
        self.structured: FloatArray = np.zeros_like(pairwise.per_policy)
        self.plain: FloatArray = self.structured
        self.leader: IntArray = np.zeros(n_runs, dtype=np.int64)
        self.separation: FloatArray = np.zeros_like(self.structured)
        self._per_policy = self._compute()

    @property
    def per_policy(self) -> FloatArray:
        """Shape (R, K): log evidence (nats) against each policy, as of the last update."""
        return self._per_policy

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the counts."""
        self._per_policy = self._compute()

    def leads(self) -> BoolArray:
        """Shape (R, K): whether the estimate puts the policy ahead of every other by the margin."""
        scores = self._model.scores
        order = np.sort(scores, axis=1)
        ahead = order[:, -1] - order[:, -2] >= self._margin
        leads: BoolArray = (np.arange(scores.shape[1]) == self._model.best[:, None]) & ahead[:, None]
        return leads

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally and the model have."""
        self._per_policy = self._per_policy[runs]
        self.structured = self.structured[runs]
        self.plain = self.plain[runs]
        self.leader, self.separation = self.leader[runs], self.separation[runs]

    def _compute(self) -> FloatArray:
        if self._model.data().contrasts.shape[0] == 0:
            # The only answer may have been taken back.
            self.structured = self.plain = self.separation = np.zeros_like(self.structured)
            self.leader = np.zeros_like(self.leader)
            return self.plain.copy()
        outcomes = self._mixture.outcomes()
        ratio = outcomes.mixture[:, None] - self._null_log_likelihood(outcomes)
        weighted = ratio + outcomes.log_shares[:, None]
        n_runs = self.leader.size
        self.structured = weighted[:n_runs]
        if weighted.shape[0] > n_runs or outcomes.idle.any():
            total = np.full(self.structured.shape, -np.inf)
            np.logaddexp.at(total, outcomes.runs, weighted)
            with np.errstate(divide="ignore"):
                self.structured = np.logaddexp(total, np.log(outcomes.idle)[:, None])
        share, pairwise_share = self.log_shares
        structured = self.structured + share
        self.plain = np.logaddexp(structured, self._pairwise.per_policy + pairwise_share)
        if self._streams is None:
            return self.plain
        return np.asarray(
            np.logaddexp(structured, self._streams.per_policy + pairwise_share), dtype=np.float64
        )

    def _null_log_likelihood(self, outcomes: Outcomes) -> FloatArray:
        """Shape (m, K): upper bound on the log-likelihood of every θ under which k may be the best."""
        data, runs = outcomes.data, outcomes.runs
        n_runs, n_policies = self._pairwise.per_policy.shape
        features = self._model.features
        free = outcomes.free
        scores = free @ features.T
        standing = scores[:n_runs]
        if not self._tally.everybody:
            standing = np.where(self._tally.present, standing, -np.inf)
        order = np.argsort(standing, axis=1)
        self.leader = order[:, -1]
        rival = np.where(np.arange(n_policies) == order[:, -1:], order[:, -2:-1], order[:, -1:])
        # One leader for all data sets of a run, so that all are about the same nulls.
        contrast = (features[None] - features[rival])[runs]
        ahead = scores - scores[np.arange(runs.size)[:, None], rival[runs]]
        missing = np.maximum(self._margin - ahead, 0.0)

        direction = np.matmul(contrast, outcomes.covariance)
        variance = (contrast * direction).sum(axis=2)
        # To second order, moving θ until the null holds costs this much.
        cost = 0.5 * missing**2 / variance
        value = self._penalised(data, free)[:, None] - cost
        self.separation = cost[:n_runs].copy()
        self.separation[np.arange(n_runs), self.leader] = np.inf
        # Evidence below 0 has no part in any claim, so there the second order will do.
        sets, policies = np.nonzero((missing > 0.0) & (outcomes.mixture[:, None] - value >= 0.0))
        edge = free[sets] + (missing / variance)[sets, policies][:, None] * direction[sets, policies]
        chunk = max(1, _CHUNK // data.contrasts.shape[0])
        for first in range(0, sets.size, chunk):
            part = slice(first, first + chunk)
            s, k = sets[part], policies[part]
            own = data.take(s)
            theta = fit(own, self._null_precision, edge[part], contrast[s, k], slack=_SLACK)
            value[s, k] = self._penalised(own, theta)
        bound: FloatArray = value + self._null_allowance + _SLACK
        return bound

    def _penalised(self, data: PairData, theta: FloatArray) -> FloatArray:
        penalty: FloatArray = 0.5 * (theta @ self._null_precision * theta).sum(axis=1)
        value: FloatArray = data.log_likelihood(theta) - penalty
        return value

"""Linear Bradley-Terry runs: current estimate, the paper's test statistic, and certified evidence."""

from __future__ import annotations

import numpy as np
from scipy import special

from .estimation import ComparedPairs, PairData, fit, project, ridge, softplus
from .evidence import PairwiseEvidence
from .problem import BradleyTerry
from .streams import StreamedEvidence
from .types import BoolArray, FloatArray, IntArray, Tally

# Standard deviations of a typical log-odds θᵀz under the prior, and their weights: a factor of 2.5 apart, so
# that one always fits, with most weight on win rates around 60%.
_PRIOR_SCALES = (0.16, 0.4, 1.0, 2.5)
_PRIOR_LOG_WEIGHTS = np.log([0.15, 0.45, 0.3, 0.1])
_HERMITE_NODES, _HERMITE_SHARES = np.polynomial.hermite_e.hermegauss(9)
_HERMITE_SHARES /= _HERMITE_SHARES.sum()
# The null's likelihood is maximised with this much of the prior's precision left in, which bounds it from
# above for every θ whose typical log-odds is below _LARGEST_LOG_ODDS (a win rate of 0.99995).
_NULL_RIDGE = 1e-4
_LARGEST_LOG_ODDS = 10.0
_CHUNK = 4_000_000


class BradleyTerryModel:
    """The regularised maximum likelihood estimate in R runs, refreshed on demand.

    Parameters
    ----------
    space
        The features.
    tally
        The data.
    precision
        Shape (d, d): precision of a Gaussian prior on θ to use in place of the vanishing ridge λ_t I.
    start
        An estimate from the same tally to start the fit from; zero by default.
    radius
        Project the estimate onto the ball ‖θ‖ ≤ radius [LLM-PO, eq. theta_estimator]; None leaves it be.

    Attributes
    ----------
    pairs
        i and j of all pairs i < j.
    """

    def __init__(
        self,
        space: BradleyTerry,
        tally: Tally,
        precision: FloatArray | None = None,
        start: BradleyTerryModel | None = None,
        radius: float | None = None,
    ) -> None:
        self.features = space.features
        self.pairs: tuple[IntArray, IntArray] = np.triu_indices(space.n_policies, 1)
        self._tally = tally
        self._precision = precision
        self._start = start
        self._radius = radius
        self._stale = True
        self._data: PairData | None = None
        # Pairs seldom join, and what depends on their features alone takes longer than the fit.
        self._compared = self._loaded = ComparedPairs(self.features, tally.counts)
        self._theta: FloatArray = np.zeros((tally.n_runs, space.n_features))

    @property
    def theta(self) -> FloatArray:
        """Shape (R, d): regularised maximum likelihood estimate ζ [LLM-PO, eq. reg_mle_def]."""
        if self._stale:
            # Never from the last estimate, so that this one is a function of the counts alone.
            start = np.zeros_like(self._theta) if self._start is None else self._start.theta
            self._theta = self._projected(fit(self.data(), self._regularisation(), start))
            self._stale = False
        return self._theta

    @property
    def scores(self) -> FloatArray:
        """Shape (R, K): estimated strengths θᵀx."""
        scores: FloatArray = self.theta @ self.features.T
        return scores

    @property
    def best(self) -> IntArray:
        """Shape (R,): the policy with the largest estimated strength."""
        best: IntArray = self.scores.argmax(axis=1)
        return best

    def data(self) -> PairData:
        """The outcomes as of the last refresh, of the pairs that have been compared."""
        if self._start is not None:
            return self._start.data()
        if self._data is None:
            if not self._compared.covers(self._tally.counts):
                self._compared = ComparedPairs(self.features, self._tally.counts)
            self._data = self._compared.data(self._tally)
        return self._data

    def covariance(self, load: FloatArray) -> FloatArray:
        """Inverse of the regularised Fisher matrix H_t at the estimate, for comparisons `load`.

        Parameters
        ----------
        load
            Shape (R, K, K), symmetric: comparisons of each pair.

        Returns
        -------
        Shape (R, d, d).
        """
        if not self._loaded.covers(load):
            self._loaded = ComparedPairs(self.features, load)
        mean = special.expit(self.theta @ self._loaded.contrasts.T)
        fisher = self._loaded.information(self._loaded.of(load) * mean * (1.0 - mean))
        return np.asarray(np.linalg.inv(fisher + self._regularisation()), dtype=np.float64)

    def separation(self, covariance: FloatArray) -> FloatArray:
        """Statistic (θᵀz)² / (2 zᵀH⁻¹z) of every policy against the best, whose own entry is 0.

        Its smallest value over the other policies is the paper's Z(t) [LLM-PO, eq. stop].

        Parameters
        ----------
        covariance
            Shape (R, d, d): H⁻¹.

        Returns
        -------
        Shape (R, K), in nats.
        """
        scores, best = self.scores, self.best
        runs = np.arange(best.size)
        contrasts = self.features[None] - self.features[best][:, None]
        variance = np.sum(np.matmul(contrasts, covariance) * contrasts, axis=2)
        gap = scores - scores[runs, best][:, None]
        separation: FloatArray = np.divide(gap**2, 2.0 * variance, out=np.zeros_like(gap), where=variance > 0)
        return separation

    def refresh(self) -> None:
        """Have the estimate computed again when it is next needed."""
        self._stale = True
        self._data = None

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally has."""
        self._theta = self._theta[runs]
        self._data = None

    def _projected(self, theta: FloatArray) -> FloatArray:
        if self._radius is None:
            return theta
        penalty = ridge(self._tally.n_comparisons.astype(np.float64))
        for run in np.flatnonzero(np.linalg.norm(theta, axis=1) > self._radius):
            own = self.data().take(np.array([run]))
            theta[run] = project(own, float(penalty[run]), theta[run], self._radius)
        return theta

    def _regularisation(self) -> FloatArray:
        if self._precision is not None:
            return self._precision
        penalty = ridge(self._tally.n_comparisons.astype(np.float64))
        return penalty[:, None, None] * np.eye(self.features.shape[1])


def prior_precision(space: BradleyTerry, log_odds: float) -> FloatArray:
    """Precision of the prior under which the log-odds θᵀz of a random pair has standard deviation `log_odds`.

    It is a multiple of the mean of z zᵀ over all pairs, so that it does not depend on how the features are
    scaled or combined.

    Parameters
    ----------
    space
        The features.
    log_odds
        Standard deviation, positive.

    Returns
    -------
    Shape (d, d).
    """
    rows, columns = np.triu_indices(space.n_policies, 1)
    contrasts = space.features[rows] - space.features[columns]
    precision: FloatArray = (contrasts.T @ contrasts) / rows.size * space.n_features / log_odds**2
    return precision


class SeparationStatistic:
    """The paper's test statistic per policy in a Bradley-Terry space [LLM-PO, eq. stop]."""

    def __init__(self, model: BradleyTerryModel, tally: Tally) -> None:
        self._model = model
        self._tally = tally
        self._per_policy = model.separation(model.covariance(tally.counts))

    @property
    def per_policy(self) -> FloatArray:
        """Shape (R, K): separation (nats) of each policy from the best, as of the last update."""
        return self._per_policy

    def update(self, i: IntArray, j: IntArray) -> None:
        """Take in what has changed in the counts."""
        self._per_policy = self._model.separation(self._model.covariance(self._tally.counts))

    def leads(self) -> BoolArray:
        """Shape (R, K): whether the policy has the largest estimated strength."""
        leads: BoolArray = np.arange(self._per_policy.shape[1]) == self._model.best[:, None]
        return leads

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally and the model have."""
        self._per_policy = self._per_policy[runs]


class BradleyTerryEvidence:
    """E-process per policy in a linear Bradley-Terry space.

    The null for policy k is "θᵀ(x_k - x_j) ≥ logit(½ + ε) for all j". The e-value against it is a mixture of
    likelihoods over a Gaussian prior, over the largest likelihood under the null. Both are replaced by bounds
    on the safe side: the mixture by its variational lower bound at the Laplace approximation, the null by its
    one constraint against the estimated best policy. So it depends on the counts alone and not on the order
    of the outcomes. It is averaged with the e-process that assumes nothing about μ, which is faster where
    features are as many as policies.

    Parameters
    ----------
    space
        The features.
    model
        The estimate.
    tally
        The data.
    pairwise
        The e-processes from head-to-head counts, with the indifference margin; updated by its owner.
    exact_from
        Evidence (nats) below which a second-order approximation of the null's likelihood will do. Below 0
        it takes no part in any claim; a simulation that only asks when a threshold is crossed can save most
        of its time by a larger value.
    streams
        Evidence to average with in place of `pairwise`, which it contains; updated by its owner.

    Attributes
    ----------
    structured
        Shape (R, K): log evidence (nats) of the model alone, as of the last update: against θᵀ(x_k - x_b)
        being at least the margin, b being the leader, and for the leader itself the runner-up.
    plain
        Shape (R, K): log evidence (nats) without the streams.
    leader
        Shape (R,): the policy that the estimate puts first.
    log_shares
        Logarithms of the shares of the model's evidence and of that from head-to-head counts.
    """

    def __init__(
        self,
        space: BradleyTerry,
        model: BradleyTerryModel,
        tally: Tally,
        pairwise: PairwiseEvidence,
        *,
        exact_from: float = 0.0,
        streams: StreamedEvidence | None = None,
    ) -> None:
        self._streams = streams
        self._model = model
        self._tally = tally
        self._pairwise = pairwise
        self._exact_from = exact_from
        self._margin = float(special.logit(pairwise.null_mean))
        self._priors = np.stack([prior_precision(space, scale) for scale in _PRIOR_SCALES])
        self._null_precision = _NULL_RIDGE * prior_precision(space, 1.0)
        self._null_allowance = 0.5 * _NULL_RIDGE * _LARGEST_LOG_ODDS**2 * space.n_features
        # Pooling strength pays by how much fewer features there are than policies.
        pairwise_share = 0.5 * min(1.0, space.n_features / (space.n_policies - 1))
        self.log_shares = (float(np.log1p(-pairwise_share)), float(np.log(pairwise_share)))
        self.structured: FloatArray = np.zeros_like(pairwise.per_policy)
        self.plain: FloatArray = self.structured
        self.leader: IntArray = np.zeros(tally.n_runs, dtype=np.int64)
        self._per_policy = self._compute()

    @property
    def per_policy(self) -> FloatArray:
        """Shape (R, K): log evidence (nats) against each policy, as of the last update."""
        return self._per_policy

    def update(self, i: IntArray, j: IntArray) -> None:
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
        self.leader = self.leader[runs]

    def _compute(self) -> FloatArray:
        data = self._model.data()
        if data.contrasts.shape[0] == 0:
            return self.plain.copy()
        # All priors are fitted at once, as if each were a run of its own.
        n_runs, n_priors = self._tally.n_runs, len(_PRIOR_SCALES)
        repeated = np.repeat(np.arange(n_runs), n_priors)
        bounds = log_marginal_bound(
            data.take(repeated), np.tile(self._priors, (n_runs, 1, 1)), self._model.theta[repeated]
        )
        mixture = np.logaddexp.reduce(bounds.reshape(n_runs, n_priors) + _PRIOR_LOG_WEIGHTS, axis=1)
        self.structured = mixture[:, None] - self._null_log_likelihood(data, mixture)
        share, pairwise_share = self.log_shares
        structured = self.structured + share
        self.plain = np.logaddexp(structured, self._pairwise.per_policy + pairwise_share)
        if self._streams is None:
            return self.plain
        return np.asarray(
            np.logaddexp(structured, self._streams.per_policy + pairwise_share), dtype=np.float64
        )

    def _null_log_likelihood(self, data: PairData, mixture: FloatArray) -> FloatArray:
        """Shape (R, K): upper bound on the log-likelihood of every θ under which k may be the best."""
        n_policies = self._pairwise.per_policy.shape[1]
        features = self._model.features
        free = fit(data, self._null_precision, self._model.theta)
        scores = free @ features.T
        order = np.argsort(scores, axis=1)
        self.leader = order[:, -1]
        rival = np.where(np.arange(n_policies) == order[:, -1:], order[:, -2:-1], order[:, -1:])
        contrast = features[None] - features[rival]
        missing = np.maximum(self._margin - np.sum(contrast * free[:, None], axis=2), 0.0)

        hessian = data.hessian(free) + self._null_precision
        direction = np.matmul(contrast, np.linalg.inv(hessian))
        variance = np.sum(contrast * direction, axis=2)
        # To second order, moving θ until the null holds costs this much.
        value = self._penalised(data, free)[:, None] - 0.5 * missing**2 / variance
        runs, policies = np.nonzero((missing > 0.0) & (mixture[:, None] - value >= self._exact_from))
        edge = free[runs] + (missing / variance)[runs, policies][:, None] * direction[runs, policies]
        chunk = max(1, _CHUNK // data.contrasts.shape[0])
        for first in range(0, runs.size, chunk):
            part = slice(first, first + chunk)
            r, k = runs[part], policies[part]
            own = data.take(r)
            theta = fit(own, self._null_precision, edge[part], contrast[r, k])
            value[r, k] = self._penalised(own, theta)
        bound: FloatArray = value + self._null_allowance
        return bound

    def _penalised(self, data: PairData, theta: FloatArray) -> FloatArray:
        penalty: FloatArray = 0.5 * np.sum(theta @ self._null_precision * theta, axis=1)
        value: FloatArray = data.log_likelihood(theta) - penalty
        return value


def log_marginal_bound(data: PairData, precision: FloatArray, start: FloatArray) -> FloatArray:
    """Lower bound on the log of the likelihood averaged over θ ~ N(0, precision⁻¹).

    The variational bound E_q[log-likelihood] - KL(q, prior) with q the Laplace approximation: below the true
    value for any q, and within a fraction of a nat of it once every direction has a few dozen comparisons.

    Parameters
    ----------
    data
        Outcomes of R data sets.
    precision
        Shape (R, d, d) or (d, d).
    start
        Shape (R, d): where to start the search for the mode.

    Returns
    -------
    Shape (R,), in nats.
    """
    d = precision.shape[-1]
    mode = fit(data, precision, start)
    Z = data.contrasts
    logits = mode @ Z.T
    hessian = data.hessian(mode) + precision
    covariance = np.linalg.inv(hessian)
    deviation = np.sqrt(np.sum(np.matmul(Z, covariance) * Z, axis=2))
    expected = np.zeros_like(logits)
    compared = np.nonzero(data.counts)
    nodes = logits[compared][:, None] + deviation[compared][:, None] * _HERMITE_NODES
    expected[compared] = softplus(nodes) @ _HERMITE_SHARES
    fit_term = np.sum(data.wins * logits - data.counts * expected, axis=1)
    trace = np.sum(precision * covariance, axis=(1, 2))
    quadratic = np.sum(mode * np.matmul(precision, mode[..., None])[..., 0], axis=1)
    log_ratio = np.linalg.slogdet(hessian)[1] - np.linalg.slogdet(precision)[1]
    bound: FloatArray = fit_term - 0.5 * (trace + quadratic - d + log_ratio)
    return bound

"""Linear Bradley-Terry runs: current estimate, the paper's test statistic, and averaged likelihoods."""

from collections.abc import Callable

import numpy as np
from scipy import special

from .estimation import ComparedPairs, PairData, fit, project, ridge, softplus
from .spaces import BradleyTerry
from .types import BoolArray, FloatArray, IntArray, Tally

_HERMITE_NODES, _HERMITE_SHARES = np.polynomial.hermite_e.hermegauss(9)
_HERMITE_SHARES /= _HERMITE_SHARES.sum()


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
    estimate
        Gives the estimate where another fit has found it already; a fit of its own by default.
    radius
        Project the estimate onto the ball ‖θ‖ ≤ radius [LLM-PO, eq. theta_estimator]; None leaves it be.

    Attributes
    ----------
    pairs
        i and j of all pairs i < j.
    compared
        The pairs that have been compared, as of the last `data`.
    """

    def __init__(
        self,
        space: BradleyTerry,
        tally: Tally,
        precision: FloatArray | None = None,
        estimate: Callable[[], FloatArray] | None = None,
        radius: float | None = None,
    ) -> None:
        self.features = space.features
        self.pairs: tuple[IntArray, IntArray] = np.triu_indices(space.n_policies, 1)
        self._tally = tally
        self._precision = precision
        self._estimate = estimate
        self._radius = radius
        self._stale = True
        self._data: PairData | None = None
        # Pairs seldom join, and what depends on their features alone takes longer than the fit.
        self.compared: ComparedPairs = ComparedPairs(self.features, tally.counts)
        self._loaded = self.compared
        self._theta: FloatArray = np.zeros((tally.n_runs, space.n_features))
        self._identity = np.eye(space.n_features)

    @property
    def theta(self) -> FloatArray:
        """Shape (R, d): regularised maximum likelihood estimate ζ [LLM-PO, eq. reg_mle_def]."""
        if self._stale:
            self._theta = self._fitted() if self._estimate is None else self._estimate()
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
        if self._data is None:
            if not self.compared.covers(self._tally.counts):
                self.compared = ComparedPairs(self.features, self._tally.counts)
            self._data = self.compared.data(self._tally)
        return self._data

    def covariance(self, load: FloatArray) -> FloatArray:
        """Shape (R, d, d): inverse of the regularised Fisher matrix H_t at the estimate.

        `load`, shape (R, K, K), symmetric, has the comparisons of each pair.
        """
        if not self._loaded.covers(load):
            self._loaded = ComparedPairs(self.features, load)
        mean = special.expit(self.theta @ self._loaded.contrasts.T)
        fisher = self._loaded.information(self._loaded.of(load) * mean * (1.0 - mean))
        return np.asarray(np.linalg.inv(fisher + self._regularisation()), dtype=np.float64)

    def separation(self, covariance: FloatArray, margin: float = 0.0) -> FloatArray:
        """Statistic (θᵀz)² / (2 zᵀH⁻¹z) of every policy against the best, whose own entry is 0.

        Shape (R, K), in nats. Its smallest value over the other policies is the paper's Z(t) [LLM-PO, eq.
        stop]. With a margin, in log-odds, the distance from where a policy would beat the best by it takes
        the place of θᵀz.
        """
        scores, best = self.scores, self.best
        runs = np.arange(best.size)
        contrasts = self.features[None] - self.features[best][:, None]
        variance = (np.matmul(contrasts, covariance) * contrasts).sum(axis=2)
        gap = scores - scores[runs, best][:, None] - margin
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

    def _fitted(self) -> FloatArray:
        # Never from the last estimate, so that this one is a function of the counts alone.
        theta = fit(self.data(), self._regularisation(), np.zeros_like(self._theta))
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
        return penalty[:, None, None] * self._identity


def prior_precision(space: BradleyTerry, log_odds: float) -> FloatArray:
    """Precision of the prior under which the log-odds θᵀz of a random pair has standard deviation `log_odds`.

    Shape (d, d), a multiple of the mean of z zᵀ over all pairs that the experiment began with. So it does not
    depend on how the features are scaled or combined.
    """
    precision: FloatArray = space.precision / log_odds**2
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

    def update(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> None:
        """Take in what has changed in the counts."""
        self._per_policy = self._model.separation(self._model.covariance(self._tally.counts))

    def leads(self) -> BoolArray:
        """Shape (R, K): whether the policy has the largest estimated strength."""
        leads: BoolArray = np.arange(self._per_policy.shape[1]) == self._model.best[:, None]
        return leads

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally and the model have."""
        self._per_policy = self._per_policy[runs]


def log_marginal_bound(data: PairData, precision: FloatArray, start: FloatArray) -> FloatArray:
    """Shape (R,): lower bound on the log (nats) of the likelihood averaged over θ ~ N(0, precision⁻¹).

    `start`, shape (R, d), is where to start the search for the mode.
    """
    mode = fit(data, precision, start)
    each = np.broadcast_to(precision, (mode.shape[0], *precision.shape))
    hessian = data.hessian(mode) + precision
    return marginal_bound_at(
        data, each, mode, centre=np.zeros_like(mode), log_det=log_determinant(each), hessian=hessian
    )


def marginal_bound_at(
    data: PairData,
    precision: FloatArray,
    mode: FloatArray,
    *,
    centre: FloatArray,
    log_det: FloatArray,
    hessian: FloatArray,
) -> FloatArray:
    """Shape (R,): lower bound on the log (nats) of the likelihood averaged over θ ~ N(centre, precision⁻¹).

    The variational bound E_q[log-likelihood] - KL(q, prior) with q the Laplace approximation. It is below the
    true value for any q. Once every direction has a few dozen comparisons, it is within a fraction of a nat
    of it.

    `mode`, shape (R, d), is the θ at which likelihood times prior is largest, from `fit`; `log_det`, shape
    (R,), the log of the determinant of the precision; `hessian`, shape (R, d, d), the Fisher matrix at the
    mode, and the precision.
    """
    Z = data.contrasts
    logits = mode @ Z.T
    covariance = np.linalg.inv(hessian)
    deviation = np.sqrt((np.matmul(Z, covariance) * Z).sum(axis=2))
    expected = np.zeros_like(logits)
    compared = np.nonzero(data.counts)
    nodes = logits[compared][:, None] + deviation[compared][:, None] * _HERMITE_NODES
    expected[compared] = softplus(nodes) @ _HERMITE_SHARES
    fit_term = (data.wins * logits - data.counts * expected).sum(axis=1)
    shift = mode - centre
    trace = (precision * (covariance + shift[:, :, None] * shift[:, None, :])).sum(axis=(1, 2))
    divergence = 0.5 * (trace - mode.shape[1] + log_determinant(hessian) - log_det)
    bound: FloatArray = fit_term - divergence
    return bound


def log_determinant(matrices: FloatArray) -> FloatArray:
    """Shape (R,): log of the determinant of positive definite matrices, shape (R, d, d)."""
    log_det: FloatArray = np.linalg.slogdet(matrices)[1]
    return log_det

"""The synthetic instances of the paper [LLM-PO, section "Synthetic Experiments"]."""

import numpy as np
from scipy import stats

from engine.core.types import FloatArray


def unstructured_instances(n_runs: int, seed: int, n_policies: int = 16) -> FloatArray:
    """Preference matrices, shape (R, K, K): one draw of the latent noise per run, policies in random order.

    r_i = 0.55 - 1.90 i/15 + N(0, 0.005²), μ(i, j) = 1 / (1 + exp(-(r_i - r_j))).
    """
    rng = np.random.default_rng(seed)
    base = 0.55 - 1.90 * np.arange(n_policies) / (n_policies - 1)
    scores = base + 0.005 * rng.standard_normal((n_runs, n_policies))
    # In order, the best policy would win every tie that is broken by index.
    return preference_matrix(rng.permuted(scores, axis=1))


def structured_instance(n_policies: int, n_features: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Features, shape (K, d), and parameter, shape (d,), of a linear Bradley-Terry instance.

    θ is uniform on the unit sphere; x_i = b_i θ + N(0, 0.25² I) with b_i evenly spaced from 0.3 to -0.3. The
    policies are in random order.
    """
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(n_features)
    theta /= np.linalg.norm(theta)
    base = np.linspace(0.3, -0.3, n_policies)
    features = base[:, None] * theta + 0.25 * rng.standard_normal((n_policies, n_features))
    return features[rng.permutation(n_policies)], theta


def preference_matrix(scores: FloatArray) -> FloatArray:
    """Bradley-Terry preference probabilities, shape (..., K, K), of policies with the given scores."""
    return 1.0 / (1.0 + np.exp(-(scores[..., :, None] - scores[..., None, :])))


def upper_limit(errors: int, n_runs: int) -> float:
    """Upper end of the one-sided 95% Clopper-Pearson interval of a rate."""
    return 1.0 if errors == n_runs else float(stats.beta.ppf(0.95, errors + 1, n_runs - errors))

import numpy as np
import pytest

from engine.core import BradleyTerry, Design, Unstructured
from engine.core.paper_thresholds import (
    ProvenLinearThreshold,
    heuristic_threshold,
    pairwise_log_constant,
    pairwise_threshold,
)
from engine.core.types import check_tally


@pytest.mark.parametrize(("delta", "n_pairs"), [(0.05, 1), (0.05, 3), (0.2, 3)])
def test_the_proven_constant_meets_the_condition_and_hardly_more(delta: float, n_pairs: int) -> None:
    """The paper's condition, summed term by term with its own ceiling up to a million comparisons."""

    def error_sum(log_constant: float) -> float:
        t = np.arange(1.0, 1e6)
        rho = pairwise_threshold(delta, t, log_constant, n_pairs)
        inner = np.ceil(rho * np.log(t)) * rho / n_pairs
        return float(np.sum(np.exp(n_pairs + 1 - rho) * inner**n_pairs))

    log_constant = pairwise_log_constant(delta, n_pairs)
    assert error_sum(log_constant) <= delta
    assert error_sum(log_constant - 0.5) > 0.8 * delta


def test_heuristic_threshold_of_a_known_case() -> None:
    assert heuristic_threshold(0.05, np.e) == pytest.approx(2 * np.log(2 / 0.05))
    assert heuristic_threshold(0.05, 0) == heuristic_threshold(0.05, 1)


def test_the_heuristic_confidence_inverts_its_threshold() -> None:
    design = Design(Unstructured(2), stopping="heuristic")
    for t in range(30):
        design.tell(0, 1, float(t % 5 > 0))
    cost = design.evidence[1]
    assert heuristic_threshold(1 - design.decision.confidence, 30) == pytest.approx(cost)


def test_the_proven_rule_asks_for_more_than_the_heuristic_one() -> None:
    wins = np.array([[0.0, 80.0], [40.0, 0.0]])
    decisions = {
        name: Design.from_counts(Unstructured(2), wins, stopping=name).decision
        for name in ("heuristic", "theory")
    }
    assert decisions["theory"].threshold > decisions["heuristic"].threshold
    assert decisions["theory"].confidence == 0.0


def test_the_proven_linear_threshold_is_the_papers() -> None:
    """λ(t) in Ψ is c√t, the bound on Λ_min(V),
    and not the ridge t^(-1/2) of the estimate.
    """
    features = np.array([[0.6, 0.0], [0.0, 0.5], [-0.3, 0.2]])
    wins = np.array([[0.0, 90, 70], [60, 0, 80], [50, 50, 0]])
    delta, c, t, d = 0.05, 0.1, 400.0, 2
    gram = np.zeros((2, 2))
    lengths = []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        z = features[i] - features[j]
        gram += (wins[i, j] + wins[j, i]) * np.outer(z, z)
        lengths.append(np.linalg.norm(z))
    lambda_0, lambda_t = c * np.sqrt(d), c * np.sqrt(t)
    assert np.linalg.eigvalsh(gram)[0] >= lambda_t
    psi = (1 + lambda_0 / lambda_t) * (
        2 * np.log(1 / delta)
        + np.log(np.linalg.det(gram) / lambda_t**d)
        + d * np.log(1 + lambda_0 / lambda_t)
        + d * np.log(lambda_t / lambda_0)
    )
    length = max(lengths)
    slope = np.exp(length) / (1 + np.exp(length)) ** 2
    expected = (2 * (1 + 2 * length) * (np.sqrt(psi / slope) + np.sqrt(t**-0.5))) ** 2
    threshold = ProvenLinearThreshold(delta, BradleyTerry(features), gate=c)
    assert threshold.at(check_tally(wins, None, 3))[0] == pytest.approx(expected)


def test_the_proven_linear_threshold_waits_for_its_start() -> None:
    features = np.array([[5.0, 0.0], [0.0, 5.0], [-5.0, -5.0]])
    wins = np.zeros((3, 3))
    wins[0, 1] = 1.0
    threshold = ProvenLinearThreshold(0.05, BradleyTerry(features))
    assert threshold.at(check_tally(wins, None, 3))[0] == np.inf
    wins[1, 2] = 1.0
    assert threshold.at(check_tally(wins, None, 3))[0] < np.inf

import numpy as np
import pytest

from engine.core import Design, Unstructured
from engine.core.thresholds import heuristic_threshold, pairwise_log_constant, pairwise_threshold


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

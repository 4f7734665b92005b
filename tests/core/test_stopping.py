"""The stopping rules against an evidence that is given."""

import numpy as np
import pytest

from engine.core.ruling_out import Certified, Thresholded, raised
from engine.core.types import Tally


class Given:
    """An evidence model whose numbers are set by the test."""

    def __init__(self, per_policy: list[list[float]]) -> None:
        self.per_policy = np.array(per_policy)

    def leads(self) -> np.ndarray:
        return self.per_policy == self.per_policy.min(axis=1, keepdims=True)


class Sum:
    """A threshold that is ten plus the number of comparisons; the risk is a hundredth of the evidence."""

    def at(self, tally: Tally) -> np.ndarray:
        return 10.0 + tally.n_comparisons

    def risk(self, evidence: np.ndarray, tally: Tally) -> np.ndarray:
        return evidence / 100.0 + tally.n_comparisons[:, None]


def tally_of(*n_comparisons: int) -> Tally:
    wins = np.zeros((len(n_comparisons), 2, 2))
    wins[:, 0, 1] = n_comparisons
    return Tally(wins)


class TestCertified:
    def test_it_refutes_from_log_one_over_delta_on(self) -> None:
        limit = -np.log(0.05)
        rule = Certified(Given([[limit, limit - 1e-9], [0.0, -3.0]]), delta=0.05)
        assert rule.threshold.tolist() == [limit, limit]
        assert rule.refuted.tolist() == [[True, False], [False, False]]

    def test_the_risk_is_one_over_the_largest_e_value_and_at_most_one(self) -> None:
        model = Given([[np.log(4.0), -2.0]])
        rule = Certified(model, delta=0.05)
        assert rule.risk == pytest.approx(np.array([[0.25, 1.0]]))

    def test_the_peak_remembers_and_the_evidence_does_not(self) -> None:
        model = Given([[1.0, 5.0]])
        rule = Certified(model, delta=0.05, peak_evidence=[[2.0, 3.0]])
        assert rule.peak_evidence.tolist() == [[2.0, 5.0]]
        model.per_policy = np.array([[4.0, 0.5]])
        assert rule.evidence.tolist() == [[4.0, 0.5]]
        assert rule.peak_evidence.tolist() == [[2.0, 5.0]]
        rule.observe()
        assert rule.peak_evidence.tolist() == [[4.0, 5.0]]
        assert rule.refuted.tolist() == [[True, True]]

    def test_who_leads_is_the_models_to_say(self) -> None:
        rule = Certified(Given([[1.0, 0.0]]), delta=0.05, peak_evidence=[[1.0, 9.0]])
        assert rule.leads().tolist() == [[False, True]]

    def test_only_the_runs_that_are_kept_stay(self) -> None:
        rule = Certified(Given([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), delta=0.05)
        assert rule.threshold.shape == (3,)
        rule.keep(np.array([True, False, True]))
        assert rule.peak_evidence.tolist() == [[1.0, 2.0], [5.0, 6.0]]
        assert rule.threshold.shape == (2,)

    def test_the_models_numbers_are_not_touched(self) -> None:
        model = Given([[1.0, 2.0]])
        rule = Certified(model, delta=0.05)
        model.per_policy[:] = 7.0
        assert rule.peak_evidence.tolist() == [[1.0, 2.0]]


class TestThresholded:
    def rule(self, *evidence: list[float], n: tuple[int, ...], peak: object = None) -> Thresholded:
        return Thresholded(Given(list(evidence)), tally_of(*n), Sum(), peak)

    def test_it_refutes_above_the_threshold_of_now(self) -> None:
        rule = self.rule([15.0, 15.5], [15.0, 15.5], n=(5, 6))
        assert rule.threshold.tolist() == [15.0, 16.0]
        assert rule.refuted.tolist() == [[False, True], [False, False]]

    def test_a_peak_refutes_nobody(self) -> None:
        rule = self.rule([3.0, 1.0], n=(5,), peak=[[99.0, 0.0]])
        assert rule.peak_evidence.tolist() == [[99.0, 1.0]]
        assert rule.evidence.tolist() == [[3.0, 1.0]]
        assert not rule.refuted.any()

    def test_the_risk_is_the_thresholds(self) -> None:
        assert self.rule([3.0, 1.0], n=(5,)).risk.tolist() == [[5.03, 5.01]]

    def test_it_follows_the_model(self) -> None:
        rule = self.rule([3.0, 1.0], [0.0, 2.0], n=(5, 6))
        assert rule.leads().tolist() == [[False, True], [True, False]]
        rule._model.per_policy = np.array([[2.0, 4.0], [1.0, 1.0]])
        rule.observe()
        assert rule.peak_evidence.tolist() == [[3.0, 4.0], [1.0, 2.0]]
        rule.keep(np.array([False, True]))
        assert rule.peak_evidence.tolist() == [[1.0, 2.0]]


class TestRaised:
    def test_without_a_stored_peak_it_is_a_copy(self) -> None:
        evidence = np.array([[1.0, 2.0]])
        peak = raised(evidence, None)
        peak[0, 0] = 9.0
        assert evidence.tolist() == [[1.0, 2.0]]

    @pytest.mark.parametrize(
        ("stored", "words"),
        [
            ([[1.0]], r"one number for each of the 2 policies; got shape \(1,\)"),
            ([1.0, 2.0], r"got shape \(\)"),
            ([[1.0, np.inf]], "finite"),
            ([[np.nan, 0.0]], "finite"),
        ],
    )
    def test_a_stored_peak_that_cannot_be_is_refused(self, stored: object, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            raised(np.array([[1.0, 2.0]]), stored)

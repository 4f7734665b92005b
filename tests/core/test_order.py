"""The order of asking: evidence that slow answers cannot bias, and runs of one annotator."""

from itertools import permutations, product

import numpy as np
import pytest

from engine.core import Design, Unstructured
from engine.core.bernoulli import log_e_value
from engine.core.evidence import CONCENTRATION
from engine.core.judgment_order import LONG_RUN, SoloRun, judged_prefix, solo_runs

ASKED = [(0, 1), (1, 2), (0, 2), (0, 1)]


class TestJudgedPrefix:
    def test_it_ends_before_the_first_open_comparison(self) -> None:
        assert judged_prefix([(0, 1, 1.0), (1, 2, 0.0), (0, 1, None), (0, 2, 0.5)]) == [
            (0, 1, 1.0),
            (1, 2, 0.0),
        ]
        assert judged_prefix([(0, 1, None)]) == judged_prefix([]) == []
        # An outcome of 0 is one.
        assert judged_prefix([(0, 1, 0.0)]) == [(0, 1, 0.0)]

    def test_no_order_of_arrival_changes_what_is_ever_told(self) -> None:
        """Each prefix is one of those that awaiting every answer would have given,
        whatever came back first.
        """
        for outcomes in product((0.0, 1.0), repeat=len(ASKED)):
            whole = [(i, j, outcome) for (i, j), outcome in zip(ASKED, outcomes, strict=True)]
            awaited = [whole[:n] for n in range(len(whole) + 1)]
            for order in permutations(range(len(ASKED))):
                back: set[int] = set()
                for place in order:
                    back.add(place)
                    told = judged_prefix(
                        (i, j, outcome if n in back else None) for n, (i, j, outcome) in enumerate(whole)
                    )
                    assert told in awaited
                assert told == whole

    @pytest.mark.slow
    def test_losses_that_come_back_first_do_not_refute_the_best(self) -> None:
        """The best ties with its rival, and of every sixty answers its losses come back before its wins."""
        rng = np.random.default_rng(2)
        refuted = {"as they come": 0, "in order": 0}
        for _ in range(12):
            asked: list[tuple[int, int, float | None]] = []
            designs = {name: Design(Unstructured(2), claim="best_if_any", delta=0.1) for name in refuted}
            hit = dict.fromkeys(refuted, False)
            told = 0
            for _ in range(3):
                outcomes = [float(rng.random() < 0.5) for _ in range(60)]
                first = len(asked)
                asked += [(0, 1, None)] * 60
                for place in sorted(range(60), key=lambda place: outcomes[place]):
                    asked[first + place] = (0, 1, outcomes[place])
                    designs["as they come"].tell(0, 1, outcomes[place])
                    for judgment in judged_prefix(asked)[told:]:
                        designs["in order"].tell(*judgment)
                        told += 1
                    for name, design in designs.items():
                        hit[name] |= bool(design.peak_evidence[0] >= np.log(10.0))
            for name in refuted:
                refuted[name] += hit[name]
        # At a true rate of 10% more than 5 of 12 have a probability of .05%.
        assert refuted["in order"] <= 5 < refuted["as they come"]


class TestSoloRuns:
    def test_the_longest_come_first_and_short_ones_not_at_all(self) -> None:
        annotators = ["ann"] * 3 + ["bob"] * 5 + ["ann"] * 5 + ["bob"] + ["ann"] * 2
        assert solo_runs(annotators, longer_than=2) == [
            SoloRun("bob", start=3, length=5),
            SoloRun("ann", start=8, length=5),
            SoloRun("ann", start=0, length=3),
        ]

    def test_interleaved_annotators_have_none(self) -> None:
        assert solo_runs(["ann", "bob"] * 600) == []
        assert solo_runs((["ann"] * LONG_RUN + ["bob"] * LONG_RUN) * 9) == []
        assert [run.length for run in solo_runs(["ann"] * (LONG_RUN + 1) + ["bob"])] == [LONG_RUN + 1]

    @pytest.mark.parametrize(("length", "is_long"), [(1, False), (LONG_RUN, False), (50, True)])
    def test_only_long_ones_break_the_promised_risk(self, length: int, is_long: bool) -> None:
        """Two annotators with whom the better of two policies wins .4 and .7: its exact chance to be
        ruled out within 1,000 comparisons.
        """
        delta, ruled_out = 0.05, 0.0
        chances = np.array([1.0])
        for number in range(1, 1001):
            mean = (0.4, 0.7)[(number - 1) // length % 2]
            chances = np.append(chances * (1.0 - mean), 0.0) + np.append(0.0, chances * mean)
            wins = np.arange(number + 1.0)
            out = log_e_value(wins, number - wins, 0.5, CONCENTRATION) >= np.log(1.0 / delta)
            ruled_out += chances[out].sum()
            chances[out] = 0.0
        assert (ruled_out > delta) == is_long

    def test_one_person_alone_is_no_finding(self) -> None:
        assert solo_runs([7] * 500) == []
        assert solo_runs([]) == []

    @pytest.mark.parametrize("longer_than", [-1, 2.5])
    def test_a_length_that_cannot_be_is_refused(self, longer_than: float) -> None:
        with pytest.raises(ValueError, match="longer_than must be"):
            solo_runs([1, 2], longer_than)

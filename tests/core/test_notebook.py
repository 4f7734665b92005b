"""The engine in a notebook: labels, tables, batches, a ranking, and samplers of other packages."""

from __future__ import annotations

import importlib.metadata
import re
import reprlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.simulate import simulate
from engine.core import BradleyTerry, Design, Factorial, Place, Stateless, Unstructured, memory
from engine.core.sampling import Picks, Situation

from .conftest import bradley_terry

NAMES = ["terse", "warm", "formal"]
TABLE = {
    "policy_i": ["warm", "terse", "warm", "formal"] * 30,
    "policy_j": ["terse", "formal", "formal", "warm"] * 30,
    "outcome": [1.0, 0.5, 1.0, 0.0] * 30,
}


class TestTables:
    def test_a_table_of_judgments_becomes_a_design(self) -> None:
        design = Design.from_dataframe(TABLE, claim="best_if_any")
        assert design.labels == ("formal", "terse", "warm")
        assert design.n_comparisons == 120
        assert design.wins[2, 1] == 30
        assert design.decision.stopped
        assert design.labels[design.decision.best] == "warm"

    def test_columns_labels_and_space_may_be_given(self) -> None:
        renamed = {"a": TABLE["policy_i"], "b": TABLE["policy_j"], "won": TABLE["outcome"]}
        design = Design.from_dataframe(
            renamed, Unstructured(3), first="a", second="b", outcome="won", labels=NAMES
        )
        assert design.labels == tuple(NAMES)
        assert design.wins[1, 0] == 30

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ({"policy_i": ["x"], "policy_j": ["y"]}, "no column 'outcome'"),
            (TABLE | {"outcome": [2.0] * 120}, "row 0: outcome must lie"),
            (TABLE | {"policy_j": ["warm"] * 120}, "row 0: a policy is not compared with itself"),
        ],
    )
    def test_a_table_that_does_not_fit_is_refused_with_its_row(self, table: dict, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Design.from_dataframe(table)
        with pytest.raises(ValueError, match="there is no policy 'formal'"):
            Design.from_dataframe(TABLE, Unstructured(2), labels=["warm", "terse"])

    def test_numbers_are_the_same_policies_whatever_a_left_out_row_made_of_their_type(self) -> None:
        """The advice to leave out a row split each policy in two: "1" and "1.0"."""
        frame = pd.DataFrame({"policy_i": [1, None, 2], "policy_j": [2, 1, 1], "outcome": [1, 0, 0]})
        assert frame.dropna()["policy_i"].dtype == np.float64
        design = Design.from_dataframe(frame.dropna())
        assert design.labels == ("1", "2")
        assert design.n_comparisons == 2

    @pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT, "", " "])
    @pytest.mark.parametrize("build", [dict, lambda columns: pd.DataFrame(columns, dtype=object)])
    def test_a_row_that_names_no_policy_is_refused(
        self, build: Callable[[dict[str, list[object]]], object], missing: object
    ) -> None:
        """It became a policy of the name "None" or "nan", which could win."""
        for column in ("policy_i", "policy_j"):
            table = {"policy_i": ["x", "y"], "policy_j": ["y", "z"], "outcome": [1, 0]}
            table[column][1] = missing
            with pytest.raises(ValueError, match=f"row 1: the column '{column}' names no policy.*leave out"):
                Design.from_dataframe(build(table))

    def test_names_may_be_numbers(self) -> None:
        table = pd.DataFrame({"policy_i": [1, 0], "policy_j": [0, 1], "outcome": [1, 0]})
        assert Design.from_dataframe(table).labels == ("0", "1")


class TestBatches:
    def test_several_pairs_are_asked_and_told_at_once(self) -> None:
        design = Design(Unstructured(4), seed=1)
        pairs = design.ask(5)
        assert len(pairs) == 5
        assert design.in_flight.sum() == 10
        design.tell_many((i, j, 1.0) for i, j in pairs)
        assert (design.n_comparisons, design.in_flight.sum()) == (5, 0)

    def test_one_that_is_refused_leaves_all_untold(self) -> None:
        design = Design(Unstructured(3))
        with pytest.raises(ValueError, match="judgment 1: outcome"):
            design.tell_many([(0, 1, 1.0), (0, 2, 3.0)])
        assert design.n_comparisons == 0

    @pytest.mark.parametrize(
        "judgment",
        [(0, 1), 3, range(50)],
        ids=str,
    )
    @pytest.mark.parametrize("build", [Design.replay, lambda space, given: Design(space).tell_many(given)])
    def test_one_that_is_no_triple_is_named(
        self, build: Callable[[Unstructured, list[object]], object], judgment: object
    ) -> None:
        """Python's errors of unpacking did not say which one."""
        message = (
            rf"judgment 1 is {re.escape(reprlib.repr(judgment))}; each must be \(i, j, outcome\), such as"
        )
        with pytest.raises(ValueError, match=message):
            build(Unstructured(3), [(0, 1, 1.0), judgment])

    @pytest.mark.parametrize("judgment", [(0, 1), (0.0, 1, 1.0), (0, 1, "1")], ids=str)
    def test_nothing_is_told_beside_one_of_another_type(self, judgment: tuple[object, ...]) -> None:
        design = Design(Unstructured(3))
        [pair] = design.ask(1)
        before = design.state()
        with pytest.raises(ValueError, match=r"^judgment 2"):
            design.tell_many(iter([(*pair, 1.0), (0, 2, 0.5), judgment]))
        assert design.state() == before

    def test_rows_of_arrays_are_judgments(self) -> None:
        first, second, outcomes = np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([1.0, 0.5, 0.0])
        design = Design(Unstructured(3))
        design.tell_many(zip(first, second, outcomes, strict=True))
        design.tell_many(np.array([[0, 1, 1], [0, 2, 0]]))
        assert design.wins[0].tolist() == [0.0, 2.0, 0.5]

    def test_optimize_asks_until_it_stops_or_n_are_told(self) -> None:
        design = Design(Unstructured(3), labels=NAMES, seed=1)
        assert design.optimize(lambda i, j: float(i < j), n=4).n_comparisons == 4
        decision = design.optimize(lambda i, j: float(i < j))
        assert decision.stopped
        assert decision.best == 0
        assert decision.holds("best")

    def test_a_number_below_0_is_refused(self) -> None:
        def ask_human(i: int, j: int) -> float:
            raise AssertionError("nothing is to be asked")

        design = Design(Unstructured(3))
        with pytest.raises(ValueError, match="the number of comparisons must be 0 or more, got -1"):
            design.optimize(ask_human, -1)
        with pytest.raises(ValueError, match="the number of pairs must be 0 or more, got -1"):
            design.ask(-1)
        assert design.ask(0) == []
        assert not design.optimize(ask_human, 0).stopped

    def test_a_comparison_that_fails_is_not_left_under_way(self) -> None:
        def ask_human(i: int, j: int) -> float:
            raise KeyboardInterrupt

        design = Design(Unstructured(3))
        with pytest.raises(KeyboardInterrupt):
            design.optimize(ask_human)
        assert design.in_flight.sum() == 0


class TestLabels:
    def test_a_factorial_space_names_its_policies_by_their_levels(self) -> None:
        design = Design(Factorial({"prompt": ["a", "b"], "guardrail": ["off", "on"]}))
        assert design.labels == ("a, off", "a, on", "b, off", "b, on")

    @pytest.mark.parametrize("labels", [["a", "b"], ["a", "a", "b"]])
    def test_labels_that_do_not_fit_are_refused(self, labels: list[str]) -> None:
        with pytest.raises(ValueError, match="labels must name each of the 3"):
            Design(Unstructured(3), labels=labels)

    def test_the_representation_says_where_it_stands(self) -> None:
        design = Design(Unstructured(2))
        assert repr(design) == "<Design of 2 policies, claim 'best' at δ=0.05: nothing compared yet>"
        design.tell(0, 1, 1.0)
        assert repr(design).endswith(": 1 compared, 'policy 0' leads, 1 open>")
        design.optimize(lambda i, j: float(i < j))
        assert repr(design).endswith(" compared, 'policy 0' is named, stopped (certified)>")
        heuristic = Design(Unstructured(3), stopping="heuristic")
        assert "3 policies, stop 'heuristic' at" in repr(heuristic)
        while not heuristic.stopped:
            i, j = heuristic.ask()
            heuristic.tell(i, j, float(i < j))
        for said in (repr(heuristic), repr(heuristic.decision)):
            assert "0" in said
            assert "leads" in said
            assert "is named" not in said
        assert heuristic.decision.joint_risk == 1.0

    def test_the_representation_of_a_space_says_what_it_is_made_of(self) -> None:
        factorial = Factorial({"tone": ["terse", "warm"], "length": [1, 2, 3]}, numeric=["length"])
        assert repr(factorial) == "<Factorial of 6 policies by ('tone=warm', 'length')>"
        assert len(repr(BradleyTerry.one_hot(100))) < 150

    def test_the_representation_of_a_decision_says_what_may_be_said(self) -> None:
        design = Design(Unstructured(3), labels=NAMES, seed=1)
        assert repr(design.decision) == "<Decision, claim 'best': 0 compared, running, no leader>"
        design.optimize(lambda i, j: float(i < j), n=20)
        assert repr(design.decision) == "<Decision, claim 'best': 20 compared, running, policy 0 leads>"
        decision = design.optimize(lambda i, j: float(i < j))
        assert repr(decision).endswith(" compared, stopped (certified), policy 0 is named>")


class TestRanking:
    def test_places_rates_and_intervals(self) -> None:
        mu = bradley_terry(np.array([0.9, 0.1, -0.2, -0.8]))
        rng = np.random.default_rng(1)
        design = Design(Unstructured(4), claim="best_if_any", seed=1)
        design.optimize(lambda i, j: float(rng.random() < mu[i, j]))
        ranking = design.ranking()
        assert ranking[0].policy == 0
        assert [row.place for row in ranking] == [Place.LEADS, *[Place.RULED_OUT] * 3]
        assert sum(row.log_odds for row in ranking) == pytest.approx(0.0, abs=1e-9)
        for row in ranking:
            others = np.delete(mu[row.policy], row.policy)
            assert row.field.low <= row.field.estimate <= row.field.high
            assert row.field.low <= others.mean() <= row.field.high
            against = ranking[1].policy if row.policy == 0 else 0
            assert row.leader.low <= mu[row.policy, against] <= row.leader.high

    def test_in_a_model_the_intervals_rest_on_all_comparisons(self) -> None:
        space = Factorial({"a": ["0", "1", "2"], "b": ["0", "1"]})
        rng = np.random.default_rng(1)
        design = Design(space, seed=1)
        mu = bradley_terry(space.features @ np.array([0.8, -0.5, 0.6]))
        for _ in range(300):
            i, j = design.ask()
            design.tell(i, j, float(rng.random() < mu[i, j]))
        assert max(row.field.high - row.field.low for row in design.ranking()) < 0.6

    def test_before_any_comparison_everybody_is_level(self) -> None:
        ranking = Design(Unstructured(3), labels=NAMES).ranking()
        assert {row.field.estimate for row in ranking} == {0.5}
        assert {row.label for row in ranking} == set(NAMES)

    def test_it_can_be_drawn(self) -> None:
        figure = pytest.importorskip("matplotlib.figure").Figure()
        axes = Design.from_dataframe(TABLE).plot(figure.add_subplot())
        assert [label.get_text() for label in axes.get_yticklabels()][-1] == "warm"
        assert len(axes.containers) == 3


class FirstPair(Stateless):
    """Always the first two policies."""

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        zeros = np.zeros(situation.tally.n_runs, dtype=np.int64)
        return zeros, zeros + 1


def registered(monkeypatch: pytest.MonkeyPatch, factory: Callable[[], object]) -> None:
    point = importlib.metadata.EntryPoint("first", f"{__name__}:FirstPair", "llm_po.samplers")
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: factory)
    monkeypatch.setattr(
        "engine.core.samplers.entry_points", lambda group: importlib.metadata.EntryPoints([point])
    )


class TestSamplersOfOthers:
    def test_a_package_can_register_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registered(monkeypatch, FirstPair)
        design = Design(Unstructured(3), sampler="first")
        assert design.ask(3) == [(0, 1)] * 3
        with pytest.raises(ValueError, match="rucb, first; got 'second'"):
            Design(Unstructured(3), sampler="second")

    def test_the_one_in_the_readme_picks_pairs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        readme = Path(__file__).resolve().parents[2] / "packaging/llmpo-core/README.md"
        [program] = re.findall(r"```py\n(.*?)```", readme.read_text(encoding="utf-8"), flags=re.DOTALL)
        names: dict[str, object] = {}
        exec(program.replace("llmpo_core", "engine.core"), names)  # noqa: S102 - our own documentation
        registered(monkeypatch, names["Mine"])
        pairs = Design(Unstructured(3), sampler="first").ask(60)
        assert set(pairs) == {(i, j) for i in range(3) for j in range(3) if i != j}

    def test_one_may_pick_unsigned_numbers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Unsigned(FirstPair):
            def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
                return np.array([2], dtype=np.uint8), np.array([1], dtype=np.uint8)

        registered(monkeypatch, Unsigned)
        assert Design(Unstructured(3), sampler="first").ask() == (2, 1)

    @pytest.mark.parametrize("pair", [(1, 1), (0, 3), (-1, 0), (0.0, 1.0), ([0, 1], [1, 2]), None], ids=str)
    def test_one_that_picks_no_pair_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, pair: tuple[object, object] | None
    ) -> None:
        """A comparison of a policy with itself was counted."""

        class NoPair(FirstPair):
            def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
                return None if pair is None else tuple(np.atleast_1d(each) for each in pair)

        registered(monkeypatch, NoPair)
        design = Design(Unstructured(3), sampler="first")
        with pytest.raises(ValueError, match=r"the sampler 'first' of .*FirstPair picked .* has to return"):
            design.ask()
        assert design.in_flight.sum() == 0
        with pytest.raises(ValueError, match="the sampler 'first' of"):
            simulate(np.full((4, 3, 3), 0.5), sampler="first", budget=5)

    def test_one_that_lacks_a_method_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registered(monkeypatch, object)
        with pytest.raises(ValueError, match="lacks a method"):
            Design(Unstructured(3), sampler="first")


@pytest.mark.parametrize(
    "build",
    [
        lambda n: Design(Unstructured(n)),
        BradleyTerry.one_hot,
        lambda n: Factorial({"a": range(n // 1000), "b": range(1000)}),
    ],
    ids=["unstructured", "one_hot", "factorial"],
)
def test_more_policies_than_memory_holds_are_refused(build: Callable[[int], object]) -> None:
    with pytest.raises(ValueError, match=r"GiB of memory.*room for about"):
        build(10_000_000)


def test_a_design_and_its_ranking_take_no_more_memory_than_is_reckoned() -> None:
    n_policies = 500
    tracemalloc.start()
    try:
        design = Design(Unstructured(n_policies), claim="good_enough", epsilon=0.05, seed=1)
        design.tell(*design.ask(), 1.0)
        design.ranking()
        assert tracemalloc.get_traced_memory()[1] <= memory._MATRICES * 8 * n_policies**2
    finally:
        tracemalloc.stop()


def test_many_policies_work() -> None:
    """Two thousand policies: every part of a decision but the start is linear in their number."""
    design = Design(Unstructured(500), seed=1)
    for _ in range(5):
        i, j = design.ask()
        design.tell(i, j, 1.0)
    assert design.decision.n_comparisons == 5

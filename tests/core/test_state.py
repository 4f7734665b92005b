import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.core import BradleyTerry, Design, Unstructured
from engine.core.samplers import SAMPLERS

policies = st.integers(0, 3)
judgments = st.lists(
    st.tuples(policies, policies, st.sampled_from([0.0, 0.5, 1.0])).filter(lambda o: o[0] != o[1]),
    min_size=1,
    max_size=40,
)
spaces = st.sampled_from(
    [Unstructured(4), BradleyTerry.one_hot(4), BradleyTerry([[0.0], [1.0], [3.0], [-1.0]])]
)


def snapshot(design: Design) -> tuple[object, ...]:
    return design.wins.tolist(), design.evidence.tolist(), design.peak_evidence.tolist(), design.decision


@settings(deadline=None, max_examples=30)
@given(spaces, judgments, st.data())
def test_undo_and_redo_is_the_identity_bit_by_bit(space: object, told: list, data: st.DataObject) -> None:
    whole = Design.replay(space, told)
    before = snapshot(whole)
    voided = data.draw(st.integers(0, len(told) - 1))
    undone = Design.replay(space, told[:voided] + told[voided + 1 :])
    assert undone.n_comparisons == len(told) - 1
    assert snapshot(Design.replay(space, told)) == before

    last_undone = Design.replay(space, told[:-1])
    last_undone.tell(*told[-1])
    assert snapshot(last_undone) == before


@pytest.mark.parametrize("space", [Unstructured(6), BradleyTerry.one_hot(6)], ids=["pairs", "model"])
def test_the_order_in_which_the_two_of_a_pair_are_named_changes_no_bit(space: object) -> None:
    rng = np.random.default_rng(5)
    told = [(*rng.choice(6, 2, replace=False).tolist(), rng.choice([0.0, 0.5, 1.0])) for _ in range(200)]
    swapped = [(j, i, 1.0 - outcome) for i, j, outcome in told]
    assert snapshot(Design.replay(space, swapped)) == snapshot(Design.replay(space, told))


@settings(deadline=None, max_examples=15)
@given(spaces, judgments, st.sampled_from(list(SAMPLERS)))
# Stored right after the averaged likelihood began anew.
@example(BradleyTerry([[0.0], [1.0], [3.0], [-1.0]]), [(0, 1, 0.5), (0, 3, 0.0), (1, 0, 0.0)], "balanced")
def test_a_stored_design_goes_on_as_if_never_stored(space: object, told: list, sampler: str) -> None:
    live = Design(space, sampler=sampler, seed=7, delta=0.1, epsilon=0.02, budget=100)
    for judgment in told:
        live.ask()
        live.tell(*judgment)
    pending = live.ask()
    stored = Design.from_state(space, json.loads(json.dumps(live.state())))
    assert snapshot(stored) == snapshot(live)
    assert np.array_equal(stored.in_flight, live.in_flight)
    for _ in range(5):
        assert stored.ask() == live.ask()
        stored.tell(*pending, 1.0)
        live.tell(*pending, 1.0)
    assert snapshot(stored) == snapshot(live)


SEVEN = Unstructured(7)
RULES = {"claim": "good_enough", "epsilon": 0.05, "seed": 3}


def told_until_the_reserve_is_placed(n: int = 300, *, ties: float = 0.0, **settings: object) -> Design:
    rng, live = np.random.default_rng(4), Design(SEVEN, **RULES, **settings)
    for _ in range(n):
        i, j = live.ask()
        outcome = float(rng.random() < 0.5 + 0.08 * (j - i))
        live.tell(i, j, 0.5 if ties and rng.random() < ties else outcome)
    return live


@pytest.mark.parametrize("ties", [0.0, 0.4])
def test_a_stored_design_knows_where_its_reserve_went(ties: float) -> None:
    live = told_until_the_reserve_is_placed(ties=ties)
    placed = live.progress["streams"]["reserve"]
    # After 10, 20 and 40 comparisons a policy.
    assert [sum(one["wins"]) + sum(one["losses"]) > 0 for one in placed] == [True] * 3
    progress = json.loads(json.dumps(live.progress))
    stored = Design.from_counts(SEVEN, live.wins, progress=progress, **RULES)
    assert stored.progress == live.progress
    assert stored.decision == live.decision
    for i, j in ((0, 1), (5, 6), (placed[0]["policy"], (placed[0]["policy"] + 1) % 7)):
        stored.tell(i, j, 1.0)
        live.tell(i, j, 1.0)
        assert snapshot(stored) == snapshot(live)


def test_without_the_reserve_a_proof_is_a_function_of_the_counts() -> None:
    live = told_until_the_reserve_is_placed(900, reserve=False)
    assert "reserve" not in live.progress["streams"]
    stored = Design.from_counts(SEVEN, live.wins, reserve=False, **RULES)
    assert stored.decision.claims[0].risk == live.decision.claims[0].risk < 1.0


def test_ties_are_told_apart_only_where_the_design_does_so() -> None:
    exact, halves = (told_until_the_reserve_is_placed(ties=0.4, exact_ties=each) for each in (True, False))
    number = sum(n for _, _, n in exact.progress["streams"]["ties"])
    assert 0.3 < number / exact.n_comparisons < 0.5
    assert "ties" not in halves.progress["streams"]
    assert "ties" not in halves.progress["streams"]["reserve"][0]


def test_a_decision_adds_up_no_matrix_of_all_pairs() -> None:
    """Each sum over 2,000 policies takes milliseconds of every click."""

    class Unsummed(np.ndarray):
        def sum(self, *args: object, **kwargs: object) -> np.ndarray:
            raise AssertionError("all pairs were added up")

    design = Design(Unstructured(4), claim="good_enough", epsilon=0.05, seed=1)
    for outcome in (1.0, 0.5, 0.0, 0.5) * 5:
        design.tell(*design.ask(), outcome)
    left = design.decision.expected_left
    tally = design._tally
    stored = Design.from_state(Unstructured(4), json.loads(json.dumps(design.state())))
    for each in (tally, stored._tally):
        assert each.n_ties[0] == each.ties.sum() / 2 == 10
    tally.wins, tally.counts, tally.ties = (
        values.view(Unsummed) for values in (tally.wins, tally.counts, tally.ties)
    )
    assert design.decision_given(None).expected_left == left
    assert left is not None


def test_a_state_that_is_older_than_exact_ties_goes_on_without_them() -> None:
    live = told_until_the_reserve_is_placed(ties=0.4, exact_ties=False)
    state = live.state()
    del state["exact_ties"]
    old = Design.from_state(SEVEN, state)
    for design in (old, live):
        design.tell(0, 1, 0.5)
    assert snapshot(old) == snapshot(live)
    assert old.progress == live.progress


def test_a_state_that_is_older_than_exclusive_proofs_divides_the_risk_of_two_policies() -> None:
    rules = {"claim": "good_enough", "epsilon": 0.05}
    told = [(0, 1, 1.0), (0, 1, 0.0)] * 5 + [(0, 1, 1.0)] * 5
    live = Design.replay(Unstructured(2), told, exclusive_proofs=False, **rules)
    state = live.state()
    del state["exclusive_proofs"]
    assert Design.from_state(Unstructured(2), state).decision == live.decision
    shared = Design.replay(Unstructured(2), told, **rules)
    assert live.decision.claims[0].risk == pytest.approx(2.0 * shared.decision.claims[0].risk)


@pytest.mark.parametrize("ties", [[[0, 1, 10**6]], [[0, 1, -1]], [[0, 9, 1]], [[0, 1]], "many"])
def test_ties_that_do_not_fit_are_refused(ties: object) -> None:
    live = told_until_the_reserve_is_placed(ties=0.4)
    progress = live.progress
    progress["streams"]["ties"] = ties
    with pytest.raises(ValueError, match="'ties'"):
        Design.from_counts(SEVEN, live.wins, progress=progress, **RULES)


@pytest.mark.parametrize(
    "change",
    [
        {"policy": 7},
        {"policy": "first"},
        {"policy": None},
        {"wins": [0.0] * 6},
        {"wins": [1e9] * 7},
        {"losses": [-1.0] * 7},
        {"losses": None},
        {"ties": [1.0] * 7},
    ],
)
def test_a_reserve_that_does_not_fit_is_refused(change: dict[str, object]) -> None:
    live = told_until_the_reserve_is_placed()
    progress = live.progress
    progress["streams"]["reserve"][0] |= change
    with pytest.raises(ValueError, match="'reserve', at most 3 entries"):
        Design.from_counts(SEVEN, live.wins, progress=progress, **RULES)


def test_tracking_goes_on_with_the_allocation_it_had_solved() -> None:
    space = BradleyTerry(np.random.default_rng(1).standard_normal((8, 3)))
    rng, live = np.random.default_rng(2), Design(space, sampler="tracking", seed=1)
    for _ in range(150):
        i, j = live.ask()
        live.tell(i, j, float(rng.random() < 0.5 + 0.04 * (j - i)))
    stored = Design.from_state(space, json.loads(json.dumps(live.state())))
    for _ in range(20):
        pair = live.ask()
        assert stored.ask() == pair
        outcome = float(rng.random() < 0.5)
        live.tell(*pair, outcome)
        stored.tell(*pair, outcome)


def test_replay_refuses_what_tell_refuses() -> None:
    with pytest.raises(ValueError, match="numbered 0 to 1"):
        Design.replay(Unstructured(2), [(0, 1, 1.0), (0, 2, 1.0)])

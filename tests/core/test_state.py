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


RULES = {"claim": "good_enough", "epsilon": 0.05, "seed": 3}


def told(n: int, *, ties: float = 0.0, **settings: object) -> Design:
    rng, live = np.random.default_rng(4), Design(Unstructured(7), **RULES, **settings)
    for _ in range(n):
        i, j = live.ask()
        outcome = float(rng.random() < 0.5 + 0.08 * (j - i))
        live.tell(i, j, 0.5 if ties and rng.random() < ties else outcome)
    return live


def test_where_no_capital_moves_a_proof_is_a_function_of_the_counts() -> None:
    live = told(900, capital_moves=False)
    stored = Design.from_counts(Unstructured(7), live.wins, capital_moves=False, **RULES)
    assert stored.decision.claims[0].risk == live.decision.claims[0].risk < 1.0


def test_ties_are_told_apart() -> None:
    live = told(300, ties=0.4)
    number = sum(n for _, _, _, _, n, *_ in live.progress["streams"]["proofs"])
    assert 0.3 < number / live.n_comparisons < 0.5


@pytest.mark.parametrize("entry", [[0, 1, -1, 0, 0, 0, 0, 0, 0, 0], [0, 9, *[1] * 8], [0, 1], ["a"] * 10])
def test_counts_of_proofs_that_do_not_fit_are_refused(entry: object) -> None:
    live = told(100, ties=0.4)
    progress = live.progress
    progress["streams"]["proofs"].append(entry)
    with pytest.raises(ValueError, match="'proofs'"):
        Design.from_counts(Unstructured(7), live.wins, progress=progress, **RULES)


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

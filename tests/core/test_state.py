import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import BradleyTerry, Design, Unstructured

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


@settings(deadline=None, max_examples=15)
@given(spaces, judgments, st.sampled_from(["balanced", "thompson", "rucb", "eps_greedy", "random"]))
def test_a_stored_design_goes_on_as_if_never_stored(space: object, told: list, sampler: str) -> None:
    live = Design.replay(space, told, sampler=sampler, seed=7, delta=0.1, epsilon=0.02, budget=100)
    pending = live.ask()
    stored = Design.from_state(space, json.loads(json.dumps(live.state())))
    assert snapshot(stored) == snapshot(live)
    assert np.array_equal(stored.in_flight, live.in_flight)
    for _ in range(5):
        assert stored.ask() == live.ask()
        stored.tell(*pending, 1.0)
        live.tell(*pending, 1.0)
    assert snapshot(stored) == snapshot(live)


def test_replay_refuses_what_tell_refuses() -> None:
    with pytest.raises(ValueError, match="numbered 0 to 1"):
        Design.replay(Unstructured(2), [(0, 1, 1.0), (0, 2, 1.0)])

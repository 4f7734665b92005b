"""Benchmark of policies that join and leave."""

import numpy as np
import pytest

from benchmarks import living


def test_a_proof_for_each_newcomer_errs_more_often_than_one_that_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(living, "N_CLONES", 4)
    monkeypatch.setattr(living, "DELTA", 0.3)
    shared, naive = (np.mean(living.attack(300, [1, 2], naive=each) > 0) for each in (False, True))
    assert shared < 0.35 < naive

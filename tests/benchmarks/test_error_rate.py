"""The benchmark of error rates: every claim in every space, and what counts as an error."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.error_rate import KINDS, Cell, main, right_answers, structured, unstructured
from engine.core.types import Claim


@pytest.mark.parametrize("build", [unstructured, lambda kind, size: structured(kind, size, 1)])
def test_the_best_two_tie_in_a_tie_and_nobody_else_does(build: object) -> None:
    _, mu = build(KINDS["unstructured", "tied"], 4)
    assert mu[0, 1] == pytest.approx(0.5)
    assert np.all(mu[:2, 2:] > 0.55)


def test_what_is_right_depends_on_the_claim() -> None:
    def right(claim: Claim, kind: str, epsilon: float) -> list[int]:
        cell = Cell(claim, "unstructured", kind, 4, 0.05, 0, 0.0)
        return right_answers(cell, unstructured(KINDS["unstructured", kind], 4)[1], epsilon)

    assert right(Claim.BEST, "tied", 0.0) == [-1]
    assert right(Claim.BEST, "close", 0.0) == [0]
    assert right(Claim.GOOD_ENOUGH, "edge", 0.1) == [0]
    # The runner-up loses by 4 points.
    assert right(Claim.GOOD_ENOUGH, "close", 0.05) == [0, 1]


@pytest.mark.slow
def test_it_covers_every_claim_space_load_and_share_of_ties(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, kind in KINDS.items():
        monkeypatch.setitem(KINDS, name, replace(kind, horizon=min(kind.horizon, 600)))
    main(["--runs", "1", "--sizes", "3", "--in-flight", "0", "--ties", "0.4", "--kinds", "close", "tied"])
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert {(row["claim"], row["space"]) for row in rows} == {
        (claim, space) for claim in Claim for space in ("unstructured", "structured")
    }
    assert {row["ties"] for row in rows} == {0.4}
    # Runs that end with a decision, and those that the horizon ends.
    assert {row["decided"] for row in rows} == {0.0, 1.0}

"""The benchmark of claims: its instances are what they are called, and it counts false names."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.claims import INSTANCES, instances, main, true_claims
from engine.core.types import Claim


@pytest.mark.parametrize("name", INSTANCES)
def test_an_instance_is_what_it_is_called(name: str) -> None:
    mu = instances(name, 3, seed=1)
    assert np.allclose(mu + np.swapaxes(mu, 1, 2), 1.0)
    has_best = true_claims(mu, Claim.BEST, 0.0).any(axis=1)
    assert has_best.all() == (not name.startswith(("cycle", "tie")))
    assert true_claims(mu, Claim.BEST_IF_ANY, 0.0).any(axis=1).all()
    if name.startswith("tie"):
        assert np.all(true_claims(mu, Claim.GOOD_ENOUGH, 0.05).sum(axis=1) >= 2)
    if name == "cycle0.6":
        assert not true_claims(mu, Claim.GOOD_ENOUGH, 0.05).any()


def test_it_runs_and_ends_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--instances", "random3", "--runs", "4", "--cap", "300", "--claims", "best", "good_enough"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["claim"] for row in result["rows"]] == ["best", "good_enough"]
    assert all(0 <= row["false"] <= 4 for row in result["rows"])


def test_near_ties_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--instances", "random3", "--runs", "20", "--cap", "5", "--claims", "best_if_any"]
    left = []
    for bound in ("150", "1000"):
        main([*options, "--bound", bound])
        left.append(json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][0]["runs"])
    assert 0 < left[0] < left[1] < 20


def test_random_strengths_can_be_further_apart(capsys: pytest.CaptureFixture[str]) -> None:
    usual, wide = (instances("random6", 50, seed=1, spread=spread) for spread in (None, 1.2))
    assert np.allclose(np.log(wide / (1.0 - wide)), 2.0 * np.log(usual / (1.0 - usual)))
    options = ["--instances", "random3", "--runs", "40", "--cap", "300", "--claims", "good_enough"]
    means = []
    for spread in ("0.6", "1.8"):
        main([*options, "--spread", spread])
        means.append(json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][0]["mean"])
    assert means[1] < means[0]

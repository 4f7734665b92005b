"""The benchmark of lower bounds: the rates are those of the claims, and a cut only lowers a bound."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.lower_bounds import characteristic_times, cut_bound, main
from engine.core.allocation import pairwise_characteristic_time
from engine.core.likelihood import bernoulli_kl
from engine.core.types import Claim

MU = np.array([[0.5, 0.6, 0.7], [0.4, 0.5, 0.8], [0.3, 0.2, 0.5]])


def test_each_claim_has_the_comparisons_that_speak_for_it() -> None:
    def time(claim: Claim, epsilon: float = 0.0) -> float:
        return float(characteristic_times(MU[None], claim, epsilon)[0])

    assert time(Claim.BEST_IF_ANY) == pytest.approx(pairwise_characteristic_time(MU))
    rates = bernoulli_kl(np.array([0.4, 0.3]), 0.5)
    assert time(Claim.BEST) == pytest.approx(np.sum(1.0 / rates))
    rates = bernoulli_kl(np.array([0.4, 0.3]), 0.55)
    assert time(Claim.GOOD_ENOUGH, 0.05) == pytest.approx(np.sum(1.0 / rates))


def test_a_cut_takes_off_what_a_rule_saves_by_giving_up() -> None:
    times = np.array([1.0, 100.0, 1e5, 1e9])
    bounds = cut_bound(times, 0.05, 4_000)
    assert np.all(np.diff(bounds) > 0.0)
    assert np.all(bounds <= np.minimum(times * bernoulli_kl(0.95, 0.05), 3_600.0))
    assert cut_bound(times[:2], 0.05, 10**9) == pytest.approx(times[:2] * bernoulli_kl(0.95, 0.05), rel=0.01)


def test_it_runs_and_ends_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--instances", "random3", "--runs", "20"])
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [row["claim"] for row in rows] == list(Claim)
    assert all(row["cut"] <= row["mean"] for row in rows)

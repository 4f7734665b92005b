"""The benchmark of claims: its instances are what they are called, and it counts false names."""

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


def test_random_strengths_can_be_further_apart(capsys: pytest.CaptureFixture[str]) -> None:
    usual, wide = (instances("random6", 50, seed=1, spread=spread) for spread in (0.0, 1.2))
    assert np.allclose(np.log(wide / (1.0 - wide)), 2.0 * np.log(usual / (1.0 - usual)))
    options = ["--instances", "random3", "--runs", "40", "--cap", "300", "--claims", "good_enough"]
    means = []
    for spread in ("0.6", "1.8"):
        main([*options, "--spread", spread])
        means.append(json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][0]["mean"])
    assert means[1] < means[0]

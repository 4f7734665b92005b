"""The benchmark of expected strengths: they correlate as asked, and every row is there."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.warm_start import CORRELATION, main, related


@pytest.mark.parametrize("correlation", [0.74, 0.0, -0.74])
def test_expected_strengths_correlate_as_asked_and_have_the_same_spread(correlation: float) -> None:
    rng = np.random.default_rng(1)
    strengths = rng.standard_normal(8)
    expected = related(strengths, correlation, rng)
    assert np.corrcoef(strengths, expected)[0, 1] == pytest.approx(correlation)
    assert expected.std() == pytest.approx(strengths.std())


def test_it_runs_and_ends_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--instances", "2", "--runs", "2", "--policies", "3", "--cap", "60"])
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [row["prior"] for row in rows] == list(CORRELATION)
    assert rows[0]["change"] == 0.0

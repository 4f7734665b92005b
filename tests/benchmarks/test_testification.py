"""The peers of the benchmark: they name the best policy, refuse where none is,
and err as rarely as they say.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.testification import (
    NOBODY,
    instances,
    knock_out,
    main,
    noisy_tournament,
    select_then_verify,
)

PEERS = (noisy_tournament, select_then_verify)


@pytest.mark.parametrize("n_policies", [2, 5, 8])
def test_an_instance_has_a_best_policy_and_its_gap(n_policies: int) -> None:
    mu = instances(20, n_policies, 0.1, seed=1)
    assert np.allclose(mu + np.swapaxes(mu, 1, 2), 1.0)
    off_diagonal = ~np.eye(n_policies, dtype=bool)
    assert np.abs(mu[:, off_diagonal] - 0.5).min() >= 0.1
    assert np.all((mu > 0.5).sum(axis=2).max(axis=1) == n_policies - 1)


@pytest.mark.parametrize("n_policies", [2, 3, 6, 9])
def test_the_strongest_wins_a_tournament_and_has_met_enough(n_policies: int) -> None:
    for strongest in range(n_policies):
        matches: list[tuple[int, int]] = []

        def first_wins(i: int, j: int, strongest: int = strongest, met: list = matches) -> bool:
            met.append((i, j))
            return i == strongest or (j != strongest and i > j)

        winner, beaten = knock_out(n_policies, first_wins)
        assert winner == strongest
        assert beaten == {i + j - strongest for i, j in matches if strongest in (i, j)}
        assert len(matches) == n_policies - 1


@pytest.mark.parametrize("peer", PEERS)
def test_errors_are_as_rare_as_promised_at_the_smallest_gap(peer: object) -> None:
    mu = np.full((4, 4), 0.5)
    mu[np.triu_indices(4, 1)], mu[np.tril_indices(4, -1)] = 0.7, 0.3
    rng = np.random.default_rng(0)
    named = [peer(mu, 0.2, 0.2, rng).named for _ in range(200)]
    # A true rate of 20% would show more than 60 of 200 with a probability of .03%.
    assert sum(name != 0 for name in named) <= 60


@pytest.mark.parametrize("peer", PEERS)
def test_a_cycle_has_nobody_to_name(peer: object) -> None:
    mu = np.array([[0.5, 0.8, 0.2], [0.2, 0.5, 0.8], [0.8, 0.2, 0.5]])
    rng = np.random.default_rng(0)
    assert [peer(mu, 0.2, 0.05, rng).named for _ in range(20)].count(NOBODY) >= 18


def test_it_runs_and_ends_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--runs", "4", "--cells", "3:0.2", "--cap", "400"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["method"] for row in result["rows"]] == ["NTS", "SELECT-then-verify", "good_enough", "best"]
    assert result["rows"][0]["over_nts"] == 1.0
    assert all(0 <= row["wrong"] <= 4 for row in result["rows"])

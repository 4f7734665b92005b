"""Evidence that pools opponents: valid at every step for every pair, and a state that can be stored."""

from __future__ import annotations

import copy
import json
from itertools import combinations, product

import numpy as np
import pytest

from benchmarks.simulate import simulate
from engine.core import BradleyTerry, Design, Unstructured
from engine.core.pooled_evidence import StreamedEvidence

from .conftest import bradley_terry

PAIRS = list(combinations(range(3), 2))


def e_values(design: Design) -> np.ndarray:
    return np.exp(design.evidence)


def told(design: Design, i: int, j: int, outcome: float) -> Design:
    """A copy of the design that knows one outcome more."""
    design = copy.deepcopy(design)
    design.tell(i, j, outcome)
    return design


class TestValidity:
    @pytest.mark.parametrize("prior", [None, [1.0, 0.0, -1.0]])
    def test_no_outcome_of_any_pair_pays_on_average(self, prior: list[float] | None) -> None:
        """From every history of up to two outcomes, and some longer ones, whichever pair comes next.

        That is what makes an e-process for all samplers and stopping times. Against a policy that wins a pair
        with probability ½ or more, no law of the outcome is worse than a fair coin or a tie. With a margin,
        the evidence is no such process but lies below one (test_likelihood.py).
        """
        settings = {"claim": "best_if_any", "prior_strengths": prior}
        rng = np.random.default_rng(0)
        steps = [(i, j, outcome) for i, j in PAIRS for outcome in (0.0, 0.5, 1.0)]
        histories = [list(history) for n in range(3) for history in product(steps, repeat=n)]
        assert len(histories) == 91
        histories += [
            [steps[k] for k in rng.integers(len(steps), size=n)] for n in (4, 8, 20) for _ in range(8)
        ]
        for history in histories:
            so_far = Design.replay(Unstructured(3), history, **settings)
            before = e_values(so_far)
            for i, j in PAIRS:
                lost, tied, won = (e_values(told(so_far, i, j, outcome)) for outcome in (0.0, 0.5, 1.0))
                assert (won[i] + lost[i]) / 2 <= before[i] * (1 + 1e-9)
                assert (won[j] + lost[j]) / 2 <= before[j] * (1 + 1e-9)
                assert won[i] <= lost[i] * (1 + 1e-9)
                assert tied[i] <= before[i] * (1 + 1e-9)
                assert tied[j] <= before[j] * (1 + 1e-9)
                third = 3 - i - j
                assert won[third] == tied[third] == lost[third] == before[third]

    @pytest.mark.slow
    def test_the_best_is_ruled_out_less_often_than_delta(self) -> None:
        mu = np.full((4, 4), 0.5)
        mu[0, 1:], mu[1:, 0] = 0.505, 0.495
        for pending in (0, 10):
            runs = simulate(
                np.repeat(mu[None], 200, axis=0),
                claim="best_if_any",
                delta=0.2,
                budget=300,
                pending=pending,
                seed=4,
            )
            # A true error rate of δ would show more than 56 of 200 with a probability of .2%.
            assert np.sum(runs.refuted[:, 0]) <= 56


class TestState:
    @pytest.mark.parametrize("space", [Unstructured(4), Unstructured(70), BradleyTerry.one_hot(4)])
    def test_it_goes_on_from_counts_and_progress_bit_by_bit(self, space: object) -> None:
        mu = bradley_terry(np.linspace(0.8, -0.8, space.n_policies))
        rng = np.random.default_rng(3)
        settings = {"claim": "best_if_any", "prior_strengths": np.linspace(0.5, -0.5, space.n_policies)}
        live = Design(space, seed=2, **settings)
        for _ in range(40):
            i, j = live.ask()
            live.tell(i, j, float(rng.choice([0.5, rng.random() < mu[i, j]])))
        stored = Design.from_counts(
            space, live.wins, progress=json.loads(json.dumps(live.progress)), **settings
        )
        assert stored.evidence.tolist() == live.evidence.tolist()
        for _ in range(10):
            for design in (live, stored):
                design.tell(0, 1, 0.0)
                design.tell(2, 3, 1.0)
        assert stored.evidence == pytest.approx(live.evidence, abs=1e-9)
        assert stored.decision.best == live.decision.best

    def test_a_state_with_strengths_expected_beforehand_comes_back_bit_by_bit(self) -> None:
        rng = np.random.default_rng(0)
        for seed in range(10):
            K = int(rng.integers(2, 8))
            live = Design(
                Unstructured(K),
                claim="good_enough",
                epsilon=0.05,
                prior_strengths=rng.normal(0.3, 0.5, K),
                seed=seed,
            )
            stored = Design.from_state(Unstructured(K), json.loads(json.dumps(live.state())))
            assert stored.state() == live.state()
            for _ in range(40):
                pair, outcome = live.ask(), float(rng.integers(2))
                assert stored.ask() == pair
                for design in (live, stored):
                    design.tell(*pair, outcome)
                assert stored.progress == live.progress

    def test_undo_is_a_replay_of_the_others(self) -> None:
        rng = np.random.default_rng(5)
        told = [
            (int(i), int(j), float(rng.integers(2))) for i, j in (rng.choice(4, 2, False) for _ in range(40))
        ]
        whole = Design.replay(Unstructured(4), told)
        again = Design.replay(Unstructured(4), told[:10] + told[11:])
        assert Design.replay(Unstructured(4), told).progress == whole.progress
        assert again.progress != whole.progress
        again_once_more = Design.replay(Unstructured(4), told[:10])
        for judgment in told[11:]:
            again_once_more.tell(*judgment)
        assert again_once_more.progress == again.progress

    @pytest.mark.parametrize("broken", [{}, {"won": [0.0]}, {"theta": [0.0, np.nan, 0.0]}])
    def test_a_state_that_cannot_be_is_refused(self, broken: dict[str, object]) -> None:
        good = Design(Unstructured(3)).progress["streams"]
        streams = good | broken if broken else {"won": [0.0] * 3}
        with pytest.raises(ValueError, match="stored streams"):
            Design.from_counts(Unstructured(3), np.zeros((3, 3)), progress={"streams": streams})

    @pytest.mark.parametrize("prior", [[0.0, 1.0], [0.0, 1.0, np.inf]])
    def test_a_prior_that_does_not_fit_is_refused(self, prior: list[float]) -> None:
        with pytest.raises(ValueError, match="prior_strengths"):
            Design(Unstructured(3), prior_strengths=prior)


class TestPower:
    @pytest.mark.slow
    def test_many_policies_are_ruled_out_by_votes_that_others_chose(self) -> None:
        """Seven votes on each pair, 39% of them ties; head to head rules out nobody."""
        K, n = 30, 3000
        rng = np.random.default_rng(7)
        mu = bradley_terry(rng.normal(0.0, 0.7, K))
        design = Design(Unstructured(K), claim="best_if_any")
        ledger = design._ledger
        for _ in range(n):
            i, j = (int(policy) for policy in rng.choice(K, 2, replace=False))
            outcome = 0.5 if rng.random() < 0.39 else float(rng.random() < mu[i, j])
            ledger.record(np.array([i]), np.array([j]), np.array([outcome]))
        assert np.sum(ledger.rule.refuted[0]) >= 5
        assert not ledger.rule.refuted[0, np.argmax(mu.sum(axis=1))]
        assert not (ledger.evidence.per_policy >= np.log(20)).any()


@pytest.mark.parametrize(
    ("claim", "K", "n"),
    [("best", 4, 180), ("good_enough", 4, 180), ("good_enough", 8, 360), ("best_if_any", 4, 40)],
)
def test_the_leader_that_is_shown_decides_nothing(
    claim: str, K: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An experiment's evidence must not depend on how its leader is named."""
    mu = bradley_terry(np.linspace(0.4, -0.4, K))

    def run() -> tuple[list[tuple[int, int]], object, int | None]:
        design, rng = Design(Unstructured(K), claim=claim, epsilon=0.05, seed=1), np.random.default_rng(2)
        asked = []
        for _ in range(n):
            i, j = design.ask()
            asked.append((i, j))
            design.tell(i, j, float(rng.random() < mu[i, j]))
        return asked, design.progress, design.decision.best

    asked, progress, best = run()
    monkeypatch.setattr(StreamedEvidence, "favour", lambda self: -self.standing())
    asked_then, progress_then, best_then = run()
    assert asked_then == asked
    assert progress_then == progress
    assert best_then != best


def test_the_worst_surprise_leaves_a_state_that_can_be_stored() -> None:
    design = Design(Unstructured(3), prior_strengths=[60.0, 0.0, -60.0], seed=1)
    design.tell(2, 0, 1.0)
    state = json.loads(json.dumps(design.state(), allow_nan=False))
    assert Design.from_state(Unstructured(3), state).state() == design.state()

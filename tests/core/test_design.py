from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulate import simulate
from engine.core import BradleyTerry, Design, StopReason, Unstructured
from engine.core.spaces import Space

from .conftest import bradley_terry

CYCLE = np.array([[0.5, 0.8, 0.2], [0.2, 0.5, 0.8], [0.8, 0.2, 0.5]])
Run = Callable[..., Design]


@pytest.mark.parametrize("sampler", ["balanced", "round_robin"])
@pytest.mark.parametrize("n_policies", [2, 5])
def test_finds_the_condorcet_winner(run_to_the_end: Run, sampler: str, n_policies: int) -> None:
    strengths = np.linspace(2.0, -2.0, n_policies)
    order = np.random.default_rng(7).permutation(n_policies)
    design = Design(Unstructured(n_policies), sampler=sampler, seed=2)
    decision = run_to_the_end(design, bradley_terry(strengths[order]), seed=5).decision
    assert decision.reason is StopReason.CERTIFIED
    assert decision.best == int(np.argmin(order))
    assert decision.confidence >= 0.95
    assert decision.runner_up not in (None, decision.best)
    assert decision.n_comparisons == design.n_comparisons


def test_a_cycle_has_no_single_best(run_to_the_end: Run) -> None:
    runs = simulate(np.repeat(CYCLE[None], 40, axis=0), budget=2000, seed=1)
    assert np.sum(runs.stopped & (runs.best == -1)) >= 34
    decision = run_to_the_end(Design(Unstructured(3), seed=0), CYCLE, seed=0).decision
    assert decision.reason is StopReason.NO_SINGLE_BEST
    assert (decision.best, decision.runner_up) == (None, None)
    assert decision.confidence >= 0.95


@pytest.mark.parametrize("stopping", ["certified", "heuristic"])
@pytest.mark.parametrize("claim", ["best", "best_if_any", "good_enough"])
@pytest.mark.parametrize("space", [Unstructured(3), BradleyTerry(np.array([[0, 0], [1, 0], [0, 1.0]]))])
def test_it_says_that_it_has_stopped_as_soon_as_its_decision_does(
    space: Space, claim: str, stopping: str
) -> None:
    """In a steep cycle the finding that none is best, under "best", comes before the streams rule all out."""
    for cycle in (True, False):
        epsilon = 0.05 if claim == "good_enough" else 0.0
        design = Design(space, claim=claim, epsilon=epsilon, stopping=stopping, seed=1, budget=90)
        while not design.decision.stopped:
            assert not design.stopped
            i, j = design.ask()
            design.tell(i, j, float((j - i) % 3 == 1 if cycle else i < j))
        assert design.stopped
        if cycle and claim == "best" and stopping == "certified" and not isinstance(space, BradleyTerry):
            assert design.decision.reason is StopReason.NO_SINGLE_BEST
            assert np.sum(design.peak_evidence >= np.log(20)) < 2


def test_with_a_margin_an_exact_tie_is_often_found_out() -> None:
    tie = np.full((40, 2, 2), 0.5)
    runs = simulate(tie, claim="best_if_any", epsilon=0.1, budget=2000, seed=1)
    assert np.sum(runs.stopped & (runs.best == -1)) >= 14


def test_the_last_policy_standing_must_lead_to_be_named() -> None:
    wins = np.array([[0, 40, 0], [0, 0, 40], [0, 0, 0.0]])
    wins[2, 0], wins[0, 2] = 12, 4
    settings = {"claim": "best_if_any", "peak_evidence": [0.0, 9.0, 9.0]}
    unsettled = Design.from_counts(Unstructured(3), wins, **settings)
    assert not unsettled.decision.stopped
    assert unsettled.decision.best == 0
    assert set(unsettled.ask()) == {0, 2}
    wins[0, 2] = 16
    settled = Design.from_counts(Unstructured(3), wins, **settings)
    assert settled.decision.reason is StopReason.CERTIFIED


def test_ties_alone_never_refute_anybody() -> None:
    design = Design(Unstructured(2))
    for _ in range(500):
        design.tell(*design.ask(), 0.5)
    assert not design.decision.stopped
    assert design.evidence == pytest.approx(np.zeros(2), abs=1e-9)


def test_the_budget_ends_it_with_the_leader(run_to_the_end: Run) -> None:
    design = Design(Unstructured(4), budget=30)
    decision = run_to_the_end(design, bradley_terry(np.array([0.0, 0.3, 0.1, 0.2])), seed=3).decision
    assert decision.reason is StopReason.BUDGET
    assert decision.n_comparisons == 30
    assert decision.best in range(4)
    assert decision.confidence < 0.95


def test_before_the_first_comparison_nothing_is_claimed() -> None:
    decision = Design(Unstructured(3)).decision
    assert (decision.stopped, decision.best, decision.confidence) == (False, None, 0.0)
    assert np.isnan(Design(Unstructured(3)).win_rate).all()


@pytest.mark.parametrize("sampler", ["balanced", "round_robin"])
def test_in_flight_comparisons_are_spread_out_and_released(sampler: str) -> None:
    design = Design(Unstructured(4), sampler=sampler)
    asked = [design.ask() for _ in range(24)]
    assert design.in_flight.sum() == 48
    assert design.n_comparisons == 0
    if sampler == "round_robin":
        assert np.all(design.in_flight[np.triu_indices(4, 1)] == 4)
    for i, j in reversed(asked[1:]):
        design.tell(j, i, 1.0)
    design.cancel(*asked[0])
    assert design.in_flight.sum() == 0
    assert design.counts.sum() == 46
    with pytest.raises(ValueError, match="under way"):
        design.cancel(*asked[0])


def test_pending_comparisons_turn_the_sampler_to_other_policies() -> None:
    wins = np.array([[0, 30, 30.0], [12, 0, 0], [12, 0, 0]])
    picks = []
    for pending in (0, 60):
        in_flight = np.zeros((3, 3))
        in_flight[0, 1] = in_flight[1, 0] = pending
        designs = (
            Design.from_counts(Unstructured(3), wins, claim="best_if_any", in_flight=in_flight, seed=s)
            for s in range(20)
        )
        picks.append({design.ask()[0] for design in designs})
    assert picks == [{1, 2}, {2}]


def test_an_outcome_nobody_asked_for_counts_too() -> None:
    design = Design(Unstructured(3))
    design.tell(0, 2, 1.0)
    assert design.counts[0, 2] == design.counts[2, 0] == design.wins[0, 2] == 1.0
    assert design.in_flight.sum() == 0
    assert design.win_rate[2, 0] == 0.0


def test_the_same_seed_gives_the_same_run(run_to_the_end: Run) -> None:
    mu = bradley_terry(np.linspace(1, -1, 5))
    first, second = (run_to_the_end(Design(Unstructured(5), seed=11), mu, seed=3) for _ in range(2))
    assert np.array_equal(first.wins, second.wins)


@pytest.mark.parametrize("sampler", ["balanced", "round_robin"])
def test_each_pick_can_be_replayed_from_the_counts(sampler: str) -> None:
    rng = np.random.default_rng(0)
    wins, in_flight = np.zeros((2, 4, 4))
    live = Design(Unstructured(4), sampler=sampler)
    for planned in range(50):
        rebuilt, again = (
            Design.from_counts(Unstructured(4), wins, in_flight=in_flight, sampler=sampler, seed=[9, planned])
            for _ in range(2)
        )
        i, j = rebuilt.ask()
        assert (i, j) == again.ask()
        live.tell(i, j, float(rng.random() < 0.6))
        wins = live.wins


def test_a_refuted_policy_stays_refuted_when_the_peak_is_handed_back(run_to_the_end: Run) -> None:
    mu = bradley_terry(np.array([1.0, 0.0, -1.0]))
    design = run_to_the_end(Design(Unstructured(3), claim="best_if_any"), mu, seed=8)
    for _ in range(200):
        design.tell(2, 0, 1.0)
        design.tell(2, 1, 1.0)
    assert design.evidence[2] < design.decision.threshold < design.peak_evidence[2]
    stored = Design.from_counts(
        Unstructured(3),
        design.wins,
        claim="best_if_any",
        progress=design.progress,
    )
    # The claims beside it have memories of their own.
    now, handed_back = (replace(each.decision, claims=()) for each in (design, stored))
    assert handed_back == now
    # A name once given stays, whatever comes after it.
    assert (stored.decision.reason, stored.decision.best) == (StopReason.CERTIFIED, 0)


@pytest.mark.parametrize("pending", [0, 20])
def test_a_near_tie_is_decided_wrongly_less_often_than_delta(pending: int) -> None:
    mu = np.full((3, 3), 0.5)
    mu[0, 1:], mu[1:, 0] = 0.505, 0.495
    runs = simulate(
        np.repeat(mu[None], 100, axis=0), claim="best_if_any", delta=0.2, budget=300, pending=pending, seed=4
    )
    # A true error rate of δ would show at most 10 wrong answers with probability 0.6%.
    assert np.sum(runs.stopped & (runs.best != 0)) <= 10
    assert runs.stopped.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 0.6}, "delta"),
        ({"epsilon": 0.5}, "epsilon"),
        ({"epsilon": -0.1}, "epsilon"),
        ({"budget": 0}, "budget"),
        ({"budget": 2.5}, "budget must be a whole number"),
        ({"budget": float("inf")}, "budget must be a whole number"),
        ({"delta": "0.05"}, "delta must be a number"),
        ({"sampler": "magic"}, "sampler must be one of"),
        ({"stopping": "magic"}, "stopping must be one of"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Design(Unstructured(3), **options)


def test_one_policy_is_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        Unstructured(1)


@pytest.mark.parametrize(
    "told",
    [
        (0, 0, 1.0),
        (0, 3, 1.0),
        (-1, 1, 1.0),
        (0, 1, 1.5),
        (0, 1, float("nan")),
        (0.5, 1, 1),
        (0, 1.0, 1),
        (0, None, 1.0),
        (0, 1, "1"),
        (0, 1, 1j),
    ],
)
def test_an_impossible_outcome_is_refused_and_changes_nothing(told: tuple[int, int, float]) -> None:
    design = Design(Unstructured(3))
    design.ask()
    before = design.in_flight
    with pytest.raises(ValueError, match=r"compared with itself|numbered|outcome|whole number"):
        design.tell(*told)
    assert design.n_comparisons == 0
    assert np.array_equal(design.in_flight, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wins": np.zeros((2, 3))}, "square"),
        ({"wins": np.zeros((4, 4))}, "each of the 3 policies"),
        ({"wins": np.full((3, 3), 1.0)}, "diagonal"),
        ({"wins": -1.0 * (1 - np.eye(3))}, "not negative"),
        ({"wins": 0.3 * (1 - np.eye(3))}, "whole number"),
        ({"wins": np.zeros((3, 3)), "in_flight": np.triu(np.ones((3, 3)), 1)}, "symmetric"),
        ({"wins": np.zeros((3, 3)), "in_flight": np.zeros((2, 2))}, "in_flight must be square"),
        ({"wins": np.zeros((3, 3)), "peak_evidence": [0.0, 1.0]}, "peak_evidence"),
        ({"wins": np.zeros((3, 3)), "peak_evidence": [0.0, 1.0, np.inf]}, "peak_evidence must hold finite"),
        ({"wins": np.zeros((3, 3)), "peak_evidence": [0.0, 1.0, np.nan]}, "peak_evidence must hold finite"),
    ],
)
def test_counts_that_cannot_be_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Design.from_counts(Unstructured(3), **arguments)


@pytest.mark.parametrize("sampler", ["balanced", "round_robin", "thompson", "rucb"])
def test_of_pairs_that_cannot_be_compared_another_one_takes_the_place(sampler: str) -> None:
    among = np.zeros((4, 4), dtype=bool)
    for i, j in ((0, 1), (1, 2)):
        among[i, j] = among[j, i] = True
    design = Design(Unstructured(4), seed=3, sampler=sampler)
    asked = Counter(tuple(sorted(design.ask(among=among))) for _ in range(40))
    assert set(asked) == {(0, 1), (1, 2)}
    # The least compared one of them each time, where the sampler's own pick is neither.
    assert min(asked.values()) > 5
    assert int(design.in_flight.sum()) // 2 == 40
    with pytest.raises(ValueError, match="no two policies can be compared"):
        design.ask(among=np.zeros((4, 4), dtype=bool))
    assert len(design.ask(2, among=~np.eye(4, dtype=bool))) == 2


def test_a_policy_never_meets_itself_whatever_the_diagonal_says() -> None:
    among = np.ones((3, 3), dtype=bool)
    among[0, 1] = among[1, 0] = False
    for seed in range(9):
        for i, j in Design(Unstructured(3), seed=seed).ask(6, among=among):
            assert {i, j} in ({0, 2}, {1, 2})
    assert Design(Unstructured(2)).ask(among=[[False, True], [True, False]]) in {(0, 1), (1, 0)}
    for wrong in (np.eye(3, dtype=bool), np.zeros((3, 3), dtype=bool)):
        with pytest.raises(ValueError, match="no two policies can be compared"):
            Design(Unstructured(3)).ask(among=wrong)
    for wrong in (np.ones((2, 2)), np.triu(np.ones((3, 3))), [[True], [True, False], []]):
        with pytest.raises(ValueError, match=r"must be symmetric and of shape \(3, 3\)"):
            Design(Unstructured(3)).ask(among=wrong)


def test_nobody_is_shown_ahead_of_the_leader() -> None:
    """A newcomer won 8 of 13: it is likelier to be the best, while strengths expect the champion to win."""
    design = Design(Unstructured(4), claim="good_enough", epsilon=0.15, delta=0.1)
    for rival in (1, 2, 3):
        for _ in range(12):
            design.tell(0, rival, 1.0)
    design.add(1)
    for rival in (1, 2, 3):
        design.retire(rival)
    for outcome in [1.0] * 5 + [0.0] * 8:
        design.tell(0, 4, outcome)
    leader, rival = design.ranking()[:2]
    assert (leader.policy, rival.policy) == (design.decision.best, 0) == (4, 0)
    assert rival.leader.estimate == leader.leader.estimate == 0.5

import numpy as np
import pytest

from benchmarks.simulate import simulate
from engine.core import Claim, Design, Unstructured
from engine.core.allocation import pairwise_allocation
from engine.core.ledger import Ledger
from engine.core.samplers import SAMPLERS
from engine.core.types import Tally

from .conftest import bradley_terry

ALL_SAMPLERS = list(SAMPLERS)
MU = bradley_terry(np.array([1.8, 0.4, 0.1, -0.4]))


@pytest.mark.parametrize("sampler", ALL_SAMPLERS)
@pytest.mark.parametrize("stopping", ["certified", "heuristic"])
@pytest.mark.slow
def test_every_sampler_and_stop_finds_the_best(sampler: str, stopping: str) -> None:
    order = np.array([2, 0, 3, 1])
    runs = simulate(
        np.repeat(MU[None][:, order][:, :, order], 20, axis=0),
        sampler=sampler,
        stopping=stopping,
        claim="best_if_any",
        budget=2000,
    )
    # `tracking` leaves a policy alone that was unlucky, which takes some of its runs to the budget.
    assert np.mean(runs.stopped) >= 0.85
    assert np.mean(runs.best == 1) >= 0.95


@pytest.mark.parametrize("sampler", ALL_SAMPLERS)
def test_pairs_are_always_two_different_policies_even_with_two_or_many_in_flight(sampler: str) -> None:
    for n_policies in (2, 6):
        design = Design(Unstructured(n_policies), sampler=sampler, seed=1)
        for _ in range(40):
            i, j = design.ask()
            assert i != j
            assert 0 <= min(i, j) <= max(i, j) < n_policies


@pytest.mark.parametrize("sampler", ALL_SAMPLERS)
@pytest.mark.slow
def test_a_simulated_run_is_a_design_asked_and_told(sampler: str) -> None:
    """Simulations advance many runs through the same code; one of them is a live design."""
    rng = np.random.default_rng(3)
    design = Design(Unstructured(4), sampler=sampler, seed=3, budget=300)
    design._rng = rng
    while not design.stopped:
        i, j = design.ask()
        design.tell(i, j, float(rng.random() < MU[i, j]))
    runs = simulate(MU[None], sampler=sampler, seed=3, budget=300)
    assert runs.n_comparisons[0] == design.n_comparisons
    assert runs.best[0] == design.decision.best


@pytest.mark.parametrize("n_policies", [4, 70])
@pytest.mark.parametrize("claim", ["best", "best_if_any", "good_enough"])
def test_one_run_is_indexed_otherwise_and_ends_as_among_others(claim: str, n_policies: int) -> None:
    """One run is read and written by plain numbers, several by arrays: the same state, bit by bit."""
    rng = np.random.default_rng(8)
    told = [
        (
            *(int(policy) for policy in rng.choice(n_policies, 2, replace=False)),
            float(rng.choice([0, 0.5, 1])),
        )
        for _ in range(60)
    ]
    settings = {
        "delta": 0.1,
        "epsilon": 0.05,
        "stopping": "certified",
        "claim": Claim(claim),
    }
    alone, together = (
        Ledger(Unstructured(n_policies), Tally.empty(n_policies, n_runs), **settings) for n_runs in (1, 3)
    )
    for i, j, outcome in told:
        for ledger in (alone, together):
            n_runs = ledger.tally.n_runs
            pair = np.full(n_runs, i), np.full(n_runs, j)
            ledger.tally.begin(*pair)
            ledger.tally.release(*pair)
            ledger.record(*pair, np.full(n_runs, outcome))
    assert together.memory() == alone.memory()
    for run in range(3):
        assert together.rule.peak_evidence[run].tolist() == alone.rule.peak_evidence[0].tolist()
        assert together.streams.standing()[run].tolist() == alone.streams.standing()[0].tolist()


def test_uniform_samplers_are_uniform() -> None:
    for sampler, slack in (("round_robin", 1), ("random", 60)):
        design = Design(Unstructured(4), sampler=sampler, stopping="theory")
        for _ in range(600):
            design.tell(*design.ask(), 0.5)
        counts = design.counts[np.triu_indices(4, 1)]
        assert np.all(np.abs(counts - 100) <= slack)


@pytest.mark.slow
def test_tracking_reaches_its_allocation() -> None:
    """With win rates fixed at their expectation the sampled shares approach the optimal ones."""
    design = Design(Unstructured(4), sampler="tracking", stopping="theory")
    for _ in range(1500):
        i, j = design.ask()
        design.tell(i, j, MU[i, j])
    shares = design.counts / 1500
    assert shares == pytest.approx(pairwise_allocation(MU), abs=0.03)


def test_balanced_refutes_all_at_the_same_speed() -> None:
    design = Design(Unstructured(4), claim="best_if_any", delta=1e-60)
    for _ in range(800):
        i, j = design.ask()
        design.tell(i, j, MU[i, j])
    others = design.evidence[1:]
    assert others.min() > 0.9 * others.max()
    assert others.min() > 10


def test_a_proof_that_is_nearly_done_for_long_gives_way() -> None:
    """Policy 1 is hardly within the margin of 0, and has been for 2,000 comparisons. Policy 0 beats it, and
    was unlucky against 2.
    """
    wins = np.array([[0, 1025, 8], [975, 0, 45], [12, 15, 0]])
    design = Design.from_counts(Unstructured(3), wins, claim="good_enough", epsilon=0.05)
    assert sorted(design.ask()) == [0, 2]


def test_strengths_expected_beforehand_choose_the_first_proof() -> None:
    settings = {"claim": "good_enough", "epsilon": 0.05}
    expected = np.array([0.0, 2.0, 0.0, -2.0])
    pairs = [
        Design(Unstructured(4), prior_strengths=expected, seed=seed, **settings).ask() for seed in range(8)
    ]
    assert all(1 in pair and 3 not in pair for pair in pairs)
    assert any(1 not in Design(Unstructured(4), seed=seed, **settings).ask() for seed in range(8))


@pytest.mark.slow
def test_that_none_is_the_best_is_found_under_a_claim_that_names_one() -> None:
    """The three best beat each other in a ring by 80%; the others are level."""
    mu = np.full((6, 6), 0.5)
    mu[:3, 3:], mu[3:, :3] = 0.75, 0.25
    for k in range(3):
        mu[k, (k + 1) % 3], mu[(k + 1) % 3, k] = 0.8, 0.2
    order = [3, 0, 4, 1, 5, 2]
    runs = simulate(np.repeat(mu[np.ix_(order, order)][None], 20, axis=0), claim="best", budget=1500, seed=3)
    assert runs.stopped.all()
    assert (runs.best == -1).all()


def test_unknown_sampler_is_refused() -> None:
    with pytest.raises(ValueError, match="sampler must be one of"):
        Design(Unstructured(2), sampler="best")


def test_simulated_comparisons_tie_as_often_as_asked_and_keep_their_win_rates() -> None:
    even = np.full((40, 2, 2), 0.5)
    never, always = (
        simulate(even, claim="best", delta=0.4, budget=400, ties=ties, seed=1) for ties in (0.0, 1.0)
    )
    assert never.stopped.any()
    assert not always.stopped.any()
    # A pair that is certain has no room for ties.
    certain = np.tile(np.array([[0.5, 1.0], [0.0, 0.5]]), (5, 1, 1))
    assert np.all(simulate(certain, claim="best", budget=400, ties=1.0, seed=1).best == 0)

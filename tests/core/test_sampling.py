import numpy as np
import pytest

from engine.core import Design, Unstructured
from engine.core.allocation import pairwise_allocation
from engine.core.samplers import SAMPLERS
from engine.core.simulate import simulate

from .conftest import bradley_terry

ALL_SAMPLERS = list(SAMPLERS)
MU = bradley_terry(np.array([1.8, 0.4, 0.1, -0.4]))


@pytest.mark.parametrize("sampler", ALL_SAMPLERS)
@pytest.mark.parametrize("stopping", ["certified", "heuristic"])
@pytest.mark.slow
def test_every_sampler_and_stop_finds_the_best(sampler: str, stopping: str) -> None:
    order = np.array([2, 0, 3, 1])
    runs = simulate(
        np.repeat(MU[None][:, order][:, :, order], 40, axis=0),
        sampler=sampler,
        stopping=stopping,
        claim="best_if_any",
        budget=2000,
    )
    assert np.mean(runs.stopped) >= 0.9
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
    design = Design(Unstructured(4), sampler=sampler, seed=3)
    design._rng = rng
    while not design.decision.stopped and design.n_comparisons < 3000:
        i, j = design.ask()
        design.tell(i, j, float(rng.random() < MU[i, j]))
    runs = simulate(MU[None], sampler=sampler, seed=3, budget=3000)
    assert runs.n_comparisons[0] == design.n_comparisons
    assert runs.best[0] == design.decision.best


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
    for _ in range(4000):
        i, j = design.ask()
        design.tell(i, j, MU[i, j])
    shares = design.counts / 4000
    assert shares == pytest.approx(pairwise_allocation(MU), abs=0.02)


def test_balanced_refutes_all_at_the_same_speed() -> None:
    design = Design(Unstructured(4), claim="best_if_any", streams=False, delta=1e-60)
    for _ in range(1500):
        i, j = design.ask()
        design.tell(i, j, MU[i, j])
    others = design.evidence[1:]
    assert others.max() - others.min() < 1.5
    assert others.min() > 10


def test_unknown_sampler_is_refused() -> None:
    with pytest.raises(ValueError, match="sampler must be one of"):
        Design(Unstructured(2), sampler="best")

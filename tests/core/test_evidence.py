import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import Design, Unstructured
from engine.core.evidence import PairwiseEvidence
from engine.core.types import Tally, check_tally

from .conftest import every_path

policies = st.integers(0, 3)
told_outcomes = st.tuples(policies, policies, st.sampled_from([0.0, 0.5, 1.0])).filter(lambda o: o[0] != o[1])
Told = list[tuple[int, int, float]]
outcomes = st.lists(told_outcomes, max_size=60)


def replay(n_policies: int, told: Told, **settings: object) -> Design:
    design = Design(Unstructured(n_policies), claim="best_if_any", **settings)
    for i, j, outcome in told:
        design.tell(i, j, outcome)
    return design


def of_pairs(design: Design) -> np.ndarray:
    """The evidence of head-to-head counts alone."""
    return design._ledger.evidence.per_policy[0]


@given(outcomes, st.sampled_from([0.0, 0.1]))
def test_updates_equal_a_fresh_start_bit_by_bit(told: Told, epsilon: float) -> None:
    told_one_by_one = replay(4, told, epsilon=epsilon)
    rebuilt = Design.from_counts(
        Unstructured(4),
        told_one_by_one.wins,
        progress=told_one_by_one.progress,
        claim="best_if_any",
        epsilon=epsilon,
    )
    assert rebuilt.evidence.tolist() == told_one_by_one.evidence.tolist()
    assert rebuilt.n_comparisons == len(told)


@given(outcomes, st.lists(st.booleans(), min_size=60, max_size=60))
def test_evidence_that_is_read_rarely_is_the_same(told: Told, looks: list[bool]) -> None:
    tally = Tally.empty(4)
    rarely, always = PairwiseEvidence(tally), PairwiseEvidence(tally)
    for (i, j, outcome), look in zip(told, looks, strict=False):
        pair = np.array([i]), np.array([j])
        tally.record(*pair, np.array([outcome]))
        for evidence in (rarely, always):
            evidence.update(*pair)
        expected = always.per_policy.tolist()
        if look:
            assert rarely.per_policy.tolist() == expected
    assert rarely.per_policy.tolist() == always.per_policy.tolist()


@given(outcomes, st.randoms())
def test_order_and_sides_do_not_matter(told: Told, random: object) -> None:
    shuffled = [(j, i, 1 - d) if random.random() < 0.5 else (i, j, d) for i, j, d in told]
    random.shuffle(shuffled)
    assert of_pairs(replay(4, shuffled)).tolist() == of_pairs(replay(4, told)).tolist()


@given(outcomes, st.permutations(range(4)))
def test_relabelling_policies_relabels_the_evidence(told: Told, names: list[int]) -> None:
    renamed = replay(4, [(names[i], names[j], d) for i, j, d in told])
    assert of_pairs(renamed)[names] == pytest.approx(of_pairs(replay(4, told)), rel=1e-12, abs=1e-12)


@given(outcomes, st.integers(0, 3), st.integers(0, 3))
def test_losing_raises_the_evidence_and_leaves_the_others_alone(told: Told, loser: int, winner: int) -> None:
    if loser == winner:
        return
    design = replay(4, told)
    before = of_pairs(design).copy()
    design.tell(loser, winner, 0.0)
    after = of_pairs(design)
    assert after[loser] >= before[loser]
    assert after[winner] <= before[winner]
    others = [k for k in range(4) if k not in (loser, winner)]
    assert after[others].tolist() == before[others].tolist()


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(["balanced", "round_robin"]),
    st.integers(0, 2),
    st.lists(st.floats(0.5, 1.0), min_size=2, max_size=2),
    st.sampled_from([0.0, 0.1]),
)
@pytest.mark.slow
def test_evidence_against_the_best_is_a_supermartingale(
    sampler: str, best: int, lead: list[float], epsilon: float
) -> None:
    """Every path of six comparisons, weighted by its probability: the mean e-value stays at most 1."""
    mu = np.full((3, 3), 0.5)
    for other, edge in zip([k for k in range(3) if k != best], lead, strict=True):
        mu[best, other] = max(edge, 0.5 + epsilon)
        mu[other, best] = 1 - mu[best, other]
    mean_e_value = np.zeros(6)
    start = Design(Unstructured(3), claim="best_if_any", sampler=sampler, epsilon=epsilon, seed=3)
    for t, probability, design in every_path(start, mu, mean_e_value.size):
        mean_e_value[t] += probability * np.exp(design.evidence[best])
    assert np.all(mean_e_value <= 1 + 1e-9)


def test_evidence_is_the_log_of_the_mean_e_value() -> None:
    wins = np.array([[0, 3, 1.0], [9, 0, 4], [2, 4, 0]])
    evidence = PairwiseEvidence(check_tally(wins, None, 3))
    off_diagonal = ~np.eye(3, dtype=bool)
    means = [np.exp(evidence.log_e[0, k][off_diagonal[k]]).mean() for k in range(3)]
    assert np.exp(evidence.per_policy[0]) == pytest.approx(means)


def test_evidence_stays_finite_for_a_policy_that_always_wins() -> None:
    wins = np.zeros((3, 3))
    wins[0, 1:] = 1e6
    wins[1, 2] = 1e6
    design = Design.from_counts(Unstructured(3), wins)
    assert np.all(np.isfinite(design.evidence))
    assert design.decision.best == 0

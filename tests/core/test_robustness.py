"""The influence of single judgments and judges, and contradictions between data and assumptions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import BradleyTerry, Claim, Design, Factorial, Unstructured
from engine.core.contradictions import misfit, strongest_cycle, summed_ties
from engine.core.evidence import PairwiseEvidence
from engine.core.robustness import fewest_flips, replay, summed_wins
from engine.core.types import Tally
from tests.core.conftest import bradley_terry


def evidence(wins: np.ndarray, epsilon: float = 0.0) -> np.ndarray:
    return PairwiseEvidence(Tally(wins[None]), epsilon, narrow=True).per_policy[0]


def fewest_by_trying_all(wins: np.ndarray, epsilon: float = 0.0) -> int | None:
    """Every way to turn some wins of each pair into losses and the other way round."""
    leader = int(np.argmin(evidence(wins, epsilon)))
    pairs = list(itertools.combinations(range(wins.shape[0]), 2))
    choices = [range(-int(wins[i, j]), int(wins[j, i]) + 1) for i, j in pairs]
    best = None
    for turned in itertools.product(*choices):
        n = sum(map(abs, turned))
        if best is not None and n >= best:
            continue
        after = wins.copy()
        for (i, j), change in zip(pairs, turned, strict=True):
            after[i, j] += change
            after[j, i] -= change
        values = evidence(after, epsilon)
        if np.delete(values, leader).min() <= values[leader] + 1e-9:
            best = n
    return best


class TestFlips:
    @settings(max_examples=40)
    @given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 4]), st.sampled_from([0.0, 0.1]))
    def test_as_few_as_by_trying_all(self, seed: int, n_policies: int, epsilon: float) -> None:
        rng = np.random.default_rng(seed)
        wins = rng.integers(0, 4 if n_policies < 4 else 2, (n_policies, n_policies)).astype(float)
        np.fill_diagonal(wins, 0.0)
        if not wins.any():
            assert fewest_flips(wins, epsilon=epsilon) is None
            return
        found = fewest_flips(wins, epsilon=epsilon)
        expected = fewest_by_trying_all(wins, epsilon)
        assert (None if found is None else found.n_flips) == expected

    def test_more_evidence_takes_more(self) -> None:
        def flips(n: int) -> int:
            found = fewest_flips(np.array([[0.0, 0.7 * n], [0.3 * n, 0.0]]))
            assert found is not None
            assert (found.leader, found.rival) == (0, 1)
            return found.n_flips

        # With two policies the loser of the head-to-head must draw level.
        assert [flips(10), flips(100), flips(1000)] == [2, 20, 200]

    def test_it_gives_up_where_told_to(self) -> None:
        assert fewest_flips(np.array([[0.0, 700.0], [300.0, 0.0]]), most=100) is None

    def test_half_wins_of_ties_are_not_turned(self) -> None:
        found = fewest_flips(np.array([[0.0, 2.5], [0.5, 0.0]]))
        assert found is not None
        assert found.n_flips == 1


def outcomes(mu: np.ndarray, n: int, seed: int) -> list[tuple[int, int, float]]:
    rng = np.random.default_rng(seed)
    pairs = [rng.choice(mu.shape[0], 2, replace=False) for _ in range(n)]
    return [(int(i), int(j), float(rng.choice([0.5, rng.random() < mu[i, j]]))) for i, j in pairs]


@pytest.mark.parametrize("stopping", ["certified", "heuristic"])
@pytest.mark.parametrize(
    "space",
    [Unstructured(4), Factorial({"a": ["0", "1"], "b": ["0", "1"]})],
    ids=["unstructured", "factorial"],
)
def test_replays_side_by_side_are_those_one_by_one(space, stopping) -> None:
    mu = bradley_terry(np.array([0.0, 0.4, 0.8, 1.2]))
    sequences = [outcomes(mu, n, seed) for seed, n in enumerate((40, 0, 25, 60))]
    rules = {"delta": 0.05, "epsilon": 0.02, "stopping": stopping}
    half_way = replay(space, sequences, go_on=lambda step: step < 30, **rules)
    assert half_way.step == 30
    together = replay(space, sequences, start=half_way, **rules)
    for run, sequence in enumerate(sequences):
        alone = Design(space, claim="best_if_any", **rules)
        while not alone.stopped and alone.n_comparisons < len(sequence):
            alone.tell(*sequence[alone.n_comparisons])
        assert together.told[run] == alone.n_comparisons
        # The evidence in a Bradley-Terry space is the end of an iteration that runs side by side.
        np.testing.assert_allclose(together.peak_evidence[run], alone.peak_evidence, rtol=1e-5, atol=1e-6)
        if isinstance(space, Unstructured):
            assert together.peak_evidence[run].tolist() == alone.peak_evidence.tolist()
            streamed = None if together.streams is None else together.streams[run]
            # Side by side, no claim is watched but the one that the experiment is to stop on.
            known = alone.progress["streams"] or {}
            assert (streamed or {}) == {name: known[name] for name in known if name != "stakes"}


@pytest.mark.parametrize("claim", list(Claim))
@pytest.mark.parametrize("length", [30, 35, 200], ids=["undecided", "just decided", "much later"])
def test_a_replay_stops_where_a_live_run_does(claim, length) -> None:
    """It went on, so that 390 outcomes after the decision could turn a name into "no single best"."""
    told = [(0, 1, 1.0), (0, 2, 1.0), (1, 2, 1.0)] * 40 + [(0, 1, 0.0), (2, 0, 1.0)] * 150
    rules = {"delta": 0.05, "claim": claim, "epsilon": 0.05 if claim is Claim.GOOD_ENOUGH else 0.0}
    live = Design(Unstructured(3), **rules)
    while not live.stopped:
        live.tell(*told[live.n_comparisons])
    decided = live.n_comparisons
    assert decided < 120
    sequences = [told, told[: decided - 5], told[:decided], told[: decided + 1], told[::-1]]
    together = replay(Unstructured(3), sequences, go_on=lambda step: step < length, **rules)
    together = replay(Unstructured(3), sequences, start=together, **rules)
    assert together.told[:4].tolist() == [decided, decided - 5, decided, decided]
    assert together.step == len(told)
    for run in (0, 2, 3):
        assert together.peak_evidence[run].tolist() == live.peak_evidence.tolist()
        assert together.named is None or together.named[run] == 0


def simulated_outcomes(mu: np.ndarray, n: int, tie_rate: float, seed: int) -> list[tuple[int, int, float]]:
    """n decided outcomes of every pair with win rates mu, and the ties that come with them."""
    rng = np.random.default_rng(seed)
    told = []
    for i, j in itertools.combinations(range(mu.shape[0]), 2):
        told += [(i, j, float(won)) for won in rng.random(n) < mu[i, j]]
        told += [(i, j, 0.5)] * round(n * tie_rate / (1 - tie_rate))
    return told


class TestMisfit:
    def test_data_from_the_model_are_rarely_called_a_misfit(self) -> None:
        space = BradleyTerry(np.array([[0.0, 0], [0, 1], [1, 0], [1, 1], [2, 1]]))
        mu = bradley_terry(space.features @ np.array([0.5, -0.3]))
        rng = np.random.default_rng(0)
        p_values = []
        for seed in range(60):
            wins = np.zeros((5, 5))
            for i, j in itertools.combinations(range(5), 2):
                wins[i, j] = rng.binomial(20, mu[i, j])
                wins[j, i] = 20 - wins[i, j]
            test = misfit(space, wins, np.zeros((5, 5)), n_simulated=99, seed=seed)
            assert test is not None
            assert test.freedom == 8
            p_values.append(test.p_value)
        assert np.mean(np.array(p_values) <= 0.2) < 0.4
        assert 0.3 < np.mean(p_values) < 0.7

    def test_a_cycle_is_a_misfit(self) -> None:
        wins = np.array([[0.0, 30, 10], [10, 0, 30], [30, 10, 0]])
        test = misfit(BradleyTerry.one_hot(3), wins, np.zeros((3, 3)))
        assert test is not None
        assert test.p_value == pytest.approx(1 / 200)
        assert test.contradicted

    def test_as_many_parameters_as_pairs_leave_nothing_to_test(self) -> None:
        assert misfit(BradleyTerry.one_hot(2), np.array([[0.0, 3], [1, 0]]), np.zeros((2, 2))) is None
        assert misfit(BradleyTerry.one_hot(3), np.zeros((3, 3)), np.zeros((3, 3))) is None

    @pytest.mark.parametrize("tie_rate", [0.0, 0.4])
    def test_a_planted_cycle_is_found_with_and_without_ties(self, tie_rate: float) -> None:
        """Simulated data knew no ties, so that real ones hid the cycle."""
        # Its own four parameters cannot follow a cycle of the first three; ties leave the decided outcomes as
        # they are.
        mu = bradley_terry(np.array([0.6, 0.6, 0.6, 0.0]))
        for i, j in ((0, 1), (1, 2), (2, 0)):
            mu[i, j], mu[j, i] = 0.68, 0.32
        found = 0
        for seed in range(20):
            told = simulated_outcomes(mu, 70, tie_rate, seed)
            test = misfit(BradleyTerry.one_hot(4), summed_wins(4, told), summed_ties(4, told), seed=seed)
            assert test is not None
            found += test.contradicted
        assert found >= 15

    def test_ties_make_no_misfit_where_the_model_holds(self) -> None:
        mu = bradley_terry(np.array([0.5, 0.2, 0.0, -0.4]))
        p_values = []
        for seed in range(40):
            told = simulated_outcomes(mu, 50, 0.4, seed)
            test = misfit(BradleyTerry.one_hot(4), summed_wins(4, told), summed_ties(4, told), seed=seed)
            assert test is not None
            p_values.append(test.p_value)
        assert 0.3 < np.mean(p_values) < 0.7
        assert np.mean(np.array(p_values) <= 0.05) <= 0.15

    def test_it_says_where_it_could_not_have_found_anything(self) -> None:
        """“The data do not contradict it” was said of tests without any power."""
        few = np.full((4, 4), 4.0) - 4.0 * np.eye(4)
        for scale, has_power in ((1.0, False), (100.0, True)):
            test = misfit(BradleyTerry.one_hot(4), scale * few, np.zeros((4, 4)))
            assert test is not None
            assert not test.contradicted
            assert test.has_power is has_power

    @pytest.mark.parametrize(
        "ties", [np.zeros((2, 2)), np.triu(np.ones((3, 3))), -np.ones((3, 3)), 5 * np.ones((3, 3))]
    )
    def test_ties_that_the_wins_do_not_allow_are_refused(self, ties: np.ndarray) -> None:
        wins = np.array([[0.0, 2, 2], [2, 0, 2], [2, 2, 0]])
        with pytest.raises(ValueError, match="ties must"):
            misfit(BradleyTerry.one_hot(3), wins, ties)
        with pytest.raises(ValueError, match="ties must"):
            strongest_cycle(wins, ties, np.arange(3))


PAIRS = list(itertools.combinations(range(3), 2))


@given(st.lists(st.tuples(st.sampled_from(PAIRS), st.integers(0, 8)), min_size=1, max_size=12))
@settings(max_examples=60)
def test_outcomes_between_a_tie_and_a_win_have_ties_that_fit_them(eighths) -> None:
    """As the mean of several people's judgments is one."""
    told = [(i, j, outcome / 8) for (i, j), outcome in eighths]
    wins, ties = summed_wins(3, told), summed_ties(3, told)
    strongest_cycle(wins, ties, np.arange(3))
    misfit(BradleyTerry.one_hot(3), wins, ties, n_simulated=9, n_departures=9)
    whole = [(i, j, outcome) for i, j, outcome in told if outcome in {0.0, 0.5, 1.0}]
    n_ties = sum(outcome == 0.5 for *_, outcome in whole)
    assert summed_ties(3, whole).sum() == 2 * n_ties


class TestCycle:
    def test_the_strongest_of_those_looked_at(self) -> None:
        wins = np.zeros((5, 5))
        for i, j, rate in ((1, 3, 0.8), (3, 4, 0.75), (4, 1, 0.7), (1, 2, 0.9), (0, 1, 0.9)):
            wins[i, j], wins[j, i] = 40 * rate, 40 * (1 - rate)
        none = np.zeros((5, 5))
        cycle = strongest_cycle(wins, none, np.arange(5))
        assert cycle is not None
        at = cycle.policies.index(1)
        assert cycle.policies[at:] + cycle.policies[:at] == (1, 3, 4)
        assert strongest_cycle(wins, none, np.array([0, 1, 2, 3])) is None
        assert strongest_cycle(wins, none, np.array([], dtype=np.int64)) is None

    def test_chance_is_no_cycle(self) -> None:
        wins = np.array([[0.0, 6, 4], [4, 0, 6], [6, 4, 0]])
        none = np.zeros((3, 3))
        assert strongest_cycle(wins, none, np.arange(3)) is None
        assert strongest_cycle(10 * wins, none, np.arange(3)) is not None

    def test_ties_do_not_hide_a_cycle(self) -> None:
        """20 wins to 5 are as good a sign with 30 ties beside them."""
        decided = np.array([[0.0, 20, 5], [5, 0, 20], [20, 5, 0]])
        ties = 30.0 * (1 - np.eye(3))
        plain = strongest_cycle(decided, np.zeros((3, 3)), np.arange(3))
        among_ties = strongest_cycle(decided + ties / 2, ties, np.arange(3))
        assert plain is not None
        assert among_ties == plain

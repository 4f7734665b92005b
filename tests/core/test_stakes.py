"""Capital that moves: false names stay as rare, whenever it moves and to whichever two policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product

import numpy as np
import pytest
from scipy import integrate, special

from benchmarks.simulate import simulate
from engine.core import BradleyTerry, Claim, Design, Unstructured, capital
from engine.core.bernoulli import exact_log_e_value, log_e_value
from engine.core.capital import Stakes
from engine.core.claims import HeadToHead
from engine.core.evidence import CONCENTRATION, PairwiseEvidence
from engine.core.pooled_evidence import StreamedEvidence
from engine.core.robustness import replay
from engine.core.types import Tally

from .conftest import bradley_terry, every_path
from .test_claims import (
    FLAT,
    PAIRS,
    all_counts,
    false_names,
    largest_means,
    laws_of_mean,
    preferences,
    ties_of,
    wins_of,
    without_ties,
)

# So large that a few comparisons can establish a claim.
DELTA = 0.9
MARGIN = 0.1
TWO = np.array(PAIRS)
# With a margin, a cycle, in which every name is false; two names that are; one. Without, all that are level.
ON_THE_EDGE = [(MARGIN, rates) for rates in ((0.6, 0.6, 0.6), (0.6, 0.5, 0.4), (0.6, 0.5, 0.5))]
ON_THE_EDGE.append((0.0, (0.5, 0.5, 0.5)))
Payoff = Callable[[HeadToHead], np.ndarray]
N_OUTCOMES = {False: 6, True: 9}


@cache
def histories(n_outcomes: int, n_moves: int, horizon: int) -> np.ndarray:
    """Shape (n, m): the counts now, those at each move, the latest first, and to which pairs each was."""
    counts: list[tuple[int, ...]] = [()]
    totals = [0]
    for _ in range(n_moves + 1):
        more = [
            (tuple(map(sum, zip(then[:n_outcomes], add, strict=True))) if then else add, then, total)
            for then, total in zip(counts, totals, strict=True)
            for add in all_counts(n_outcomes, horizon - total)
        ]
        counts = [now + then for now, then, _ in more]
        totals = [sum(now) for now, _, _ in more]
    to = np.array(list(product(range(3), repeat=n_moves)), dtype=np.int64).reshape(3**n_moves, n_moves)
    return np.column_stack([np.repeat(counts, len(to), axis=0), np.tile(to, (len(counts), 1))])


def tally_of(counts: np.ndarray, *, told_apart: bool) -> Tally:
    """The data of three policies, from the counts of their outcomes."""
    if not told_apart:
        return Tally(wins_of(counts))
    tally = Tally(wins_of(counts[:, [0, 1, 3, 4, 6, 7]]) + 0.5 * ties_of(counts))
    tally.proof_ties = ties_of(counts)
    return tally


def after_moves(states: np.ndarray, n_moves: int, margin: float, *, told_apart: bool) -> HeadToHead:
    """The proofs of three policies, after capital has moved in each history."""
    n, start = N_OUTCOMES[told_apart], np.full(3, -np.log(3.0))
    held = Stakes(tally_of(states[:, :n], told_apart=told_apart), start, margin)
    everywhere = np.arange(len(states))
    for move in range(n_moves, -1, -1):
        tally = tally_of(states[:, n * move : n * (move + 1)], told_apart=told_apart)
        proof = HeadToHead(PairwiseEvidence(tally, margin, FLAT), DELTA, stakes=held)
        if move > 0:
            proof.move(everywhere, TWO[states[:, n * (n_moves + 1) + move - 1]])
    return proof


def beaten_by(mu: np.ndarray, margin: float) -> list[dict[int, int]]:
    """For each false name a policy that beats it, in every way to choose them."""
    false = np.flatnonzero(false_names(mu, margin))
    rivals = [[k for k in range(3) if k != b and mu[k, b] >= 0.5 + margin] for b in false]
    return [dict(zip(false.tolist(), chosen, strict=True)) for chosen in product(*rivals)]


def false_capital(proof: HeadToHead, by: dict[int, int]) -> np.ndarray:
    """Shape (R,): what the proofs of false names have, at the e-value itself, and accounts of the rest."""
    held, evidence = proof.stakes, proof.evidence
    runs = np.arange(held.account.shape[0])
    total = np.zeros(runs.size)
    for b in range(held.account.shape[1]):
        if b in by:
            k = np.full(runs.size, by[b])
            total += np.exp(held.log_share[runs, k, b] + evidence.most(runs, k, np.full(runs.size, b)))
        else:
            total += held.account[:, b]
    return total


def named(proof: HeadToHead, false: np.ndarray) -> np.ndarray:
    """Shape (R,): 1 where a false name is proved."""
    return (proof.proved() @ false).astype(np.float64)


def best_means(
    games: Sequence[tuple[np.ndarray, Payoff]], margin: float, *, told_apart: bool, sizes: tuple[int, int]
) -> list[float]:
    """For each game the largest mean of what is paid when somebody stops, who chooses pairs, laws, moments
    and policies.

    ``games``: the probabilities, and what is paid. The proofs take long to compute, and are the same for all.
    ``sizes``: the largest number of moves, and of comparisons.
    """
    n_moves, horizon = sizes
    n = N_OUTCOMES[told_apart]
    laws = [[laws_of_mean(mu[i, j]) for i, j in PAIRS] if told_apart else without_ties(mu) for mu, _ in games]
    besides: list[np.ndarray | float] = [0.0] * len(games)
    for moved in range(n_moves, -1, -1):
        states = histories(n, moved, horizon)
        proof = after_moves(states, moved, margin, told_apart=told_apart)
        means = [
            largest_means(law, states, payoff(proof), more)
            for law, (_, payoff), more in zip(laws, games, besides, strict=True)
        ]
        if moved > 0:
            # Before the move, the latest pair may be chosen as well.
            just_moved = (states[:, :n] == states[:, n : 2 * n]).all(axis=1)
            before = np.delete(states[just_moved], [*range(n), n * (moved + 1)], axis=1)
            _, place = np.unique(before, axis=0, return_inverse=True)
            earlier = histories(n, moved - 1, horizon)
            place = np.lexsort(earlier.T[::-1])[place.ravel()]
            for game, mean in enumerate(means):
                more = np.zeros(len(earlier))
                np.maximum.at(more, place, mean[just_moved])
                besides[game] = more
    return [float(mean[0]) for mean in means]


def best_mean(
    mu: np.ndarray, payoff: Payoff, margin: float, *, told_apart: bool, sizes: tuple[int, int]
) -> float:
    """`best_means` of one game."""
    [mean] = best_means([(mu, payoff)], margin, told_apart=told_apart, sizes=sizes)
    return mean


# The largest numbers of moves and of comparisons.
SIZES = {False: (2, 5), True: (1, 5)}


@pytest.mark.slow
class TestFalseNames:
    """Exactly, over all samplers, stopping times, laws of outcomes, moments and policies to move to."""

    @pytest.mark.parametrize("told_apart", [False, True])
    @pytest.mark.parametrize("margin", [0.0, MARGIN])
    def test_their_capital_never_pays_and_they_are_as_rare_as_promised(
        self, margin: float, told_apart: bool
    ) -> None:
        capital, chance = [], []
        for mu in (preferences(*rates) for of, rates in ON_THE_EDGE if of == margin):
            capital += [(mu, partial(false_capital, by=by)) for by in beaten_by(mu, margin)]
            chance.append((mu, partial(named, false=false_names(mu, margin))))
        means = best_means(capital + chance, margin, told_apart=told_apart, sizes=SIZES[told_apart])
        assert means[: len(capital)] == pytest.approx([1.0] * len(capital), abs=1e-12)
        assert max(means[len(capital) :]) <= DELTA

    def test_the_search_finds_what_the_shares_of_a_margin_do_without_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two policies that are level are both false against each other."""
        monkeypatch.setattr(capital, "_SHARES", capital._SHARES_WITH_MARGIN)
        mu = preferences(0.5, 0.5, 0.5)
        worth = partial(false_capital, by={0: 1, 1: 0, 2: 0})
        assert best_mean(mu, worth, 0.0, told_apart=False, sizes=(1, 4)) > 1.05

    def test_and_what_a_price_below_the_e_value_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mu = preferences(0.6, 0.6, 0.6)
        most = PairwiseEvidence.most

        def paid(proof: HeadToHead) -> np.ndarray:
            with monkeypatch.context() as patched:
                patched.setattr(PairwiseEvidence, "most", most)
                return false_capital(proof, {0: 2, 1: 0, 2: 1})

        monkeypatch.setattr(PairwiseEvidence, "most", lambda own, runs, k, b: own.log_e[runs, k, b])
        assert best_mean(mu, paid, MARGIN, told_apart=True, sizes=(1, 5)) > 1.0 + 1e-6


@pytest.mark.parametrize("sampler", ["balanced", "random"])
@pytest.mark.parametrize("prior", [None, [1.0, -0.5, 0.0]])
def test_the_capital_of_false_names_in_a_design_never_pays(
    sampler: str, prior: list[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every history of seven comparisons, with a move after each of them but the first."""
    monkeypatch.setattr(capital, "_MOMENTS", np.arange(2, 9) / 3)
    start = Design(
        Unstructured(3),
        claim="good_enough",
        epsilon=MARGIN,
        delta=0.4,
        sampler=sampler,
        prior_strengths=prior,
        seed=2,
    )
    for rates in ((0.6, 0.6, 0.6), (0.6, 0.5, 0.4)):
        mu = preferences(*rates)
        for by in beaten_by(mu, MARGIN):
            mean = np.zeros(7)
            for t, chance, design in every_path(start, mu, mean.size):
                [one] = false_capital(design._ledger.proofs[Claim.GOOD_ENOUGH], by)
                mean[t] += chance * one
            assert mean[0] == pytest.approx(1.0, abs=1e-12)
            assert np.all(np.diff(mean) <= 1e-12)


@pytest.mark.parametrize("margin", [0.0, MARGIN])
def test_no_move_pays_any_set_of_false_names(margin: float) -> None:
    """From random stakes of four policies, for every set. With a margin no two beat each other."""
    rng = np.random.default_rng(6)
    n, n_runs = 4, 40
    decided = rng.integers(0, 12, (n_runs, n, n)) * (1.0 - np.eye(n))
    ties = np.triu(rng.integers(0, 9, (n_runs, n, n)), 1)
    ties = ties + ties.swapaxes(1, 2)
    tally = Tally(decided + 0.5 * ties)
    tally.proof_ties = ties.astype(np.float64)
    start = np.full(n, -np.log(n))
    held = Stakes(tally, start, margin)
    proof = HeadToHead(PairwiseEvidence(tally, margin), DELTA, stakes=held)
    everything = [
        by
        for chosen in product(range(-1, n), repeat=n)
        if (by := {b: k for b, k in enumerate(chosen) if k >= 0})
        and all(k != b and (margin == 0.0 or by.get(k) != b) for b, k in by.items())
    ]
    before = [false_capital(proof, by) for by in everything]
    two_best = np.array([rng.permutation(n)[:2] for _ in range(n_runs)])
    for _ in range(3):
        proof.move(np.arange(n_runs), two_best)
        after = [false_capital(proof, by) for by in everything]
        assert np.all(np.array(after) <= np.array(before) * (1.0 + 1e-12))
        before = after
    assert np.all(held.account > 0.0)


class TestExactEValue:
    @pytest.mark.parametrize(
        ("won", "lost", "tied"), [(3, 5, 4), (10, 30, 40), (2.3, 1.7, 0), (20, 18, 60), (0, 0, 7)]
    )
    def test_it_is_the_integral_and_the_evidence_is_no_more(self, won: float, lost: float, tied: int) -> None:
        null, start = 0.55, 0.5 / 0.45
        slope = start - 0.5 / null
        total = 0.0
        for share, a, cut in ((0.25, 20.0, null), (0.5, 20.0, 0.5), (0.25, 5.0, 0.5)):
            scale = special.beta(a, a) * special.betainc(a, a, cut)
            total += (
                share
                * integrate.quad(
                    lambda q, a=a, scale=scale: (
                        (q / null) ** won
                        * ((1 - q) / (1 - null)) ** lost
                        * (start - slope * q) ** tied
                        * (q * (1 - q)) ** (a - 1)
                        / scale
                    ),
                    0.0,
                    cut,
                    epsabs=0.0,
                    epsrel=1e-11,
                )[0]
            )
        wins, losses, ties = (np.array([float(x)]) for x in (won + tied / 2, lost + tied / 2, tied))
        [exact] = exact_log_e_value(wins, losses, null, CONCENTRATION, ties=ties)
        [below] = log_e_value(wins, losses, null, CONCENTRATION, ties=ties)
        assert exact == pytest.approx(np.log(total), abs=1e-9)
        assert exact - 0.2 < below <= exact + 1e-12
        if tied == 0:
            assert exact == below


RULES = {"claim": "good_enough", "epsilon": 0.05}


@cache
def told(n_policies: int, n: int, *, ties: float = 0.0, pending: int = 0) -> list:
    """The judgments of a design that asks for its own pairs, some of them under way at a time."""
    rng, design = np.random.default_rng(4), Design(Unstructured(n_policies), seed=3, **RULES)
    under_way, judgments = [], []
    for _ in range(n):
        under_way += [design.ask() for _ in range(pending + 1 - len(under_way))]
        i, j = under_way.pop(0)
        outcome = float(rng.random() < 0.5 + 0.1 * (j - i))
        judgments.append((i, j, 0.5 if rng.random() < ties else outcome))
        design.tell(*judgments[-1])
    return judgments


class TestState:
    @pytest.mark.parametrize("n_policies", [3, 6])
    @pytest.mark.parametrize("ties", [0.0, 0.4])
    @pytest.mark.parametrize("n", [11, 12, 150])
    def test_a_stored_design_knows_where_its_capital_is(self, n_policies: int, ties: float, n: int) -> None:
        """Stored before and after the first move of three policies, and between two."""
        space, judgments = Unstructured(n_policies), told(n_policies, 200, ties=ties, pending=5)
        live = Design.replay(space, judgments[:n], **RULES)
        progress = json.loads(json.dumps(live.progress))
        stored = Design.from_counts(space, live.wins, progress=progress, **RULES)
        state = Design.from_state(space, json.loads(json.dumps(live.state())))
        for judgment in judgments[n:]:
            for design in (live, stored, state):
                design.tell(*judgment)
            assert live.decision.claims[0] == stored.decision.claims[0] == state.decision.claims[0]
        told_at_once = Design.replay(space, judgments, **RULES)
        for design in (live, stored, state):
            assert design.progress["streams"]["stakes"] == told_at_once.progress["streams"]["stakes"]

    def test_the_two_best_get_it_and_none_is_left_without(self) -> None:
        live = Design.replay(Unstructured(3), told(3, 180), **RULES)
        held = live.progress["streams"]["stakes"]["good_enough"]
        share = np.exp(live._ledger.proofs[Claim.GOOD_ENOUGH].stakes.log_share[0])
        assert live.decision.claims[0].policy == 0
        assert share[1, 0] > 1.2 / 3
        assert share[0, 2] < 0.9 / 3
        assert np.all(np.array(held["account"]) > 0.4 / 3)
        assert np.sum(held["account"]) < 0.8

    def test_runs_side_by_side_move_as_each_would_alone(self) -> None:
        sequences = [told(4, n, ties=ties) for n, ties in ((100, 0.0), (15, 0.3), (170, 0.3), (16, 0.0))]
        together = replay(Unstructured(4), sequences, delta=0.05, **RULES).streams
        for one, sequence in zip(together, sequences, strict=True):
            alone = Design.replay(Unstructured(4), sequence, **RULES).progress["streams"]["stakes"]
            for claim, name in product(one["stakes"], ("log_share", "account")):
                assert one["stakes"][claim][name] == pytest.approx(alone[claim][name], rel=1e-12)

    def test_it_moves_alike_on_a_processor_that_rounds_otherwise(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Policies 0 and 1 have results that mirror each other when capital moves first, to 3 and to one of
        them.
        """
        judgments = [judged for won in (1.0, 0.0) * 4 for judged in ((0, 1, won), (2, 3, 0.0))]
        exact = StreamedEvidence.standing
        held = []
        for rounding in (0.0, 1e-13, -1e-13):
            off = rounding * np.array([-1.0, 1.0, 0.0, 0.0])
            monkeypatch.setattr(StreamedEvidence, "standing", lambda own, off=off: exact(own) + off)
            design = Design.replay(Unstructured(4), judgments, **RULES)
            held.append(design.progress["streams"]["stakes"])
        assert held[0] == held[1] == held[2]
        assert np.ptp(held[0]["good_enough"]["log_share"]) > 0.3

    @pytest.mark.parametrize(
        "change",
        [
            {"log_share": [0.0] * 2},
            {"log_share": [0.0, 0.0, None]},
            {"others": [[0, 3, 0.0]]},
            {"moved": 99},
            {"account": [0.5, 0.5]},
            {"account": [0.5, 0.5, 0.5]},
            {"account": [0.5, 0.5, -0.1]},
        ],
    )
    def test_stakes_that_do_not_fit_are_refused(self, change: dict[str, object]) -> None:
        live = Design.replay(Unstructured(3), told(3, 20), **RULES)
        progress = live.progress
        progress["streams"]["stakes"]["good_enough"] |= change
        with pytest.raises(ValueError, match=r"stored (stakes|streams) (need|are incomplete)"):
            Design.from_counts(Unstructured(3), live.wins, progress=progress, **RULES)


class TestWhereItMoves:
    @pytest.mark.parametrize("n_policies", [3, 6])
    def test_it_does_not_where_it_is_left_out(self, n_policies: int) -> None:
        judgments = told(n_policies, 80 * n_policies)
        rules = RULES | {"capital_moves": False}
        design = Design.replay(Unstructured(n_policies), judgments, **rules)
        assert "stakes" not in design.progress["streams"]
        any_order = Design.replay(Unstructured(n_policies), judgments[::-1], **rules)
        assert any_order.decision.claims[0].risk == design.decision.claims[0].risk < 1.0

    def test_three_policies_or_more_have_it_in_all_that_is_proved_head_to_head(self) -> None:
        def moving(space: object, **settings: object) -> set[str]:
            return set(Design(space, **settings).progress["streams"].get("stakes", ()))

        assert moving(Unstructured(2), claim="best", epsilon=0.05) == set()
        for K in (3, 12):
            assert moving(Unstructured(K), claim="best") == {"best"}
            assert moving(Unstructured(K), **RULES) == {"best", "good_enough"}
        assert moving(BradleyTerry.one_hot(4), **RULES) == set()

    @pytest.mark.slow
    def test_it_saves_comparisons_where_the_two_best_are_level(self) -> None:
        mu = np.repeat(bradley_terry(np.array([0.5, 0.5, -0.9]))[None], 60, axis=0)
        moving, divided = (
            simulate(mu, capital_moves=each, budget=2500, seed=3, **RULES).n_comparisons.mean()
            for each in (True, False)
        )
        assert moving < 0.93 * divided

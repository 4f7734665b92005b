"""Capital that moves: false names stay as rare, whenever it moves and to whichever two policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import permutations, product

import numpy as np
import pytest
from scipy import integrate, special

from engine.core import Claim, Design, Plan, Unstructured, forecast_remaining, stakes
from engine.core.claims import HeadToHead
from engine.core.evidence import CONCENTRATION, PairwiseEvidence
from engine.core.likelihood import exact_log_e_value, log_e_value
from engine.core.robustness import replay
from engine.core.simulate import simulate
from engine.core.stakes import Stakes, capital_moves
from engine.core.streams import StreamedEvidence
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
# A cycle, in which every name is false; two names that are; one.
RATES_ON_THE_EDGE = ((0.6, 0.6, 0.6), (0.6, 0.5, 0.4), (0.6, 0.5, 0.5))
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
    tally.ties = ties_of(counts)
    return tally


def after_moves(states: np.ndarray, n_moves: int, margin: float, *, told_apart: bool) -> HeadToHead:
    """The proofs of three policies, after capital has moved in each history."""
    n = N_OUTCOMES[told_apart]
    held = Stakes(tally_of(states[:, :n], told_apart=told_apart), np.full(3, -np.log(3.0)))
    everywhere = np.arange(len(states))
    for move in range(n_moves, -1, -1):
        tally = tally_of(states[:, n * move : n * (move + 1)], told_apart=told_apart)
        proof = HeadToHead(PairwiseEvidence(tally, margin, FLAT), tally, DELTA, stakes=held)
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
    held, evidence = proof._stakes, proof.evidence
    runs = np.arange(held.account.shape[0])
    total = np.zeros(runs.size)
    for b in range(held.account.shape[1]):
        if b in by:
            k = np.full(runs.size, by[b])
            total += np.exp(held.log_share[runs, k, b] + evidence.exact(runs, k, np.full(runs.size, b)))
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
    def test_their_capital_never_pays_and_they_are_as_rare_as_promised(self, told_apart: bool) -> None:
        capital, chance = [], []
        for rates in RATES_ON_THE_EDGE:
            mu = preferences(*rates)
            capital += [(mu, partial(false_capital, by=by)) for by in beaten_by(mu, MARGIN)]
            chance.append((mu, partial(named, false=false_names(mu, MARGIN))))
        means = best_means(capital + chance, MARGIN, told_apart=told_apart, sizes=SIZES[told_apart])
        assert means[: len(capital)] == pytest.approx([1.0] * len(capital), abs=1e-12)
        assert all(0.0 < mean <= DELTA for mean in means[len(capital) :])

    def test_the_search_finds_what_can_go_wrong_without_a_margin(self) -> None:
        """Two policies that are level then are both false against each other."""
        mu = preferences(0.5, 0.5, 0.5)
        mean = best_mean(
            mu,
            lambda proof: false_capital(proof, {0: 1, 1: 0, 2: 0}),
            0.0,
            told_apart=False,
            sizes=(1, 4),
        )
        assert mean > 1.05

    def test_and_what_a_price_below_the_e_value_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mu = preferences(0.6, 0.6, 0.6)
        exact = PairwiseEvidence.exact

        def paid(proof: HeadToHead) -> np.ndarray:
            with monkeypatch.context() as patched:
                patched.setattr(PairwiseEvidence, "exact", exact)
                return false_capital(proof, {0: 2, 1: 0, 2: 1})

        monkeypatch.setattr(PairwiseEvidence, "exact", lambda own, runs, k, b: own.log_e[runs, k, b])
        assert best_mean(mu, paid, MARGIN, told_apart=True, sizes=(1, 5)) > 1.0 + 1e-6


def best_mean_of_paths(
    mu: np.ndarray,
    payoff: Callable[[HeadToHead], np.ndarray],
    *,
    told_apart: bool,
    horizon: int,
    moved_after: int = 0,
) -> float:
    """The same where what proofs have depends on the order of outcomes, so that each order is a state.

    Capital may move once, after so many comparisons, to any two policies; never after 0.
    """
    n = N_OUTCOMES[told_apart]
    laws = [laws_of_mean(mu[i, j]) for i, j in PAIRS] if told_apart else without_ties(mu)
    paths = np.indices((n,) * horizon).reshape(horizon, -1)
    everywhere = np.arange(paths.shape[1])

    def paid(to: np.ndarray | None) -> list[np.ndarray]:
        """After each number of comparisons what stopping pays, of every path that long."""
        tally = Tally.empty(3, everywhere.size)
        tally.ties = np.zeros_like(tally.wins) if told_apart else None
        evidence = PairwiseEvidence(tally, MARGIN, FLAT)
        held = Stakes(tally, np.full(3, -np.log(3.0)))
        proof = HeadToHead(evidence, tally, DELTA, stakes=held)
        payoffs = [payoff(proof)[:1]]
        for t, codes in enumerate(paths, 1):
            i, j = TWO[codes // (n // 3)].T
            outcome = np.array([1.0, 0.0, 0.5])[codes % (n // 3)]
            tally.record(i, j, outcome)
            evidence.update(i, j)
            proof.update(i, j, outcome)
            if to is not None and t == moved_after:
                proof.move(everywhere, np.tile(to, (everywhere.size, 1)))
            payoffs.append(payoff(proof)[:: n ** (horizon - t)])
        return payoffs

    def going_on(mean: np.ndarray, payoffs: list[np.ndarray], t: int) -> np.ndarray:
        after = mean.reshape(-1, 3, n // 3)
        best = [after[:, cell] @ np.array(law) for cell, of_pair in enumerate(laws) for law in of_pair]
        return np.maximum(payoffs[t], np.max(best, axis=0))

    unmoved = paid(None)
    at_the_move = []
    for payoffs in [unmoved] + [paid(to) for to in (TWO if moved_after else ())]:
        mean = payoffs[horizon]
        for t in range(horizon - 1, moved_after - 1, -1):
            mean = going_on(mean, payoffs, t)
        at_the_move.append(mean)
    mean = np.max(at_the_move, axis=0)
    for t in range(moved_after - 1, -1, -1):
        mean = going_on(mean, unmoved, t)
    return float(mean[0])


# Comparisons without and with ties.
LONG = {False: 5, True: 4}
# The same, and each name more false than by the margin.
rates_of_false_names = pytest.mark.parametrize(
    "rates", [(0.6, 0.6, 0.6), (0.6, 0.5, 0.4), (0.6, 0.5, 0.5), (0.8, 0.7, 0.6)]
)


@pytest.mark.slow
@pytest.mark.parametrize("told_apart", [False, True])
@pytest.mark.parametrize("moved_after", [0, 3])
class TestNoBetBeyondTheThreshold:
    """Exactly, over all samplers, stopping times and laws of outcomes."""

    @rates_of_false_names
    def test_false_names_have_no_more_of_it(
        self, rates: tuple[float, float, float], told_apart: bool, moved_after: int
    ) -> None:
        mu = preferences(*rates)
        sizes = {"told_apart": told_apart, "horizon": LONG[told_apart], "moved_after": moved_after}
        for by in beaten_by(mu, MARGIN):
            mean = best_mean_of_paths(mu, lambda proof, by=by: false_capital(proof, by), **sizes)
            assert mean == pytest.approx(1.0, abs=1e-12)
        false = false_names(mu, MARGIN)
        chance = best_mean_of_paths(mu, lambda proof: (proof.proved() @ false).astype(np.float64), **sizes)
        assert 0.0 < chance <= DELTA

    def test_the_search_finds_a_loss_that_is_paid_too_much(
        self, told_apart: bool, moved_after: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pay = Stakes.pay

        def too_much(held: Stakes, proofs: tuple, amount: np.ndarray, *prices: np.ndarray) -> None:
            pay(held, proofs, np.where(amount > 0.0, 1.3 * amount, amount), *prices)

        monkeypatch.setattr(Stakes, "pay", too_much)
        mu = preferences(0.6, 0.6, 0.6)
        mean = best_mean_of_paths(
            mu,
            lambda proof: false_capital(proof, {0: 2, 1: 0, 2: 1}),
            told_apart=told_apart,
            horizon=LONG[told_apart],
            moved_after=moved_after,
        )
        assert mean > 1.005


class TestJustEnough:
    @pytest.mark.parametrize("ties", [0.0, 0.4])
    def test_a_proof_ends_with_what_it_needs(self, ties: float) -> None:
        design = Design(Unstructured(3), **RULES)
        for judgment in told(3, 400, ties=ties):
            design.tell(*judgment)
            if design.decision.stopped:
                break
        [good_enough] = [claim for claim in design.decision.claims if claim.claim is Claim.GOOD_ENOUGH]
        assert good_enough.holds
        assert good_enough.risk == pytest.approx(0.05, rel=1e-6)

    @pytest.mark.parametrize("exact_ties", [True, False])
    def test_outcomes_that_are_no_whole_wins_end_it_too(self, exact_ties: bool) -> None:
        rng = np.random.default_rng(5)
        design = Design(Unstructured(3), exact_ties=exact_ties, **RULES)
        for _ in range(1000):
            i, j = design.ask()
            design.tell(i, j, 0.9 if (rng.random() < 0.75) == (i < j) else 0.1)
            if design.decision.stopped:
                break
        assert design.decision.stopped

    def test_an_outcome_next_to_a_half_is_taken_as_the_tally_takes_it(self) -> None:
        """0.7 - 0.2 is no tie, and 1 less that is ½."""
        assert 0.7 - 0.2 != 0.5 == 1.0 - (0.7 - 0.2)
        design = Design(Unstructured(3), **RULES)
        proof = design._ledger.proofs[Claim.GOOD_ENOUGH]
        while proof._log_capital[0, 1, 0] < proof.threshold - 0.1:
            design.tell(0, 1, 1.0)
        share = proof._stakes.log_share[0, 1, 0]
        design.tell(0, 1, 0.7 - 0.2)
        assert proof._stakes.log_share[0, 1, 0] != share

    def test_shares_and_e_values_that_no_number_holds(self) -> None:
        design = Design(Unstructured(3), delta=0.05, claim="good_enough", epsilon=0.3)
        for outcome in [0.0, 1.0] * 2000:
            design.tell(0, 1, outcome)
        proof = design._ledger.proofs[Claim.GOOD_ENOUGH]
        assert proof.evidence.log_e[0, 0, 1] > 710.0
        assert proof._log_capital[0, 0, 1] < proof.threshold
        again = Design.from_counts(
            Unstructured(3),
            design.wins,
            progress=json.loads(json.dumps(design.progress, allow_nan=False)),
            delta=0.05,
            claim="good_enough",
            epsilon=0.3,
        )
        assert again.progress == design.progress

    def test_it_is_remembered_how_many_outcomes_were_in_between(self) -> None:
        design = Design(Unstructured(3), **RULES)
        for outcome in (1.0, 0.5, 0.3, 0.0):
            design.tell(0, 1, outcome)
        again = Design.from_state(Unstructured(3), json.loads(json.dumps(design.state())))
        assert again._ledger.memory()["stakes"]["indecisive"] == 2.0
        older = design.progress
        del older["streams"]["stakes"]["indecisive"]
        again = Design.from_counts(Unstructured(3), design.wins, progress=older, **RULES)
        assert again._ledger.memory()["stakes"]["indecisive"] == 0.0

    def test_a_loss_at_the_end_costs_less(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A win would have ended it; after a loss, fewer wins do."""

        def needed() -> int:
            """The wins that end it after one loss just before the end."""
            design, n = Design(Unstructured(3), **RULES), 0
            for _ in range(60):
                design.tell(0, 1, 1.0)
            while True:
                after = Design.from_state(Unstructured(3), design.state())
                after.tell(0, 2, 1.0)
                if after.decision.stopped:
                    break
                design = after
            design.tell(0, 2, 0.0)
            while not design.decision.stopped:
                design.tell(0, 2, 1.0)
                n += 1
            return n

        with_the_rule = needed()
        monkeypatch.setattr(HeadToHead, "_bet_no_more_than_needed", lambda *_: None)
        assert 1 <= with_the_rule < needed()


@pytest.mark.parametrize("sampler", ["balanced", "random"])
@pytest.mark.parametrize("prior", [None, [1.0, -0.5, 0.0]])
def test_the_capital_of_false_names_in_a_design_never_pays(
    sampler: str, prior: list[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every history of seven comparisons, with a move after each of them but the first."""
    monkeypatch.setattr(stakes, "_MOMENTS", np.arange(2, 9) / 3)
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
                [capital] = false_capital(design._ledger.proofs[Claim.GOOD_ENOUGH], by)
                mean[t] += chance * capital
            assert mean[0] == pytest.approx(1.0, abs=1e-12)
            assert np.all(np.diff(mean) <= 1e-12)


def test_no_move_pays_any_set_of_false_names() -> None:
    """From random stakes of four policies, for every set in which no two beat each other."""
    rng = np.random.default_rng(6)
    n, n_runs = 4, 40
    decided = rng.integers(0, 12, (n_runs, n, n)) * (1.0 - np.eye(n))
    ties = np.triu(rng.integers(0, 9, (n_runs, n, n)), 1)
    ties = ties + ties.swapaxes(1, 2)
    tally = Tally(decided + 0.5 * ties)
    tally.ties = ties.astype(np.float64)
    held = Stakes(tally, np.full(n, -np.log(n)))
    proof = HeadToHead(PairwiseEvidence(tally, MARGIN), tally, DELTA, stakes=held)
    everything = [
        by
        for chosen in product(range(-1, n), repeat=n)
        if (by := {b: k for b, k in enumerate(chosen) if k >= 0})
        and all(k != b and by.get(k) != b for b, k in by.items())
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
        held = live.progress["streams"]["stakes"]
        share = np.exp(np.array(held["log_share"]))
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
            for name in ("log_share", "account"):
                assert np.array(one["stakes"][name]) == pytest.approx(np.array(alone[name]), rel=1e-12)

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
        assert np.ptp(held[0]["log_share"]) > 0.5

    def test_a_state_that_is_older_than_stakes_goes_on_with_equal_shares(self) -> None:
        live = Design.replay(Unstructured(3), told(3, 100), **RULES)
        progress = live.progress
        del progress["streams"]["stakes"]
        old = Design.from_counts(Unstructured(3), live.wins, progress=progress, **RULES)
        alike = Design.from_counts(Unstructured(3), live.wins, reserve=False, **RULES)
        assert old.decision.claims[0].risk == alike.decision.claims[0].risk
        old.tell(0, 1, 1.0)

    @pytest.mark.parametrize(
        "change",
        [
            {"log_share": [0.0] * 3},
            {"log_share": [[0.0, 0.0, None]] * 3},
            {"account": [0.5, 0.5]},
            {"account": [0.5, 0.5, 0.5]},
            {"account": [0.5, 0.5, -0.1]},
        ],
    )
    def test_stakes_that_do_not_fit_are_refused(self, change: dict[str, object]) -> None:
        live = Design.replay(Unstructured(3), told(3, 20), **RULES)
        progress = live.progress
        progress["streams"]["stakes"] |= change
        with pytest.raises(ValueError, match=r"stored (stakes|streams) (need|are incomplete)"):
            Design.from_counts(Unstructured(3), live.wins, progress=progress, **RULES)


class TestWhereItMoves:
    @pytest.mark.parametrize("n_policies", [3, 6])
    @pytest.mark.parametrize("left_out", ["reserve", "streams"])
    def test_evidence_that_is_a_function_of_the_counts_has_none(self, n_policies: int, left_out: str) -> None:
        judgments = told(n_policies, 80 * n_policies)
        design = Design.replay(Unstructured(n_policies), judgments, **RULES, **{left_out: False})
        assert "stakes" not in (design.progress["streams"] or {})
        any_order = Design.replay(Unstructured(n_policies), judgments[::-1], **RULES, **{left_out: False})
        assert any_order.decision.claims[0].risk == design.decision.claims[0].risk < 1.0

    @pytest.mark.parametrize("n_policies", [2, 7])
    def test_other_numbers_of_policies_have_none(self, n_policies: int) -> None:
        assert "stakes" not in Design(Unstructured(n_policies), **RULES).progress["streams"]

    def test_only_a_claim_with_a_margin_has_it(self) -> None:
        assert "stakes" not in Design(Unstructured(4)).progress["streams"]
        watched = Design(Unstructured(4), claim="best", epsilon=0.05)
        assert "stakes" in watched.progress["streams"]
        assert not capital_moves(Claim.BEST, 4, exclusive_proofs=True)

    def test_experiments_that_divide_their_risk_have_none(self) -> None:
        """Their evidence stays as it is, bit by bit."""
        judgments = told(3, 120)
        old = Design.replay(Unstructured(3), judgments, exclusive_proofs=False, **RULES)
        assert "stakes" not in old.progress["streams"]
        proof = old._ledger.head_to_head()
        k, b = np.array(list(permutations(range(3), 2))).T
        equal = proof.evidence.log_e[0, k, b] + np.log(1.0 / 3.0)
        assert np.array_equal(proof.log_capital(np.array(0), k, b), equal)

    @pytest.mark.slow
    def test_it_saves_comparisons_where_the_two_best_are_level(self) -> None:
        mu = np.repeat(bradley_terry(np.array([0.5, 0.5, -0.9]))[None], 60, axis=0)
        moving, divided = (
            simulate(mu, exclusive_proofs=each, budget=2500, seed=3, **RULES).n_comparisons.mean()
            for each in (True, False)
        )
        assert moving < 0.93 * divided

    @pytest.mark.slow
    def test_a_forecast_goes_on_with_the_capital_where_it_is(self) -> None:
        design = Design.replay(Unstructured(3), told(3, 100), **RULES)
        plan = Plan(Unstructured(3), budget=1000, **RULES)
        poor = json.loads(json.dumps(design.progress))
        poor["streams"]["stakes"]["log_share"] = [[-8.0] * 3] * 3
        moved, without = (
            forecast_remaining(plan, design.wins, progress, n_runs=12, seed=2).expected
            for progress in (design.progress, poor)
        )
        assert moved < 0.8 * without

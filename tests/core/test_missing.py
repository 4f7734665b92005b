"""Showings without an outcome: no way to leave, delay or take back answers raises what a null has on average.

Exactly, over everything that people can do who see each outcome as its showing begins: which pair to begin,
which open one to answer or to leave, when to take an answer back, when to stop. Each way to count that was
thought of and is wrong pays more in the same search.
"""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from engine.core import Claim, Design, Unstructured, capital, pooled_evidence
from engine.core.bernoulli import log_e_value
from engine.core.evidence import PairwiseEvidence
from engine.core.finite_pools import holds_without_replacement
from engine.core.ledger import Ledger
from engine.core.missing import _Table
from engine.core.types import Bounds, Tally

from .test_claims import FLAT, laws_of_mean

MARGIN = 0.1
NULL = 0.5 + MARGIN
Pair = tuple[int, int]
# What people would say: one outcome of the first policy, or that of each who judges a showing together.
Said = tuple[float, ...]
Law = dict[Said, float]
Worth = Callable[[Design], float]
# How a showing ends: the outcome, and what it may be at least and at most.
End = tuple[float | None, float | None, float | None]
NO_OUTCOME: End = (None, None, None)


def coin(mean: float) -> list[Law]:
    return [{(1.0,): mean, (0.0,): 1.0 - mean}]


def with_ties(mean: float) -> list[Law]:
    return [dict(zip(((1.0,), (0.0,), (0.5,)), law, strict=True)) for law in laws_of_mean(mean)]


# Of a pair about which the null says nothing, people choose the outcomes.
FREE: list[Law] = [{(1.0,): 1.0}, {(0.0,): 1.0}]


def answered_or_left(said: Said) -> Iterable[End]:
    return (said[0], None, None), NO_OUTCOME


@dataclass(frozen=True)
class Game:
    """All that people may do.

    Attributes
    ----------
    laws
        For each pair, the laws of what is said, of which any showing may have any.
    worth
        What stopping pays.
    most_open
        The largest number of showings that are open at the same time.
    ends
        The ways in which a showing may end, given what would be said.
    take_back
        Whether an answer may be taken back later.
    moves
        To which two policies capital may move, once.
    same
        The parts of the state that what is paid depends on.
    events
        What may happen to the policies: each once, in this order.
    """

    laws: dict[Pair, list[Law]]
    worth: Worth
    most_open: int = 3
    ends: Callable[[Said], Iterable[End]] = answered_or_left
    take_back: bool = False
    moves: Sequence[Pair] = ()
    same: Sequence[str] | None = None
    events: Sequence[Callable[[Design], object]] = ()

    def largest_mean(self, design: Design, n_showings: int) -> float:
        """The largest mean of what stopping pays, over everything that people can do."""
        return self._largest(design, {}, n_showings, (*self.moves, *self.events), {})

    def _largest(
        self,
        design: Design,
        said: dict[int, Said],
        n_left: int,
        moves: Sequence[Any],
        known: dict[object, float],
    ) -> float:
        """The same from a state on: what is said of showings that can change, and so many left to begin."""
        state = self._state(design, said), n_left, len(moves)
        if state in known:
            return known[state]
        best = [self.worth(design)]
        if n_left and len(design.open_showings) < self.most_open:
            for pair, laws in self.laws.items():
                if max(pair) >= design.n_policies or not design.present[list(pair)].all():
                    continue
                begun = copy.deepcopy(design)
                showing = begun.show(*pair)
                mean = {
                    each: self._largest(begun, said | {showing: each}, n_left - 1, moves, known)
                    for each in set().union(*laws)
                }
                best += [sum(p * mean[each] for each, p in law.items()) for law in laws]
        best += [self._largest(*after, n_left, moves, known) for after in self._ended(design, said)]
        for to in moves[: 1 if self.events else None]:
            after = copy.deepcopy(design)
            if callable(to):
                to(after)
            else:
                proof = after._ledger.proofs[after.claim]
                proof.move(np.array([0]), np.array([to]))
            best.append(self._largest(after, said, n_left, moves[1:] if self.events else (), known))
        known[state] = max(best)
        return known[state]

    def _ended(self, design: Design, said: dict[int, Said]) -> Iterator[tuple[Design, dict[int, Said]]]:
        """After each way in which one showing can end, or an answer be taken back."""
        is_open = design.open_showings
        for showing, each in said.items():
            for outcome, least, most in self.ends(each) if showing in is_open else [NO_OUTCOME]:
                after = copy.deepcopy(design)
                after.end(showing, outcome, least=least, most=most)
                final = outcome is None or not self.take_back
                yield after, {n: what for n, what in said.items() if not (final and n == showing)}

    def _state(self, design: Design, said: dict[int, Said]) -> str:
        """All that the rest depends on: histories that come to the same are continued once."""
        memory = design._ledger.memory() or {}
        parts = {name: memory.get(name) for name in (memory if self.same is None else self.same)}
        showings = [(each, *design.showing(n).values()) for n, each in said.items()]
        if self.same is not None:
            showings = [(each, pair, bounds) for each, pair, _, bounds, *_ in showings]
        text = json.dumps([design.wins.tolist(), parts, sorted(showings, key=repr)])
        # Sums of the same logarithms differ by their order.
        return repr(json.loads(text, parse_float=lambda digits: round(float(digits), 9)))


def design_of(n_policies: int, claim: str = "good_enough", **settings: object) -> Design:
    margin = 0.0 if claim == "best" else MARGIN
    return Design(Unstructured(n_policies), claim=claim, epsilon=margin, **settings)


@pytest.fixture(autouse=True)
def few_showings_move_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairwiseEvidence.__init__, "__defaults__", (0.0, FLAT))
    monkeypatch.setattr(pooled_evidence, "CONCENTRATION", FLAT)


def evidence_of_pair(design: Design) -> float:
    """E against "0 beats 1"."""
    return float(np.exp(design._ledger.pairs_of(design.claim).log_e[0, 0, 1]))


def evidence_against_the_best(design: Design) -> float:
    return float(np.exp(design.evidence[0]))


def false_capital(by: dict[int, int]) -> Worth:
    """The wealth of proofs of false names against policies that beat them, and accounts of the others."""

    def worth(design: Design) -> float:
        proof = design._ledger.proofs[design.claim]
        shares = proof.stakes.account[0]
        return float(
            sum(np.exp(proof.log_capital(0, by[b], b)) if b in by else shares[b] for b in range(shares.size))
        )

    return worth


def false_capital_of_those_present(by: dict[int, int]) -> Worth:
    """The same of those who are there: who beats a policy may be absent."""

    def worth(design: Design) -> float:
        proof, here = design._ledger.proofs[design.claim], np.flatnonzero(design.present)
        return float(
            sum(
                np.exp(proof.log_capital(0, by[b], b)) if by.get(b) in here else proof.stakes.account[0, b]
                for b in here
            )
        )

    return worth


# Ways to count that are wrong. Each replaces a part of the engine.


def open_ones_ignored(patch: pytest.MonkeyPatch) -> None:
    count = Ledger._count

    def counted(ledger: Ledger, i: Any, j: Any, bets: Any, bounds: Bounds, **more: Any) -> None:
        if not bounds.open:
            count(ledger, i, j, bets, bounds, **more)

    patch.setattr(Ledger, "_count", counted)


def missing_as_a_half(patch: pytest.MonkeyPatch) -> None:
    count = Ledger._count

    def counted(ledger: Ledger, i: Any, j: Any, bets: Any, bounds: Bounds, **more: Any) -> None:
        half = replace(bounds, least=0.5, most=0.5) if bounds.open or bounds.missing else bounds
        count(ledger, i, j, bets, half, **more)

    patch.setattr(Ledger, "_count", counted)


def bets_set_as_the_outcome_is_told(patch: pytest.MonkeyPatch) -> None:
    turn = Ledger.turn

    def turned(ledger: Ledger, i: Any, j: Any, bets: Any, was: Any, now: Any, **more: Any) -> None:
        if was is not None and was.open:
            turn(ledger, i, j, bets, was, None)
            was, bets = None, ledger.bets(i, j)
        turn(ledger, i, j, bets, was, now, **more)

    patch.setattr(Ledger, "turn", turned)


def one_price(patch: pytest.MonkeyPatch) -> None:
    """Capital is given at the price at which it is taken."""
    patch.setattr(PairwiseEvidence, "most", lambda own, runs, k, b: own.log_e[runs, k, b])


def price_of_what_is_told(patch: pytest.MonkeyPatch) -> None:
    moved = capital.Stakes.move

    def at_told(held: capital.Stakes, runs: Any, to: Any, log_e: Any, log_price: Any) -> None:
        tally, others = held.tally, ~np.eye(3, dtype=bool)
        told = np.where(
            others, log_e_value(tally.proof_wins - tally.open, tally.proof_losses, NULL, FLAT), np.inf
        )
        moved(held, runs, to, told[runs], np.swapaxes(told, 1, 2)[runs[:, None], to])

    patch.setattr(capital.Stakes, "move", at_told)


def an_answer_taken_back_leaves_the_count(patch: pytest.MonkeyPatch) -> None:
    end = Design.end

    def ended(design: Design, showing: int, outcome: float | None, **bounds: Any) -> None:
        known = design._showings[showing]
        if known.bounds.open or outcome is not None:
            end(design, showing, outcome, **bounds)
        else:
            told = np.array([known.outcome])
            i, j = np.array([known.i]), np.array([known.j])
            design._ledger.turn(i, j, known.bets, known.bounds, None, instead_of=told)
            design._leave_out(known, known.outcome)
            del design._showings[showing]

    patch.setattr(Design, "end", ended)


def each_of_two(said: Said) -> Iterable[End]:
    """The mean of what two people say; where one of them leaves, the other's, and what it may have been."""
    first, second = said
    yield (first + second) / 2, None, None
    for told in said:
        yield told, told / 2, (told + 1) / 2
    yield NO_OUTCOME


def those_who_answer(said: Said) -> Iterable[End]:
    for outcome, _, _ in each_of_two(said):
        yield outcome, None, None


# Two people who judge one pair: each by herself, both alike, and seldom both for the second policy.
TWO_PEOPLE: list[Law] = [
    {(1.0, 1.0): 0.36, (1.0, 0.0): 0.24, (0.0, 1.0): 0.24, (0.0, 0.0): 0.16},
    {(1.0, 1.0): 0.6, (0.0, 0.0): 0.4},
    {(1.0, 1.0): 0.2, (1.0, 0.0): 0.4, (0.0, 1.0): 0.4},
]
COUNTS, CAPITAL = ("proofs",), ("proofs", "stakes")
ONE_PAIR = {(0, 1): coin(NULL)}
CYCLE = {(0, 1): coin(NULL), (1, 2): coin(NULL), (2, 0): coin(NULL)}
LEVEL = {(0, 1): coin(0.5), (1, 2): coin(0.5), (2, 0): coin(0.5)}
BEATEN = {0: 2, 1: 0, 2: 1}

pair = Game(ONE_PAIR, evidence_of_pair, same=COUNTS)
pair_with_ties = Game({(0, 1): with_ties(NULL)}, evidence_of_pair, same=COUNTS)
taken_back = replace(pair, take_back=True)
both_names = Game({(0, 1): with_ties(0.5)}, false_capital({0: 1, 1: 0}), same=COUNTS)
joint = Game({(0, 1): TWO_PEOPLE}, evidence_of_pair, ends=each_of_two, same=COUNTS)
best_of_two = Game(ONE_PAIR, evidence_against_the_best)
best_of_three = Game(ONE_PAIR | {(0, 2): coin(NULL)}, evidence_against_the_best)
one_of_them_chosen = replace(best_of_three, laws=ONE_PAIR | {(0, 2): coin(NULL), (1, 2): FREE})
all_names = Game(CYCLE, false_capital(BEATEN), same=CAPITAL)
moved = Game(ONE_PAIR, false_capital({1: 0}), moves=[(0, 1)], same=CAPITAL)
moved_in_a_cycle = replace(all_names, moves=[(0, 1)])
moved_without_a_margin = Game(LEVEL, false_capital(BEATEN), moves=[(0, 1)], same=CAPITAL)
two_false = replace(moved_without_a_margin, worth=false_capital({0: 1, 1: 0}))

LIVED = Game(CYCLE, false_capital_of_those_present(BEATEN), most_open=2)
joined = replace(LIVED, events=[Design.add])
joined_and_moved = replace(joined, events=[Design.add, (2, 0)])
retired = replace(LIVED, events=[lambda design: design.retire(1)])
# The newcomer is the best, and policy 0 was.
joined_best = Game(
    {(0, 1): coin(NULL), (2, 0): coin(NULL), (2, 1): coin(NULL)},
    lambda design: float(np.exp(design.evidence[0 if design.n_policies == 2 else 2])),
    most_open=2,
    events=[Design.add],
)

slow = pytest.mark.slow


def taken_at_the_most(patch: pytest.MonkeyPatch) -> None:
    """A newcomer is given capital as if all that is open had been lost by the rivals."""
    join, excluded = capital.Stakes.join, capital.Stakes._take

    def taken(held: capital.Stakes, runs: Any, spare: Any, log_e: Any) -> Any:
        tally = held.tally
        most = log_e_value(tally.proof_wins - tally.open, tally.proof_losses + tally.open, NULL, FLAT)
        return excluded(held, runs, spare, np.where(np.eye(log_e.shape[1], dtype=bool), -np.inf, most)[runs])

    patch.setattr(capital.Stakes, "_take", taken)
    patch.setattr(capital.Stakes, "join", join)


@pytest.mark.parametrize(
    ("game", "n_policies", "claim", "n_showings"),
    [
        pytest.param(pair, 2, "good_enough", 6, id="counts", marks=slow),
        pytest.param(taken_back, 2, "good_enough", 4, id="answers taken back"),
        pytest.param(pair_with_ties, 2, "good_enough", 4, id="ties"),
        pytest.param(both_names, 2, "best", 3, id="both names of two"),
        pytest.param(joint, 2, "good_enough", 3, id="two people a pair", marks=slow),
        pytest.param(all_names, 3, "good_enough", 2, id="all names of three"),
        pytest.param(best_of_two, 2, "best_if_any", 4, id="bets", marks=slow),
        pytest.param(
            replace(best_of_two, take_back=True), 2, "best_if_any", 3, id="bets taken back", marks=slow
        ),
        pytest.param(best_of_three, 3, "best_if_any", 3, id="bets and favourites", marks=slow),
        pytest.param(one_of_them_chosen, 3, "best_if_any", 2, id="bets beside outcomes that are chosen"),
        pytest.param(moved, 3, "good_enough", 3, id="capital that moves"),
        pytest.param(moved_in_a_cycle, 3, "good_enough", 2, id="capital that moves in a cycle", marks=slow),
        pytest.param(
            moved_without_a_margin, 3, "best", 2, id="capital that moves without a margin", marks=slow
        ),
        pytest.param(two_false, 3, "best", 2, id="two that are false against each other", marks=slow),
        pytest.param(joined, 2, "good_enough", 2, id="a third one joins"),
        pytest.param(joined, 2, "good_enough", 3, id="a third one joins, three showings", marks=slow),
        pytest.param(joined_and_moved, 2, "good_enough", 2, id="one joins, then capital moves", marks=slow),
        pytest.param(retired, 3, "good_enough", 2, id="one of three retires"),
        pytest.param(joined_best, 2, "best_if_any", 2, id="a better one joins"),
    ],
)
def test_nothing_that_people_do_pays(game: Game, n_policies: int, claim: str, n_showings: int) -> None:
    assert game.largest_mean(design_of(n_policies, claim), n_showings) == pytest.approx(1.0, abs=1e-9)


@slow
def test_nor_where_a_design_moves_capital_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of the first two answers."""
    monkeypatch.setattr(capital, "_MOMENTS", np.array([1, 2]) / 3)
    by_itself = replace(moved, moves=(), same=None)
    assert by_itself.largest_mean(design_of(3), 3) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("game", "n_policies", "claim", "wrong"),
    [
        (pair, 2, "good_enough", open_ones_ignored),
        (pair, 2, "good_enough", missing_as_a_half),
        (taken_back, 2, "good_enough", an_answer_taken_back_leaves_the_count),
        (best_of_two, 2, "best_if_any", open_ones_ignored),
        (best_of_two, 2, "best_if_any", bets_set_as_the_outcome_is_told),
        (moved, 3, "good_enough", one_price),
        (moved, 3, "good_enough", price_of_what_is_told),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_search_finds_what_is_wrong(
    game: Game, n_policies: int, claim: str, wrong: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch)
    assert game.largest_mean(design_of(n_policies, claim), 3) > 1.01


@pytest.mark.parametrize(
    ("game", "n_policies", "claim"),
    [
        (pair, 2, "good_enough"),
        (both_names, 2, "best"),
        (best_of_two, 2, "best_if_any"),
        (all_names, 3, "good_enough"),
    ],
)
def test_answers_alone_are_no_proof_against_people_who_choose(
    game: Game, n_policies: int, claim: str
) -> None:
    assert game.largest_mean(design_of(n_policies, claim, missing="answers"), 2) > 1.1


def test_an_outcome_of_those_who_answer_is_not_that_of_all() -> None:
    assert replace(joint, ends=those_who_answer).largest_mean(design_of(2), 2) > 1.1


class TestTextsThatWereLeft:
    """Policy 0 wins a pair of texts with .2 or with 1, .6 on average, and who sees them knows which."""

    RATES = ((0.2, 0.5), (1.0, 0.5))

    def largest_mean(self, design: Design, n_left: int, way: str, n_people: int = 2) -> float:
        best = evidence_of_pair(design)
        if n_left == 0:
            return best

        def given(design: Design, showing: int, rate: float, n_people: int) -> float:
            """The texts are with somebody; so many could have them."""

            def after(outcome: float | None) -> Design:
                then = copy.deepcopy(design)
                then.end(showing, outcome)
                return then

            if n_people == 1 or way == "nobody":
                left = self.largest_mean(after(None), n_left - 1, way)
            elif way == "alone":
                left = given(design, showing, rate, n_people - 1)
            else:
                beside = after(None)
                left = given(beside, beside.show(0, 1), rate, n_people - 1)
            won, lost = (max(left, self.largest_mean(after(said), n_left - 1, way)) for said in (1.0, 0.0))
            return rate * won + (1.0 - rate) * lost

        begun = copy.deepcopy(design)
        showing = begun.show(0, 1)
        return max(best, sum(p * given(begun, showing, rate, n_people) for rate, p in self.RATES))

    def test_they_go_to_nobody_else(self) -> None:
        assert self.largest_mean(design_of(2), 3, "nobody") == pytest.approx(1.0, abs=1e-9)

    @pytest.mark.parametrize("way", ["alone", "beside"])
    def test_or_another_answer_pays_alone_and_beside_it(self, way: str) -> None:
        assert self.largest_mean(design_of(2), 3, way) > 1.01


class TestUpToAFactor:
    """Pairs are left at most Γ times as often where an outcome is against the claim."""

    GAMMA = 3.0

    def largest_mean(self, gamma: float, n_showings: int = 4) -> float:
        """The largest mean where a pair that is left counts as for a factor of gamma."""
        share = gamma * NULL / (1.0 - NULL + gamma * NULL)

        @cache
        def best(won: int, lost: int, missing: int) -> float:
            design = Design(Unstructured(2), claim="good_enough", epsilon=MARGIN)
            design.tell_many([(0, 1, 1.0)] * won + [(0, 1, 0.0)] * lost + [(0, 1, None)] * missing)
            pairs = design._ledger.pairs_of(Claim.GOOD_ENOUGH)
            now = float(np.exp(_Table(pairs, np.array([0]), np.array([1]), 0.0).log_e(share)))
            if won + lost + missing == n_showings:
                return now
            win, loss, left = (
                best(won + 1, lost, missing),
                best(won, lost + 1, missing),
                best(won, lost, missing + 1),
            )
            means = [now]
            for often, factor in product((0.0, 0.1, 0.5, 1.0), (0.0, 1.0, self.GAMMA)):
                of_wins = min(1.0, often * factor)
                means.append(
                    NULL * ((1.0 - of_wins) * win + of_wins * left)
                    + (1.0 - NULL) * ((1.0 - often) * loss + often * left)
                )
            return max(means)

        return best(0, 0, 0)

    def test_who_leaves_so_much_and_no_more_pays_nothing(self) -> None:
        assert self.largest_mean(self.GAMMA) == pytest.approx(1.0, abs=1e-9)

    def test_a_smaller_factor_is_not_enough(self) -> None:
        assert self.largest_mean(1.0) > 1.5
        assert self.largest_mean(2.0) > 1.05


class TestPools:
    """Outcomes drawn without replacement: a false name is no more likely than promised."""

    SIZE = 20
    # So large that the few texts of a pool can establish a claim.
    DELTA = 0.2

    def largest_chance(self, null: float, missing: str) -> float:
        """That evidence ever reaches 1/δ."""
        first = int(np.ceil(null * self.SIZE - 1e-9))
        won, lost = np.indices((self.SIZE + 1, self.SIZE + 1)).astype(np.float64)
        log_e = PairwiseEvidence(Tally.empty(2), null - 0.5).of_counts(won, lost, None)
        proved = log_e >= -np.log(self.DELTA)

        @cache
        def chance(won: int, lost: int, drawn_first: int, drawn: int) -> float:
            if proved[won, lost]:
                return 1.0
            if drawn == self.SIZE:
                return 0.0
            rate = (first - drawn_first) / (self.SIZE - drawn)
            total = 0.0
            for outcome, p in ((1, rate), (0, 1.0 - rate)):
                if p > 0.0:
                    then = drawn_first + outcome, drawn + 1
                    left = chance(won + (missing == "against"), lost, *then)
                    total += p * max(left, chance(won + outcome, lost + 1 - outcome, *then))
            return total

        return chance(0, 0, 0, 0)

    @pytest.mark.parametrize("null", [0.5, NULL])
    def test_what_is_left_counts_against_the_claim(self, null: float) -> None:
        assert holds_without_replacement(self.DELTA, null - 0.5)
        assert 0.0 < self.largest_chance(null, "against") <= self.DELTA
        assert self.largest_chance(null, "answers") > self.DELTA

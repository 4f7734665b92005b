"""Showings without an outcome: no way to leave, delay or take back answers raises what a null has on average.

Exactly, over everything that people can do who see each outcome as its showing begins: which pair to begin, which
open one to answer or to leave, when to take an answer back, when to stop. Each way to count that was thought of and
is wrong pays more in the same search.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from engine.core import Claim, Design, Unstructured, stakes, streams
from engine.core.claims import HeadToHead
from engine.core.evidence import PairwiseEvidence
from engine.core.ledger import Ledger
from engine.core.likelihood import log_e_value
from engine.core.missing import _Table
from engine.core.types import Bounds, located

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
    """What people may do.

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
    """

    laws: dict[Pair, list[Law]]
    worth: Worth
    most_open: int = 3
    ends: Callable[[Said], Iterable[End]] = answered_or_left
    take_back: bool = False
    moves: Sequence[Pair] = ()
    same: Sequence[str] | None = None

    def largest_mean(self, design: Design, n_showings: int) -> float:
        """The largest mean of what stopping pays, over everything that people can do."""
        return self._largest(design, {}, n_showings, moved=not self.moves, known={})

    def _largest(
        self, design: Design, said: dict[int, Said], n_left: int, *, moved: bool, known: dict[Any, float]
    ) -> float:
        state = (self._state(design, said), n_left, moved)
        if state in known:
            return known[state]

        def then(change: Callable[[Design], object], said: dict[int, Said] = said, **more: Any) -> float:
            after = copy.deepcopy(design)
            change(after)
            return self._largest(after, said, **({"n_left": n_left, "moved": moved, "known": known} | more))

        best = self.worth(design)
        is_open = design.open_showings
        for pair, laws in self.laws.items() if n_left and len(is_open) < self.most_open else ():
            begun = copy.deepcopy(design)
            showing = begun.show(*pair)
            after = {
                each: self._largest(begun, said | {showing: each}, n_left - 1, moved=moved, known=known)
                for each in {each for law in laws for each in law}
            }
            best = max(best, *(sum(p * after[each] for each, p in law.items()) for law in laws))
        for showing in is_open:
            for outcome, least, most in self.ends(said[showing]):
                best = max(best, then(lambda d: d.end(showing, outcome, least=least, most=most)))
        for showing in said if self.take_back else ():
            if showing not in is_open and design.showing(showing)["outcome"] is not None:
                rest = {other: each for other, each in said.items() if other != showing}
                best = max(best, then(lambda d: d.end(showing, None), rest))
        for to in () if moved else self.moves:
            best = max(best, then(lambda d: move(d, to), moved=True))
        known[state] = best
        return best

    def _state(self, design: Design, said: dict[int, Said]) -> str:
        """Whatever the rest depends on: histories of the same state are continued once."""
        memory = design._ledger.memory() or {}
        parts = {name: memory.get(name) for name in (memory if self.same is None else self.same)}
        parts.pop("none_peak", None)
        # What has ended can only change where answers may be taken back.
        shown = {n: each for n, each in said.items() if self.take_back or n in design.open_showings}
        showings = [(each, *design.showing(n).values()) for n, each in shown.items()]
        if self.same is not None:
            showings = [(each, pair, bounds) for each, pair, _, bounds, *_ in showings]
        text = json.dumps([design.wins.tolist(), parts, sorted(showings, key=repr)])
        # Sums of the same logarithms differ by their order.
        return repr(json.loads(text, parse_float=lambda digits: round(float(digits), 9)))


def move(design: Design, to: Pair) -> None:
    """Have the capital of the proofs move to two policies."""
    proof = design._ledger.proofs[design.claim]
    proof.move(np.array([0]), np.array([to]))


def design_of(n_policies: int, claim: str = "good_enough", **settings: object) -> Design:
    margin = 0.0 if claim == "best" else MARGIN
    return Design(Unstructured(n_policies), claim=claim, epsilon=margin, **settings)


@pytest.fixture(autouse=True)
def few_showings_move_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairwiseEvidence.__init__, "__defaults__", (0.0, FLAT))
    monkeypatch.setattr(streams, "CONCENTRATION", FLAT)


def evidence_of_pair(design: Design) -> float:
    """E against "0 beats 1"."""
    return float(np.exp(design._ledger.pairs_of(design.claim).log_e[0, 0, 1]))


def evidence_against_the_best(design: Design) -> float:
    return float(np.exp(design.evidence[0]))


def false_capital(by: dict[int, int]) -> Worth:
    """What the proofs of false names have, each against a policy that beats it, and accounts of the others."""

    def worth(design: Design) -> float:
        proof = design._ledger.proofs[design.claim]
        held = proof._stakes
        shares = np.exp(proof.log_start) if held is None else held.account[0]
        return float(
            sum(np.exp(proof.log_capital(0, by[b], b)) if b in by else shares[b] for b in range(shares.size))
        )

    return worth


# Ways to count that are wrong. Each replaces a part of the engine.


def open_ones_ignored(patch: pytest.MonkeyPatch) -> None:
    count = Ledger._count

    def counted(ledger: Ledger, i: Any, j: Any, bets: Any, bounds: Bounds, sign: int, runs: Any) -> None:
        if bounds.open:
            ledger.tally.note(*located(runs, i, j), bounds, sign)
        else:
            count(ledger, i, j, bets, bounds, sign, runs)

    patch.setattr(Ledger, "_count", counted)


def missing_as_a_half(patch: pytest.MonkeyPatch) -> None:
    count = Ledger._count

    def counted(ledger: Ledger, i: Any, j: Any, bets: Any, bounds: Bounds, sign: int, runs: Any) -> None:
        half = replace(bounds, least=0.5, most=0.5) if bounds.open or bounds.missing else bounds
        count(ledger, i, j, bets, half, sign, runs)

    patch.setattr(Ledger, "_count", counted)


def bets_set_as_the_outcome_is_told(patch: pytest.MonkeyPatch) -> None:
    turn = Ledger.turn

    def turned(ledger: Ledger, i: Any, j: Any, bets: Any, was: Any, now: Any, runs: Any = None, **more: Any) -> None:
        if was is not None and was.open:
            turn(ledger, i, j, bets, was, None, runs)
            was, bets = None, ledger.bets(i, j, runs)
        turn(ledger, i, j, bets, was, now, runs, **more)

    patch.setattr(Ledger, "turn", turned)


def one_price(patch: pytest.MonkeyPatch) -> None:
    """Capital is given at the price at which it is taken."""
    patch.setattr(PairwiseEvidence, "most", lambda own, runs, k, b: own.log_e[runs, k, b])


def price_of_what_is_told(patch: pytest.MonkeyPatch) -> None:
    moved = stakes.Stakes.move

    def at_told(held: stakes.Stakes, runs: Any, to: Any, log_e: Any, log_price: Any) -> None:
        tally, others = held._tally, ~np.eye(3, dtype=bool)
        told = np.where(others, log_e_value(tally.proof_wins - tally.open, tally.proof_losses, NULL, FLAT), np.inf)
        moved(held, runs, to, told[runs], np.swapaxes(told, 1, 2)[runs[:, None], to])

    patch.setattr(stakes.Stakes, "move", at_told)


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

"""Attackers who know the source, their page and other experiments guess by chance.

Each attacker says for every pair which policy is on the left, or whether it is a check. Their hits are held
against a fair coin. With some 60 attackers at this level, a product that gives nothing away fails one time in
two million runs. All look at one session, so that each number of policies is one test: workers that share the
attackers would each have to play it.
"""

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Hashable

import numpy as np
import pytest
from scipy.stats import binomtest

from engine.domain import secret_draws
from tests.blinding.session import GOLD_RATE, PAIRS, Pair, Reply, Session, play

pytestmark = pytest.mark.django_db

LEVEL = 1e-8

Guess = Callable[[Session, Pair], bool]


def better_than_chance(guesses: list[bool], truth: list[bool]) -> str:
    """The hits of an attacker where they cannot be chance; nothing otherwise."""
    assert len(guesses) == len(truth) >= PAIRS
    hits = sum(guess == true for guess, true in zip(guesses, truth, strict=True))
    # A guess that is always wrong tells as much as one that is always right.
    return "" if binomtest(hits, len(truth)).pvalue > LEVEL else f"{hits} of {len(truth)} right"


def bit(text: str) -> bool:
    return bool(hashlib.sha256(text.encode()).digest()[0] & 1)


# ---------------------------------------------------------------- sides


def drawn_from(*key: int) -> Callable[[int, int], bool]:
    """The derivation of sides before this suite: numpy's generator, seeded with what anybody could know."""

    def side(number: int, n_tasks: int) -> bool:
        rng = np.random.default_rng([*key, number, 1])
        rng.integers(n_tasks)
        rng.integers(2**31, size=2)
        return bool(rng.integers(2))

    return side


SIDES: dict[str, Guess] = {
    "the old derivation, seed 0": lambda s, p: drawn_from(0)(p.comparison, s.n_tasks),
    "the old derivation, the seed of the setup file": lambda s, p: drawn_from(s.seed)(
        p.comparison, s.n_tasks
    ),
    "the old derivation, the experiment's number": lambda s, p: drawn_from(s.experiment_id)(
        p.comparison, s.n_tasks
    ),
    "the old derivation, the annotator's number": lambda s, p: drawn_from(s.user_id)(p.comparison, s.n_tasks),
    "the derivation, keyed with the seed": lambda s, p: secret_draws.i_on_left(
        f"{s.seed:064x}", p.comparison
    ),
    "the derivation, keyed with the experiment's number": lambda s, p: secret_draws.i_on_left(
        f"{s.experiment_id:064x}", p.comparison
    ),
    "the derivation, keyed with a clone's published secret": lambda s, p: secret_draws.i_on_left(
        s.clone_secret, p.comparison
    ),
    "the sides in a clone's export": lambda s, p: s.clone_sides.get(p.comparison, True),
    "the token's last bit": lambda s, p: bool(uuid.UUID(p.token).int & 1),
    "the token's hash": lambda s, p: bit(p.token),
    "the order": lambda s, p: bool(p.comparison % 2),
    "always the left": lambda s, p: True,
    "the size of the page": lambda s, p: bool(p.shown.size % 2),
    "the queries of the page": lambda s, p: bool(p.shown.queries % 2),
}


def sides_that_are_told(session: Session) -> dict[str, str]:
    pairs = session.comparisons
    truth = [bool(pair.lower_on_left) for pair in pairs]
    said = {
        attack: better_than_chance([guess(session, pair) for pair in pairs], truth)
        for attack, guess in SIDES.items()
    }
    return {attack: hits for attack, hits in said.items() if hits}


# ---------------------------------------------------------------- checks


def odd_ones(values: list[Hashable]) -> list[bool]:
    """True if each value is another than the most frequent one."""
    [(usual, _)] = Counter(values).most_common(1)
    return [value != usual for value in values]


def old_check(seed: int, annotator: int, shown: int) -> bool:
    return bool(np.random.default_rng([seed, annotator, shown, 3]).random() < GOLD_RATE)


def measured(what: str, of: Callable[[Reply], Hashable]) -> Callable[[Session, list[Pair]], list[bool]]:
    """Take the pairs for checks of which a reply differs from the usual one."""
    return lambda session, pairs: odd_ones([of(getattr(pair, what)) for pair in pairs])


CHECKS: dict[str, Callable[[Session, list[Pair]], list[bool]]] = {
    "the old derivation, seed 0": lambda s, pairs: [old_check(0, s.user_id, p.number) for p in pairs],
    "the old derivation, the seed of the setup file": lambda s, pairs: [
        old_check(s.seed, s.user_id, p.number) for p in pairs
    ],
    "the derivation, keyed with the seed": lambda s, pairs: [
        secret_draws.check_draw(f"{s.seed:064x}", s.user_id, p.number) < GOLD_RATE for p in pairs
    ],
    "the derivation, keyed with a clone's published secret": lambda s, pairs: [
        secret_draws.check_draw(s.clone_secret, s.user_id, p.number) < GOLD_RATE for p in pairs
    ],
    "the token's last bit": lambda s, pairs: [bool(uuid.UUID(p.token).int & 1) for p in pairs],
    "the token's version": lambda s, pairs: odd_ones([uuid.UUID(p.token).version for p in pairs]),
    "the order": lambda s, pairs: [bool(p.number % 2) for p in pairs],
    "the beat's reply": measured("beat", lambda reply: (reply.status, reply.headers, reply.body)),
    "the beat's queries": measured("beat", lambda reply: reply.queries),
    "the queries of showing it": measured("shown", lambda reply: reply.queries),
    "the queries of answering it": lambda s, pairs: above_the_middle([p.answered.queries for p in pairs]),
    "the queries of showing it again": measured("reloaded", lambda reply: reply.queries),
    "the queries of leaving it": measured("returned", lambda reply: reply.queries),
    "the size of the page": measured("reloaded", lambda reply: reply.size),
    "the headers of the page": measured("reloaded", lambda reply: (reply.status, reply.headers)),
    "the headers of the answer": measured("answered", lambda reply: (reply.status, reply.headers)),
    "another pair follows than the one that was to follow before the answer": lambda s, pairs: [
        p.following != p.ahead for p in pairs
    ],
    "leaving it and opening the page again, and another pair comes": lambda s, pairs: [
        bool(p.same_after_return) for p in pairs
    ],
}


def above_the_middle(values: list[int]) -> list[bool]:
    middle = sorted(values)[len(values) // 2]
    return [value >= middle for value in values]


def checks_that_are_told(session: Session) -> dict[str, str]:
    pairs = session.pairs[:PAIRS]
    truth = [pair.is_check for pair in pairs]
    said = {attack: better_than_chance(guess(session, pairs), truth) for attack, guess in CHECKS.items()}
    return {attack: hits for attack, hits in said.items() if hits}


# ---------------------------------------------------------------- the attack


@pytest.mark.parametrize("n_policies", [2, 6])
def test_nobody_guesses_the_sides_or_tells_checks_from_comparisons(n_policies: int):
    session = play(n_policies)
    assert sides_that_are_told(session) == {}
    assert checks_that_are_told(session) == {}

"""Reasons to doubt a result that show in its data: exact tests, corrected for their number.

Each test asks whether somebody's share of marked things is what chance would give, in groups whose members
can be compared. Given its margins, the number in each group is hypergeometric [Fisher 1935], and the groups
are independent [Mantel & Haenszel 1959]. All tests of an experiment together find anything in honest data
with a probability of at most `LEVEL` a look [Holm 1979].

P is the number of people, and n that of showings in their order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

from .types import BoolArray, FloatArray, IntArray

LEVEL = 0.001
# Answers in a row that are compared with each other. People come in stretches, and the sampler asks about the
# same policies in stretches: with 20, the two together raised five times as many alarms as promised.
_BLOCK = 4
# Standard deviations below which no test is worth its exact probability: it cannot pass.
_NEAR = 2.5


class Kind(StrEnum):
    """The thing that a test compares."""

    LEFT = "left"
    """Pairs with a policy that somebody left without an answer, against their other pairs."""
    FAILED = "failed"
    """Responses that a policy did not give, against those of the other policies."""
    EARLY = "early"
    """Wins of a policy in the first half of the answers, against the second half."""
    PERSON = "person"
    """Wins of the leader by one person's answers, against everybody else's."""
    SERVED = "served"
    """Answers of one person about pairs with a policy, against everybody else's at the same time."""


@dataclass(frozen=True, slots=True)
class Found:
    """A test that chance does not explain.

    Attributes
    ----------
    kind
        What it compares.
    person, policy
        Indices; None where the test is about all people, or about the leader.
    hits, n
        The marked things, and all things, on the side that the test is about.
    other_hits, other_n
        The same on the other side.
    p
        The probability, in [0, 1], that chance alone gives something so unusual, before the correction.
    """

    kind: Kind
    person: int | None
    policy: int | None
    hits: int
    n: int
    other_hits: int
    other_n: int
    p: float


@dataclass(frozen=True, slots=True)
class Examined:
    """The findings of the tests, the least likely first, and how many tests there were."""

    found: tuple[Found, ...]
    n_tests: int


@dataclass(frozen=True, slots=True)
class Showings:
    """Pairs given to people, in the order in which they were answered.

    Attributes
    ----------
    person, i, j
        Shape (n,): who, and the two policies, by index.
    outcome
        Shape (n,), in [0, 1]: the share of the win that goes to i; NaN where no answer came.
    """

    person: IntArray
    i: IntArray
    j: IntArray
    outcome: FloatArray

    def with_policy(self, policy: int) -> BoolArray:
        """Shape (n,): true where the policy is one of the pair."""
        return np.asarray((self.i == policy) | (self.j == policy))


@dataclass(frozen=True, slots=True)
class _Test:
    """``counts``: shape (4, S), of each group how many things, how many of theirs, marked, and both."""

    kind: Kind
    person: int | None
    policy: int | None
    counts: IntArray
    one_sided: bool = False

    @property
    def open(self) -> bool:
        """True if the margins leave anything to chance."""
        sizes, theirs, marked, _ = self.counts
        return bool((theirs * marked * (sizes - theirs) * (sizes - marked)).any())

    @property
    def p(self) -> float:
        sizes, theirs, marked, both = self.counts
        total, mean = int(both.sum()), theirs * marked / sizes
        variance = mean * (1 - theirs / sizes) * (sizes - marked) / np.maximum(sizes - 1, 1)
        away = total - float(mean.sum())
        if (away if self.one_sided else abs(away)) < _NEAR * float(np.sqrt(variance.sum())):
            return 1.0
        return p_of_total(total, sizes, theirs, marked, one_sided=self.one_sided)

    def found(self, p: float) -> Found:
        size, n, marked, hits = self.counts.sum(axis=1).tolist()
        return Found(self.kind, self.person, self.policy, hits, n, marked - hits, size - n, p)


def examine(
    shown: Showings, n_policies: int, leader: int | None, texts: tuple[IntArray, BoolArray]
) -> Examined:
    """Test an experiment for what chance does not explain.

    `leader` is the policy that the result is about; None without any. `texts` are two arrays of shape (m,):
    the policy of every response that was asked for, and whether it failed.
    """
    tests = [
        test
        for test in (
            *_left(shown, n_policies),
            *_failed(*texts, n_policies),
            *_early(shown, n_policies),
            *([] if leader is None else _person(shown, leader)),
            *_served(shown, n_policies),
        )
        if test.open
    ]
    ranked = sorted(((test.p, place) for place, test in enumerate(tests)), key=lambda each: each[0])
    found = []
    for rank, (p, place) in enumerate(ranked):
        if p >= LEVEL / (len(tests) - rank):
            break
        found.append(tests[place].found(p))
    return Examined(tuple(found), len(tests))


def p_of_total(
    total: int, sizes: IntArray, theirs: IntArray, marked: IntArray, *, one_sided: bool = False
) -> float:
    """The probability that chance alone gives a total as unusual as this, in [0, 1].

    `total` of theirs are marked, in all groups. `sizes`, `theirs` and `marked` have shape (S,): the size of
    each group, how many of its things are theirs, and how many are marked. With `one_sided` only larger
    totals are unusual, otherwise all that are no likelier.
    """
    lowest, highest = _support(sizes, theirs, marked)
    chances: FloatArray = np.ones(1)
    for n, r, c, low, high in zip(sizes, theirs, marked, lowest, highest, strict=True):
        if high > low:
            x = np.arange(low, high + 1)
            logs = -sum(special.gammaln(part + 1.0) for part in (x, r - x, c - x, n - r - c + x))
            chances = np.convolve(chances, special.softmax(logs))
    place = total - int(lowest.sum())
    if one_sided:
        return float(min(1.0, chances[place:].sum()))
    # As likely but for rounding counts as well, as in other programs.
    return float(min(1.0, chances[chances <= chances[place] * (1 + 1e-7)].sum()))


def _support(sizes: IntArray, theirs: IntArray, marked: IntArray) -> tuple[IntArray, IntArray]:
    return np.maximum(0, theirs + marked - sizes), np.minimum(theirs, marked)


def _in_groups(group: IntArray, theirs: BoolArray, marked: BoolArray) -> IntArray:
    """The counts of a test, from the group of each thing and what it is: shape (n,) each."""
    kinds = np.bincount(4 * group + 2 * theirs + marked)
    table = np.zeros((-(-kinds.size // 4), 4), dtype=np.int64)
    table.ravel()[: kinds.size] = kinds
    neither, only_marked, only_theirs, both = table.T
    sizes = neither + only_marked + only_theirs + both
    return np.array([sizes, only_theirs + both, only_marked + both, both])[:, sizes > 0]


def _together(theirs: BoolArray, marked: BoolArray) -> IntArray:
    """The same of one group."""
    return _in_groups(np.zeros(theirs.size, dtype=np.int64), theirs, marked)


def _left(shown: Showings, n_policies: int) -> Iterator[_Test]:
    left = np.isnan(shown.outcome)
    if not left.any():
        return
    for policy in range(n_policies):
        of_policy = shown.with_policy(policy)
        yield _Test(Kind.LEFT, None, policy, _in_groups(shown.person, of_policy, left), one_sided=True)
        for person in np.unique(shown.person[left]):
            own = shown.person == person
            counts = _together(of_policy[own], left[own])
            yield _Test(Kind.LEFT, int(person), policy, counts, one_sided=True)


def _failed(policy: IntArray, failed: BoolArray, n_policies: int) -> Iterator[_Test]:
    if not failed.any():
        return
    for each in range(n_policies):
        yield _Test(Kind.FAILED, None, each, _together(policy == each, failed), one_sided=True)


def _decided(shown: Showings, policy: int) -> tuple[IntArray, IntArray, BoolArray]:
    """Answers about a policy that are no tie: their places, the rivals, and whether the policy won."""
    places = np.flatnonzero(shown.with_policy(policy) & ~np.isnan(shown.outcome) & (shown.outcome != 0.5))
    first = shown.i[places] == policy
    rivals = np.where(first, shown.j[places], shown.i[places])
    return places, rivals, (shown.outcome[places] > 0.5) == first


def _early(shown: Showings, n_policies: int) -> Iterator[_Test]:
    answered = np.flatnonzero(~np.isnan(shown.outcome))
    if answered.size < 2:
        return
    half = answered[answered.size // 2]
    # With two policies, what one wins the other loses.
    for policy in range(n_policies if n_policies > 2 else 1):
        places, rivals, won = _decided(shown, policy)
        if places.size:
            yield _Test(Kind.EARLY, None, policy, _in_groups(rivals, places < half, won))


def _person(shown: Showings, leader: int) -> Iterator[_Test]:
    places, rivals, won = _decided(shown, leader)
    for person in np.unique(shown.person[places]):
        counts = _in_groups(rivals, shown.person[places] == person, won)
        yield _Test(Kind.PERSON, int(person), None, counts)


def _served(shown: Showings, n_policies: int) -> Iterator[_Test]:
    answered = np.flatnonzero(~np.isnan(shown.outcome))
    block = np.arange(answered.size) // _BLOCK
    for policy in range(n_policies):
        of_policy = shown.with_policy(policy)[answered]
        for person in np.unique(shown.person[answered]):
            own = shown.person[answered] == person
            yield _Test(Kind.SERVED, int(person), policy, _in_groups(block, own, of_policy))

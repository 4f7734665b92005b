"""Pairs without an answer: who holds them, and who left them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q

from engine.models import Allowance, Assignment, Experiment, Flag, clock

_STATE = Assignment.State
# Somebody who was given a pair twelve times `ASSIGNMENT_SECONDS` ago (an hour by default), and has not
# answered it, has left it: long enough for a lunch with the page open.
_PRESENCES_IN_A_HOLD = 12

# Pairs without an answer count against every claim. Whoever left at least so many pairs, and more than this
# share of those that they were shown, gets no more.
CAPPED_FROM_LEFT, CAPPED_BEYOND = 5, 0.1


def hold() -> timedelta:
    """The time after which an open pair counts as left."""
    return timedelta(seconds=_PRESENCES_IN_A_HOLD * settings.ASSIGNMENT_SECONDS)


def is_capped(n_left: int, n_shown: int) -> bool:
    """True if somebody left so many of the pairs that they were shown that they get no more."""
    return n_left >= CAPPED_FROM_LEFT and n_left > CAPPED_BEYOND * n_shown


def actively_held(experiment: Experiment) -> list[int]:
    """The keys of comparisons that somebody who is here has open, ascending.

    A pair whose annotator left, or whose page was not heard of for a while, is open too, but nobody waits for
    it.
    """
    held = Assignment.objects.filter(
        comparison__experiment=experiment, state=_STATE.OPEN, expires_at__gt=clock.now()
    )
    return sorted(set(held.values_list("comparison_id", flat=True)))


def _left_open() -> Q:
    return Q(state__in=[_STATE.OPEN, _STATE.LOST], created_at__lt=clock.now() - hold())


def let_go() -> Q:
    """The assignments that ended without an answer, or are open for longer than a :func:`hold`."""
    return Q(state=_STATE.SKIPPED) | _left_open()


@dataclass(frozen=True)
class Tally:
    """Comparisons that were shown to one person, or that showed one policy, by what came of them.

    A comparison that several people judge counts once for each of them.

    Attributes
    ----------
    shown, answered, skipped
        Numbers of comparisons; an answer that was voided by hand is one.
    left
        Open for longer than a :func:`hold`.
    reasons
        Skips by their `Flag.Reason`. Some have none: an answer taken back by somebody who may see policies.
    """

    shown: int = 0
    answered: int = 0
    skipped: int = 0
    left: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.shown + other.shown,
            self.answered + other.answered,
            self.skipped + other.skipped,
            self.left + other.left,
            self.reasons + other.reasons,
        )


def by_person(experiment: Experiment) -> dict[str, Tally]:
    """The tally of each person, by their user name."""
    return {name: tally for (name,), tally in _tallies(experiment, "annotator__username").items()}


def by_policy(experiment: Experiment) -> dict[int, Tally]:
    """The tally of each policy that was shown, by its index. A comparison counts for both of its policies."""
    found: dict[int, Tally] = {}
    of_pairs = _tallies(experiment, "comparison__policy_i__index", "comparison__policy_j__index")
    for pair, tally in of_pairs.items():
        for index in pair:
            found[index] = found.get(index, Tally()) + tally
    return dict(sorted(found.items()))


def _tallies(experiment: Experiment, *fields: str) -> dict[tuple[Any, ...], Tally]:
    """The tallies by these fields, which assignments and flags both have."""
    reasons: dict[tuple[Any, ...], Counter[str]] = {}
    flags = Flag.objects.filter(comparison__experiment=experiment).values_list(*fields, "reason")
    for *key, reason, n in flags.annotate(n=Count("pk")).order_by():
        reasons.setdefault(tuple(key), Counter())[reason] = n
    given = Assignment.objects.filter(comparison__experiment=experiment).values_list(*fields)
    rows = given.annotate(
        given=Count("pk"),
        answered=Count("pk", filter=Q(state=_STATE.JUDGED)),
        skipped=Count("pk", filter=Q(state=_STATE.SKIPPED)),
        left=Count("pk", filter=_left_open()),
    ).order_by(*fields)
    return {
        tuple(key): Tally(shown, answered, skipped, left, reasons.get(tuple(key), Counter()))
        for *key, shown, answered, skipped, left in rows
    }


def capped(experiment: Experiment) -> dict[str, tuple[int, int]]:
    """The people who get no more pairs because of how many they left: by user name, the number of pairs that
    they left and that they were shown, checks among both.
    """
    left = {name: tally.left for name, tally in by_person(experiment).items()}
    rows = Allowance.objects.filter(experiment=experiment).order_by("annotator__username")
    found = {}
    for name, skipped, shown in rows.values_list("annotator__username", "skipped", "shown"):
        n_left = skipped + left.get(name, 0)
        if is_capped(n_left, shown):
            found[name] = (n_left, shown)
    return found

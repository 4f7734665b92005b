"""The progress of an experiment as annotators may see it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from engine.models import Experiment, User
from engine.selectors.answers import answers_before, answers_by_person
from labeling.caching import shared

_STEP = 25
_DELAY = timedelta(minutes=10)
_PERIOD = timedelta(minutes=15)


def answers_together(experiment: Experiment) -> int:
    """The number of answers of all people together, in steps of 25, about a quarter of an hour old.

    It depends on the clock and on when answers were first given, so no choice and no undo can move it. A
    figure that depends on outcomes would show which side leads: answer one way, undo, answer the other way.
    """
    moment = _last_moment(timezone.now())
    answers = shared(
        f"together:{experiment.pk}:{moment:%Y%m%d%H%M}",
        lambda: answers_before(experiment.pk, moment),
        age=720.0,
    )
    return answers - answers % _STEP


def leaderboard(experiment: Experiment) -> tuple[datetime, list[tuple[User, int]]] | None:
    """The moment, and the number of answers of each person up to it; ``None`` if the owner wants none.

    It is as old as :func:`answers_together`, for the same reason.
    """
    if not experiment.leaderboard:
        return None
    moment = _last_moment(timezone.now())
    return moment, answers_by_person(experiment.pk, moment)


def _last_moment(now: datetime) -> datetime:
    """The last full quarter of an hour that is at least ten minutes ago."""
    late = now - _DELAY
    return late - timedelta(
        minutes=late.minute % (_PERIOD.seconds // 60), seconds=late.second, microseconds=late.microsecond
    )

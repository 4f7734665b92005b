"""The progress of an experiment as annotators may see it."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import exp, log
from statistics import NormalDist

from django.utils import timezone

from engine.core import SPREADS, Plan, forecast, random_strengths
from engine.domain.claim_settings import Rules
from engine.models import Experiment, User
from engine.selectors import pools
from engine.selectors.answers import answers_before, answers_by_person
from engine.selectors.people import annotators
from engine.selectors.policies import space_of
from labeling.caching import shared

_DELAY = timedelta(minutes=10)
_PERIOD = timedelta(minutes=15)
# Standard deviations between the end and the middle of a forecast's range.
_TO_THE_END = NormalDist().inv_cdf(0.9)


def left_together(experiment: Experiment) -> int:
    """The number of answers that all people together will probably still give, rounded; 0 if it is over.

    It follows from the setup, the number of answers and the clock alone. So no choice and no undo can move
    it. A figure that depends on outcomes would show which side leads: answer one way, undo, answer the other
    way.
    """
    if experiment.state != Experiment.State.RUNNING:
        return 0
    moment = _last_moment(timezone.now())
    return shared(f"left:{experiment.pk}:{moment:%Y%m%d%H%M}", lambda: _left(experiment, moment), age=720.0)


def _left(experiment: Experiment, moment: datetime) -> int:
    plan = Plan(space_of(experiment), **Rules.of(experiment).plan(), budget=experiment.budget)
    # Over all spreads the number would hardly fall: whoever has gone on for long has long to go.
    remaining = forecast(plan, random_strengths(plan.space.n_policies, SPREADS[1]))
    low, likely, high = (end or plan.budget for end in (remaining.low, remaining.likely, remaining.high))
    given = answers_before(experiment.pk, moment)
    # Of experiments that last at least so long, half need no more than this.
    law = NormalDist(log(likely), max(log(high / low) / _TO_THE_END / 2, 0.1))
    checks = min(experiment.gold_rate + experiment.repeat_rate, 0.9)
    each = experiment.overlap / (1.0 - checks)
    over = law.cdf(log(max(given / each, 1.0)))
    most = experiment.budget * each
    if pools.is_finite(experiment):
        most = min(most, most_of_each(experiment) * annotators(experiment.pk).count())
    return rounded(min(exp(law.inv_cdf(min((1.0 + over) / 2.0, 0.999))) * each, most) - given)


def rounded(number: float) -> int:
    """A number of answers that is no more exact than a forecast."""
    if number <= 0:
        return 0
    step = next(step for below, step in _STEPS if number < below)
    return max(1, round(number / step)) * step


_STEPS = ((100, 10), (500, 50), (2_000, 100), (float("inf"), 500))


def most_of_each(experiment: Experiment) -> int:
    """The number of pairs of which a person judges each once, where responses come again."""
    return shared(f"most:{experiment.pk}", lambda: pools.n_texts(experiment), age=720.0)


def leaderboard(experiment: Experiment) -> tuple[datetime, list[tuple[User, int]]] | None:
    """The moment, and the number of answers of each person up to it; ``None`` if the owner wants none.

    It is some minutes old, as :func:`left_together`.
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

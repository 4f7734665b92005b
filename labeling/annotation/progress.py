"""The progress of an experiment as annotators may see it."""

from datetime import datetime, timedelta
from math import exp, log
from statistics import NormalDist

from django.utils import timezone

from engine.core import SPREADS, Plan, forecast, random_strengths
from engine.domain.claim_settings import Rules
from engine.models import Experiment, User
from engine.selectors import pools
from engine.selectors.answers import answers_by_person, answers_given_by_all
from engine.selectors.improvements import open_improvement
from engine.selectors.people import annotators
from engine.selectors.policies import space_of
from labeling.caching import shared

_DELAY = timedelta(minutes=10)
_PERIOD_MINUTES = 15
# Largest ages, in units of DASHBOARD_SECONDS.
_COUNTED, _FORECAST = 12.0, 180.0
# Standard deviations between the end and the middle of a forecast's range.
_TO_THE_END = NormalDist().inv_cdf(0.9)


def left_together(experiment: Experiment) -> int:
    """The number of answers that all people together will probably still give, rounded; 0 if it is over.

    It follows from the setup and the number of answers alone, those taken back among them. So no choice and
    no undo can move it. A figure that depends on outcomes would show which side leads: answer one way, undo,
    answer the other way.
    """
    if experiment.state != Experiment.State.RUNNING:
        return 0
    given, planned = shared(f"given:{experiment.pk}", lambda: _counted(experiment), age=_COUNTED)
    if planned is not None:
        return rounded(planned)
    law, each, most = shared(f"left:{experiment.pk}", lambda: _all_together(experiment), age=_FORECAST)
    # Of experiments that last at least so long, half need no more than this.
    over = law.cdf(log(max(given / each, 1.0)))
    return rounded(min(exp(law.inv_cdf(min((1.0 + over) / 2.0, 0.999))) * each, most) - given)


def _counted(experiment: Experiment) -> tuple[int, int | None]:
    """The answers so far, and the clicks that an improvement has left; ``None`` where none is open."""
    improvement = open_improvement(experiment)
    left = None if improvement is None else improvement.left
    return answers_given_by_all(experiment.pk), left


def _all_together(experiment: Experiment) -> tuple[NormalDist, float, float]:
    """The law of the log of the comparisons that it takes, the answers to each, and the most answers."""
    plan = Plan(space_of(experiment), **Rules.of(experiment).plan(), budget=experiment.budget)
    # Over all spreads the number would hardly fall: whoever has gone on for long has long to go.
    remaining = forecast(plan, random_strengths(plan.space.n_policies, SPREADS[1]))
    low, likely, high = (end or plan.budget for end in (remaining.low, remaining.likely, remaining.high))
    checks = min(experiment.gold_rate + experiment.repeat_rate, 0.9)
    each = experiment.overlap / (1.0 - checks)
    most = experiment.budget * each
    if pools.is_finite(experiment):
        most = min(most, most_of_each(experiment) * annotators(experiment.pk).count())
    return NormalDist(log(likely), max(log(high / low) / _TO_THE_END / 2, 0.1)), each, most


def rounded(number: float) -> int:
    """A number of answers that is no more exact than a forecast, and still moves with the answers."""
    if number <= 0:
        return 0
    step = 10 if number < 1_000 else 100
    return max(1, round(number / step)) * step


def most_of_each(experiment: Experiment) -> int:
    """The number of pairs of which a person judges each once, where responses come again."""
    return shared(f"most:{experiment.pk}", lambda: pools.n_texts(experiment), age=720.0)


def leaderboard(experiment: Experiment) -> tuple[datetime, list[tuple[User, int]]] | None:
    """The moment, and the number of answers of each person up to it; ``None`` if the owner wants none.

    It is some minutes old: nobody sees an answer as it is given.
    """
    if not experiment.leaderboard:
        return None
    late = timezone.now() - _DELAY
    moment = late.replace(minute=late.minute - late.minute % _PERIOD_MINUTES, second=0, microsecond=0)
    return moment, answers_by_person(experiment.pk, moment)

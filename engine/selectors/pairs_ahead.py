"""The number of comparisons to keep ahead of the annotators, and the figures behind it."""

import math
from collections.abc import Collection, Sequence
from datetime import timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, Subquery, Value
from django.db.models.functions import Length

from engine.models import (
    Allowance,
    Assignment,
    Comparison,
    Experiment,
    Judgment,
    Response,
    Snapshot,
    clock,
)
from engine.selectors import counts, refused_policies
from engine.selectors.opinions import votes_now
from engine.selectors.pace import reading_time, time_taken
from engine.selectors.remaining import remaining_of
from engine.selectors.spending import overspent_experiments

PRESENCE = timedelta(seconds=60)
_SAFETY = 2.0
# The least time from one round of planning to the next that the buffer is meant to last. Without it, fifty
# annotators who never paused, on ready-made responses, asked for a pair in vain four times as often as they
# got one. On a busy machine, where rounds are further apart, two fifths of ten people's answers brought no
# next pair.
_PLANNING_SECONDS = 1.0
# Nobody reads two responses in less.
_LEAST_CLICK_SECONDS = 0.5
_SAFETY_NEAR_DECISION = 1.7
# A queue of so many full batches says that generation cannot keep up.
_LONG_QUEUE_BATCHES = 2
# A rule judges as fast as responses come.
_AHEAD_OF_RULES = 32
# So many failed responses in a row say that generation does not work. Then one pair is planned this often.
_FAILING_RUN = 20
_PROBE_INTERVAL = timedelta(seconds=30)


def annotators_present(experiment: Experiment) -> set[int]:
    """The numbers of annotators who are here. They look at a pair now, or judged one or asked for one within
    the last minute and may wait for another.
    """
    now = clock.now()
    since = now - PRESENCE
    theirs = {"annotator": OuterRef("annotator")}
    looking = Assignment.objects.filter(
        experiment=experiment, state=Assignment.State.OPEN, expires_at__gt=now, **theirs
    )
    judged = Judgment.objects.filter(
        counts.in_experiment(experiment),
        created_at__gte=since,
        via__in=[Judgment.Via.PAGE, Judgment.Via.API],
        **theirs,
    )
    # Everybody who was ever shown a pair has an allowance.
    here = Q(waited_at__gte=since) | Q(Exists(looking)) | Q(Exists(judged))
    return set(Allowance.objects.filter(here, experiment=experiment).values_list("annotator", flat=True))


def click_seconds(experiment: Experiment, *, reading: bool = False) -> float | None:
    """Mean time in seconds that somebody takes for a pair, over the last fifty comparisons.

    ``reading``: of people who read. Programs, and people who try the keys, answer faster.
    """
    # By number, which has an index.
    recent = experiment.comparisons.filter(judged_at__isnull=False).order_by("-number")
    answers = Judgment.objects.filter(
        comparison__in=recent.values("pk")[:50],
        annotator__isnull=False,
        shown_at__isnull=False,
        standing=True,
    )
    before = Judgment.objects.filter(annotator=OuterRef("annotator"), created_at__lt=OuterRef("created_at"))
    newest = before.order_by("-created_at").values("created_at")[:1]
    lengths = Length("comparison__response_i__text") + Length("comparison__response_j__text")
    rows = answers.annotate(before=Subquery(newest), characters=lengths if reading else Value(0))
    taken = [
        (time_taken(shown_at, answered_at, answered_before=answered_before), characters)
        for shown_at, answered_at, answered_before, characters in rows.values_list(
            "shown_at", "created_at", "before", "characters"
        )
    ]
    return mean_seconds([reading_time(span, n) for span, n in taken if span is not None])


def click_rate(experiment: Experiment, *, present: int) -> float:
    """Judgments per second that the annotators who are here would make if they never had to wait.

    It is not counted from recent judgments: there are few of them just when pairs are lacking. A click counts
    as half a second at least. Programs answer in milliseconds, and a buffer as large as they ask for would be
    planned with next to no evidence.
    """
    seconds = click_seconds(experiment)
    return present / max(seconds, _LEAST_CLICK_SECONDS) if seconds else 0.0


def generation_seconds(experiment: Experiment) -> float | None:
    """Mean time in seconds from planning a comparison to its being ready, over the last fifty."""
    recent = Comparison.objects.filter(experiment=experiment, ready_at__isnull=False).order_by("-number")
    return mean_seconds(
        [end - start for end, start in recent.values_list("ready_at", "created_at")[:50] if end]
    )


def writing_seconds(experiment: Experiment) -> float | None:
    """Mean time in seconds from a worker's taking the responses to a comparison until both are there, over
    the last fifty.
    """
    recent = Comparison.objects.filter(experiment=experiment, ready_at__isnull=False).order_by("-number")
    rows = recent.values_list("ready_at", "created_at", "response_i__taken_at", "response_j__taken_at")
    return mean_seconds([end - max(filter(None, begun)) for end, *begun in rows[:50] if end])


def mean_seconds(spans: Sequence[timedelta]) -> float | None:
    """The mean span in seconds; ``None`` without any."""
    return sum(spans, timedelta()).total_seconds() / len(spans) if spans else None


def buffer_target(
    experiment: Experiment,
    latest: Snapshot | None = None,
    here: Collection[int] | None = None,
) -> int:
    """The number of planned and ready comparisons to keep ahead.

    Where people judge, Little's law gives it: as many as they ask for while one comparison is written, or at
    least planned, times a safety factor. It is at least one for each annotator who is here. The time in the
    queue does not count. It grows with what is planned, so a slow backend would get ever more work and become
    no faster. Near the decision, no more are kept ahead than are expected to be needed.

    The rule judge never waits, so generation sets the pace: one batch being written and one waiting. The
    buffer is kept small because a pair that is chosen ahead is chosen knowing less. While generation cannot
    keep up, the smallest buffer is enough: a longer queue would help nobody.

    Parameters
    ----------
    latest
        The latest snapshot, where the caller has it already.
    here
        The annotators who are present, where the caller knows them already.
    """
    is_written_here = experiment.responses != Experiment.Responses.IMPORTED
    if is_written_here:
        waiting = Response.objects.filter(state=Response.State.WAITING).count()
        if waiting >= _LONG_QUEUE_BATCHES * settings.GENERATION_BATCH_MAX:
            return settings.BUFFER_MIN
    if experiment.judge == Experiment.Judge.RULE:
        return min(settings.BUFFER_MAX, max(settings.BUFFER_MIN, _AHEAD_OF_RULES))
    present = len(annotators_present(experiment) if here is None else here)
    seconds = (writing_seconds(experiment) if is_written_here else None) or 0.0
    seconds = max(seconds, experiment.round_seconds, _PLANNING_SECONDS)
    demand = click_rate(experiment, present=present) * seconds
    ample = max(present, math.ceil(_SAFETY * demand))
    if votes_now(experiment):
        # The language model that judges takes a batch at a time, as fast as it comes.
        ample = max(ample, settings.JUDGE_BATCH)
    remaining = remaining_of(experiment, latest)
    if remaining is not None and remaining.likely is not None and remaining.likely < ample:
        ample = max(math.ceil(remaining.likely), math.ceil(_SAFETY_NEAR_DECISION * demand))
    return min(settings.BUFFER_MAX, settings.BUFFER_MIN + ample)


def most_at_once(experiment: Experiment) -> int:
    """The most comparisons to plan now: none while nothing more is asked for, and a single one now and then
    while generation fails.
    """
    if experiment.responses == Experiment.Responses.IMPORTED:
        return settings.BUFFER_MAX
    halted = any(each.halted for each in refused_policies.refused([experiment.pk]))
    if halted or experiment.pk in overspent_experiments():
        return 0
    if not generation_is_failing(experiment):
        return settings.BUFFER_MAX
    # Time to see if generation works again?
    since = clock.now() - _PROBE_INTERVAL
    return int(not Comparison.objects.filter(experiment=experiment, created_at__gte=since).exists())


def generation_is_failing(experiment: Experiment) -> bool:
    """True if the latest responses all failed: planning more would only make more failures."""
    settled = Response.objects.filter(
        policy__experiment=experiment,
        policy__retired_at=None,
        state__in=[Response.State.DONE, Response.State.FAILED],
    ).order_by("-pk")
    # One that no worker ever tried says nothing about the backend.
    settled = settled.exclude(state=Response.State.FAILED, attempts=0)
    states = list(settled.values_list("state", flat=True)[:_FAILING_RUN])
    return len(states) == _FAILING_RUN and Response.State.DONE not in states

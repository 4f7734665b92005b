"""The responses of a draft's trial, and pairs for the rehearsal."""

import secrets
from itertools import combinations

from django.db.models import Count

from engine.models import Experiment, Response


def tried_responses(experiment: Experiment) -> list[Response]:
    """The responses of the draft's trial, by task and then by policy; empty without a trial.

    A policy's levels are at hand too, so that its messages can be composed without further queries.
    """
    tried = Response.objects.filter(policy__experiment=experiment, trial__isnull=False)
    return list(
        tried.select_related("task", "policy__experiment")
        .prefetch_related("policy__levels__factor")
        .order_by("task__position", "policy__index")
    )


def is_tried(experiment: Experiment) -> bool:
    """True if the draft has a trial as it is now; a change of the draft deletes the responses."""
    return Response.objects.filter(policy__experiment=experiment, trial__isnull=False).exists()


def rehearsal_pair(experiment: Experiment) -> tuple[Response, Response] | None:
    """Responses of two policies to one task that differ, drawn at random; ``None`` where there are none.

    They come from the draft's trial, or are the ready-made ones of an experiment on such.
    """
    if experiment.responses == Experiment.Responses.IMPORTED:
        there = Response.objects.filter(policy__experiment=experiment, state=Response.State.DONE)
    else:
        there = Response.objects.filter(
            policy__experiment=experiment, trial__isnull=False, state=Response.State.DONE
        )
    # The task first: all pairs of 100,000 responses are too many to look at for one.
    by_task = there.values("task").order_by("task")
    several = by_task.annotate(n=Count("policy", distinct=True), texts=Count("digest", distinct=True))
    tasks = list(several.filter(n__gt=1, texts__gt=1).values_list("task", flat=True))
    if not tasks:
        return None
    of_task = there.filter(task=secrets.choice(tasks)).select_related("task").order_by("policy__index", "pk")
    pairs = [
        (one, other)
        for one, other in combinations(of_task, 2)
        if one.policy_id != other.policy_id and one.digest != other.digest
    ]
    left, right = secrets.choice(pairs)
    return (left, right) if secrets.randbelow(2) else (right, left)

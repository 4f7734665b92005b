"""Trials of a draft: its policies write a few responses, through the same queue as all others.

Tried responses exist only while the experiment is a draft. Changing or starting the draft deletes them, so no
comparison, pool of responses or export can contain one.
"""

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet, Sum

from engine.domain.errors import SpecError, WrongStateError
from engine.domain.limits import TRIED
from engine.models import Experiment, Policy, Response, Trial, User, clock
from engine.services.locks import lock_by_number, locked_experiment

STARTED = "The experiment has been started. Only a draft can be tried."
MOST_TASKS = 3
# A trial of more policies takes only some, chosen so that each level occurs.
MOST_POLICIES = 20
_PERIOD = timedelta(hours=24)


@transaction.atomic
def start_trial(*, experiment_id: int, positions: Collection[int], by: User) -> Trial:
    """Let each policy answer the tasks at these positions, once. An earlier trial is deleted.

    The caller wakes the workers.

    Raises
    ------
    SpecError
        There are too many tasks or none, a position is no task's, or somebody's allowance is spent.
    WrongStateError
        The experiment has been started, or its responses are ready-made.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state != Experiment.State.DRAFT:
        raise WrongStateError(STARTED)
    if experiment.responses == Experiment.Responses.IMPORTED:
        raise WrongStateError("The responses of this experiment are ready-made, so there is nothing to try.")
    tasks = list(experiment.tasks.filter(position__in=positions))
    if not 1 <= len(positions) <= MOST_TASKS:
        raise SpecError(f"{len(positions)} tasks are chosen. Choose 1 to {MOST_TASKS}.")
    if missing := set(positions) - {task.position for task in tasks}:
        raise SpecError(
            f"There is no task {min(missing) + 1}. The draft has tasks 1 to {experiment.tasks.count()}."
        )
    policies = _policies_to_try(experiment)
    n_responses = len(policies) * len(tasks)
    _check_allowances(experiment, by, n_responses)
    drop_tried(experiment)
    trial = Trial.objects.create(experiment=experiment.trial_of or experiment, by=by, n_responses=n_responses)
    Response.objects.bulk_create(
        Response(policy=policy, task=task, seed=secrets.randbelow(2**31), trial=trial)
        for task in tasks
        for policy in policies
    )
    return trial


@transaction.atomic
def stop_trial(*, experiment_id: int) -> int:
    """Drop the responses that are not written yet; returns how many those were. Written ones stay.

    A worker that is writing one finds its row gone, and its text is refused.
    """
    unfinished = _tried(locked_experiment(experiment_id)).filter(
        state__in=[Response.State.WAITING, Response.State.GENERATING]
    )
    return _delete(unfinished)


def drop_tried(experiment: Experiment) -> None:
    """Delete the tried responses of a locked experiment."""
    _delete(_tried(experiment))


@transaction.atomic
def forget_trials(*, before: datetime) -> int:
    """Delete the trials that were asked for before this moment, with their responses; returns how many trials
    there were.
    """
    old = Trial.objects.filter(asked_at__lt=before)
    _delete(Response.objects.filter(trial__in=old))
    ids = lock_by_number(old, no_key=False)
    Trial.objects.filter(pk__in=ids).delete()
    return len(ids)


def _tried(experiment: Experiment) -> QuerySet[Response]:
    return Response.objects.filter(policy__experiment=experiment, trial__isnull=False)


def _delete(responses: QuerySet[Response]) -> int:
    ids = lock_by_number(responses, no_key=False)
    Response.objects.filter(pk__in=ids).delete()
    return len(ids)


def _policies_to_try(experiment: Experiment) -> list[Policy]:
    """All policies, or so many that each level is among them, as far as `MOST_POLICIES` go."""
    policies = list(experiment.policies.prefetch_related("levels"))
    if len(policies) <= MOST_POLICIES:
        return policies
    seen: set[int] = set()
    chosen: set[int] = set()
    for policy in policies:
        levels = {level.pk for level in policy.levels.all()}
        if not levels <= seen and len(chosen) < MOST_POLICIES:
            chosen.add(policy.index)
            seen |= levels
    others = [policy.index for policy in policies if policy.index not in chosen]
    chosen.update(others[: MOST_POLICIES - len(chosen)])
    return [policy for policy in policies if policy.index in chosen]


def _check_allowances(experiment: Experiment, by: User, n_responses: int) -> None:
    """Raise :class:`SpecError` where this person or this experiment has tried too much within a day."""
    # Two trials of one person that start at once must not both use the same rest of the allowance.
    User.objects.select_for_update(no_key=True).get(pk=by.pk)
    recent = Trial.objects.filter(asked_at__gte=clock.now() - _PERIOD)
    for where, trials in (
        (f"By {by}", recent.filter(by=by)),
        ("In this experiment", recent.filter(experiment=experiment.trial_of or experiment)),
    ):
        spent = trials.aggregate(n=Sum("n_responses"))["n"] or 0
        TRIED.check(spent + n_responses, where)

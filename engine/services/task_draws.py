"""Draws the task of a planned comparison, and its two responses.

* fresh: a task drawn uniformly with replacement, and a new response by either policy.
* reuse: the same task; a policy's response to a task is written once, when it is first wanted, and used ever
  after. Which one that is depends on nothing that was judged, so the comparisons are i.i.d. draws from a pool
  that might as well have been written beforehand.
* imported: a task drawn uniformly from those to which both policies have responses, and one of either's
  responses to it.

The last two are statements about the pool: the same texts come again, so the risk δ is that of naming the
wrong winner for these tasks and these texts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from engine.models import Experiment, Policy, Response

Draw = Callable[[np.random.Generator, Policy, Policy], tuple[Response, Response]]


def drawer(experiment: Experiment) -> Draw:
    """The rule by which this experiment's comparisons get their responses; new ones are not stored yet."""
    match experiment.responses:
        case Experiment.Responses.IMPORTED:
            return _from_pool(experiment)
        case Experiment.Responses.REUSE:
            return _once_for_each(experiment)
        case _:
            return _fresh(experiment)


def _fresh(experiment: Experiment) -> Draw:
    task_ids = list(experiment.tasks.values_list("pk", flat=True))

    def draw(rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> tuple[Response, Response]:
        task_id = task_ids[rng.integers(len(task_ids))]
        seed_i, seed_j = (int(seed) for seed in rng.integers(2**31, size=2))
        return (
            Response(policy=policy_i, task_id=task_id, seed=seed_i),
            Response(policy=policy_j, task_id=task_id, seed=seed_j),
        )

    return draw


def _once_for_each(experiment: Experiment) -> Draw:
    fresh = _fresh(experiment)
    known: dict[tuple[int, int], Response] = {}
    usable = Response.objects.filter(task__experiment=experiment).exclude(state=Response.State.FAILED)
    for response in usable.only("policy_id", "task_id", "seed", "state").order_by("pk"):
        known.setdefault((response.policy_id, response.task_id), response)

    def draw(rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> tuple[Response, Response]:
        first, second = (
            known.setdefault((response.policy_id, response.task_id), response)
            for response in fresh(rng, policy_i, policy_j)
        )
        return first, second

    return draw


def _from_pool(experiment: Experiment) -> Draw:
    pool: defaultdict[int, defaultdict[int, list[Response]]] = defaultdict(lambda: defaultdict(list))
    written = Response.objects.filter(task__experiment=experiment)
    for response in written.only("policy_id", "task_id", "seed", "state").order_by("pk"):
        pool[response.policy_id][response.task_id].append(response)

    def draw(rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> tuple[Response, Response]:
        by_i, by_j = pool[policy_i.pk], pool[policy_j.pk]
        common = sorted(by_i.keys() & by_j.keys())
        task_id = common[rng.integers(len(common))]
        first, second = (half[task_id][rng.integers(len(half[task_id]))] for half in (by_i, by_j))
        return first, second

    return draw

"""Draws the task of a planned comparison, and its two responses.

* fresh: a task drawn uniformly with replacement, and a new response by either policy.
* reuse: the same task; a policy's response to a task is written once, when it is first wanted, and used
  ever after. Which one that is depends on nothing that was judged, so that the pool might as well have been
  written beforehand.
* imported: a task drawn uniformly from those to which both policies have responses, and one of either's
  responses to it.

The last two are statements about the pool: the same texts come again, so the risk δ is that of naming the
wrong winner for these tasks and these texts. Where people judge, what an annotator has seen is left out of
the draw for them: docs/algorithm.md says what that means for the risk.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.models import Experiment, Policy, Response
from engine.selectors import pools
from engine.selectors.pools import Halves

Draw = Callable[[np.random.Generator, Policy, Policy], Halves | None]


class Pool(Protocol):
    """Responses that come again."""

    def draw(self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves:
        """Two responses to one task; one that is not written yet is not stored yet."""

    def in_random_order(
        self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy
    ) -> Iterator[Halves]:
        """Everything that `draw` may give for these two policies, each once."""

    def sizes(self) -> npt.NDArray[np.int64]:
        """K×K, symmetric: the number of different pairs of texts of each two policies."""


# Pairs of responses whose use is looked up at once.
_AT_ONCE = 100


def drawer(experiment: Experiment) -> Draw:
    """The rule by which comparisons get their responses where nobody minds the same ones again; new ones are
    not stored yet.
    """
    return (
        _fresh(experiment) if experiment.responses == Experiment.Responses.FRESH else pool_of(experiment).draw
    )


def pool_of(experiment: Experiment) -> Pool:
    """The responses of an experiment in which the same ones come again."""
    return (
        _Imported(experiment)
        if experiment.responses == Experiment.Responses.IMPORTED
        else _Reused(experiment)
    )


class PoolDrawer:
    """Draws from a finite pool what an annotator has not seen, as if each draw that they have were repeated.

    Parameters
    ----------
    annotator
        Number of their account; ``None`` for anybody.
    """

    def __init__(self, experiment: Experiment, pool: Pool, annotator: int | None) -> None:
        self._experiment = experiment
        self._pool = pool
        self._annotator = annotator
        self._taken: set[str] = set()

    def draw(self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves | None:
        """Two responses to one task; ``None`` where the annotator has seen all that there are."""
        halves = self._pool.in_random_order(rng, policy_i, policy_j)
        while some := list(itertools.islice(halves, _AT_ONCE)):
            found = pools.first_unused(self._experiment, self._annotator, some, self._taken)
            if found is not None:
                self._taken.add(pools.name_of(*found))
                return found
        return None

    def pairs_left(self) -> npt.NDArray[np.bool_]:
        """K×K, symmetric: the pairs of policies that may have something left for the annotator."""
        return pools.pairs_left(self._experiment, self._annotator, self._pool.sizes())


def _fresh(experiment: Experiment) -> Draw:
    task_ids = list(experiment.tasks.values_list("pk", flat=True))

    def draw(rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves:
        task_id = task_ids[rng.integers(len(task_ids))]
        seed_i, seed_j = (int(seed) for seed in rng.integers(2**31, size=2))
        return (
            Response(policy=policy_i, task_id=task_id, seed=seed_i),
            Response(policy=policy_j, task_id=task_id, seed=seed_j),
        )

    return draw


class _Reused:
    """One response for each policy and task; those that are not written yet are made by the draw."""

    def __init__(self, experiment: Experiment) -> None:
        self._n_policies = experiment.policies.count()
        self._task_ids = list(experiment.tasks.values_list("pk", flat=True))
        self._known: dict[tuple[int, int], Response] = {}
        usable = Response.objects.filter(task__experiment=experiment).exclude(state=Response.State.FAILED)
        for response in usable.only("policy_id", "task_id", "seed", "state", "digest").order_by("pk"):
            self._known.setdefault((response.policy_id, response.task_id), response)

    def draw(self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves:
        return self._halves(rng, self._task_ids[rng.integers(len(self._task_ids))], policy_i, policy_j)

    def in_random_order(
        self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy
    ) -> Iterator[Halves]:
        for place in rng.permutation(len(self._task_ids)):
            yield self._halves(rng, self._task_ids[place], policy_i, policy_j)

    def sizes(self) -> npt.NDArray[np.int64]:
        return np.full((self._n_policies, self._n_policies), len(self._task_ids))

    def _halves(self, rng: np.random.Generator, task_id: int, i: Policy, j: Policy) -> Halves:
        for policy in (i, j):
            seed = int(rng.integers(2**31))
            if (policy.pk, task_id) not in self._known:
                self._known[policy.pk, task_id] = Response(policy=policy, task_id=task_id, seed=seed)
        return self._known[i.pk, task_id], self._known[j.pk, task_id]


# By policy and task.
_Texts = defaultdict[int, defaultdict[int, list[Response]]]


class _Imported:
    """Responses that were written elsewhere, any number for each policy and task."""

    def __init__(self, experiment: Experiment) -> None:
        self._index = dict(experiment.policies.values_list("pk", "index"))
        self._pool: _Texts = defaultdict(lambda: defaultdict(list))
        written = Response.objects.filter(task__experiment=experiment)
        for response in written.only("policy_id", "task_id", "seed", "state", "digest").order_by("pk"):
            self._pool[response.policy_id][response.task_id].append(response)

    def draw(self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves:
        by_i, by_j, common = self._common(policy_i, policy_j)
        task_id = common[rng.integers(len(common))]
        first, second = (half[task_id][rng.integers(len(half[task_id]))] for half in (by_i, by_j))
        return first, second

    def in_random_order(
        self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy
    ) -> Iterator[Halves]:
        by_i, by_j, common = self._common(policy_i, policy_j)
        of_tasks = [list(itertools.product(by_i[task], by_j[task])) for task in common]
        halves = list(itertools.chain.from_iterable(of_tasks))
        # As `draw` would come upon them: all tasks alike, and all texts of a task.
        rarity = np.repeat([len(of_task) for of_task in of_tasks], [len(of_task) for of_task in of_tasks])
        return (halves[place] for place in np.argsort(rng.exponential(size=len(halves)) * rarity))

    def sizes(self) -> npt.NDArray[np.int64]:
        tasks = {task: place for place, task in enumerate({t for by in self._pool.values() for t in by})}
        texts = np.zeros((len(self._index), len(tasks)), dtype=np.int64)
        for policy, by_task in self._pool.items():
            for task, responses in by_task.items():
                texts[self._index[policy], tasks[task]] = len({each.digest for each in responses})
        return texts @ texts.T

    def _common(
        self, policy_i: Policy, policy_j: Policy
    ) -> tuple[dict[int, list[Response]], dict[int, list[Response]], list[int]]:
        by_i, by_j = self._pool[policy_i.pk], self._pool[policy_j.pk]
        return by_i, by_j, sorted(by_i.keys() & by_j.keys())

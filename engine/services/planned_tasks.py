"""Draws the task of a planned comparison, and its two responses.

* fresh: a task drawn uniformly with replacement, and a new response by either policy.
* reuse: the same task; a policy's response to a task is written once, when it is first wanted, and used
  ever after. Which one that is depends on nothing that was judged, so that the pool might as well have been
  written beforehand.
* imported: a task drawn uniformly from those to which both policies have responses, and one of either's
  responses to it.

The last two are statements about the pool. The same texts come again, so the risk δ is that of naming the
wrong winner for these tasks and these texts. Where people judge, tasks that are new to an annotator come
first for them, and what they have seen is left out: docs/algorithm.md says what that means for the risk.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from django.db.models import QuerySet

from engine.models import Experiment, Policy, Response
from engine.selectors import pools
from engine.selectors.pools import Familiarity, Half, Halves, Stored
from engine.selectors.task_changes import tasks_present


class Source(ABC):
    """Where the responses of a comparison come from, one class for each kind of responses."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves:
        """Two responses to one task, seen by annotators or not; new ones are not stored yet."""


class Pool(Source):
    """Responses that come again, read for policies that are asked for: most rounds ask for few.

    Parameters
    ----------
    responses
        Those that may be drawn.
    written
        What is known of them, by policy: read once and added to.
    """

    def __init__(
        self, experiment: Experiment, responses: QuerySet[Response], written: dict[int, _ByTask]
    ) -> None:
        self._index = {policy.pk: policy.index for policy in experiment.policies.all()}
        self._responses = responses.order_by("pk")
        self._written = written

    @abstractmethod
    def in_random_order(
        self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy
    ) -> Iterator[Halves]:
        """Everything that `draw` may give for these two policies, each once."""

    @abstractmethod
    def sizes(self) -> npt.NDArray[np.int64]:
        """K×K, symmetric: the number of different pairs of texts of each two policies."""

    def read(self, policy_ids: Collection[int]) -> None:
        """Read what these policies wrote, all of them at once, before it is asked for."""
        if not (unread := set(policy_ids) - self._written.keys()):
            return
        found: dict[int, _ByTask] = {policy_id: {} for policy_id in unread}
        rows = self._responses.filter(policy_id__in=unread)
        for row in map(Stored._make, rows.values_list(*Stored._fields)):
            found[row.policy_id].setdefault(row.task_id, []).append(row)
        # All at once: had the read failed half-way, the rest would be missing for good.
        self._written.update(found)

    def _written_by(self, policy_id: int) -> _ByTask:
        self.read([policy_id])
        return self._written[policy_id]


_ByTask = dict[int, list[Stored]]

# Pairs of responses whose tasks are looked up at once. Mostly one of the first few is new.
_FIRST, _AT_ONCE = 8, 200
# All pairs of sixteen policies. Of two that share 1,000 tasks it takes 30 kB.
_PAIRS_KEPT = 128


def source_of(experiment: Experiment, task_ids: list[int] | None = None) -> Source:
    """The source of an experiment's responses, to these tasks of it alone."""
    if task_ids is None and experiment.responses != Experiment.Responses.IMPORTED:
        task_ids = list(tasks_present(experiment).values_list("pk", flat=True))
    match Experiment.Responses(experiment.responses):
        case Experiment.Responses.FRESH:
            return _Fresh(task_ids or [])
        case Experiment.Responses.REUSE:
            return _Reused(experiment, task_ids or [])
        case Experiment.Responses.IMPORTED:
            return _Imported(experiment)


class Begun(NamedTuple):
    """A draw of which the first few pairs of texts have been looked up.

    Attributes
    ----------
    first
        These, in random order.
    again
        The state of the generator as it was, and the two policies. The order of a large pool takes megabytes,
        and is made again where none of ``first`` is of a new task.
    """

    first: list[Halves]
    again: tuple[Mapping[str, Any], Policy, Policy]


class PoolDrawer:
    """Draws from a finite pool what an annotator has not seen: first from tasks that are new to them, then
    two texts that they saw equally often, then any others.

    Parameters
    ----------
    annotator
        Number of their account; ``None`` for anybody.
    """

    def __init__(self, experiment: Experiment, pool: Pool, annotator: int | None) -> None:
        self._experiment = experiment
        self._pool = pool
        self._annotator = annotator
        self._known = pools.KnownTexts(experiment, annotator)

    def begin(self, wanted: Sequence[tuple[np.random.Generator, Policy, Policy]]) -> list[Begun]:
        """Begin draws, each of its generator for these two policies: what comes first in all of them is
        looked up at once.
        """
        self._pool.read({policy.pk for _, *policies in wanted for policy in policies})
        again = [(rng.bit_generator.state, policy_i, policy_j) for rng, policy_i, policy_j in wanted]
        first = [list(itertools.islice(self._pool.in_random_order(*each), _FIRST)) for each in wanted]
        self._known.read(itertools.chain.from_iterable(first))
        return list(map(Begun, first, again))

    def finish(self, begun: Begun) -> Halves | None:
        """Two responses to one task; ``None`` where the annotator has seen all that there are."""
        found, least = None, Familiarity.USED
        for halves in self._looked_up(begun):
            familiarity = self._known.familiarity(*halves)
            if familiarity < least:
                found, least = halves, familiarity
            if familiarity == Familiarity.NEW_TASK:
                break
        if found:
            self._known.add(*found)
        return found

    def _looked_up(self, begun: Begun) -> Iterator[Halves]:
        yield from begun.first
        state, policy_i, policy_j = begun.again
        rng = np.random.default_rng()
        rng.bit_generator.state = state
        rest = itertools.islice(self._pool.in_random_order(rng, policy_i, policy_j), _FIRST, None)
        while some := list(itertools.islice(rest, _AT_ONCE)):
            self._known.read(some)
            yield from some

    def pairs_left(self) -> npt.NDArray[np.bool_]:
        """K×K, symmetric: the pairs of policies of which the annotator may not have seen all."""
        return pools.pairs_left(self._experiment, self._annotator, self._pool.sizes())


class _Fresh(Source):
    """New responses to a task drawn uniformly with replacement."""

    def __init__(self, task_ids: list[int]) -> None:
        self._task_ids = task_ids

    def draw(self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves:
        task_id = self._task_ids[rng.integers(len(self._task_ids))]
        seed_i, seed_j = (int(seed) for seed in rng.integers(2**31, size=2))
        return (
            Response(policy=policy_i, task_id=task_id, seed=seed_i),
            Response(policy=policy_j, task_id=task_id, seed=seed_j),
        )


class _Reused(Pool):
    """One response for each policy and task; those that are not written yet are made by the draw."""

    def __init__(self, experiment: Experiment, task_ids: list[int]) -> None:
        super().__init__(experiment, Response.objects.exclude(state=Response.State.FAILED), written={})
        self._task_ids = task_ids
        self._drawn: dict[tuple[int, int], Half] = {}

    def draw(self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves:
        return self._halves(rng, self._task_ids[rng.integers(len(self._task_ids))], policy_i, policy_j)

    def in_random_order(
        self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy
    ) -> Iterator[Halves]:
        for place in rng.permutation(len(self._task_ids)):
            yield self._halves(rng, self._task_ids[place], policy_i, policy_j)

    def sizes(self) -> npt.NDArray[np.int64]:
        return np.full((len(self._index), len(self._index)), len(self._task_ids))

    def _halves(self, rng: np.random.Generator, task_id: int, i: Policy, j: Policy) -> Halves:
        # Seeds are drawn whether they are needed or not, so that what follows does not depend on it.
        return self._half(i, task_id, int(rng.integers(2**31))), self._half(
            j, task_id, int(rng.integers(2**31))
        )

    def _half(self, policy: Policy, task_id: int, seed: int) -> Half:
        if (policy.pk, task_id) not in self._drawn:
            written = self._written_by(policy.pk).get(task_id)
            self._drawn[policy.pk, task_id] = (
                written[0] if written else Response(policy=policy, task_id=task_id, seed=seed)
            )
        return self._drawn[policy.pk, task_id]


@dataclass(frozen=True)
class _ReadyMade:
    """The ready-made responses of an experiment that this process has read.

    Attributes
    ----------
    written
        Responses by policy.
    common
        The tasks that two policies both have texts for, by the two, of `_PAIRS_KEPT` pairs at most.
    """

    written: dict[int, _ByTask] = field(default_factory=dict)
    common: dict[tuple[int, int], _Common] = field(default_factory=dict)


# Each has at most 100,000 rows (`limits.RESPONSES`) of some 450 bytes.
@lru_cache(maxsize=4)
def _ready_made(experiment_id: int, created_at: datetime) -> _ReadyMade:
    """The responses of an experiment, kept from round to round: none is changed, added or deleted once it has
    started, and none is drawn before.

    Two databases may have an experiment of one number, but not made at one moment.
    """
    return _ReadyMade()


class _Imported(Pool):
    """Responses that were written elsewhere, any number for each policy and task."""

    def __init__(self, experiment: Experiment) -> None:
        self._kept = _ready_made(experiment.pk, experiment.created_at)
        super().__init__(experiment, Response.objects.all(), self._kept.written)

    def draw(self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy) -> Halves:
        tasks = self._common(policy_i, policy_j)
        task_id = tasks.ids[rng.integers(len(tasks.ids))]
        first, second = (half[task_id][rng.integers(len(half[task_id]))] for half in tasks.written)
        return first, second

    def in_random_order(
        self, rng: np.random.Generator, policy_i: Policy, policy_j: Policy
    ) -> Iterator[Halves]:
        tasks = self._common(policy_i, policy_j)
        by_i, by_j = tasks.written
        # How many texts its task has. An exponential variable times it orders the pairs of texts as `draw`
        # would come upon them: all tasks alike, and all texts of a task.
        rarity = np.repeat(tasks.n_texts, tasks.n_texts)
        for place in np.argsort(rng.exponential(size=len(rarity)) * rarity):
            at = int(np.searchsorted(tasks.ends, place, side="right"))
            task_id = tasks.ids[at]
            first, second = divmod(int(place - tasks.ends[at] + tasks.n_texts[at]), len(by_j[task_id]))
            yield by_i[task_id][first], by_j[task_id][second]

    def sizes(self) -> npt.NDArray[np.int64]:
        self.read(self._index)
        written = {index: self._written_by(pk) for pk, index in self._index.items()}
        places = {task: place for place, task in enumerate({task for by in written.values() for task in by})}
        texts = np.zeros((len(self._index), len(places)), dtype=np.int64)
        for index, by_task in written.items():
            for task, rows in by_task.items():
                texts[index, places[task]] = len({row.digest for row in rows})
        return texts @ texts.T

    def _common(self, policy_i: Policy, policy_j: Policy) -> _Common:
        pair, kept = (policy_i.pk, policy_j.pk), self._kept.common
        if (found := kept.get(pair)) is None:
            if len(kept) >= _PAIRS_KEPT:
                kept.clear()
            found = kept[pair] = _common_tasks(self._written_by(policy_i.pk), self._written_by(policy_j.pk))
        return found


def _common_tasks(by_i: _ByTask, by_j: _ByTask) -> _Common:
    ids = sorted(by_i.keys() & by_j.keys())
    n_texts = np.array([len(by_i[task]) * len(by_j[task]) for task in ids], dtype=np.int64)
    return _Common((by_i, by_j), ids, n_texts, ends=np.cumsum(n_texts))


@dataclass(frozen=True)
class _Common:
    """The tasks that two policies both have texts for.

    Attributes
    ----------
    written
        What each of them wrote.
    ids
        Their numbers, in order.
    n_texts, ends
        Shape (n,): the pairs of texts for each task, and the sum up to and with it.
    """

    written: tuple[_ByTask, _ByTask]
    ids: list[int]
    n_texts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

"""Finite pools of responses: the pairs that each annotator has seen, and the pairs that are left for them."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from django.db.models import Count, OuterRef, Q, QuerySet

from engine.domain.texts import NOTHING, pair_of_texts
from engine.models import Assignment, Comparison, Experiment, Judgment, Response, Task, User
from engine.selectors import counts
from engine.selectors.people import annotators
from engine.selectors.seen_texts import found_one, has_seen, has_seen_unequally


class Stored(NamedTuple):
    """A response of a pool, as far as a draw needs it. A round of planning looks at several for each that it
    takes, and making a model of one costs more than drawing it.
    """

    pk: int
    policy_id: int
    task_id: int
    state: str
    digest: str


# A response that is no row yet is a model, to be stored with its comparison.
Half = Response | Stored
Halves = tuple[Half, Half]


def is_finite(experiment: Experiment) -> bool:
    """True if people judge it and the same responses come again."""
    return experiment.judge == Experiment.Judge.HUMAN and experiment.responses != Experiment.Responses.FRESH


@dataclass(frozen=True)
class Stock:
    """The comparisons that wait and that one annotator may still be shown.

    Attributes
    ----------
    annotator
        The number of their account; ``None`` stands for anybody, where there is no annotator yet.
    n_waiting, n_texts
        Waiting comparisons with texts that they have not seen, and the different pairs of texts in them.
    """

    annotator: int | None
    n_waiting: int
    n_texts: int


def stocks(experiment: Experiment, among: Collection[int] | None = None) -> list[Stock]:
    """The stock of every annotator, or of the accounts in ``among``; the smallest first."""
    if among is not None and not among:
        return []
    everybody = annotators(experiment.pk).values_list("user_id", flat=True)
    people: list[int | None] = [person for person in everybody if among is None or person in among]
    waits = counts.waiting(experiment)
    waiting = Counter(waits.values_list("texts", flat=True))
    names = [name for name in waiting if name]
    # The index of texts has only those that are named.
    shown = Assignment.objects.filter(
        annotator__in=people, comparison__texts__in=names, comparison__texts__gt=""
    ).distinct()
    behind = Assignment.objects.filter(
        annotator__in=people, in_place_of__texts__in=names, state=Assignment.State.OPEN
    )
    seen: defaultdict[int | None, set[str]] = defaultdict(set)
    for person, name in [
        *shown.values_list("annotator_id", "comparison__texts"),
        *behind.values_list("annotator_id", "in_place_of__texts"),
    ]:
        seen[person].add(name)
    if not people and among is None:
        people = [None]
    stock = [
        Stock(
            person,
            n_waiting=waiting.total()
            - sum(waiting[name] for name in seen[person])
            - _n_that_would_tell(experiment, waits, person, seen[person]),
            n_texts=len(names) - len(seen[person]),
        )
        for person in people
    ]
    return sorted(stock, key=lambda each: each.n_waiting)


def _n_that_would_tell(
    experiment: Experiment, waits: QuerySet[Comparison], person: int | None, seen: Collection[str]
) -> int:
    """The number of waiting pairs, not seen as they are, that the experiment does not show this person."""
    if not experiment.equally_seen_only or person is None:
        return 0
    return waits.exclude(texts__in=seen).filter(has_seen_unequally(User(pk=person))).count()


def with_texts_left(experiment: Experiment, stocks: Sequence[Stock]) -> list[Stock]:
    """The stocks to which a comparison can perhaps be added: their annotators have not seen all texts of
    which none waits for them. A few reads for all of them, in place of a draw for each.
    """
    unseen = _n_unseen(experiment, stocks)
    return [stock for stock in stocks if stock.n_texts < unseen[stock.annotator]]


def _n_unseen(experiment: Experiment, stocks: Sequence[Stock]) -> dict[int | None, int]:
    """The number of different pairs of texts that each of these annotators has not seen."""
    people = [stock.annotator for stock in stocks if stock.annotator is not None]
    here = {"comparison__policy_i__retired_at": None, "comparison__policy_j__retired_at": None}
    shown = Assignment.objects.filter(annotator__in=people, comparison__experiment=experiment, **here)
    rows = shown.order_by().values_list("annotator_id").annotate(n=Count("comparison__texts", distinct=True))
    seen: dict[int | None, int] = dict(rows)
    most = n_texts(experiment) if stocks else 0
    return {stock.annotator: max(0, most - seen.get(stock.annotator, 0)) for stock in stocks}


def n_texts(experiment: Experiment) -> int:
    """The number of different pairs of texts that can be shown, of policies that are present. A text that is
    still to be written counts as one of its own.
    """
    if experiment.responses == Experiment.Responses.IMPORTED:
        return ready_made(experiment).n_pairs
    texts: dict[int, dict[int, set[str]]] = {task.pk: {} for task in experiment.tasks.only("pk")}
    here = set(experiment.policies.present().values_list("pk", flat=True))
    for task, policy, digest in _written(experiment.pk):
        if policy in here:
            # The first one is used again, should there be more.
            texts[task].setdefault(policy, {digest})
    n_policies = len(here)
    return sum(_n_pairs(by_policy.values(), n_policies - len(by_policy)) for by_policy in texts.values())


@dataclass(frozen=True)
class ReadyMade:
    """The ready-made texts of an experiment that has started.

    Attributes
    ----------
    n_pairs
        The number of different pairs of texts that can be shown, of policies that are present.
    is_single
        True if each policy has one response to every task.
    is_distinct
        True if no two responses to a task are the same text.
    """

    n_pairs: int
    is_single: bool
    is_distinct: bool


def ready_made(experiment: Experiment) -> ReadyMade:
    """The ready-made texts, read once by each process."""
    policies = experiment.policies.values_list("pk", "retired_at")
    here = frozenset(pk for pk, retired_at in policies if retired_at is None)
    return _ready_made(experiment.pk, experiment.created_at, len(policies), here)


# They stay as they are once the experiment has started, and a policy that joins brings its own. Two databases
# may have an experiment of one number, but not made at one moment.
@lru_cache(maxsize=64)
def _ready_made(experiment_id: int, created_at: datetime, n_policies: int, here: frozenset[int]) -> ReadyMade:
    texts: defaultdict[int, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    n_responses: Counter[tuple[int, int]] = Counter()
    for task, policy, digest in _written(experiment_id):
        texts[task][policy].add(digest)
        n_responses[policy, task] += 1
    n_tasks = Task.objects.filter(experiment=experiment_id).count()
    n_distinct = sum(len(set[str]().union(*by_policy.values())) for by_policy in texts.values())
    return ReadyMade(
        n_pairs=sum(
            _n_pairs([texts for policy, texts in by_policy.items() if policy in here], 0)
            for by_policy in texts.values()
        ),
        is_single=n_responses.total() == len(n_responses) == n_tasks * n_policies,
        is_distinct=n_distinct == n_responses.total(),
    )


def _written(experiment_id: int) -> Iterable[tuple[int, int, str]]:
    """Task, policy and digest of each text, in the order of their numbers."""
    rows = Response.objects.filter(policy__experiment=experiment_id, state=Response.State.DONE)
    return rows.order_by("pk").values_list("task_id", "policy_id", "digest")


def _n_pairs(texts: Collection[set[str]], n_unwritten: int) -> int:
    """The pairs of different texts to one task, by the texts of each policy."""
    authors = Counter(itertools.chain.from_iterable(texts))
    # Two texts that one policy alone wrote are never shown beside each other.
    apart = sum(math.comb(sum(authors[text] == 1 for text in own), 2) for own in texts)
    return math.comb(len(authors) + n_unwritten, 2) - apart


@dataclass(frozen=True)
class Supply:
    """The supply of a finite pool for its annotators, none of whom judges the same two texts twice.

    Attributes
    ----------
    n_through
        Annotators who have seen all texts that there are, while comparisons wait for others.
    n_answers
        The most answers that all of them together can still give.
    """

    n_through: int
    n_answers: int


def supply(experiment: Experiment) -> Supply | None:
    """The supply of the pool for all annotators; ``None`` where every comparison has new texts."""
    if not is_finite(experiment):
        return None
    found = stocks(experiment)
    unseen = _n_unseen(experiment, found)
    # Nothing is planned for members who are away while somebody is here, so that nothing waits for them.
    n_through = sum(stock.n_waiting == 0 == unseen[stock.annotator] for stock in found)
    return Supply(
        n_through=n_through if found[-1].n_waiting else 0,
        n_answers=sum(n for annotator, n in unseen.items() if annotator is not None),
    )


def waits_for_others(experiment: Experiment, annotator: User) -> bool:
    """True if a comparison is ready whose texts the annotator has judged already."""
    ready = experiment.comparisons.filter(state=Comparison.State.READY)
    return ready.filter(has_seen(annotator, OuterRef("texts"))).exists()


def awaits_planning(experiment: Experiment, annotator: User) -> bool:
    """True if everything was used up before this annotator came: the next planning finds all of it for
    them.
    """
    if not experiment.used_up:
        return False
    return not Assignment.objects.filter(comparison__experiment=experiment, annotator=annotator).exists()


class Familiarity(IntEnum):
    """How an annotator knows the two texts of a pair. Pairs are drawn and shown in this order."""

    NEW_TASK = 0
    EQUALLY_SEEN = 1
    # Policies near the top are asked for most, so the text that was seen more often is mostly the leader's.
    UNEQUALLY_SEEN = 2
    USED = 3


class KnownTexts:
    """The texts of some tasks that an annotator has seen, or that wait.

    Parameters
    ----------
    annotator
        Number of their account; ``None`` for anybody.
    """

    def __init__(self, experiment: Experiment, annotator: int | None) -> None:
        self._experiment = experiment
        self._annotator = annotator
        # By task, how often each text was shown. A task without comparisons has none.
        self._shown: dict[int, Counter[str] | None] = {}
        self._pairs: Counter[str] = Counter()

    def read(self, halves: Iterable[Halves]) -> None:
        """Read what is known of the tasks of these pairs."""
        if not (tasks := {first.task_id for first, _ in halves} - self._shown.keys()):
            return
        self._shown.update(dict.fromkeys(tasks))
        rows = _out_of_reach(self._experiment.pk, self._annotator).filter(task__in=tasks)
        for name, task, i, j, *digests in rows.values_list(
            "texts", "task_id", "policy_i_id", "policy_j_id", "response_i__digest", "response_j__digest"
        ):
            texts = [digest or f"policy {policy}" for digest, policy in zip(digests, (i, j), strict=True)]
            self._count(name or _provisional(task, i, j), task, texts)

    def add(self, first: Half, second: Half) -> None:
        """Count a pair that is planned now."""
        self._count(name_of(first, second), first.task_id, [_text(first), _text(second)])

    def familiarity(self, first: Half, second: Half) -> Familiarity:
        """How these two texts, of a task that was read, are known."""
        name, shown = name_of(first, second), self._shown[first.task_id]
        if shown is None:
            return Familiarity.NEW_TASK
        # One that nobody looks at is settled as often as each other one can be judged.
        if self._pairs[name] >= (self._n_people if rule_for(self._experiment, name) else 1):
            return Familiarity.USED
        if shown[_text(first)] == shown[_text(second)]:
            return Familiarity.EQUALLY_SEEN
        return Familiarity.USED if self._experiment.equally_seen_only else Familiarity.UNEQUALLY_SEEN

    def _count(self, name: str, task: int, texts: Iterable[str]) -> None:
        self._pairs[name] += 1
        shown = self._shown[task] = self._shown[task] or Counter()
        if not rule_for(self._experiment, name):
            shown.update(texts)

    @cached_property
    def _n_people(self) -> int:
        return max(annotators(self._experiment.pk).count(), 1)


def shown_by_familiarity(experiment: Experiment) -> Counter[Familiarity]:
    """The number of pairs that people were shown, by how they knew the two texts then."""
    seen: defaultdict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    found = Counter[Familiarity]()
    given = Assignment.objects.filter(comparison__experiment=experiment).order_by("pk")
    for annotator, task, *texts in given.values_list(
        "annotator_id",
        "comparison__task_id",
        "comparison__response_i__digest",
        "comparison__response_j__digest",
    ):
        shown = seen[annotator, task]
        equally = Familiarity.EQUALLY_SEEN if shown else Familiarity.NEW_TASK
        found[equally if shown[texts[0]] == shown[texts[1]] else Familiarity.UNEQUALLY_SEEN] += 1
        shown.update(texts)
    return found


def _text(half: Half) -> str:
    return half.digest or f"policy {half.policy_id}"


def pairs_left(
    experiment: Experiment, annotator: int | None, sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """K×K, symmetric: the pairs of policies that are present and of which the annotator may have texts left.

    ``sizes``: K×K, the number of different pairs of texts of each two policies. A pair of texts that two
    pairs of policies share counts for one of them only. So too many pairs may be said to have some left.
    """
    left = sizes.copy()
    rows = (
        _out_of_reach(experiment.pk, annotator)
        .values_list("policy_i__index", "policy_j__index")
        .annotate(n=Count("texts", distinct=True))
    )
    for i, j, n in rows:
        left[i, j] -= n
        left[j, i] -= n
    np.fill_diagonal(left, 0)
    away = list(experiment.policies.exclude(retired_at=None).values_list("index", flat=True))
    left[away, :] = left[:, away] = 0
    return left > 0


def _out_of_reach(experiment: int, annotator: int | None) -> QuerySet[Comparison]:
    """Comparisons whose texts are not to be planned for this annotator again: they wait, or were seen."""
    own = Comparison.objects.filter(experiment=experiment)
    if annotator is None:
        return own.exclude(state=Comparison.State.DISCARDED)
    given = Assignment.objects.filter(comparison=OuterRef("pk"), annotator=annotator)
    judgments = Judgment.objects.filter(comparison=OuterRef("pk"), standing=True)
    theirs = Q(annotator=annotator) | Q(via__in=Judgment.UNSEEN)
    return own.filter(
        Q(state__in=Comparison.PENDING) | Q(found_one(given)) | Q(found_one(judgments.filter(theirs)))
    )


def name_of(first: Half, second: Half) -> str:
    """The key of a pair of texts, as comparisons store it; a provisional one before both are written."""
    if _are_written(first, second):
        return pair_of_texts(first.task_id, first.digest, second.digest)
    return _provisional(first.task_id, first.policy_id, second.policy_id)


def _provisional(task_id: int, policy_i: int, policy_j: int) -> str:
    return f"{task_id}:policy {policy_i}:policy {policy_j}"


def _are_written(first: Half, second: Half) -> bool:
    return first.state == second.state == Response.State.DONE


def rule_for(experiment: Experiment, name: str) -> str:
    """The rule that judges two texts of this name: "identical" or "no_answer"; else empty."""
    _task, first, second = name.split(":")
    if first == second:
        return Judgment.Via.IDENTICAL.value if first != NOTHING else ""
    loses = experiment.no_answer == Experiment.NoAnswer.LOSES and NOTHING in {first, second}
    return Judgment.Via.NO_ANSWER.value if loses else ""

"""A search of comparisons and judgments, page by page, and the responses as they are listed."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Exists, F, Func, OuterRef, Prefetch, Q, QuerySet, Value
from django.db.models.sql.compiler import SQLCompiler

from engine.domain.conversations import Message, turns_of
from engine.models import Assignment, Comparison, Experiment, Flag, Judgment, Response, Task
from engine.models.full_text import responses_with
from engine.selectors.blinding import in_finished_comparison

STANDING, VOID = "standing", "void"

# A text in at most so many tasks and responses is rare: their comparisons are looked up.
_RARE = 5000


@dataclass(frozen=True)
class Selection:
    """A choice of comparisons of an experiment and of their judgments. Empty fields select everything.

    Attributes
    ----------
    policy, against
        Policy indices: on either side; both together are a pair.
    winner
        Index of the policy that the comparison's outcome D favours.
    state
        State of the comparison.
    flag
        A `Flag.Reason`, or "any".
    text
        In the task or in either response, in capitals or not.
    tag
        A tag of the task.
    judgments
        `STANDING` or `VOID`.
    judge, annotator, choice
        Properties of the judgment; the annotator by user name.
    finished
        Only finished comparisons: judged or discarded.
    """

    policy: int | None = None
    against: int | None = None
    winner: int | None = None
    state: str = ""
    flag: str = ""
    text: str = ""
    tag: str = ""
    judgments: str = ""
    judge: str = ""
    annotator: str = ""
    choice: str = ""
    finished: bool = False


def selected_comparisons(experiment: Experiment, selection: Selection) -> QuerySet[Comparison]:
    """The comparisons with at least one selected judgment, or all if judgments are not filtered."""
    comparisons = Comparison.objects.filter(_of_comparison(experiment, selection, ""), experiment=experiment)
    conditions = _of_judgment(selection)
    if conditions:
        judgments = Judgment.objects.filter(conditions, comparison=OuterRef("pk"))
        comparisons = comparisons.filter(Exists(judgments))
    return comparisons


def selected_judgments(experiment: Experiment, selection: Selection) -> QuerySet[Judgment]:
    """The selected judgments of the selected comparisons, in the order in which they were made."""
    return Judgment.objects.filter(
        _of_comparison(experiment, selection, "comparison__"),
        _of_judgment(selection),
        comparison__experiment=experiment,
    ).order_by("pk")


def written_responses(experiment: Experiment, *, tag: str = "", finished: bool = False) -> QuerySet[Response]:
    """The responses of an experiment, ready-made or written here, in the order in which they were stored.
    Those of a trial are no part of them.

    ``tag``: only responses to tasks with this tag. ``finished``: only those of a comparison that nobody can
    be shown any more.
    """
    done = Response.objects.filter(
        policy__experiment=experiment, state=Response.State.DONE, trial__isnull=True
    )
    if tag:
        done = done.filter(task__in=tasks_tagged(experiment, tag))
    if finished:
        done = done.filter(in_finished_comparison())
    return done.order_by("pk")


def texts_of(response_ids: Collection[int]) -> dict[int, tuple[tuple[Message, ...], str]]:
    """The task's messages and the text of each of these responses, by its number."""
    responses = Response.objects.filter(pk__in=response_ids)
    rows = responses.values_list("pk", "task__prompt", "task__messages", "text")
    return {pk: (turns_of(prompt, messages), text) for pk, prompt, messages, text in rows}


def _of_judgment(selection: Selection) -> Q:
    conditions = Q()
    if selection.judgments:
        conditions &= Q(standing=selection.judgments == STANDING)
    if selection.judge:
        conditions &= Q(judge=selection.judge)
    if selection.annotator:
        conditions &= Q(annotator__username=selection.annotator)
    if selection.choice:
        conditions &= Q(choice=selection.choice)
    return conditions


def _of_comparison(experiment: Experiment, selection: Selection, at: str) -> Q:
    conditions = _of_policies(experiment, selection, at)
    if selection.finished:
        conditions &= ~Q(**{f"{at}state__in": Comparison.PENDING})
    if selection.state:
        conditions &= Q(**{f"{at}state": selection.state})
    if selection.flag:
        flags = Flag.objects.filter(comparison=OuterRef(f"{at}pk"))
        conditions &= Q(Exists(flags if selection.flag == "any" else flags.filter(reason=selection.flag)))
    if selection.text:
        conditions &= _of_text(experiment, selection.text, at)
    if selection.tag:
        conditions &= Q(**{f"{at}task__in": tasks_tagged(experiment, selection.tag)})
    return conditions


def _of_text(experiment: Experiment, text: str, at: str) -> Q:
    """Comparisons with ``text`` in their task or in a response.

    A rare text is looked up in the index of texts, and the comparisons are found from its tasks and
    responses. For a frequent text the comparisons are searched one after another: the first page fills
    quickly.
    """
    tasks = Task.objects.filter(experiment=experiment, prompt__icontains=text)
    responses = Response.objects.filter(responses_with(text), policy__experiment=experiment)
    found = [list(rows.order_by().values_list("pk", flat=True)[: _RARE + 1]) for rows in (tasks, responses)]
    if max(map(len, found)) <= _RARE:
        of_tasks, of_responses = found
        return (
            Q(**{f"{at}task__in": of_tasks})
            | Q(**{f"{at}response_i__in": of_responses})
            | Q(**{f"{at}response_j__in": of_responses})
        )
    return (
        Q(**{f"{at}task__in": tasks})
        | Q(**{f"{at}response_i__text__icontains": text})
        | Q(**{f"{at}response_j__text__icontains": text})
    )


class _HasTag(Func):
    """True if a JSON list holds a text. Django's own lookup for that does not exist on SQLite."""

    function = "jsonb_exists"
    output_field = BooleanField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any
    ) -> tuple[str, tuple[Any, ...]]:
        return super().as_sql(
            compiler,
            connection,
            template="EXISTS (SELECT 1 FROM json_each(%(expressions)s)",
            arg_joiner=") WHERE value = ",
            **extra,
        )


def tasks_tagged(experiment: Experiment, tag: str) -> QuerySet[Task]:
    """The tasks of an experiment that have this tag, which may be any text."""
    if tag not in tags_of(experiment):
        return Task.objects.none()
    return Task.objects.filter(_HasTag(F("tags"), Value(tag)), experiment=experiment)


def tags_of(experiment: Experiment) -> list[str]:
    """All tags of the experiment's tasks, sorted."""
    lists = experiment.tasks.exclude(tags=[]).order_by().values_list("tags", flat=True).distinct()
    return sorted({tag for tags in lists for tag in tags})


def _of_policies(experiment: Experiment, selection: Selection, at: str) -> Q:
    conditions = Q()
    for index in (selection.policy, selection.against):
        if index is not None:
            policy = experiment.policies.at(index)
            conditions &= Q(**{f"{at}policy_i": policy}) | Q(**{f"{at}policy_j": policy})
    if selection.winner is not None:
        policy = experiment.policies.at(selection.winner)
        conditions &= Q(**{f"{at}policy_i": policy, f"{at}outcome__gt": 0.5}) | Q(
            **{f"{at}policy_j": policy, f"{at}outcome__lt": 0.5}
        )
    return conditions


@dataclass(frozen=True)
class Page:
    """Some comparisons, newest first, and whether there are newer and older ones."""

    comparisons: list[Comparison]
    newer: bool
    older: bool


def page_of(
    comparisons: QuerySet[Comparison], *, before: int | None = None, after: int | None = None, size: int = 50
) -> Page:
    """The newest comparisons, or those before or after a number. Each page costs the same.

    Nothing is counted: with a hundred thousand rows, the count would take longer than the page.
    """
    rows = comparisons.select_related("task", "policy_i", "policy_j").prefetch_related(
        Prefetch("judgments", Judgment.objects.select_related("annotator", "void").order_by("pk")), "flags"
    )
    if after is not None:
        found = list(rows.filter(number__gt=after).order_by("number")[: size + 1])
        return Page(found[:size][::-1], newer=len(found) > size, older=True)
    if before is not None:
        rows = rows.filter(number__lt=before)
    found = list(rows.order_by("-number")[: size + 1])
    return Page(found[:size], newer=before is not None, older=len(found) > size)


def judgment_without_outcome(experiment: Experiment, judgment_id: int) -> Judgment | None:
    """A judgment for the page that voids it: without answer, outcome, or a revealing reason.

    ``None`` where the experiment has none such.
    """
    return (
        Judgment.objects.filter(pk=judgment_id, comparison__experiment=experiment)
        .select_related("annotator", "void__by", "restored_by", "comparison__task")
        .select_related("comparison__response_i", "comparison__response_j")
        .prefetch_related(
            Prefetch("repeats", Assignment.objects.filter(passed__isnull=False)),
            Prefetch("comparison__flags", Flag.objects.select_related("annotator").order_by("pk")),
        )
        .defer("choice", "outcome", "reason", "comparison__outcome")
        .first()
    )


def comparison_in_full(experiment: Experiment, comparison_id: int) -> Comparison | None:
    """A comparison with everything that its page shows; ``None`` where the experiment has none such."""
    judgments = Judgment.objects.select_related("annotator", "void__by", "restores", "restored_by")
    return (
        experiment.comparisons.select_related("task", "policy_i", "policy_j", "response_i", "response_j")
        .prefetch_related(
            Prefetch("judgments", judgments.order_by("pk")),
            Prefetch("judgments__repeats", Assignment.objects.select_related("annotator").order_by("pk")),
            Prefetch("flags", Flag.objects.select_related("annotator").order_by("pk")),
            Prefetch("assignments", Assignment.objects.select_related("annotator").order_by("pk")),
        )
        .filter(pk=comparison_id)
        .first()
    )

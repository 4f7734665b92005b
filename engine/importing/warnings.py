"""Possible slips in lists of tasks and of gold items that were read: what somebody should look at again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.core import wording
from engine.domain.specs import GoldSpec, TaskSpec
from engine.domain.variables import NAME
from engine.importing import plain_lines, slips
from engine.importing.items import HEADINGS, KNOWN, REFERENCE_NAMES, TASK_NAMES, rivals_in, rows_in, whole
from engine.importing.rows import Row
from engine.importing.sources import Source

# Columns of a gold item.
_OF_GOLD = {*TASK_NAMES, "messages", "better", "worse", "explanation"}
# Each two columns of files that are no lists of tasks.
_OF_OTHERS = (
    {"policy", "response"}, {"policy_a", "policy_b"}, {"model_a", "model_b"}, {"chosen", "rejected"},
    {"response_a", "response_b"},
)  # fmt: skip
# Columns that say that a model wrote the output of their row.
_OF_MODELS = ("generator", "model", "model_name", "model_id")


def warnings_of_tasks(tasks: Sequence[TaskSpec], given: str | Source = "") -> list[str]:
    """Possible slips in a list of tasks, each with its count.

    ``given``: the text or the files that the tasks were read from, if their columns have their own names.
    """
    texts = [task.prompt for task in tasks]
    warnings = []
    same = slips.twice([(task.prompt, *sorted(task.variables.items())) for task in tasks])
    if same:
        warnings.append(f"{wording.number(same, 'task')} came more than once. Each counts.")
    if n := slips.twice(texts) - same:
        warnings.append(
            f"{wording.number(n, 'task')} came with the text of an earlier one, and with other variables: "
            f"{wording.number(len(set(texts)), 'different text')} in all. Each task counts."
        )
    beside = [text for task in tasks for text in (task.reference, *task.variables.values())]
    found = rows_in(given, plain=HEADINGS, beside=REFERENCE_NAMES) if given else ()
    rows = [row for row in found if isinstance(row, Row)]
    fields = [whole(row).fields for row in rows]
    are_lines = bool(rows) and all(row.place.startswith("line") and not row.heading for row in rows)
    return [
        *warnings,
        *(_of_lines(rows, tasks) if are_lines else ()),
        *slips.in_texts(texts, "task"),
        *slips.spaced(texts, "task"),
        *slips.of_programs(texts, "task"),
        *slips.in_texts(beside, "answer or variable", "answers or variables"),
        *slips.whole_numbers(beside, "answer or variable", "answers or variables"),
        *slips.of_programs((task.reference for task in tasks), "answer"),
        *slips.left_out(Counter(pair for each in fields for pair in rivals_in(each))),
        *_no_variables(fields),
        *_unseen(fields),
        *_of_responses_or_votes(fields),
        *_of_models(fields),
        *slips.nearly_equal(texts, "task", "tasks"),
        *(given.warnings if isinstance(given, Source) else ()),
    ]


def _of_lines(rows: Sequence[Row], tasks: Sequence[TaskSpec]) -> Iterator[str]:
    """Warnings of tasks that are plain lines."""
    yield from slips.heading([(task.prompt, task.reference) for task in tasks])
    numbers = (int(row.place.removeprefix("line ")) for row in rows)
    yield from plain_lines.warnings([(n, task.prompt) for n, task in zip(numbers, tasks, strict=True)])


def _no_variables(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A warning of the columns that are left out, as no variable has such a name or such a value."""
    found: dict[str, None] = {}
    for fields in rows:
        for name, value in fields.items():
            is_variable = NAME.fullmatch(name) and isinstance(value, (str, int, float))
            if name and name not in KNOWN and value not in (None, "", [], {}) and not is_variable:
                found[name] = None
    for said in slips.columns_left_out(found):
        yield f"{said} A variable has a name such as customer_name, and is a text or a number."


def _unseen(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A warning of columns that may be a part of their task, and became variables, which no message has."""
    found = Counter(
        name
        for fields in rows
        for name, value in fields.items()
        if name.replace("_", "") in slips.OF_A_TASK and isinstance(value, str) and value
    )
    for name, n in found.items():
        yield (
            f"{wording.number(n, 'task')} with {name} as a variable: a model reads it only where a prompt "
            f"has {{{{ {name} }}}}, and annotators do not see it. Where it belongs to the task, write it "
            "into the task."
        )


def _of_responses_or_votes(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A warning where the columns are those of a file of responses or of votes."""
    for pair in _OF_OTHERS:
        if n := sum(fields.keys() >= pair for fields in rows):
            yield (
                f"{wording.number(n, 'row')} with {' and '.join(sorted(pair))}, as files of responses or "
                "votes have them. Each row is one task now. Bring responses and votes where they are "
                "asked for."
            )
            return


def _of_models(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A warning where a column beside the right answer says that a model wrote it."""
    found = Counter(
        model
        for fields in rows
        for model in _OF_MODELS
        if fields.get(model) and next((name for name in REFERENCE_NAMES if fields.get(name)), "") == "output"
    )
    for model, n in found.items():
        yield (
            f"{wording.number(n, 'task')} with an output as the right answer, though {model} names a model "
            "that may have written it. Where that is so, leave the column output out."
        )


def warnings_of_gold(gold: Sequence[GoldSpec], given: str) -> list[str]:
    """Possible slips in a list of gold items, each with its count.

    ``given``: the text that they were read from.
    """
    texts = (text for item in gold for text in (item.prompt, item.better, item.worse, item.explanation))
    fields = [whole(row).fields for row in rows_in(given) if isinstance(row, Row)]
    given_names = dict.fromkeys(
        name for each in fields for name, value in each.items() if value not in (None, "", [], {})
    )
    return [
        *slips.in_texts(texts, "text of a gold item", "texts of gold items"),
        *slips.columns_left_out([name for name in given_names if name not in _OF_GOLD]),
    ]

"""Tasks, gold items and ready-made responses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from engine.domain.limits import GOLD_ITEMS, RESPONSES, TASKS, Limit
from engine.domain.specs import GoldSpec, ReadyMade, TaskSpec
from engine.importing.mapping import Columns, as_policies, renamed, wide
from engine.importing.rows import Fault, ImportingError, Row, raise_any, rows_of, text_of

_TASK = ("prompt", "task", "input", "question")
# `ideal` is OpenAI evals', `answers` SQuAD's.
_REFERENCE = ("reference", "target", "output", "answer", "answers", "ideal")
_NOTHING = {"null", "none", "nan", "n/a"}
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Answers:
    """The content of a file of ready-made responses, and what somebody should know about it."""

    policies: list[str]
    tasks: list[TaskSpec]
    responses: list[ReadyMade]
    warnings: Sequence[str] = ()


def _read(rows: Iterable[Row | Fault], make: Callable[[Row], _Item], limit: Limit) -> list[_Item]:
    """The results of ``make`` for the rows. At most one row more than the limit is read, faulty ones
    included.
    """
    items: list[_Item] = []
    faults: list[Fault] = []
    for number, row in enumerate(rows, 1):
        if number > limit.most:
            faults.append(
                Fault("", f"More than {limit.most:,} {limit.thing}, which is the limit. {limit.advice}")
            )
            break
        if isinstance(row, Fault):
            faults.append(row)
            continue
        try:
            items.append(make(row))
        except ImportingError as error:
            faults += error.faults
    raise_any(faults)
    return items


def read_tasks(text: str, columns: Columns | None = None) -> list[TaskSpec]:
    """Tasks: one per line (after a tab its right answer), CSV, JSON Lines, JSON, BIG-bench or Instruction
    Induction.

    ``columns``: what columns are that have other names. The first line is a heading then.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    own = {column: meaning for column, meaning in (columns or {}).items() if meaning in {"task", "reference"}}
    rows = renamed(rows_of(text), own) if own else rows_of(text, plain=_TASK, beside=_REFERENCE)
    return _read(rows, _task, TASKS)


def _task(row: Row) -> TaskSpec:
    prompt = text_of(row, _TASK)
    if not prompt.strip():
        raise ImportingError.at(row.place, "The task is empty. Write it, or remove the row.")
    return TaskSpec(prompt, text_of(row, _REFERENCE, required=False))


def write_tasks(tasks: Sequence[TaskSpec]) -> str:
    """The tasks as :func:`read_tasks` reads them: plain lines where those say it all, else JSON Lines."""
    lines = [f"{task.prompt}\t{task.reference}" if task.reference else task.prompt for task in tasks]
    plain = "\n".join(lines)
    try:
        if read_tasks(plain) == list(tasks):
            return plain
    except ImportingError:
        pass
    return "\n".join(
        json.dumps(
            {"prompt": task.prompt} | ({"reference": task.reference} if task.reference else {}),
            ensure_ascii=False,
        )
        for task in tasks
    )


def read_gold(text: str) -> list[GoldSpec]:
    """Gold items: CSV or JSON with prompt, better, worse and, where wanted, explanation.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    return _read(
        rows_of(text),
        lambda row: GoldSpec(
            prompt=text_of(row, _TASK),
            better=text_of(row, ["better"]),
            worse=text_of(row, ["worse"]),
            explanation=text_of(row, ["explanation"], required=False),
        ),
        GOLD_ITEMS,
    )


def write_gold(gold: Sequence[GoldSpec]) -> str:
    """The gold items as :func:`read_gold` reads them."""
    return "\n".join(
        json.dumps(
            {"prompt": item.prompt, "better": item.better, "worse": item.worse}
            | ({"explanation": item.explanation} if item.explanation else {}),
            ensure_ascii=False,
        )
        for item in gold
    )


def read_responses(text: str, columns: Columns | None = None) -> Answers:
    """Ready-made responses: CSV or JSON with task, policy, response and, where there is one, reference.

    Tasks and policies are those that the file names, in the order in which it names them first.

    ``columns``: what columns are that have other names. Where several are responses, the table is wide: each
    of them holds the responses of the policy that has its name.

    Raises
    ------
    ImportingError
        Names every place that cannot be read, and where a task's reference differs from an earlier one.
    """
    policies: dict[str, None] = {}
    tasks: dict[str, int] = {}
    references: list[str] = []

    def make(row: Row) -> ReadyMade:
        prompt = text_of(row, _TASK)
        policy = text_of(row, ["policy"]).strip()
        reference = text_of(row, _REFERENCE, required=False)
        response = text_of(row, ["response"], required=False)
        if len(policy) > 100:
            raise ImportingError.at(
                row.place, "The name of the policy has more than 100 characters. Shorten it."
            )
        if "response" not in row.fields:
            raise ImportingError.at(row.place, "The response is empty. Write it, or remove the row.")
        position = tasks.setdefault(prompt, len(tasks))
        if position == len(references):
            references.append(reference)
        elif reference and references[position] and reference != references[position]:
            raise ImportingError.at(
                row.place,
                (
                    "This task has a different reference in an earlier row. Give it the same reference "
                    "everywhere."
                ),
            )
        references[position] = references[position] or reference
        policies.setdefault(policy)
        return ReadyMade(task=position, policy=policy, response=response)

    rows: Iterable[Row | Fault] = rows_of(text)
    if columns:
        rows = renamed(rows, columns)
        if policies_of_columns := wide(columns):
            rows = as_policies(rows, policies_of_columns)
    responses = _read(rows, make, RESPONSES)
    if not responses:
        raise ImportingError.at(
            "",
            (
                "There are no responses here. The first line names task, policy and response; the others "
                "hold them."
            ),
        )
    return Answers(
        policies=list(policies),
        tasks=[TaskSpec(prompt, references[position]) for prompt, position in tasks.items()],
        responses=responses,
        warnings=list(_warnings(policies, tasks, responses)),
    )


def _warnings(
    policies: Collection[str], tasks: Collection[str], responses: Sequence[ReadyMade]
) -> Iterator[str]:
    """What may be a slip in a file of responses, each with how often it is there. Nothing is left out."""
    twice = Counter(responses).total() - len(set(responses))
    empty = sum(not each.response.strip() for each in responses)
    nothing = sum(each.response.strip().lower() in _NOTHING for each in responses)
    if twice:
        yield f"{_responses(twice)} came more than once, with the same task, policy and text."
    if empty:
        yield f"{_responses(empty)} had no text."
    if nothing:
        yield f"{_responses(nothing)} said only null, None, NaN or N/A, as programs write for no text."
    for things, names in (("policies", policies), ("tasks", tasks)):
        alike: dict[str, list[str]] = {}
        for name in names:
            alike.setdefault(" ".join(name.casefold().split()), []).append(name)
        if near := [group for group in alike.values() if len(group) > 1]:
            shown = " and ".join(repr(name[:40]) for name in near[0][:2])
            yield (
                f"{len(near)} {things if len(near) > 1 else things[:-1].replace('ie', 'y')} came with nearly "
                f"equal names, such as {shown}. They count as different ones."
            )


def _responses(n: int) -> str:
    return "1 response" if n == 1 else f"{n:,} responses"

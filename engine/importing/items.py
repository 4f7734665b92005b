"""Tasks, gold items and ready-made responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from engine.domain.limits import GOLD_ITEMS, RESPONSES, TASKS, Limit
from engine.domain.specs import GoldSpec, ReadyMade, TaskSpec
from engine.importing.rows import Fault, ImportingError, Row, raise_any, rows_of, text_of

_TASK = ("prompt", "task", "input", "question")
_REFERENCE = ("reference", "target", "output", "answer")
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Answers:
    """The content of a file of ready-made responses."""

    policies: list[str]
    tasks: list[TaskSpec]
    responses: list[ReadyMade]


def _read(
    text: str,
    make: Callable[[Row], _Item],
    limit: Limit,
    plain: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> list[_Item]:
    """The results of ``make`` for the rows. At most one row more than the limit is read, faulty ones
    included.
    """
    items: list[_Item] = []
    faults: list[Fault] = []
    for number, row in enumerate(rows_of(text, plain=plain, beside=beside), 1):
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


def read_tasks(text: str) -> list[TaskSpec]:
    """Tasks: one per line (after a tab its right answer), CSV, JSON Lines, JSON, BIG-bench or Instruction
    Induction.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    return _read(text, _task, TASKS, plain=_TASK, beside=_REFERENCE)


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
        text,
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


def read_responses(text: str) -> Answers:
    """Ready-made responses: CSV or JSON with task, policy, response and, where there is one, reference.

    Tasks and policies are those that the file names, in the order in which it names them first.

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

    responses = _read(text, make, RESPONSES)
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
    )

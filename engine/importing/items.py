"""Tasks, gold items and ready-made responses."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from engine.core import wording
from engine.domain import limits
from engine.domain.conversations import Message, read_messages, text_and_messages
from engine.domain.limits import GOLD_ITEMS, RESPONSES, TASKS, Limit
from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, ReadyMade, TaskSpec
from engine.domain.tags import distinct, read_tags
from engine.domain.texts import is_blank
from engine.domain.variables import NAME
from engine.importing import slips
from engine.importing.headings import as_table, is_table
from engine.importing.mapping import IGNORE, VARIABLE, Columns, as_policies, renamed, wide
from engine.importing.rows import (
    Fault,
    ImportingError,
    NoColumnError,
    Row,
    in_json,
    missing_everywhere,
    raise_any,
    storable,
    text_of,
)
from engine.importing.sources import Source
from engine.importing.text_rows import rows_of

# A mapping writes to the first name of each, so that it wins.
TASK_NAMES = ("task", "prompt", "input", "question")
# `ideal` is OpenAI evals', `answers` SQuAD's.
# An expected answer goes before an output, which may be a model's.
REFERENCE_NAMES = (
    "reference", "target", "expected", "expected_output", "expectedoutput", "ground_truth", "output",
    "answer", "answers", "ideal",
)  # fmt: skip
TAG_NAMES = ("tags", "category")
# In Alpaca's data it is the task, or the first half of it if there is an input; else a variable.
_INSTRUCTION = "instruction"
# The names that make a first line a heading.
HEADINGS = (*TASK_NAMES, _INSTRUCTION, "messages")
# All other columns of a task are variables.
KNOWN = {*TASK_NAMES, *REFERENCE_NAMES, *TAG_NAMES, "messages", "variables"}
# A column of a list of tasks may be one of these.
TASK_MEANINGS = ("task", "reference", "tags", VARIABLE, IGNORE)
# Columns of a response that are read, or told where they are not.
_OF_RESPONSES = {*TASK_NAMES, *REFERENCE_NAMES, *TAG_NAMES, "messages", "policy", "response"}
_SHOWN = 5
# A row of a sheet or a line of a file.
_NUMBERED = re.compile(r"(?:line|row) (?P<number>\d+)")
# Rows of a sheet, such as a title, or empty ones in between.
_MOST_EMPTY = 1000
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Answers:
    """The content of a file of ready-made responses, and what somebody should know about it."""

    policies: list[str]
    tasks: list[TaskSpec]
    responses: list[ReadyMade]
    warnings: Sequence[str] = ()

    def spec(self, name: str) -> ExperimentSpec:
        """An experiment of this name on these responses."""
        return ExperimentSpec(
            name=name,
            factors=[factor_of(self.policies)],
            tasks=self.tasks,
            settings={"responses": "imported"},
            ready_made=self.responses,
        )


def _read(rows: Iterable[Row | Fault], make: Callable[[Row], _Item], limit: Limit) -> list[_Item]:
    """The results of ``make`` for the rows. At most one row more than the limit is read, faulty ones
    included.
    """
    items: list[_Item] = []
    faults: list[Fault] = []
    missing: list[NoColumnError] = []
    number = 0
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
        except NoColumnError as error:
            missing.append(error)
            faults.append(error.fault(row, several=limit is not TASKS))
    # Nobody can say which column of gold items is which.
    everywhere = [] if limit is GOLD_ITEMS else missing_everywhere(missing, faults, number)
    raise_any(everywhere or faults)
    return items


def read_tasks(given: str | Source, columns: Columns | None = None) -> list[TaskSpec]:
    """Tasks: one per line (after a tab its right answer), CSV, JSON Lines, JSON, BIG-bench or Instruction
    Induction; in files also Parquet and XLSX.

    In JSON, a task may be a conversation: a list of messages under ``messages`` or in the place of its text.
    Columns of other names are variables of the task, if a variable can have that name.
    ``columns``: what columns are that have other names. The first line is a heading then.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    own = {column: meaning for column, meaning in (columns or {}).items() if meaning in TASK_MEANINGS}
    rows = renamed(rows_in(given), own) if own else rows_in(given, plain=HEADINGS, beside=REFERENCE_NAMES)
    return _read(rows, _task, TASKS)


def rows_in(
    given: str | Source, *, plain: Sequence[str] = (), beside: Sequence[str] = ()
) -> Iterator[Row | Fault]:
    """The rows of a text or of files; ``plain`` and ``beside`` are those of `rows_of`."""
    if isinstance(given, Source):
        return given.rows(plain=plain, beside=beside)
    return rows_of(given, plain=plain, beside=beside)


def whole(row: Row) -> Row:
    """The row with Alpaca's instruction and its input as one task; any other row as it is."""
    given = row.fields.get(_INSTRUCTION)
    others = row.fields.keys() & {*TASK_NAMES, "messages"}
    if not isinstance(given, str) or not given or others - {"input"}:
        return row
    fields = {name: value for name, value in row.fields.items() if name not in {_INSTRUCTION, "input"}}
    more = row.fields.get("input")
    task = f"{given}\n\n{text_of(row, ['input'])}" if more not in (None, "", []) else given
    return replace(row, fields={"task": task} | fields)


def _task(row: Row) -> TaskSpec:
    row = whole(row)
    prompt, messages = _asked(row)
    if is_blank(prompt):
        raise ImportingError.at(row.place, "The task is empty. Write it, or remove the row.")
    reference = text_of(row, REFERENCE_NAMES, required=False, several=True)
    return TaskSpec(prompt, reference, messages, variables=_variables(row), tags=_tags(row))


def _asked(row: Row) -> tuple[str, tuple[Message, ...]]:
    """The text of the row's task, and its messages if it is a conversation."""
    fields = dict(row.fields, messages=in_json(row.fields.get("messages")))
    given = [name for name in ("messages", *TASK_NAMES) if isinstance(fields.get(name), list)]
    name = next((name for name in given if any(isinstance(each, dict) for each in fields[name])), None)
    if name is None and (not fields["messages"] or any(row.fields.get(each) for each in TASK_NAMES)):
        return text_of(row, TASK_NAMES), ()
    name = name or "messages"
    if other := next((each for each in TASK_NAMES if each != name and row.fields.get(each)), None):
        raise ImportingError.at(row.place, f"The task is both in {name} and in {other}. Remove one of them.")
    try:
        messages = read_messages(fields[name])
    except ValueError as error:
        raise ImportingError.at(row.place, f"{name}: {error}") from error
    text, messages = text_and_messages(messages)
    return storable(text, row.place, name), messages


def _variables(row: Row) -> dict[str, str]:
    given = in_json(row.fields.get("variables")) or {}
    if not isinstance(given, dict):
        raise ImportingError.at(row.place, "variables must be an object of texts by name.")
    variables = {}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ImportingError.at(row.place, f"The variable {name} must be a text.")
        variables[name] = storable(str(value), row.place, f"The variable {name}")
    for name, value in row.fields.items():
        if name not in KNOWN and NAME.fullmatch(name) and isinstance(value, (str, int, float)):
            text = json.dumps(value) if isinstance(value, bool) else str(value)
            variables.setdefault(name, storable(text, row.place, name))
    return variables


def _tags(row: Row) -> tuple[str, ...]:
    found: list[str] = []
    for name in TAG_NAMES:
        value = in_json(row.fields.get(name))
        if isinstance(value, str) and value[:1] == "[" and value[-1] == "]":
            raise ImportingError.at(
                row.place,
                f"{name} is a list that a program has written as a text. Separate tags by commas, or write "
                "the list as JSON.",
            )
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(each, bool) or not isinstance(each, (str, int, float)):
                raise ImportingError.at(row.place, f"{name} must be a text, or a list of texts.")
            found += read_tags(storable(str(each), row.place, name))
    return distinct(found)


def write_tasks(tasks: Sequence[TaskSpec], places: Sequence[str] = ()) -> str:
    """The tasks as :func:`read_tasks` reads them: plain lines where those say it all, else JSON Lines.

    ``places``: where each of them stood. They stay on lines of the same numbers.
    """
    lines = [f"{task.prompt}\t{task.reference}" if task.reference else task.prompt for task in tasks]
    plain = _on_lines(lines, places)
    # Empty lines among plain ones look like the ends of blocks.
    if "\n\n" not in plain.lstrip("\n"):
        with contextlib.suppress(ImportingError):
            if read_tasks(plain) == list(tasks):
                return plain
    return _on_lines([json.dumps(fields_of(task), ensure_ascii=False) for task in tasks], places)


def with_columns(text: str, columns: Columns) -> str:
    """A list of tasks whose columns have other names, written anew with the usual ones.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    tasks = read_tasks(text, columns)
    return write_tasks(tasks, [row.place for row in rows_in(text) if isinstance(row, Row)])


def _on_lines(lines: Sequence[str], places: Sequence[str]) -> str:
    """These lines as a text, each on the line that its place in another file numbers, with empty lines in
    between. A message about the text then has the number that the file has.

    Where places have no such numbers, or a sheet has too many empty rows, they follow each other.
    """
    found = [_NUMBERED.fullmatch(place) for place in places]
    numbers = [int(each["number"]) for each in found if each]
    gaps = [number - before for before, number in pairwise([0, *numbers])]
    if not lines or len(gaps) != len(lines) or min(gaps) < 1 or sum(gaps) - len(lines) > _MOST_EMPTY:
        return "\n".join(lines)
    return "".join("\n" * gap + line for gap, line in zip(gaps, lines, strict=True))[1:]


def fields_of(item: TaskSpec | GoldSpec) -> dict[str, Any]:
    """A task or a gold item as an object of a file: a conversation by its messages, and nothing empty."""
    fields = {name: value for name, value in asdict(item).items() if value}
    messages = fields.pop("messages", None)
    if messages:
        fields = {"messages": messages} | fields
        del fields["prompt"]
    if "tags" in fields:
        fields["tags"] = list(fields["tags"])
    return fields


def read_gold(given: str | Source) -> list[GoldSpec]:
    """Gold items: a table or JSON with prompt, better, worse and, where wanted, explanation.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    return _read(rows_in(given), _gold, GOLD_ITEMS)


def _gold(row: Row) -> GoldSpec:
    row = whole(row)
    prompt, messages = _asked(row)
    return GoldSpec(
        prompt=prompt,
        better=text_of(row, ["better"]),
        worse=text_of(row, ["worse"]),
        explanation=text_of(row, ["explanation"], required=False),
        messages=messages,
    )


def write_gold(gold: Sequence[GoldSpec]) -> str:
    """The gold items as :func:`read_gold` reads them."""
    return "\n".join(json.dumps(fields_of(item), ensure_ascii=False) for item in gold)


def read_responses(given: str | Source, columns: Columns | None = None) -> Answers:
    """Ready-made responses: a table or JSON with task, policy, response and, where there is one, reference.

    Tasks and policies are those that the file names, in the order in which it names them first.

    ``columns``: what columns are that have other names. Where several are responses, the table is wide: each
    of them holds the responses of the policy that has its name.

    Raises
    ------
    ImportingError
        Names every place that cannot be read, and where a task's reference differs from an earlier one.
    """
    policies: dict[str, None] = {}
    positions: dict[str, int] = {}
    tasks: list[TaskSpec] = []
    rivals: Counter[slips.Rivals] = Counter()
    left_out: dict[str, None] = {}

    def make(row: Row) -> ReadyMade:
        row = whole(row)
        if not columns:
            rivals.update(rivals_in(row.fields))
            left_out.update(dict.fromkeys(name for name in row.fields if name not in _OF_RESPONSES))
        prompt, messages = _asked(row)
        if "policy" not in row.fields and len(row.fields) > 1:
            raise _no_policy(row)
        policy = text_of(row, ["policy"]).strip()
        reference = text_of(row, REFERENCE_NAMES, required=False, several=True)
        response = text_of(row, ["response"], required=False)
        if len(policy) > 100:
            raise ImportingError.at(
                row.place, "The name of the policy has more than 100 characters. Shorten it."
            )
        if "response" not in row.fields and "response" not in map(str.lower, row.heading):
            raise NoColumnError(row.place, "response")
        if "response" not in row.fields:
            raise ImportingError.at(row.place, "The response is empty. Write it, or remove the row.")
        position = positions.setdefault(prompt, len(positions))
        if position == len(tasks):
            tasks.append(TaskSpec(prompt, messages=messages))
        task = tasks[position]
        if reference and task.reference and reference != task.reference:
            raise ImportingError.at(
                row.place,
                (
                    "This task has a different reference in an earlier row. Give it the same reference "
                    "everywhere."
                ),
            )
        tasks[position] = replace(task, reference=task.reference or reference, tags=task.tags or _tags(row))
        policies.setdefault(policy)
        return ReadyMade(task=position, policy=policy, response=response)

    rows: Iterable[Row | Fault] = rows_in(given)
    if columns:
        rows = renamed(rows, columns)
        if policies_of_columns := wide(columns):
            rows = as_policies(rows, policies_of_columns)
    responses = _read(rows, make, RESPONSES)
    if not responses:
        message = (
            "There are no responses here. The first line names task, policy and response; the others hold "
            "them."
        )
        raise nothing_in(given, message)
    return Answers(
        policies=list(policies),
        tasks=tasks,
        responses=responses,
        warnings=[
            *_warnings(policies, [task.prompt for task in tasks], responses),
            *slips.left_out(rivals),
            *slips.columns_left_out(left_out),
            *(given.warnings if isinstance(given, Source) else ()),
        ],
    )


def nothing_in(given: str | Source, message: str) -> ImportingError:
    """The refusal of material without rows; of a source it names the sheet that was read."""
    return given.nothing_in_it(message) if isinstance(given, Source) else ImportingError.at("", message)


def _no_policy(row: Row) -> NoColumnError:
    others = [name for name in row.heading or row.fields if name.lower() not in {*KNOWN, "response"}]
    if len(others) < 2:
        return NoColumnError(row.place, "policy")
    return NoColumnError(
        row.place,
        "policy",
        "Add the column, or rename one. If each policy has a column of its own, say so of each, as "
        f"{others[0]}=response.",
    )


def _warnings(
    policies: Collection[str], tasks: Collection[str], responses: Sequence[ReadyMade]
) -> Iterator[str]:
    """Possible slips in a file of responses."""
    if n := slips.twice(responses):
        yield f"{_responses(n)} came more than once, with the same task, policy and text."
    if empty := [each for each in responses if is_blank(each.response)]:
        some = [f"{limits.shown(each.policy)} at task {each.task + 1}" for each in empty[:_SHOWN]]
        more = ["…"] * (len(empty) > _SHOWN)
        yield f"{_responses(len(empty))} had no text: {', '.join(some + more)}."
    yield from slips.in_texts((each.response for each in responses), "response")
    yield from slips.messages((each.response for each in responses), "response")
    yield from slips.in_texts(tasks, "task")
    yield from slips.of_programs(tasks, "task")
    yield from slips.no_names(policies, "policy", "policies")
    yield from slips.nearly_equal(policies, "policy", "policies")
    yield from slips.nearly_equal(tasks, "task", "tasks")


def rivals_in(fields: Mapping[str, Any]) -> list[slips.Rivals]:
    """The pairs of columns of a row that may be the same thing, of which one is taken."""
    found = (slips.rivals(fields, names) for names in (TASK_NAMES, REFERENCE_NAMES))
    return [pair for pair in found if pair]


def _responses(n: int) -> str:
    return wording.number(n, "response")


def factor_of(policies: Iterable[str]) -> FactorSpec:
    """The factor of policies that were written elsewhere: a level for each."""
    return FactorSpec("Policy", "imported", {name: {} for name in policies})


def as_typed(source: Source) -> str:
    """The tasks of files as somebody could have typed them.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    if not source.is_text:
        return as_lines(source)
    text = source.text
    known = not text.strip() or is_table(text, HEADINGS, REFERENCE_NAMES)
    return as_table(text) if source.is_table and not known else text


def as_lines(source: Source) -> str:
    """The rows of files that are no text, as JSON Lines with the names that their columns have.

    The rows of a single file stay on lines of their numbers.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """

    def line(row: Row) -> str:
        # Examples of BIG-bench have other fields than their file has.
        fields = {name: row.fields[name.lower()] for name in row.heading or row.fields}
        # Bytes are no text, and a list is told of as left out.
        return json.dumps(fields, ensure_ascii=False, default=lambda value: [str(value)])

    given = source.rows(plain=HEADINGS, beside=REFERENCE_NAMES)
    rows = _read(given, lambda row: (line(row), row.place), TASKS)
    return _on_lines([text for text, _ in rows], [place for _, place in rows])

"""Results of promptfoo as ready-made responses: JSON, YAML, JSON Lines, and both shapes of CSV."""

import contextlib
import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.domain.limits import CELL_CHARACTERS, RESPONSES
from engine.domain.policy_space import name_of
from engine.domain.specs import ExperimentSpec, ReadyMade, TaskSpec
from engine.domain.texts import is_blank
from engine.domain.variables import NAME
from engine.domain.wording import number
from engine.importing.findings import Findings
from engine.importing.formula_cells import as_it_was
from engine.importing.found_files import FoundFile
from engine.importing.items import factor_of
from engine.importing.mapping import ShortNames
from engine.importing.promptfoo_templates import text_of
from engine.importing.rows import ImportingError, storable
from engine.importing.strict_json import loads
from engine.importing.yaml_document import parse

# A row failed without an answer; 1 is a check that failed, whose answer counts.
_ERROR = 2
_COLUMN = re.compile(r"\[([^\]]+)\] ?(.*)", re.DOTALL)
_STATUS = re.compile(r"\[(PASS|FAIL|ERROR)\]\s?(?:\(\d+\.\d\d\)\s?)?")
# Of aliases, which it writes where a text comes again.
_MOST_NODES = 1_000_000
_BESIDE = {"Status", "Score", "Named Scores", "Grader Reason", "Comment"}
# Before this line, older tables say why a check failed.
_RULE = "\n---\n"


@dataclass(frozen=True)
class _Answer:
    """A row of the results. ``text``: `None` where there is no answer, for ``reason``."""

    provider: str
    prompt: str
    variables: Mapping[str, str]
    text: str | None
    place: str
    reason: str = ""
    is_object: bool = False
    raw: str = ""


def results_in(text: str) -> Sequence[_Answer] | None:
    """The rows of a text that holds results of promptfoo, known by their fields; `None` of others."""
    start = text.lstrip("\ufeff \t\r\n")
    if start[:1] == "{":
        return _of_json(start)
    if start.startswith("evalId:"):
        return _of_document(parse(start, most_nodes=_MOST_NODES).plain())
    return _of_csv(start)


def read_results(answers: Sequence[_Answer], *, name: str = "") -> FoundFile:
    """The results as an experiment on ready-made responses. Equal variables are one task.

    Raises
    ------
    ImportingError
        No row has an answer, or there are too many.
    """
    if message := RESPONSES.refusal(len(answers)):
        raise ImportingError.at("", message)
    findings = Findings()
    prompts = {answer.prompt for answer in answers}
    labels = _labels({(each.provider, each.prompt if len(prompts) > 1 else "") for each in answers})
    tasks: dict[tuple[tuple[str, str], ...], int] = {}
    specs: list[TaskSpec] = []
    made: list[ReadyMade] = []
    empty = objects = 0
    for answer in answers:
        policy = labels[answer.provider, answer.prompt if len(prompts) > 1 else ""]
        if answer.text is None:
            findings.leave("response", f"of {policy}: {answer.reason}", answer.place)
            continue
        key = tuple(sorted(answer.variables.items()))
        if key not in tasks:
            text = _task_text(answer)
            if is_blank(text):
                findings.leave("response", "to a task without a text", answer.place)
                continue
            tasks[key] = len(specs)
            specs.append(_task(answer, text))
        made.append(ReadyMade(tasks[key], policy, storable(answer.text, answer.place, "The output")))
        findings.take("response")
        empty += is_blank(answer.text)
        objects += answer.is_object
    if not made:
        raise ImportingError.at("", "No row of these results holds an answer. Run the evaluation again.")
    policies = list(dict.fromkeys(each.policy for each in made))
    findings.take("policy", len(policies))
    findings.take("task", len(specs))
    for n, which in (
        (empty, "without a text"),
        (objects, "that is an object or a list, taken as JSON"),
    ):
        if n:
            findings.note(f"{number(n, 'response')} {which}.")
    findings.note_gaps(made)
    return FoundFile(
        ExperimentSpec(
            name=(name or "Results of promptfoo")[:200],
            factors=[factor_of(policies)],
            tasks=specs,
            settings={"responses": "imported"},
            ready_made=made,
        ),
        findings,
        len(policies),
    )


def _labels(pairs: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The name of each policy: its provider and its prompt, where these differ."""
    names = ShortNames()
    return {
        pair: names[name_of([" ".join(each.split()) for each in pair if each]) or "Policy"]
        for pair in sorted(pairs)
    }


def _task_text(answer: _Answer) -> str:
    """What was asked: the variable, if there is one, or else the prompt as it was sent, or all variables."""
    if len(answer.variables) == 1:
        return next(iter(answer.variables.values()))
    return "\n".join(f"{name}: {value}" for name, value in answer.variables.items()) or answer.raw


def _task(answer: _Answer, text: str) -> TaskSpec:
    variables = {
        name: storable(value, answer.place, name)
        for name, value in answer.variables.items()
        if NAME.fullmatch(name) and len(answer.variables) > 1
    }
    return TaskSpec(storable(text, answer.place, "The task"), variables=variables)


# ---------------------------------------------------------------- JSON


def _of_json(text: str) -> list[_Answer] | None:
    try:
        document = loads(text)
    except json.JSONDecodeError:
        return _of_lines(text)
    except ValueError as error:
        raise ImportingError.at("", str(error)) from error
    return _of_document(document)


def _of_document(document: Any) -> list[_Answer] | None:
    if not isinstance(document, dict):
        return None
    whole = document if isinstance(document.get("table"), dict) else document.get("results")
    if not isinstance(whole, dict):
        return [_of_row(document, "line 1")] if _is_row(document) else None
    rows = whole.get("results")
    if isinstance(rows, list) and all(
        isinstance(row, dict) and isinstance(row.get("vars"), dict) for row in rows
    ):
        return [_of_row(row, f"result {n}") for n, row in enumerate(rows, 1)]
    return list(_of_table(whole["table"])) if isinstance(whole.get("table"), dict) else None


def _of_lines(text: str) -> list[_Answer] | None:
    answers: list[_Answer] = []
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        row = None
        with contextlib.suppress(ValueError):
            row = loads(line)
        if not isinstance(row, dict) or not _is_row(row):
            if not answers:
                return None
            raise ImportingError.at(f"line {at}", "This is no row of promptfoo's results.")
        answers.append(_of_row(row, f"line {at}"))
    return answers


def _is_row(row: Mapping[str, Any]) -> bool:
    return (
        isinstance(row.get("vars"), dict)
        and row.keys() >= {"vars", "provider", "prompt"}
        and bool(row.keys() & {"promptIdx", "testIdx", "success", "failureReason", "response"})
    )


def _of_row(row: Mapping[str, Any], place: str) -> _Answer:
    response = row.get("response") or {}
    # Older rows have the text in the place of the response.
    output = response.get("output") if isinstance(response, dict) else response
    is_error = row.get("failureReason") == _ERROR or (isinstance(response, dict) and "error" in response)
    return _Answer(
        _named(row.get("provider"), "label", "id"),
        _named(row.get("prompt"), "label", "display", "raw"),
        {name: text_of(value) for name, value in row["vars"].items() if not name.startswith("_")},
        None if is_error or output is None else _text(output),
        place,
        "an error" if is_error else "no answer",
        is_object=isinstance(output, (dict, list)),
        raw=_named(row.get("prompt"), "raw"),
    )


def _text(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _named(given: Any, *names: str) -> str:
    if isinstance(given, dict):
        return next((str(given[name]) for name in names if given.get(name)), "")
    return str(given or "")


def _of_table(table: Mapping[str, Any]) -> Iterator[_Answer]:
    """The older shape: a head of prompts and names of variables, and rows of outputs."""
    head = table.get("head") or {}
    prompts, names = head.get("prompts") or [], head.get("vars") or []
    for at, row in enumerate(table.get("body") or (), 1):
        variables = dict(zip(names, map(text_of, row.get("vars") or ()), strict=False))
        for prompt, output in zip(prompts, row.get("outputs") or (), strict=False):
            cell = output if isinstance(output, dict) else {"text": output}
            text, status = _marked(text_of(cell.get("text")))
            if cell.get("pass") is False and _RULE in text:
                text = text.rpartition(_RULE)[2]
            failed = cell.get("failureReason") == _ERROR or status == "ERROR" or cell.get("text") is None
            yield _Answer(
                _named(prompt, "provider"),
                _named(prompt, "label", "display", "raw"),
                variables,
                None if failed else text,
                f"row {at}",
                "an error",
                raw=_named(prompt, "raw"),
            )


def _marked(text: str) -> tuple[str, str]:
    """The text without the mark that older tables put before it, and what the mark said."""
    found = _STATUS.match(text)
    return (text[found.end() :], found[1]) if found else (text, "")


# ---------------------------------------------------------------- CSV


def _of_csv(text: str) -> list[_Answer] | None:
    csv.field_size_limit(CELL_CHARACTERS.most)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        head = next(reader, [])
        columns = {n: found for n, name in enumerate(head) if (found := _COLUMN.fullmatch(name.strip()))}
        if not columns:
            return None
        newer = any(head[n + 1 : n + 2] == ["Status"] for n in columns)
        rows = [(reader.line_num, cells) for cells in reader]
    except csv.Error:
        return None
    if not newer and not any(_STATUS.match(cells[n]) for _, cells in rows for n in columns if n < len(cells)):
        return None
    first = min(columns)
    names = head[:first]
    answers = []
    for line, written in rows:
        cells = [as_it_was(cell) for cell in written]
        variables = {
            name: value for name, value in zip(names, cells, strict=False) if not name.startswith("__")
        }
        for n, column in columns.items():
            if n >= len(cells):
                continue
            output, status = (cells[n], "".join(cells[n + 1 : n + 2])) if newer else _marked(cells[n])
            if status == "FAIL" and not newer and _RULE in output:
                output = output.rpartition(_RULE)[2]
            answers.append(
                _Answer(
                    column[1],
                    column[2],
                    variables,
                    None if status.upper() == "ERROR" else output,
                    f"line {line}",
                    "an error",
                )
            )
    return answers

"""A whole experiment as one YAML (or JSON) file, and back. docs/experiment-files.md has the format."""

import errno
import posixpath
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from engine.domain.conversations import Message, read_messages, text_and_messages
from engine.domain.limits import Limit
from engine.domain.specs import SETTINGS, ExperimentSpec, FactorSpec, GoldSpec, ReadyMade, TaskSpec
from engine.domain.text_checks import TextCheck
from engine.importing.companion_files import Find, configurations_in, files_of, finder_in
from engine.importing.items import (
    USUAL,
    Answers,
    Wishes,
    factor_of,
    fields_of,
    nothing_in,
    read_responses,
    tasks_and_warnings,
)
from engine.importing.mapping import check_columns
from engine.importing.reading_process import BinaryFile, Source, source_of
from engine.importing.rows import ImportingError
from engine.importing.yaml_document import Entry, NotYAMLError, dump, parse

_BESIDE = ("thinking", "finish_reason")
_PARTS = ("name", "factors", "tasks", "tasks_file", "gold", "ready_made", "responses_file", "columns")
# Their letters count, whatever they look like.
_TEXT_SETTINGS = {"question", "guidelines", "further_questions", "model", "judge_model", "rubric", "tags"}
# May be null, for none.
_OPTIONAL_SETTINGS = {"money_limit"}
# A line that names a part of a description. Broken YAML without one may be a table.
_NAMES_A_PART = re.compile(rf"^[\s{{]*[\"']?(?:{'|'.join((*_PARTS, *SETTINGS))})[\"']?\s*:", re.MULTILINE)

ReadFile = Callable[[str], str | Source]
T = TypeVar("T")


@dataclass(frozen=True)
class ExperimentFile:
    """A description, and where in its file each part of it stands."""

    spec: ExperimentSpec
    root: Entry
    warnings: Sequence[str] = ()

    def place(self, path: tuple[Hashable, ...]) -> str:
        """The place in the file of the part that a ``SpecError`` names by its path."""
        return self.root.at(path).place


def description_in(file: BinaryFile, most: Limit) -> str:
    """The text of a file that is to describe an experiment."""
    source = source_of([("", file)], most)
    if not source.is_plain:
        raise _no_description("This is a packed file or a workbook")
    return source.text


def experiment_in(source: Source) -> ExperimentFile:
    """The description among the files of an upload, with the files that it names."""
    files = files_of(source)
    found = configurations_in(files)
    for path, text in found:
        if len(found) == 1 or _NAMES_A_PART.search(text):
            find = finder_in(files, posixpath.dirname(path))
            return read_experiment(text, read_file=partial(_companion, find, source.most))
    raise _no_description("None of these files is YAML or JSON")


def _companion(find: Find, most: Limit, name: str) -> Source:
    if not (parts := find(name)):
        raise FileNotFoundError(errno.ENOENT, "It was not sent; choose it too, or a ZIP of the folder")
    return Source(parts, most)


def _no_description(what: str) -> ImportingError:
    return ImportingError.at(
        "",
        f"{what}, and no description of an experiment in YAML or JSON, with a name, factors and tasks. A "
        "list of tasks goes to “Your own questions”, responses to “From existing responses”, and votes to "
        "“From past votes”; a description names their files as tasks_file or responses_file.",
    )


def read_experiment(
    text: str, *, read_file: ReadFile | None = None, wishes: Wishes = USUAL
) -> ExperimentFile:
    """Read a description.

    Parameters
    ----------
    read_file
        Gives the source that the description names by its path; without it none may be named.
    wishes
        How such files are to be read. What the description says of their columns holds too.
    """
    root = _parsed(text)
    parts = root.mapping()
    for name, entry in parts.items():
        if name not in _PARTS and name not in SETTINGS:
            raise entry.fault(f"Unknown field {name!r}. Allowed: {', '.join((*_PARTS, *SETTINGS))}.")
    if "name" not in parts:
        raise root.fault("Give the experiment a name.")
    wishes = replace(wishes, columns=_columns(parts) | dict(wishes.columns))
    answers = _answers(parts, read_file, wishes)
    warnings = list(answers.warnings) if answers else []
    tasks = _tasks(parts, read_file, wishes, warnings) or (answers.tasks if answers else [])
    return ExperimentFile(
        ExperimentSpec(
            name=parts["name"].text(),
            factors=_factors(parts, answers),
            tasks=tasks,
            settings=(answers.settings if answers else {}) | _settings(parts),
            gold=[_gold(entry) for entry in parts["gold"].items()] if "gold" in parts else [],
            ready_made=_placed(answers, tasks, parts) if answers else (),
        ),
        root,
        warnings,
    )


def _parsed(text: str) -> Entry:
    try:
        root = parse(text)
    except NotYAMLError as error:
        if _NAMES_A_PART.search(text):
            raise
        raise _no_description("This is a table or a text") from error
    if not isinstance(root.value, Mapping):
        raise _no_description(
            "This is a list" if isinstance(root.value, list) else "This is a table or a text"
        )
    return root


def _columns(parts: dict[str, Entry]) -> dict[str, str]:
    if "columns" not in parts:
        return {}
    said = {
        column: ",".join(each.text() for each in roles.items())
        if isinstance(roles.value, list)
        else roles.text()
        for column, roles in parts["columns"].mapping().items()
    }
    try:
        return check_columns(said)
    except ImportingError as error:
        raise parts["columns"].fault(error.faults[0].message) from error


def _settings(parts: dict[str, Entry]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, entry in parts.items():
        if name == "excluded":
            settings[name] = [
                {factor: level.text() for factor, level in exclusion.mapping().items()}
                for exclusion in entry.items()
            ]
        elif name in _TEXT_SETTINGS:
            settings[name] = entry.text()
        elif name in SETTINGS:
            missing = entry.value is None and name not in _OPTIONAL_SETTINGS
            if isinstance(entry.value, (dict, list)) or missing:
                raise entry.fault("This must be a single value.")
            settings[name] = entry.plain()
    return settings


def _factors(parts: dict[str, Entry], answers: Answers | None) -> list[FactorSpec]:
    if "factors" not in parts:
        return answers.factors if answers else []
    factors = []
    for entry in parts["factors"].items():
        fields = _fields(entry, required=("name", "kind", "levels"))
        levels = fields["levels"].mapping()
        factors.append(
            FactorSpec(
                name=fields["name"].text(),
                kind=fields["kind"].text(),
                levels={
                    name: {}
                    if level.value is None
                    else {key: each.plain() for key, each in level.mapping().items()}
                    for name, level in levels.items()
                },
            )
        )
    return factors


def _tasks(
    parts: dict[str, Entry], read_file: ReadFile | None, wishes: Wishes, warnings: list[str]
) -> list[TaskSpec]:
    tasks = [_task(entry) for entry in parts["tasks"].items()] if "tasks" in parts else []

    def read(given: str | Source) -> list[TaskSpec]:
        found, said = tasks_and_warnings(given, wishes)
        if not found:
            # A draft may lack tasks, but not those of a file that it names.
            raise nothing_in(given, "There are no tasks here.")
        warnings.extend(said)
        return found

    if "tasks_file" in parts:
        tasks += _from_file(parts["tasks_file"], read_file, read)
    return tasks


def _task(entry: Entry) -> TaskSpec:
    if not isinstance(entry.value, dict):
        return TaskSpec(entry.text())
    fields = _fields(entry, optional=("prompt", "messages", "reference", "variables", "tags", "checks"))
    prompt, messages = _asked(entry, fields)
    return TaskSpec(
        prompt,
        fields["reference"].text() if "reference" in fields else "",
        messages,
        {name: each.text() for name, each in fields["variables"].mapping().items()}
        if "variables" in fields
        else {},
        tuple(each.text() for each in fields["tags"].items()) if "tags" in fields else (),
        tuple(map(_check, fields["checks"].items())) if "checks" in fields else (),
    )


def _check(entry: Entry) -> TextCheck:
    fields = _fields(entry, required=("kind", "value"))
    try:
        return TextCheck(fields["kind"].text(), fields["value"].text())
    except ValueError as error:
        raise entry.fault(str(error)) from error


def _asked(entry: Entry, fields: dict[str, Entry]) -> tuple[str, tuple[Message, ...]]:
    given = fields["prompt"].text() if "prompt" in fields else None
    if "messages" not in fields or not fields["messages"].items():
        if given is None:
            raise entry.fault("Give prompt, a text, or messages, a conversation.")
        return given, ()
    try:
        text, messages = text_and_messages(read_messages(fields["messages"].plain()))
    except ValueError as error:
        raise fields["messages"].fault(str(error)) from error
    if given not in {None, text}:
        raise entry.fault("prompt is not the transcript of messages. Remove one of them.")
    return text, messages


def _gold(entry: Entry) -> GoldSpec:
    fields = _fields(entry, required=("better", "worse"), optional=("prompt", "messages", "explanation"))
    prompt, messages = _asked(entry, fields)
    return GoldSpec(
        prompt,
        fields["better"].text(),
        fields["worse"].text(),
        fields["explanation"].text() if "explanation" in fields else "",
        messages,
    )


def _fields(
    entry: Entry, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> dict[str, Entry]:
    fields = entry.mapping()
    for name, each in fields.items():
        if name not in (*required, *optional):
            raise each.fault(f"Unknown field {name!r}. Allowed here: {', '.join((*required, *optional))}.")
    if missing := [name for name in required if name not in fields]:
        raise entry.fault(f"Give {' and '.join(missing)}.")
    return fields


def _answers(parts: dict[str, Entry], read_file: ReadFile | None, wishes: Wishes) -> Answers | None:
    if "responses_file" in parts:
        return _from_file(parts["responses_file"], read_file, partial(read_responses, wishes=wishes))
    if "ready_made" not in parts:
        return None
    policies: dict[str, None] = {}
    tasks: dict[str, TaskSpec] = {}
    positions: dict[str, int] = {}
    responses = []
    for entry in parts["ready_made"].items():
        fields = _fields(entry, required=("task", "policy", "response"), optional=("reference", *_BESIDE))
        prompt, policy = fields["task"].text(), fields["policy"].text()
        reference = fields["reference"].text() if "reference" in fields else ""
        positions.setdefault(prompt, len(positions))
        if prompt not in tasks or reference:
            tasks[prompt] = TaskSpec(prompt, reference)
        policies.setdefault(policy)
        texts = [fields[each].text() if each in fields else "" for each in _BESIDE]
        responses.append(ReadyMade(positions[prompt], policy, fields["response"].text(), *texts))
    return Answers([factor_of(policies)], list(tasks.values()), responses)


def _placed(answers: Answers, tasks: list[TaskSpec], parts: dict[str, Entry]) -> list[ReadyMade]:
    """The responses, each at the position that its task has in the experiment."""
    positions = {task.prompt: position for position, task in enumerate(tasks)}
    source = parts.get("ready_made") or parts["responses_file"]
    placed = []
    for response in answers.responses:
        prompt = answers.tasks[response.task].prompt
        if prompt not in positions:
            raise source.fault(
                f"A response belongs to the task {prompt[:60]!r}, which is not in the list of tasks. "
                "Add the task or remove the response."
            )
        placed.append(replace(response, task=positions[prompt]))
    return placed


def _from_file(entry: Entry, read_file: ReadFile | None, read: Callable[[str | Source], T]) -> T:
    names = [each.text() for each in entry.items()] if isinstance(entry.value, list) else [entry.text()]
    if read_file is None:
        raise entry.fault("The file that is named here was not sent. Choose it too, or a ZIP of both.")
    shown = ", ".join(names)
    try:
        given = [read_file(name) for name in names]
        first = given[0] if given else ""
        if isinstance(first, Source) and len(given) > 1:
            parts = [part for each in given if isinstance(each, Source) for part in each.parts]
            first = replace(first, parts=parts)
        return read(first)
    except OSError as error:
        raise entry.fault(f"{shown} cannot be read: {error.strerror or error}.") from error
    except ImportingError as error:
        error.faults, error.all_faults = (
            [replace(fault, place=f"{shown}, {fault.place}".rstrip(", ")) for fault in faults]
            for faults in (error.faults, error.all_faults)
        )
        raise


def write_experiment(spec: ExperimentSpec) -> str:
    """The description as YAML that :func:`read_experiment` reads back as the same one."""
    document: dict[str, Any] = {"name": spec.name, **spec.settings}
    document["factors"] = [
        {
            "name": f.name,
            "kind": f.kind,
            "levels": {name: _jsonable(value) for name, value in f.levels.items()},
        }
        for f in spec.factors
    ]
    document["tasks"] = [
        fields if (fields := fields_of(task)) != {"prompt": task.prompt} else task.prompt
        for task in spec.tasks
    ]
    if spec.gold:
        document["gold"] = [fields_of(gold) for gold in spec.gold]
    if spec.ready_made:
        document["ready_made"] = [
            {"task": spec.tasks[each.task].prompt, "policy": each.policy, "response": each.response}
            | {name: value for name in _BESIDE if (value := getattr(each, name))}
            for each in spec.ready_made
        ]
    return dump(document)


def _jsonable(value: Any) -> Any:
    return {name: list(each) if isinstance(each, tuple) else each for name, each in value.items()}

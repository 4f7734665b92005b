"""Tasks, gold items and ready-made responses."""

import contextlib
import json
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, product
from typing import Any, TypeVar

from engine.domain.conversations import Message, holds_more_than_text, read_messages, text_and_messages
from engine.domain.limits import COMBINATIONS, GOLD_ITEMS, RESPONSES, TASKS, Limit
from engine.domain.material_kinds import Material
from engine.domain.policy_space import name_of
from engine.domain.replies import Finish
from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, ReadyMade, TaskSpec
from engine.domain.tags import distinct, read_tags
from engine.domain.text_checks import TextCheck, read_checks
from engine.domain.texts import is_blank
from engine.domain.wording import number
from engine.importing import warnings
from engine.importing.findings import Findings
from engine.importing.mapping import (
    IGNORE,
    RESPONSE,
    TASK_NAMES,
    VARIABLE,
    Columns,
    Roles,
    ShortNames,
    cell_text,
    known_roles,
    paths_in,
    value_at,
)
from engine.importing.nested_rows import unfolded
from engine.importing.reading_process import Source
from engine.importing.rows import (
    Fault,
    FaultyRowsError,
    ImportingError,
    NoColumnError,
    Row,
    in_json,
    is_empty,
    read,
    storable,
    text_in,
)
from engine.importing.table_files import is_json, names_in, rows_of_text

# Names of columns that make the first line of typed tasks a table.
HEADINGS = TASK_NAMES
_LONGEST_POLICY = 100
_LOOKED_AT, _SHOWN = 20, 10
Values = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Wishes:
    """What somebody asks of an import.

    Attributes
    ----------
    json_texts
        Take an object or a list as its JSON text where a text is wanted.
    leave_out
        Import the other rows where some cannot be read.
    judged_by
        Votes: who gave them, "llm" for a language model; empty for people, or as the file says.
    sample, seed
        Traces and data of other tools: the number of tasks to draw at random (0: all), and the seed.
    """

    columns: Columns = field(default_factory=dict)
    json_texts: bool = False
    leave_out: bool = False
    judged_by: str = ""
    sample: int = 0
    seed: int = 1


USUAL = Wishes()


def rows_in(
    given: str | Source, material: Material, findings: Findings | None = None
) -> Generator[Row | Fault]:
    """The rows of a text or of files, those of nested formats unfolded."""
    headings = HEADINGS if material == Material.TASKS else ()
    rows = given.rows(headings) if isinstance(given, Source) else rows_of_text(given, headings)
    return unfolded(rows, material, findings)


def records_in(
    given: str | Source,
    roles: Roles,
    wishes: Wishes,
    limit: Limit,
    make: Callable[[Row], Sequence[T]],
    *,
    findings: Findings | None = None,
) -> tuple[list[T], list[str]]:
    """The records that ``make`` makes of the rows, and a warning of the rows that are left out."""
    with contextlib.closing(rows_in(given, roles.material, None if roles.said else findings)) as rows:
        records = read(rows, make, limit)
    roles.check_all_found()
    if records.faults and not wishes.leave_out:
        raise FaultyRowsError(records)
    if findings and findings.tool:
        for fault in records.faults:
            findings.leave("response", fault.message.rstrip("."), fault.place)
    return records.items, [f"{records.summary} The others are left out."] if records.faults else []


# ---------------------------------------------------------------- tasks


def read_tasks(given: str | Source, columns: Columns | None = None) -> list[TaskSpec]:
    """Tasks, one per line (after a tab its right answer), or of a table or JSON.

    Columns that have no role are variables of the task.
    """
    return tasks_and_warnings(given, Wishes(columns or {}))[0]


def tasks_and_warnings(given: str | Source, wishes: Wishes = USUAL) -> tuple[list[TaskSpec], list[str]]:
    """As `read_tasks`, by these wishes; also what may be wrong."""
    roles = Roles(Material.TASKS, wishes.columns)
    tasks, left_out = records_in(
        given, roles, wishes, TASKS, lambda row: [_task(row.place, roles.values(row), row, wishes)]
    )
    return tasks, [*left_out, *warnings_of_tasks(tasks), *warnings.unread(roles.unread)]


def warnings_of_tasks(tasks: Sequence[TaskSpec]) -> Iterator[str]:
    """What may be wrong in a list of tasks."""
    texts = [task.prompt for task in tasks]
    beside = [text for task in tasks for text in (task.reference, *task.variables.values()) if text]
    yield from warnings.empty([*texts, *beside], "task, answer or variable", "tasks, answers or variables")
    yield from warnings.duplicate([(t.prompt, *sorted(t.variables.items())) for t in tasks], "task")
    yield from warnings.nearly_equal(texts, "task")
    yield from warnings.spoiled([*texts, *beside], "text")


def _task(place: str, values: Values, row: Row, wishes: Wishes) -> TaskSpec:
    prompt, messages = asked(place, values, row, wishes)
    reference = values.get("reference")
    if isinstance(reference, Mapping) and isinstance(reference.get("text"), list):
        reference = reference["text"]  # SQuAD's answers: their texts, and where each begins.
    if isinstance(reference, list) and reference:
        reference = reference[0]
    answer = (
        "" if is_empty(reference) else text_in(place, "reference", reference, json_texts=wishes.json_texts)
    )
    return TaskSpec(
        prompt,
        answer,
        messages,
        variables=_variables(place, values, wishes),
        tags=_tags(place, values),
        checks=_checks(place, values),
    )


def asked(place: str, values: Values, row: Row, wishes: Wishes) -> tuple[str, tuple[Message, ...]]:
    """The text of a task, and its messages if it is a conversation."""
    if "task" not in values:
        raise NoColumnError.of(row, "task")
    given = values["task"]
    found = in_json(given)
    if isinstance(found, list) and any(isinstance(each, dict) for each in found):
        if any(isinstance(each, dict) and holds_more_than_text(each) for each in found):
            raise ImportingError.at(
                place,
                "The task holds more than text, such as a picture or a tool call. Only text can be shown.",
            )
        try:
            text, messages = text_and_messages(read_messages(found))
        except ValueError as error:
            if not wishes.json_texts:
                raise ImportingError.at(place, f"The task: {error}") from error
        else:
            return storable(text, place, "The task"), messages
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    text = "" if is_empty(given) else text_in(place, "task", given, json_texts=wishes.json_texts)
    if is_blank(text):
        raise ImportingError.at(place, "The task is empty. Write it, or leave the row out.")
    return text, ()


def _variables(place: str, values: Values, wishes: Wishes) -> dict[str, str]:
    given = in_json(values.get("variables")) or {}
    if not isinstance(given, dict):
        raise ImportingError.at(place, "variables must be an object of texts by name.")
    variables = {
        name: text_in(place, f"The variable {name}", value, json_texts=wishes.json_texts)
        for name, value in given.items()
    }
    columns = values.get("columns", {}).items()
    return {name: text_in(place, name, value, json_texts=True) for name, value in columns} | variables


def _tags(place: str, values: Values) -> tuple[str, ...]:
    found: list[str] = []
    given = [in_json(values.get(role)) for role in ("tags", "category")]
    for each in [each for value in given for each in (value if isinstance(value, list) else [value])]:
        if each is None:
            continue
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            raise ImportingError.at(place, "tags must be a text, or a list of texts.")
        found += read_tags(storable(str(each), place, "tags"))
    return distinct(found)


def _checks(place: str, values: Values) -> tuple[TextCheck, ...]:
    try:
        return read_checks(in_json(values.get("checks")) or ())
    except ValueError as error:
        raise ImportingError.at(place, str(error)) from error


def write_tasks(tasks: Sequence[TaskSpec]) -> str:
    """The tasks as :func:`read_tasks` reads them: plain lines where those say it all, else JSON Lines."""
    plain = "\n".join(f"{task.prompt}\t{task.reference}" if task.reference else task.prompt for task in tasks)
    with contextlib.suppress(ImportingError):
        if read_tasks(plain) == list(tasks):
            return plain
    return json_lines(map(fields_of, tasks))


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """These objects as JSON Lines."""
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def fields_of(item: TaskSpec | GoldSpec) -> dict[str, Any]:
    """A task or a gold item as an object of a file: a conversation by its messages, and nothing empty."""
    fields = {name: value for name, value in asdict(item).items() if value}
    messages = fields.pop("messages", None)
    if messages:
        fields = {"messages": messages} | fields
        del fields["prompt"]
    for name in ("tags", "checks"):
        if name in fields:
            fields[name] = list(fields[name])
    return fields


def is_table(text: str) -> bool:
    """True if a list of typed tasks has columns, and no plain lines."""
    return is_json(text) or not {name.lower() for name in names_in(text)}.isdisjoint(HEADINGS)


def as_typed(source: Source) -> str:
    """Files as somebody could have typed them: a text as it is, the rows of a table as JSON Lines with the
    names that their columns have.
    """
    if source.is_plain:
        return source.text
    rows = list(source.rows(HEADINGS))
    faults = [row for row in rows if isinstance(row, Fault)]
    if faults:
        raise ImportingError(faults[:20])
    return json_lines(row.fields for row in rows if isinstance(row, Row))


# ---------------------------------------------------------------- gold items


def read_gold(text: str) -> list[GoldSpec]:
    """Gold items: a table or JSON with prompt, better, worse and, where wanted, explanation."""
    roles = Roles(Material.TASKS)
    return records_in(text, roles, USUAL, GOLD_ITEMS, lambda row: [_gold(row, roles)])[0]


def _gold(row: Row, roles: Roles) -> GoldSpec:
    prompt, messages = asked(row.place, roles.values(row), row, USUAL)
    texts = {name: row.fields.get(name) for name in ("better", "worse", "explanation")}
    for name in ("better", "worse"):
        if name not in row.fields:
            raise NoColumnError.of(row, f"{name} response")
        if is_empty(texts[name]):
            raise ImportingError.at(row.place, f"{name} is empty. Write it, or leave the row out.")
    better, worse, explanation = (
        "" if is_empty(text) else text_in(row.place, name, text) for name, text in texts.items()
    )
    return GoldSpec(prompt=prompt, better=better, worse=worse, explanation=explanation, messages=messages)


def write_gold(gold: Sequence[GoldSpec]) -> str:
    """The gold items as :func:`read_gold` reads them."""
    return json_lines(map(fields_of, gold))


# ---------------------------------------------------------------- ready-made responses


@dataclass(frozen=True)
class Answers:
    """The content of a file of ready-made responses, and what somebody should know about it."""

    factors: list[FactorSpec]
    tasks: list[TaskSpec]
    responses: list[ReadyMade]
    warnings: Sequence[str] = ()
    findings: Findings = field(default_factory=Findings)

    @property
    def policies(self) -> list[str]:
        """The policies with responses, in the order in which the file names them first."""
        return list(dict.fromkeys(each.policy for each in self.responses))

    @property
    def texts(self) -> list[str]:
        """The texts that names of levels stand for, such as system texts."""
        values = [value for factor in self.factors for value in factor.levels.values()]
        return list(dict.fromkeys(value["text"] for value in values if value.get("text")))

    @property
    def settings(self) -> dict[str, Any]:
        """What these responses say of the settings: combinations without any response are excluded."""
        if message := COMBINATIONS.refusal(math.prod(len(factor.levels) for factor in self.factors)):
            raise ImportingError.at("", message)
        there = {*self.policies}
        names = [factor.name for factor in self.factors]
        excluded = [
            dict(zip(names, levels, strict=True))
            for levels in product(*(factor.levels for factor in self.factors))
            if name_of(levels) not in there
        ]
        return {"responses": "imported"} | ({"excluded": excluded} if excluded else {})

    def spec(self, name: str) -> ExperimentSpec:
        """An experiment of this name on these responses."""
        return ExperimentSpec(
            name=name,
            factors=self.factors,
            tasks=self.tasks,
            settings=self.settings,
            ready_made=self.responses,
        )


def factor_of(policies: Iterable[str]) -> FactorSpec:
    """The factor of policies that were written elsewhere: a level for each."""
    return FactorSpec("Policy", "imported", {name: {} for name in policies})


class Factors:
    """The factors that columns name, with the levels in the order in which rows name them first."""

    def __init__(self) -> None:
        self._names: dict[str, ShortNames] = {}
        self._levels: dict[str, dict[str, dict[str, str]]] = {}

    def policy(self, place: str, given: Mapping[str, Any]) -> str:
        """The policy of a row, by the texts of its levels."""
        if self._levels and self._levels.keys() != given.keys():
            raise ImportingError.at(place, f"The factors are not {', '.join(self._levels)}, as before.")
        levels = []
        for factor, value in given.items():
            has_text = isinstance(value, dict) and value.keys() == {"name", "text"}
            name = value["name"] if has_text else value
            said = text_in(place, factor, name, json_texts=True).strip()
            if not said:
                raise ImportingError.at(place, f"{factor} is empty. Name the level, or leave the row out.")
            level = self._names.setdefault(factor, ShortNames())[said]
            text = value["text"] if has_text else said if said != level else ""
            self._levels.setdefault(factor, {})[level] = (
                {"text": storable(text, place, factor)} if text else {}
            )
            levels.append(level)
        return name_of(levels)

    def specs(self) -> list[FactorSpec]:
        """The factors. A level whose text is longer than its name keeps the text."""
        return [FactorSpec(factor, "imported", levels) for factor, levels in self._levels.items()]


def read_responses(
    given: str | Source, columns: Columns | None = None, wishes: Wishes | None = None
) -> Answers:
    """Ready-made responses: a table or JSON with task, policy, response and, where there is one, reference.

    Tasks and policies are those that the file names, in the order in which it names them first.

    ``columns``: what columns are that have other names. Where several are responses, the table is wide: each
    of them holds the responses of the policy that has its name.
    """
    wishes = wishes or Wishes(columns or {})
    roles = Roles(Material.RESPONSES, wishes.columns)
    tasks: dict[str, TaskSpec] = {}
    factors, findings = Factors(), Findings()
    make = make_answers(roles, wishes, tasks, factors)
    responses, left_out = records_in(given, roles, wishes, RESPONSES, make, findings=findings)
    if not responses and findings.tool:
        raise ImportingError.at("", " ".join(["No response can be taken.", *findings.sentences()]))
    if not responses:
        raise nothing_in(
            given, "There are no responses here. The first line names task, policy and response."
        )
    if findings.tool:
        _tally(findings, responses, len(tasks))
        left_out = [*findings.sentences()]
    prompts = list(tasks)
    policies = list(dict.fromkeys(each.policy for each in responses))
    texts = [each.response for each in responses]
    found = [
        *left_out,
        *warnings.empty(texts, "response"),
        *warnings.duplicate(responses, "response"),
        *warnings.nearly_equal(policies, "policy", "policies"),
        *warnings.nearly_equal(prompts, "task"),
        *warnings.spoiled([*texts, *prompts], "text"),
        *warnings.of_responses([(r.policy, prompts[r.task], r.response) for r in responses], policies),
        *warnings.unread(roles.unread),
    ]
    return Answers(factors.specs() or [factor_of(policies)], list(tasks.values()), responses, found, findings)


def _tally(findings: Findings, responses: Sequence[ReadyMade], n_tasks: int) -> None:
    """Count what was taken of another tool's run, and say what is missing for a comparison."""
    for what, n in (
        ("response", len(responses)),
        ("task", n_tasks),
        ("policy", len({each.policy for each in responses})),
    ):
        findings.take(what, n)
    for which, n in (
        ("cut at a limit on the length", sum(each.finish_reason == Finish.LENGTH for each in responses)),
        ("with thinking, which is kept apart", sum(bool(each.thinking) for each in responses)),
    ):
        if n:
            findings.note(f"{number(n, 'response')} {which}.")
    findings.note_gaps(responses)


def make_answers(
    roles: Roles,
    wishes: Wishes,
    tasks: dict[str, TaskSpec] | None = None,
    factors: Factors | None = None,
) -> Callable[[Row], list[ReadyMade]]:
    """What makes the responses of a row. ``tasks`` takes up the tasks, by their texts, and ``factors`` the
    levels.
    """
    tasks = {} if tasks is None else tasks
    factors = factors or Factors()
    places: dict[str, int] = {}

    def make(row: Row) -> list[ReadyMade]:
        values = roles.values(row)
        task = _task(row.place, values, row, wishes)
        known = tasks.get(task.prompt)
        if known is not None and task.reference and known.reference not in {"", task.reference}:
            raise ImportingError.at(row.place, "This task has another reference in an earlier row.")
        at = places.get(task.prompt, len(places))
        made = list(_of_row(row, values, roles, wishes, factors=factors, task=at))
        places.setdefault(task.prompt, len(places))
        first = known or TaskSpec(task.prompt, messages=task.messages)
        tasks[task.prompt] = replace(
            first, reference=first.reference or task.reference, tags=first.tags or task.tags
        )
        return made

    return make


def _of_row(
    row: Row, values: Values, roles: Roles, wishes: Wishes, *, factors: Factors, task: int
) -> Iterator[ReadyMade]:
    if roles.wide:
        for column, value in values.get("responses", {}).items():
            if value is not None:
                text = text_in(row.place, column, value, json_texts=wishes.json_texts)
                yield ReadyMade(task=task, policy=column, response=text)
        return
    combined = in_json(values.get("factors"))
    is_combined = isinstance(combined, dict) and combined
    policy = factors.policy(row.place, combined) if is_combined else policy_in(row, "policy", values)
    if RESPONSE not in values:
        raise NoColumnError.of(row, RESPONSE)
    response = values[RESPONSE]
    if response is None:
        raise ImportingError.at(row.place, "The response is empty. Write it, or leave the row out.")
    text = text_in(row.place, RESPONSE, response, json_texts=wishes.json_texts)
    beside = [str(values.get(role) or "") for role in ("thinking", "finish_reason")]
    finish = beside[1] if beside[1] in {*Finish} else ""
    yield ReadyMade(task, policy, text, storable(beside[0], row.place, "thinking"), finish)


def policy_in(row: Row, role: str, values: Values) -> str:
    """The name of the policy that has this role in a row."""
    if role not in values:
        raise NoColumnError.of(row, role)
    name = "" if is_empty(values[role]) else text_in(row.place, role, values[role]).strip()
    if not name:
        raise ImportingError.at(row.place, f"{role} is empty. Write it, or leave the row out.")
    if len(name) > _LONGEST_POLICY:
        raise ImportingError.at(
            row.place,
            f"{role} has {len(name):,} characters; the limit is {_LONGEST_POLICY}. Shorten the name.",
        )
    return name


def nothing_in(given: str | Source, message: str) -> ImportingError:
    """The refusal of material without rows; of a workbook it names the sheet that was read."""
    sheets = given.sheets if isinstance(given, Source) else []
    if isinstance(given, Source) and len(sheets) > 1:
        message += f" This is the sheet {given.sheet or sheets[0]} of {', '.join(sheets)}. Choose another."
    return ImportingError.at("", message)


# ---------------------------------------------------------------- a look before the import


@dataclass(frozen=True)
class Column:
    """A column or a path into one, the roles that it seems to have, and its first cells."""

    name: str
    roles: str
    cells: Sequence[str]


def look(
    given: str | Source, material: Material, columns: Columns | None = None
) -> tuple[list[Column], list[Row | Fault]]:
    """The columns of a table, each with a guess at its roles, and the first rows. Only those are read."""
    with contextlib.closing(rows_in(given, material, None if columns else Findings())) as looked_at:
        found = list(islice(looked_at, _LOOKED_AT))
    rows = [row for row in found if isinstance(row, Row)]
    whole = {name: None for row in rows for name in row.fields}
    known = {} if columns else known_roles(material, whole, guess=True)
    roles: dict[str, str] = {}
    for name in dict.fromkeys(path for row in rows for path in paths_in(row.fields)):
        role = (columns or known).get(name, "")
        if not role or (known and role in roles.values()):
            role = VARIABLE if material == Material.TASKS and name in whole else IGNORE
        roles[name] = role
    return (
        [
            Column(name, role, [cell_text(value_at(row.fields, name)) for row in rows[:3]])
            for name, role in roles.items()
            if name in whole or not all(isinstance(value_at(row.fields, name), dict) for row in rows)
        ],
        found[:_SHOWN],
    )


def as_read(
    rows: Iterable[Row | Fault], make: Callable[[Row], Iterable[Mapping[str, Any]]]
) -> Iterator[tuple[str, dict[str, str], str]]:
    """Rows as they will be read: the place of each with the texts of a record of it, or with its fault."""
    for row in rows:
        if isinstance(row, Fault):
            yield row.place, {}, row.message
            continue
        try:
            for fields in make(row):
                yield row.place, {name: cell_text(each) for name, each in fields.items() if each}, ""
        except ImportingError as error:
            yield row.place, {}, error.faults[0].message

"""What each column of a file is: known by its name, or said by somebody."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from engine.domain import limits
from engine.domain.material_kinds import Material
from engine.domain.variables import NAME
from engine.importing.rows import ImportingError, Row, is_empty

# Columns, or paths into their values such as data.outputs.a, each with its roles, joined by commas.
Columns = Mapping[str, str]

RESPONSE, FACTOR, VARIABLE, IGNORE = "response", "factor", "variable", "ignore"
TASK_NAMES = ("task", "prompt", "input", "question", "instruction", "conversation", "messages")
# An expected answer goes before an output, which may be a model's.
_REFERENCE_NAMES = (
    "reference", "target", "expected", "expectedoutput", "groundtruth", "output", "answer",
    "answers", "ideal",
)  # fmt: skip
_OF_TASKS = {
    "task": TASK_NAMES,
    "reference": _REFERENCE_NAMES,
    "tags": ("tags",),
    "category": ("category",),
    "variables": ("variables",),
    "checks": ("checks",),
}
_SIDES = (("a", "b"), ("1", "2"), ("left", "right"))


def _of_two(
    role: str, stems: Sequence[str], sides: Sequence[tuple[str, str]] = _SIDES
) -> dict[str, tuple[str, ...]]:
    """The names of the columns of a and b: “model_a”, “1_output”."""
    names: dict[str, tuple[str, ...]] = {}
    for place, side in enumerate("ab"):
        words = [pair[place] for pair in sides]
        names[f"{role}_{side}"] = tuple(
            name for stem in stems for w in words for name in (stem + w, w + stem)
        )
    return names


# By role the names that columns of it have, without case and marks, the one that is read first.
_NAMES: Mapping[Material, Mapping[str, Sequence[str]]] = {
    Material.TASKS: _OF_TASKS,
    Material.RESPONSES: {
        **_OF_TASKS,
        "policy": ("policy",),
        RESPONSE: (RESPONSE,),
        "factors": ("factors",),
        "thinking": ("thinking",),
        "finish_reason": ("finishreason",),
    },
    Material.VOTES: {
        "task": (*TASK_NAMES[:-1], "query", "messages"),
        **_of_two("policy", ("policy", "model", "system", "generator")),
        "winner": (
            "winner", "preference", "preferred", "vote", "verdict", "label", "choice",
            "comparison", "pairwise",
            "pw",
        ),
        **_of_two("response", ("response", "answer", "completion", "output", "generation", "text")),
        "annotator": (
            "annotator", "annotatorid", "judge", "judgehash", "rater", "raterid", "workerid",
            "userid", "user",
            "evaluationsessionid",
        ),
        "judged_at": ("judgedat", "tstamp", "timestamp", "createdat", "time"),
        "side_a": ("sidea",),
        "judged_by": ("judgedby",),
        **_of_two("conversation", ("conversation", "messages"), _SIDES[:2]),
        "turn": ("turn",),
        "judgment_uuid": ("judgmentuuid",),
        "texts_known": ("textsknown",),
        "side_known": ("sideknown",),
    },
}  # fmt: skip
# The roles that people may choose, those that some column must have, and guesses that people confirm.
ROLES: Mapping[Material, Sequence[str]] = {
    Material.TASKS: ("task", f"task,{VARIABLE}", "reference", "tags", VARIABLE, IGNORE),
    Material.RESPONSES: ("task", "policy", FACTOR, RESPONSE, "reference", "tags", IGNORE),
    Material.VOTES: (
        "task", "policy_a", "policy_b", "winner", "response_a", "response_b", "conversation_a",
        "conversation_b",
        "annotator", "judged_at", "side_a", "judged_by", IGNORE,
    ),
}  # fmt: skip
NEEDED: Mapping[Material, Sequence[str]] = {
    Material.TASKS: ("task",),
    Material.RESPONSES: ("task", "policy", RESPONSE),
    Material.VOTES: ("task", "policy_a", "policy_b", "winner"),
}
_GUESSES = dict.fromkeys(("model", "modelname", "modelid", "generator", "system"), "policy") | dict.fromkeys(
    ("responsetext", "completion", "generation", "modeloutput", "output"), RESPONSE
)
ALL_ROLES = tuple(
    dict.fromkeys(role for roles in ROLES.values() for each in roles for role in each.split(","))
)
# Several columns may have these.
_MANY = {RESPONSE, FACTOR, VARIABLE, IGNORE}
_LONGEST_VARIABLE = 90
LONGEST_NAME = 100
ABSENT = object()


def parse_columns(said: Iterable[str]) -> dict[str, str]:
    """The columns of ``COLUMN=ROLE``, as the command line has them; one column may have several roles."""
    columns: dict[str, str] = {}
    for each in said:
        # A name of a column may hold an equals sign; a role does not.
        column, equals, role = each.rpartition("=")
        if not equals or not column.strip():
            raise ImportingError.at("", f"{limits.shown(each)} is no mapping. Write COLUMN=ROLE.")
        columns[column.strip()] = ",".join(filter(None, [columns.get(column.strip()), role.strip()]))
    return check_columns(columns)


def check_columns(columns: Columns) -> dict[str, str]:
    """The same columns, each with roles that there are. Several may be responses, variables or ignored."""
    seen: dict[str, str] = {}
    for column, roles in columns.items():
        for role in roles.split(","):
            if role not in ALL_ROLES:
                raise ImportingError.at(
                    "",
                    f"Column {limits.shown(column)}: there is no role {limits.shown(role)}. Use one of "
                    f"{', '.join(ALL_ROLES)}.",
                )
            if role in seen and role not in _MANY:
                raise ImportingError.at(
                    "",
                    f"Columns {limits.shown(seen[role])} and {limits.shown(column)} are both {role}, "
                    "and only one can be. Choose another role for one of them.",
                )
            seen[role] = column
    if FACTOR in seen and sum(RESPONSE in roles.split(",") for roles in columns.values()) > 1:
        raise ImportingError.at("", "In a wide table each column is a policy. Leave the role factor out.")
    return dict(columns)


class Roles:
    """The columns of a file by their roles, as its rows come.

    Attributes
    ----------
    unread
        Columns that hold something and are not read. Of tasks, those without a role are variables.
    """

    def __init__(self, material: Material, said: Columns | None = None) -> None:
        self.material = material
        # A description may say roles for its file of tasks and for that of responses at once.
        own = {role for roles in ROLES[material] for role in roles.split(",")}
        split = {
            column: [*filter(own.__contains__, roles.split(","))] for column, roles in (said or {}).items()
        }
        self.said = {column: roles for column, roles in split.items() if roles}
        self.unread: dict[str, None] = {}
        self._missing = {column for column, roles in self.said.items() if roles != [IGNORE]}
        self._found: dict[str, None] = {}
        self._plans: dict[tuple[str, ...], dict[str, list[str]]] = {}

    @property
    def wide(self) -> list[str]:
        """The columns that hold one policy's responses each, where several do; their names are the
        policies'.
        """
        columns = [column for column, roles in self.said.items() if RESPONSE in roles]
        return columns if len(columns) > 1 else []

    def values(self, row: Row) -> dict[str, Any]:
        """The values of a row by their roles. Of tasks, ``columns`` are the variables by their names.

        Where several columns have a role by their names, the first that holds something is read.
        """
        names = tuple(row.fields)
        if (plan := self._plans.get(names)) is None:
            plan = self._plans[names] = self._plan(names)
            self._found |= dict.fromkeys(names)
        values: dict[str, Any] = {}
        for role, columns in plan.items():
            for column in columns:
                if (value := self._found_at(row, column)) is ABSENT:
                    continue
                if is_empty(values.get(role)):
                    values[role] = value
                elif not is_empty(value) and value != values[role]:
                    self.unread[column] = None
        if self.wide:
            found = {column: self._found_at(row, column) for column in self.wide}
            values["responses"] = {column: value for column, value in found.items() if value is not ABSENT}
        if chosen := [column for column, roles in self.said.items() if FACTOR in roles]:
            found = {column: self._found_at(row, column) for column in chosen}
            values["factors"] = {
                column: "" if value in (None, ABSENT) else value for column, value in found.items()
            }
        rest = self._rest(names, plan)
        if self.material == Material.TASKS:
            chosen = [column for column, roles in self.said.items() if VARIABLE in roles]
            values["columns"] = {
                name: "" if value in (None, ABSENT) else value
                for column, name in variable_names(*chosen, *rest).items()
                if (value := self._found_at(row, column)) is not None or column in chosen
            }
        else:
            self.unread |= {name: None for name in rest if not is_empty(row.fields[name])}
        return values

    def _found_at(self, row: Row, column: str) -> Any:
        if (value := value_at(row.fields, column)) is not ABSENT:
            self._missing.discard(column)
        return value

    def check_all_found(self) -> None:
        """Raise :class:`ImportingError` for a column that somebody named and that no row has."""
        if self._missing and self._found:
            found = ", ".join(list(self._found)[:20])
            column = limits.shown(min(self._missing))
            raise ImportingError.at("", f"There is no column {column}. Found: {found}. Correct the mapping.")

    def _plan(self, names: tuple[str, ...]) -> dict[str, list[str]]:
        """The columns of each role, the one that is read first."""
        plan: dict[str, list[str]] = {}
        for column, roles in self.said.items():
            for role in roles:
                if role not in {FACTOR, VARIABLE, IGNORE} and not (role == RESPONSE and self.wide):
                    plan[role] = [column]
        known = known_roles(self.material, names)
        for name, role in known.items():
            if name not in self.said and role not in self.said_roles:
                plan.setdefault(role, []).append(name)
        places = _places(self.material)
        for columns in plan.values():
            columns.sort(key=lambda name: places.get(unmarked(name), 0))
        return plan

    @property
    def said_roles(self) -> set[str]:
        """The roles that somebody has given to columns."""
        return {role for roles in self.said.values() for role in roles}

    def _rest(self, names: Iterable[str], plan: Mapping[str, Sequence[str]]) -> list[str]:
        read = {*self.said} | {name for columns in plan.values() for name in columns}
        read |= {name.partition(".")[0] for name in read}
        return [name for name in names if name not in read]


def known_roles(material: Material, names: Iterable[str], *, guess: bool = False) -> Mapping[str, str]:
    """The columns whose names say their roles. ``guess``: also those that people are to confirm."""
    known = _by_name(material)
    guesses = _GUESSES if guess and material == Material.RESPONSES else {}
    found = {name: guesses.get(key := unmarked(name)) or known.get(key, "") for name in names}
    return {name: role for name, role in found.items() if role}


@lru_cache
def _by_name(material: Material) -> dict[str, str]:
    return {name: role for role, names in _NAMES[material].items() for name in names}


@lru_cache
def _places(material: Material) -> dict[str, int]:
    return {name: place for place, name in enumerate(_by_name(material))}


@lru_cache(maxsize=4096)
def unmarked(name: str) -> str:
    """A name without case and marks: “Policy A”, “policy_a” and “policy-a” are one."""
    return re.sub(r"[\W_]+", "", name.lower())


def value_at(fields: Mapping[str, Any], path: str) -> Any:
    """The value of a column, or the one that a path such as ``data.outputs.0`` leads to."""
    if path in fields:
        return fields[path]
    for place in [found.start() for found in re.finditer(r"\.", path)]:
        inside, rest = fields.get(path[:place], ABSENT), path[place + 1 :]
        if isinstance(inside, list):
            inside = {str(number): each for number, each in enumerate(inside)}
        if isinstance(inside, Mapping) and (value := value_at(inside, rest)) is not ABSENT:
            return value
    return ABSENT


def paths_in(fields: Mapping[str, Any], most: int = 60, depth: int = 3) -> list[str]:
    """The columns of a row, and the paths to the values inside of its objects."""
    paths: list[str] = []
    for name, value in fields.items():
        paths.append(name)
        if isinstance(value, Mapping) and depth:
            paths += [f"{name}.{inner}" for inner in paths_in(value, most, depth - 1)]
    return paths[:most]


@lru_cache
def variable_names(*columns: str) -> Mapping[str, str]:
    """The variables that columns or paths become: "Customer Name" is customer_name, a second one
    customer_name_2.
    """
    names: dict[str, str] = {}
    for column in columns:
        last = column.rpartition(".")[2] or column
        name = re.sub(r"[^a-z0-9_]+", "_", last.strip().lower())[:_LONGEST_VARIABLE]
        name = first = name if NAME.fullmatch(name) else f"_{name}"
        number = 1
        while name in names.values():
            number += 1
            name = f"{first}_{number}"
        names[column] = name
    return names


class ShortNames(dict[str, str]):
    """A name for each text, short enough for a policy or a level, and told apart by a number."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: set[str] = set()
        self._last: Counter[str] = Counter()

    def __missing__(self, text: str) -> str:
        self[text] = self.new(text)
        return self[text]

    def new(self, text: str) -> str:
        """A name that was not given yet, also for a text that has one."""
        whole = " ".join(text.split())
        name = whole if len(whole) <= LONGEST_NAME else f"{whole[: LONGEST_NAME - 1]}…"
        short = whole[: LONGEST_NAME - 6]
        while name in self._taken:
            self._last[short] += 1
            name = f"{short} {self._last[short] + 1}"
        self._taken.add(name)
        return name


def missing_roles(roles: Iterable[str], material: Material) -> list[str]:
    """The roles that some column must have, and none of these has."""
    found = [role for each in roles for role in each.split(",")]
    if found.count(RESPONSE) > 1 or not {FACTOR, "factors"}.isdisjoint(found):
        found.append("policy")
    if {"conversation_a", "conversation_b"} <= {*found}:
        found.append("task")
    return [role for role in NEEDED[material] if role not in found]


def cell_text(value: Any, longest: int = 200) -> str:
    """A value as a page shows it."""
    if value is None or value is ABSENT:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= longest else f"{text[:longest]}…"

"""A first look at a table: its columns, its first rows, and what each column seems to be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from engine.domain.material import Material
from engine.importing.headings import is_table
from engine.importing.items import HEADINGS, REFERENCE_NAMES, TAG_NAMES, TASK_MEANINGS, rows_in
from engine.importing.mapping import IGNORE, RESPONSE, VARIABLE
from engine.importing.rows import Row
from engine.importing.sources import Source
from engine.importing.votes.columns import meaning_of

_LOOKED_AT = 20
_MANY = 8
_SHOWN = 5
_LONGEST = 200


# The meanings that a column may have; below, the meanings that some column must have.
MEANINGS_BY_MATERIAL: Mapping[Material, Sequence[str]] = {
    Material.TASKS: TASK_MEANINGS,
    Material.RESPONSES: ("task", "policy", RESPONSE, "reference", "tags", IGNORE),
    Material.VOTES: (
        "task", "policy_a", "policy_b", "winner", "response_a", "response_b", "annotator", "judged_at",
        "side_a", IGNORE,
    ),
}  # fmt: skip
_REQUIRED: Mapping[Material, Sequence[str]] = {
    Material.TASKS: ("task",),
    Material.RESPONSES: ("task", "policy", RESPONSE),
    Material.VOTES: ("task", "policy_a", "policy_b", "winner"),
}
# Names of columns with their meanings, and the meaning of all other columns.
_BY_NAME = (
    dict.fromkeys((*HEADINGS, "messages"), "task")
    | dict.fromkeys(REFERENCE_NAMES, "reference")
    | dict.fromkeys(TAG_NAMES, "tags")
)
# Guesses, which somebody is asked to confirm.
_LIKE_POLICY = ("policy", "model", "model_name", "model_id", "generator", "system", "variant", "candidate")
_LIKE_RESPONSE = (RESPONSE, "response_text", "answer_text", "completion", "generation", "model_output")
_OF_RESPONSES = dict.fromkeys(_LIKE_POLICY, "policy") | dict.fromkeys(_LIKE_RESPONSE, RESPONSE) | _BY_NAME
_NUMBERS_A_ROW = re.compile(r"(?:.*[_ -])?(?:id|idx|index|nr|no|number|row)|#", re.IGNORECASE)
_MEANING_OF: Mapping[Material, tuple[Callable[[str], str], str]] = {
    Material.TASKS: (lambda name: _BY_NAME.get(name, ""), VARIABLE),
    Material.RESPONSES: (lambda name: _OF_RESPONSES.get(name, ""), IGNORE),
    Material.VOTES: (meaning_of, IGNORE),
}


@dataclass(frozen=True)
class Column:
    """A column: its name as it is written, what it seems to be, and its first cells."""

    name: str
    meaning: str
    cells: Sequence[str]


@dataclass(frozen=True)
class Look:
    """The columns of a table.

    Attributes
    ----------
    missing
        The meanings that some column must have and none seems to have.
    """

    columns: Sequence[Column]
    missing: Collection[str]

    @property
    def is_wide(self) -> bool:
        """True if the table has a column of responses for each policy, which somebody has to say."""
        return [column.meaning for column in self.columns].count(RESPONSE) > 1

    @property
    def is_guessed(self) -> bool:
        """True if a column of another name seems to name the policy or to hold the responses."""
        guessed = {"policy", RESPONSE}
        return any(each.meaning in guessed and each.name.lower() != each.meaning for each in self.columns)


def look(given: str | Source, material: Material) -> Look:
    """The columns of a table, each with a guess at what it is. Only the first rows are read.

    Raises
    ------
    ImportingError
        The file is damaged or too large.
    """
    rows = [row for row in islice(rows_in(given), _LOOKED_AT) if isinstance(row, Row)]
    names: dict[str, str] = {}
    for row in rows:
        for name in row.heading:
            names.setdefault(name.lower(), name)
    meaning_of, otherwise = _MEANING_OF[material]
    meanings: dict[str, str] = {}
    for name in names:
        meaning = meaning_of(name)
        meanings[name] = meaning if meaning and meaning not in meanings.values() else otherwise
    if material == Material.RESPONSES and not {"policy", RESPONSE} & set(meanings.values()):
        # Perhaps a wide table: a column for each policy.
        policies = [
            name for name, each in meanings.items() if each == IGNORE and _may_hold_responses(name, rows)
        ]
        meanings |= dict.fromkeys(policies, RESPONSE) if len(policies) > 1 else {}
    missing = missing_of(meanings.values(), material)
    if RESPONSE in missing and "policy" not in missing:
        # A reference answer is the same for all policies.
        of_policies = [
            name for name, each in meanings.items() if each == "reference" and _differ(name, meanings, rows)
        ]
        meanings |= dict.fromkeys(of_policies, RESPONSE)
    return Look(
        [
            Column(names[name], meaning, [_cell(row.fields.get(name)) for row in rows[:_SHOWN]])
            for name, meaning in meanings.items()
        ],
        missing_of(meanings.values(), material),
    )


def missing_of(meanings: Iterable[str], material: Material) -> list[str]:
    """The meanings that some column must have, and none of these is. Of several columns of responses, the
    names are the policies'.
    """
    found = [*meanings]
    is_wide = found.count(RESPONSE) > 1
    return [each for each in _REQUIRED[material] if each not in found and not (is_wide and each == "policy")]


def has_columns(text: str) -> bool:
    """True if a list of tasks is a table, and no plain lines."""
    return is_table(text, HEADINGS, REFERENCE_NAMES)


def _may_hold_responses(name: str, rows: Sequence[Row]) -> bool:
    """False for a column that numbers the rows, and for one whose many rows share a few words, as models."""
    texts = [str(row.fields[name]) for row in rows if row.fields.get(name) not in (None, "")]
    shared = len(texts) >= _MANY and 2 * len(set(texts)) <= len(texts)
    return not shared and not _NUMBERS_A_ROW.fullmatch(name)


def _differ(name: str, meanings: Mapping[str, str], rows: Sequence[Row]) -> bool:
    """True if a column has more than one text for the same task."""
    task = next((each for each, meaning in meanings.items() if meaning == "task"), "")
    pairs = {(_cell(row.fields.get(task)), _cell(row.fields.get(name))) for row in rows}
    return len(pairs) > len({asked for asked, _ in pairs})


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

"""The columns of a row of votes: by which names each is known, and what is in one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from engine.domain import limits
from engine.importing.rows import ImportingError, Row, in_json, storable

# A policy's name becomes a level's, which holds so many characters.
LONGEST_NAME = 100

TASK = ("task", "prompt", "question", "instruction", "input", "query")
POLICY = ("policy", "model", "system", "generator")
RESPONSE = ("response", "answer", "completion", "output", "generation", "text")
# The words for a and b, and whether they say which was on the left.
_SIDES = (("a", "b"), ("1", "2"), ("left", "right"))
WINNER = (
    "winner",
    "preference",
    "preferred",
    "vote",
    "verdict",
    "label",
    "choice",
    "comparison",
    "pairwise",
    "pw",
)
ANNOTATOR = (
    "annotator", "annotatorid", "judge", "judgehash", "rater", "raterid", "workerid", "userid", "user",
    "evaluationsessionid",
)  # fmt: skip
JUDGED_AT = ("judgedat", "tstamp", "timestamp", "createdat", "time")
_FRACTION = re.compile(r"^(\d+)[.,]0$")


def meaning_of(column: str) -> str:
    """The meaning of a column of this name in a table of votes; empty where nothing is known of it."""
    return MEANING_BY_NAME.get(unmarked(column), "")


def _meanings() -> dict[str, str]:
    meanings = dict.fromkeys(TASK, "task") | dict.fromkeys(WINNER, "winner")
    meanings |= dict.fromkeys(ANNOTATOR, "annotator") | dict.fromkeys(JUDGED_AT, "judged_at")
    for thing, stems in (("policy", POLICY), ("response", RESPONSE)):
        for stem in stems:
            for a, b in _SIDES:
                for side, word in (("a", a), ("b", b)):
                    meanings |= dict.fromkeys((f"{stem}{word}", f"{word}{stem}"), f"{thing}_{side}")
    return meanings | {"sidea": "side_a"}


MEANING_BY_NAME = _meanings()


def unmarked_columns(row: Row) -> dict[str, Any]:
    """The row's fields by their unmarked names.

    Raises
    ------
    ImportingError
        Two columns count as one and say different things.
    """
    fields = unmarked_fields(row.fields)
    if len(fields) < len(row.fields):
        _check_names(row)
    return fields


def _check_names(row: Row) -> None:
    seen: dict[str, str] = {}
    for name, value in row.fields.items():
        first = seen.setdefault(unmarked(name), name)
        if value != row.fields[first]:
            raise ImportingError.at(
                row.place,
                f"{limits.shown(first)} and {limits.shown(name)} count as the same name. Rename one of them.",
            )


def unmarked(name: str) -> str:
    """A column's name without case and marks: ``Policy A``, ``policy_a`` and ``policy-a`` are
    one.
    """
    return _short_key(name) if len(name) <= LONGEST_NAME else _without_marks(name)


def _without_marks(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())


# The same columns and answers come in every row.
_short_key = lru_cache(maxsize=1024)(_without_marks)


def unmarked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same values by their unmarked names."""
    return {unmarked(str(name)): value for name, value in fields.items()}


def first_of(fields: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The value of the first of these columns that holds one; ``None`` where none does."""
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


def two_of(fields: Mapping[str, Any], stems: tuple[str, ...]) -> tuple[tuple[Any, Any], bool]:
    """The values of a and b, and whether their names are sides. They stand under the first of the stems that
    has both columns and a value in one. Where no stem has both, those of two stems, as answer_a and
    response_b.
    """
    pairs = _pairs(stems)
    for name_a, name_b in pairs:
        if name_a in fields and name_b in fields:
            values = fields[name_a], fields[name_b]
            if any(value not in (None, "") for value in values):
                return values, "left" in name_a
    names_a, names_b = ([name for name in names if name in fields] for names in zip(*pairs, strict=True))
    if not names_a or not names_b:
        return (None, None), False
    return (first_of(fields, names_a), first_of(fields, names_b)), False


@lru_cache(maxsize=8)
def _pairs(stems: tuple[str, ...]) -> list[tuple[str, str]]:
    """The names of the columns of a and b."""
    return [
        pair
        for stem in stems
        for a, b in _SIDES
        for pair in ((f"{stem}{a}", f"{stem}{b}"), (f"{a}{stem}", f"{b}{stem}"))
    ]


def text_in(place: str, name: str, value: Any) -> str | None:
    """The text that a cell holds; ``None`` where it holds nothing."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ImportingError.at(place, f"{name} must be a text, not {limits.shown(value)}.")
    return storable(str(value), place, name)


def without_fraction(text: str) -> str:
    """The same text, but a whole number as itself: pandas writes 37.0 in a column with gaps."""
    return _FRACTION.sub(r"\1", text)


def list_in(value: Any) -> list[Any] | None:
    """A list, which a table may hold as JSON; ``None`` where it is none, or empty."""
    value = in_json(value)
    return value if isinstance(value, list) and value else None

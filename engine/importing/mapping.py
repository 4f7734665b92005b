"""Columns by other names: what somebody says that each column of a file is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from engine.domain import limits
from engine.domain.variables import NAME
from engine.importing.rows import Fault, ImportingError, Row

# Columns by their names in the file, each with what it is.
Columns = Mapping[str, str]

RESPONSE = "response"
VARIABLE, IGNORE = "variable", "ignore"
# Each may be the meaning of several columns.
_MANY = {RESPONSE, VARIABLE, IGNORE}
MEANINGS = (
    "task", "policy", RESPONSE, "reference", "tags", "policy_a", "policy_b", "winner", "response_a",
    "response_b", "annotator", "judged_at", "side_a", VARIABLE, IGNORE,
)  # fmt: skip
_SHOWN = 20
_LONGEST_VARIABLE = 99


def parse_columns(said: Iterable[str]) -> dict[str, str]:
    """The columns of ``COLUMN=MEANING``, as the command line has them.

    Raises
    ------
    ImportingError
        One is not written so, or means nothing that there is.
    """
    columns: dict[str, str] = {}
    for each in said:
        # A name of a column may hold an equals sign; a meaning does not.
        column, equals, meaning = each.rpartition("=")
        if not equals or not column.strip():
            raise ImportingError.at("", f"{limits.shown(each)} is no mapping. Write COLUMN=MEANING.")
        columns[column.strip()] = meaning.strip()
    return check_columns(columns)


def check_columns(columns: Columns) -> dict[str, str]:
    """The same columns, each with a meaning that there is. Several may be responses, variables or ignored.

    Raises
    ------
    ImportingError
        Names the column.
    """
    seen: dict[str, str] = {}
    for column, meaning in columns.items():
        if meaning not in MEANINGS:
            raise ImportingError.at(
                "",
                f"Column {limits.shown(column)}: {limits.shown(meaning)} means nothing. Use one of "
                f"{', '.join(MEANINGS)}.",
            )
        if meaning in seen and meaning not in _MANY:
            raise ImportingError.at(
                "",
                f"Columns {limits.shown(seen[meaning])} and {limits.shown(column)} both mean {meaning}, and "
                "only one can. Choose another meaning for one of them, or leave it out.",
            )
        seen[meaning] = column
    return dict(columns)


def wide(columns: Columns) -> list[str]:
    """The columns that hold one policy's responses each, where several do; their names are the policies'."""
    responses = [column for column, meaning in columns.items() if meaning == RESPONSE]
    return responses if len(responses) > 1 else []


def renamed(rows: Iterable[Row | Fault], columns: Columns) -> Iterator[Row | Fault]:
    """The rows with the columns under the names of their meanings, variables as one object.

    Those of a wide table keep their own names.
    """
    kept = set(wide(columns))
    names = {
        column.lower(): column if column in kept else meaning
        for column, meaning in columns.items()
        if meaning not in {VARIABLE, IGNORE}
    }
    variables = {name.lower(): variable_name(name) for name, each in columns.items() if each == VARIABLE}
    ignored = {column.lower() for column, meaning in columns.items() if meaning == IGNORE}
    missing = {column.lower(): column for column, meaning in columns.items() if meaning != IGNORE}
    found: dict[str, None] = {}
    for row in rows:
        if isinstance(row, Fault):
            yield row
            continue
        found.update(dict.fromkeys(list(row.fields)[:_SHOWN]))
        for name in missing.keys() & row.fields.keys():
            missing.pop(name)
        gone = {*names, *names.values(), *variables, *ignored}
        fields = {name: value for name, value in row.fields.items() if name not in gone}
        fields |= {new: row.fields[name] for name, new in names.items() if name in row.fields}
        if variables:
            fields["variables"] = {
                new: "" if row.fields.get(name) is None else row.fields[name]
                for name, new in variables.items()
            }
        yield Row(row.place, fields)
    if missing and found:
        yield Fault(
            "",
            f"There is no column {limits.shown(next(iter(missing.values())))}. Found: {', '.join(found)}. "
            "Correct the mapping.",
        )


def variable_name(column: str) -> str:
    """The name of the variable that a column of any name becomes: "Customer Name" is customer_name."""
    name = re.sub(r"[^a-z0-9_]+", "_", column.strip().lower())[:_LONGEST_VARIABLE]
    return name if NAME.fullmatch(name) else f"_{name}"


def as_policies(rows: Iterable[Row | Fault], policies: Sequence[str]) -> Iterator[Row | Fault]:
    """The rows of a wide table as one row for each policy that has a response in it."""
    for row in rows:
        if isinstance(row, Fault):
            yield row
            continue
        others = {name: value for name, value in row.fields.items() if name not in policies}
        for policy in policies:
            if policy in row.fields:
                yield Row(row.place, others | {"policy": policy, RESPONSE: row.fields[policy]})

"""Columns by other names: what somebody says that each column of a file is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from engine.domain import limits
from engine.importing.rows import Fault, ImportingError, Row

# Columns by their names in the file, each with what it is.
Columns = Mapping[str, str]

RESPONSE = "response"
MEANINGS = (
    "task", "policy", RESPONSE, "reference", "policy_a", "policy_b", "winner", "response_a", "response_b",
    "annotator", "judged_at", "side_a",
)  # fmt: skip
_SHOWN = 20


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
    """The same columns, each with a meaning that there is; only responses may stand in several.

    Raises
    ------
    ImportingError
        Names the column.
    """
    seen: set[str] = set()
    for column, meaning in columns.items():
        if meaning not in MEANINGS:
            raise ImportingError.at(
                "",
                f"Column {limits.shown(column)}: {limits.shown(meaning)} means nothing. Use one of "
                f"{', '.join(MEANINGS)}.",
            )
        if meaning in seen and meaning != RESPONSE:
            raise ImportingError.at("", f"Two columns are {meaning}. Keep one of them.")
        seen.add(meaning)
    return dict(columns)


def wide(columns: Columns) -> list[str]:
    """The columns that hold one policy's responses each, where several do; their names are the policies'."""
    responses = [column for column, meaning in columns.items() if meaning == RESPONSE]
    return responses if len(responses) > 1 else []


def renamed(rows: Iterable[Row | Fault], columns: Columns) -> Iterator[Row | Fault]:
    """The rows with the columns under the names of their meanings; those of a wide table keep their own."""
    kept = set(wide(columns))
    names = {column.lower(): column if column in kept else meaning for column, meaning in columns.items()}
    missing = dict(zip(names, columns, strict=False))
    found: dict[str, None] = {}
    for row in rows:
        if isinstance(row, Fault):
            yield row
            continue
        found.update(dict.fromkeys(list(row.fields)[:_SHOWN]))
        fields = {name: value for name, value in row.fields.items() if name not in names.values()}
        for name in names.keys() & row.fields.keys():
            missing.pop(name, None)
            fields.pop(name, None)
        fields |= {meaning: row.fields[name] for name, meaning in names.items() if name in row.fields}
        yield Row(row.place, fields)
    if missing and found:
        yield Fault(
            "",
            f"There is no column {limits.shown(next(iter(missing.values())))}. Found: {', '.join(found)}. "
            "Correct the mapping.",
        )


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

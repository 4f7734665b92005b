"""Judgments in the forms in which a caller gives many of them: triples, and the columns of a table."""

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

_PLANNED = ("claim", "delta", "epsilon")


def checked_triples(judgments: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """The judgments (i, j, outcome); their three values are as they were given.

    Parameters
    ----------
    judgments
        Each a tuple, a list or a row of an array of whole numbers.

    Raises
    ------
    ValueError
        If one has not three values; the message counts from judgment 0.
    """
    for place, judgment in enumerate(judgments):
        try:
            i, j, outcome = judgment
        except (TypeError, ValueError):
            raise ValueError(
                f"judgment {place} is {reprlib.repr(judgment)}; each must be (i, j, outcome), such as "
                "(0, 1, 1.0); join three columns with zip(i, j, outcome)"
            ) from None
        yield i, j, outcome


def checked_columns(frame: Any, names: Sequence[str]) -> list[list[Any]]:
    """The columns of a table.

    Parameters
    ----------
    frame
        A pandas or polars data frame, or a mapping of columns.
    names
        Names of the columns.

    Raises
    ------
    ValueError
        If it lacks a column.
    """
    try:
        return [list(frame[name]) for name in names]
    except LookupError as error:
        raise ValueError(
            f"the table has no column {error}; name the columns by first=…, second=… and outcome=…"
        ) from error


def as_exported(
    frame: Any, columns: list[list[Any]], settings: dict[str, Any]
) -> tuple[list[list[Any]], dict[str, Any]]:
    """What an export of judgments says beside its outcomes: which rows count, and the settings.

    Parameters
    ----------
    frame
        A table as for `checked_columns`.
    columns
        Columns of it.
    settings
        Settings of a design that were given, which come before those of the table.
    """
    if "in_evidence" in frame:
        counted = list(frame["in_evidence"])
        columns = [list(compress(column, counted)) for column in columns]
    planned = {name: list(frame[f"plan_{name}"])[-1] for name in _PLANNED if f"plan_{name}" in frame}
    return columns, planned | settings


def checked_policy_name(value: object, where: str) -> str:
    """Name of a policy in a table.

    Parameters
    ----------
    value
        The table's cell. Names may be numbers.
    where
        Its row and column, for the message.

    Raises
    ------
    ValueError
        If it is empty: None, NaN, or text without a character.
    """
    try:
        # NaN is not equal to itself.
        missing = value is None or bool(value != value)  # noqa: PLR0124
    except TypeError:
        # pandas' NA is neither equal to itself nor unequal.
        missing = True
    if missing or not str(value).strip():
        raise ValueError(f"{where} names no policy (it holds {value!r}); fill it in, or leave out the row")
    # pandas makes floats of whole numbers in a column that has, or had, an empty cell.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

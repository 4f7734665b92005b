"""Judgments in the forms in which a caller gives many of them: triples, and the columns of a table."""

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
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
        If one has not three values in an order, or there is no row of them; the message counts from judgment
        0.
    """
    how = "each must be (i, j, outcome), such as (0, 1, 1.0); join three columns with zip(i, j, outcome)"
    try:
        given = iter(judgments)
    except TypeError:
        raise ValueError(f"judgments must be a list, got {reprlib.repr(judgments)}; {how}") from None
    for place, judgment in enumerate(given):
        values = _in_order(judgment)
        if values is None or len(values) != 3:
            raise ValueError(f"judgment {place} is {reprlib.repr(judgment)}; {how}")
        yield values[0], values[1], values[2]


def checked_columns(frame: Any, names: Sequence[str]) -> list[list[Any]]:
    """The columns of a table, equally long.

    Parameters
    ----------
    frame
        A pandas or polars data frame, or a mapping of columns.
    names
        Names of the columns.

    Raises
    ------
    ValueError
        If it is no table, lacks a column or has it twice, or a column has no rows or fewer than another.
    """
    columns: list[list[Any]] = []
    for name in names:
        try:
            column = frame[name]
        except LookupError as error:
            raise ValueError(
                f"the table has no column {name!r}; name the columns by first=…, second=… and outcome=…"
            ) from error
        except TypeError:
            raise ValueError(
                f"the table must be a data frame or a mapping of columns, got {reprlib.repr(frame)}"
            ) from None
        if getattr(column, "ndim", 1) != 1:
            raise ValueError(f"the table has several columns {name!r}; name each one only once")
        values = _in_order(column)
        if values is None:
            raise ValueError(
                f"the column {name!r} must be a list with a value for each row, got {reprlib.repr(column)}"
            )
        columns.append(values)
    if len({len(column) for column in columns}) > 1:
        found = zip(names, columns, strict=True)
        lengths = ", ".join(f"{name!r}: {len(column):,}" for name, column in found)
        raise ValueError(f"the columns must be equally long ({lengths}); give each a value for every row")
    return columns


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
        If it is empty (None, NaN, or text without a character), or a list or an array.
    """
    if hasattr(value, "__len__") and not isinstance(value, str):
        raise ValueError(f"{where} must be the name of one policy, got {reprlib.repr(value)}")
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


def _in_order(given: Any) -> list[Any] | None:
    """The values of a list, or of anything else that has several in an order; None of a text and the like."""
    if isinstance(given, str | bytes | Set | Mapping):
        return None
    try:
        return list(given)
    except TypeError:
        return None

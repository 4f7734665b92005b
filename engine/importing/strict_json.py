"""JSON as the standard has it, within the limits: finite numbers of a storable size, and no deep nesting."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

from engine.domain import limits


class JSONLimitError(ValueError):
    """The text is JSON, or nearly, and holds a value that nothing here can store. The message says what to do."""


def loads(text: str | bytes, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value that ``text`` holds.

    Parameters
    ----------
    pairs
        Makes an object from its names and values.

    Raises
    ------
    json.JSONDecodeError
        The text is not JSON.
    JSONLimitError
        A number is not finite or too long, or the values are nested too deeply.
    """
    try:
        value = json.loads(
            text, parse_int=integer, parse_float=finite, parse_constant=_constant, object_pairs_hook=pairs
        )
    except RecursionError:
        raise JSONLimitError(_too_deep()) from None
    _check_depth(value)
    return value


def integer(written: str) -> int:
    """A whole number. Python refuses to read very long ones, and floats cannot hold them."""
    if message := limits.DIGITS.refusal(len(written.lstrip("-+"))):
        raise JSONLimitError(message)
    return int(written)


def finite(written: str) -> float:
    """A number with a point or an exponent. One such as 1e999 would silently become infinite."""
    value = float(written)
    if not math.isfinite(value):
        raise JSONLimitError(f"{written[:40]} is too large for a number. Write one between -1e308 and 1e308.")
    return value


def _constant(name: str) -> NoReturn:
    raise JSONLimitError(f"{name} is not JSON. Write a finite number.")


def _too_deep() -> str:
    return f"This is nested too deeply to be read; the limit is {limits.DEPTH.most}. {limits.DEPTH.advice}"


def _check_depth(value: Any) -> None:
    """Walk level by level, since recursion is what deep nesting breaks."""
    level = [value]
    for _ in range(limits.DEPTH.most):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise JSONLimitError(_too_deep())

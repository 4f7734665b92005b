"""JSON as the standard has it, within the limits: finite numbers of a storable size, no deep nesting, each
name once.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from engine.domain import limits
from engine.domain.texts import UNSTORABLE


class JSONLimitError(ValueError):
    """The text is JSON, or nearly, and holds a value that nothing here can store. The message says what to
    do.
    """


def loads(text: str | bytes, *, of_table: bool = False) -> Any:
    """The value that ``text`` holds. ``of_table``: NaN is a cell without a value, as pandas writes it.

    Raises
    ------
    json.JSONDecodeError
        The text is not JSON.
    JSONLimitError
        A number is not finite or too long, the values are nested too deeply, or an object's name comes twice
        or cannot be stored.
    UnicodeDecodeError
        The bytes are not UTF-8, UTF-16 or UTF-32.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    try:
        value = (_OF_TABLES if of_table else _DECODER).decode(text)
    except RecursionError:
        raise JSONLimitError(_too_deep()) from None
    _check_depth(value)
    return value


def entry_at(text: str, at: int) -> tuple[Any, int]:
    """The entry of a list that begins at this place, and where it ends. A `JSONLimitError` in the place of
    one that `loads` refuses in a table.

    Raises
    ------
    json.JSONDecodeError
        No JSON begins there.
    """
    try:
        entry, end = _OF_TABLES.raw_decode(text, at)
        _check_depth([entry])
    except JSONLimitError as error:
        return error, _PLAIN.raw_decode(text, at)[1]
    return entry, end


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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Names stand in messages, so one that no page can be encoded with is refused here."""
    named = dict(pairs)
    if len(named) < len(pairs):
        [(twice, _), *_] = Counter(name for name, _ in pairs).most_common(1)
        raise JSONLimitError(f"{limits.shown(twice)} appears twice in one object. Remove one of them.")
    if UNSTORABLE.search("".join(named)):
        name = next(filter(UNSTORABLE.search, named))
        raise JSONLimitError(limits.text_fault(name, f"The name {limits.shown(name)}"))
    return named


def _constant(name: str) -> NoReturn:
    raise JSONLimitError(f"{name} is not JSON. Write a finite number.")


def _constant_of_table(name: str) -> None:
    if name != "NaN":
        _constant(name)


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


_PLAIN = json.JSONDecoder(parse_int=str)
# Made once: making one takes longer than reading a short line with it.
_DECODER = json.JSONDecoder(
    parse_int=integer, parse_float=finite, parse_constant=_constant, object_pairs_hook=_object
)
_OF_TABLES = json.JSONDecoder(
    parse_int=integer, parse_float=finite, parse_constant=_constant_of_table, object_pairs_hook=_object
)

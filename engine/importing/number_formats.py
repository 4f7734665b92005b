"""Numbers as a spreadsheet shows them, where their format says more than the number: 5%, $3.50, 007."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import NamedTuple

# Spreadsheets write none that is longer.
_LONGEST = 255
# A text in quotation marks, a single character, a currency, a space as wide as a character, one that fills
# the cell, or a sign.
_LITERAL = r"""(?:"[^"]*"|\\.|\[\$[^]-]*(?:-[0-9A-F]+)?]|_.|\*.|[ +()%$£¥€\u20a0-\u20cf-])"""
_SECTION = re.compile(
    rf"(?:\[(?!\$)[a-z]+])?({_LITERAL}*)([#,0]{{0,40}}[#0])(?:\.(0{{0,30}}#{{0,30}}))?({_LITERAL}*)",
    re.IGNORECASE,
)
_TOKEN = re.compile(_LITERAL, re.IGNORECASE)
_PARTS = re.compile(r'(?:"[^"]*"|\\.|[^;])+')
# Without more than these a format says nothing that the number does not say.
_SIGNS = " +-()"
# Enough for all digits that a number of XLSX may have.
_CONTEXT = Context(prec=400, rounding=ROUND_HALF_UP)


class _Format(NamedTuple):
    """A format, and the text before and behind its digits."""

    before: str
    behind: str
    n_percent: int
    in_groups: bool
    n_whole: int
    n_parts: int
    n_parts_at_least: int

    def of(self, value: Decimal) -> str:
        scaled = value.scaleb(2 * self.n_percent, _CONTEXT)
        rounded = scaled.quantize(Decimal(1).scaleb(-self.n_parts), context=_CONTEXT)
        whole, _, parts = f"{rounded:{',' * self.in_groups}f}".partition(".")
        while len(parts) > self.n_parts_at_least and parts.endswith("0"):
            parts = parts[:-1]
        digits = f"{whole.zfill(self.n_whole)}{'.' * bool(parts)}{parts}"
        return f"{self.before}{digits}{self.behind}".strip()


def shown(value: Decimal, number_format: str) -> str:
    """The finite number as its format shows it, with English marks. Empty where the format adds nothing to
    the number, or is none of percent, currency, unit and zeros in front.
    """
    positive, negative = _read(number_format)
    if value >= 0 or negative is None:
        sign = "-" * (value < 0)
        return f"{sign}{positive.of(abs(value))}" if positive else ""
    return negative.of(abs(value))


@lru_cache(maxsize=64)
def _read(number_format: str) -> tuple[_Format | None, _Format | None]:
    """The formats of numbers from zero on and of negative ones; ``None`` where there is none to be shown."""
    if len(number_format) > _LONGEST:
        return None, None
    positive, negative, *_ = [*map(_section, _PARTS.findall(number_format)), None, None]
    return positive, negative


def _section(written: str) -> _Format | None:
    found = _SECTION.fullmatch(written)
    if found is None:
        return None
    before, whole, parts, behind = (each or "" for each in found.groups())
    read = _Format(
        _text(before),
        _text(behind),
        [*_TOKEN.findall(before), *_TOKEN.findall(behind)].count("%"),
        "," in whole,
        whole.count("0"),
        len(parts),
        parts.count("0"),
    )
    says_more = read.n_whole > 1 or read.before.strip(_SIGNS) or read.behind.strip(_SIGNS)
    return read if says_more else None


def _text(literals: str) -> str:
    """The text that these literals show."""
    return "".join(_character(token) for token in _TOKEN.findall(literals))


def _character(token: str) -> str:
    if token[0] == '"':
        return token[1:-1]
    if token[0] == "[":
        return token[2:-1].partition("-")[0]
    return token[1:] if token[0] == "\\" else "" if token[0] in "_*" else token

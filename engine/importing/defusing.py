"""Cells of a CSV that a spreadsheet would run as formulas: made harmless, and turned back exactly.

`labeling.exports.formats` writes with these rules in Python, `copying` with the same ones in PostgreSQL.
"""

from __future__ import annotations

import re

# Characters that begin a formula, and their full-width forms, which some spreadsheets treat alike.
# Spreadsheets drop the other characters first: whitespace, and the mark at the beginning of some files.
STARTS = "=+-@|%＝＋－＠\t\n\v\f\r \u00a0\ufeff"
APOSTROPHE = "'"
# Only these need a second look. The apostrophe is one of them: a text may begin like a defused one.
FIRST = frozenset(STARTS + APOSTROPHE)
# A class of characters for regular expressions, of Python and of PostgreSQL.
STARTS_CLASS = "[" + STARTS.replace("-", "") + "-]"
NUMBER_PATTERN = "-?[0-9.,]+"

_dangerous = re.compile(f"{APOSTROPHE}*{STARTS_CLASS}").match
_defused = re.compile(f"{APOSTROPHE}+{STARTS_CLASS}").match
_is_number = re.compile(NUMBER_PATTERN).fullmatch


def defused(text: str) -> str:
    """The text as a spreadsheet may have it: an apostrophe in front, unless it is harmless or a number."""
    if text[:1] in FIRST and _dangerous(text) and not _is_number(text):
        return APOSTROPHE + text
    return text


def as_it_was(cell: str) -> str:
    """The text that `defused` made this cell of."""
    return cell[1:] if _defused(cell) else cell

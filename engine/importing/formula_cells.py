"""Cells of a CSV that a spreadsheet would run as formulas: made harmless, and turned back exactly.

`labeling.exports.formats` writes with these rules in Python, `copying` with the same ones in PostgreSQL.
"""

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

# A spreadsheet whose separator is a semicolon or a tab splits cells of ours there, and takes a quotation mark
# inside of a line for text. So what follows one of these begins a cell, too.
SEPARATORS_CLASS = "[;\t\n\r]"
# The look of a formula there: apostrophes, as at the beginning, what is dropped, and a mark.
FORMULA_PATTERN = "'*[ \v\f\u00a0\ufeff\"]*[=+@＝＋－＠-]"

_dangerous = re.compile(f"{APOSTROPHE}*{STARTS_CLASS}").match
_defused = re.compile(f"{APOSTROPHE}+{STARTS_CLASS}").match
_is_number = re.compile(NUMBER_PATTERN).fullmatch
_within = re.compile(f"(?<={SEPARATORS_CLASS})(?={FORMULA_PATTERN})")
_defused_within = re.compile(f"(?<={SEPARATORS_CLASS}){APOSTROPHE}(?={FORMULA_PATTERN})")


def is_harmless(text: str) -> bool:
    """False if `defused` may change the text."""
    return text[:1] not in FIRST and not _within.search(text)


def defused(text: str) -> str:
    """The text as a spreadsheet may have it: an apostrophe before each formula, unless all is a number."""
    safe = _within.sub(APOSTROPHE, text)
    if text[:1] in FIRST and _dangerous(text) and not _is_number(text):
        return APOSTROPHE + safe
    return safe


def as_it_was(cell: str) -> str:
    """The text that `defused` made this cell of."""
    text = _defused_within.sub("", cell)
    return text[1:] if _defused(cell) else text

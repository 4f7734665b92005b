"""Possible slips in what people bring, each with its count. Nothing is changed or left out for them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_NOTHING = {"null", "none", "nan", "n/a"}
# Of Excel and of LibreOffice.
_ERRORS = {
    "#ref!", "#n/a", "#value!", "#div/0!", "#name?", "#null!", "#num!", "#spill!", "#calc!", "#field!",
    "err:502", "err:504", "err:508", "err:509", "err:522",
}  # fmt: skip
# Marks that pick the shape of the character before them; categories of others that nobody sees.
_SELECTORS = {chr(code) for code in range(0xFE00, 0xFE10)}
_UNSEEN = {"Cf", "Cc"}
_LONGEST_WORD = 40
_LIKE_A_NAME = re.compile(r"[^\W\d]\w*(?:[ -]\w+){0,2}")
_OF_SENTENCES = re.compile(r"[\d?.!:]")


def number(n: int, one: str, many: str = "") -> str:
    """ "1 task", "2,000 tasks": ``many`` is the plural unless an s makes it."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def twice(items: Collection[object]) -> int:
    """The number of items that are equal to an earlier one."""
    return Counter(items).total() - len(set(items))


def no_texts(texts: Iterable[str], one: str, many: str = "") -> Iterator[str]:
    """Warnings where texts say only what programs write for no text, or for a formula that failed."""
    said = Counter(text.strip().lower() for text in texts if len(text) < _LONGEST_WORD)
    if n := sum(said[word] for word in _NOTHING):
        yield f"{number(n, one, many)} said only null, None, NaN or N/A, as programs write for no text."
    if n := sum(said[word] for word in _ERRORS):
        shown = next(word for word in said if word in _ERRORS).upper()
        yield (
            f"{number(n, one, many)} said only {shown} or the like, as spreadsheets write for a formula that "
            "failed. Mend the formulas, and save the file again."
        )


# The column that is taken, and another one that may be the same thing.
Rivals = tuple[str, str]


def rivals(fields: Mapping[str, object], names: Sequence[str]) -> Rivals | None:
    """The first two of these columns in which a row has different values; the first one is taken."""
    given = [name for name in names if fields.get(name) not in (None, "", [])]
    other = next((name for name in given[1:] if fields[name] != fields[given[0]]), None)
    return None if other is None else (given[0], other)


def heading(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A warning where the first of these tasks and answers may be the names of their columns, as of cells
    that were copied from a spreadsheet.
    """
    first, *others = lines
    questions = sum(bool(_OF_SENTENCES.search(task)) for task, _ in others)
    if all(map(_LIKE_A_NAME.fullmatch, first)) and 2 * questions > len(others):
        yield (
            f"The first line, {first[0]} and {first[1]}, may name columns, and is a task now. If it names "
            "them, write task instead of the name of the column of the tasks."
        )


def left_out(found: Mapping[Rivals, int]) -> Iterator[str]:
    """A warning for each two columns that may both be the task, by the number of rows that have both."""
    for (taken, other), n in found.items():
        yield (
            f"{number(n, 'row')} with both {taken} and {other}: {taken} is read, and {other} is left out. "
            "Where that is wrong, say what each column is, or rename one."
        )


def nearly_equal(names: Iterable[str], one: str, many: str) -> Iterator[str]:
    """A warning where names differ only in case, space, or characters that nobody sees."""
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(_as_seen(name), []).append(name)
    if near := [group for group in alike.values() if len(group) > 1]:
        shown = " and ".join(repr(name[:40]) for name in near[0][:2])
        yield (
            f"{number(len(near), one, many)} came with nearly equal names, such as {shown}. They count as "
            "different ones."
        )


def _as_seen(name: str) -> str:
    """The name without case and without what nobody sees: "é" may be one character or two."""
    if not name.isascii():
        name = "".join(
            each
            for each in unicodedata.normalize("NFKC", name)
            if each.isspace() or not (each in _SELECTORS or unicodedata.category(each) in _UNSEEN)
        )
    return " ".join(name.casefold().split())

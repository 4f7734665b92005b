"""Possible slips in what people bring, each with its count. Nothing is changed or left out for them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from engine.core.wording import number
from engine.domain import limits
from engine.importing import headings
from engine.importing.defusing import as_it_was
from engine.importing.headings import cells_of, delimiter_of

_NOTHING = {"null", "none", "nan", "n/a", "undefined", "[object object]"}
# R, pandas and SQL write these. In other letters "Na" may be an answer.
_NOTHING_AS_WRITTEN = {"NA", "<NA>", r"\N"}
# Excel and LibreOffice write these.
_ERRORS = {
    "#ref!", "#n/a", "#value!", "#div/0!", "#name?", "#null!", "#num!", "#spill!", "#calc!", "#field!",
    "err:502", "err:504", "err:508", "err:509", "err:522",
}  # fmt: skip
# Marks that pick the shape of the character before them; categories of others that nobody sees.
_SELECTORS = {chr(code) for code in range(0xFE00, 0xFE10)}
_UNSEEN = {"Cf", "Cc"}
_LONGEST_WORD = 40
# A cell in Excel holds so many characters, and Excel cuts off the rest.
_CELL_OF_EXCEL = 32_767
# UTF-8 that was read as Windows-1252, and the mark in the place of a character that was lost. Also
# Windows-1252 that was read as Latin-1, where its quotation marks are control characters.
_GARBLED = re.compile(
    "[\u0080-\u0084\u0086-\u009f]|[\u00c2\u00c3][\u00a0-\u00bf]|(?:[\u00d0\u00d1][\u0080-\u00bf\u0152-\u0178\u2013-\u203a\u20ac]){2}"
    "|\u00e2\u20ac|\u00f0\u0178|\ufffd"
)
# A question mark in the place of a letter that an encoding does not have. Not one of an address, nor one
# before a sentence that follows without a space.
_LOST = re.compile(
    r"(?<![^\s(„“\"'])[^\W\d_]+\?{1,2}[^\W\d_A-Z]+(?:\?{1,2}[^\W\d_A-Z]+)*(?![^\s.,;!?)“”\"'])"
)
# A list or an object, as JSON and Python write it.
_OF_A_PROGRAM = re.compile(r"""\[\s*(?:["'{\[].*)?\]|\{\s*["'].*\}""", re.DOTALL)
# Messages of OpenAI and Anthropic, as JSON and as Python write them, and of LangChain.
_OF_A_CHAT = re.compile(
    r"""\s*(?:\[\s*)?(?:\{\s*["'](?:role|content|choices)["']\s*:|(?:ChatCompletion|AIMessage|Message)\w*\("""
    r"""|content=["'])"""
)
_ENTITY = re.compile("&(?:amp|lt|gt|quot|apos|nbsp|#[0-9]{1,5}|#x[0-9a-f]{1,5});", re.IGNORECASE)
# The two characters of an escaped line break before a line; in formulas a small letter follows, as in \\nu.
_ESCAPED_BREAK = re.compile(r"(?:\\n)++(?=[\W\d_A-Z])[^\"'`)\]]")
_WHOLE = re.compile(r"-?[0-9]+\.0")
_LIKE_A_NAME = re.compile(
    r"#|[^\W\d]\w{0,4}\.|(?:\d+[.)] ?)?[^\W\d]\w*(?:(?:[ /.=-]| [&+@] |: )\w+){0,2}(?: ?\([^()]*\))?[ #:*]*"
)
# The title of a list of tasks, in its own words: "Customer questions:".
_OF_TASKS = re.compile(r"(?:\w+[ _-])?(?:task|prompt|question|input|instruction)s?:?", re.IGNORECASE)
_OF_SENTENCES = re.compile(r"[\d?.!:]")
_SPACE = re.compile(r"\s")
# Names of columns.
_SHOWN = 5


def twice(items: Collection[object]) -> int:
    """The number of items that are equal to an earlier one."""
    return Counter(items).total() - len(set(items))


def in_texts(texts: Iterable[str], one: str, many: str = "") -> Iterator[str]:
    """Warnings where texts say nothing, a formula failed, or a program before this one has spoiled them."""
    said: Counter[str] = Counter()
    garbled = cut = escaped = unbroken = defused = 0
    lost: list[str] = []
    for text in texts:
        if len(text) < _LONGEST_WORD:
            said[text.strip()] += 1
        garbled += not text.isascii() and _GARBLED.search(text) is not None
        cut += len(text) == _CELL_OF_EXCEL
        defused += text[:1] == "'" and as_it_was(text) != text
        unbroken += "\\n" in text and "\n" not in text and _ESCAPED_BREAK.search(text) is not None
        if "?" in text and (found := _LOST.search(text)):
            lost.append(found[0])
        escaped += "&" in text and _ENTITY.search(text) is not None
    if n := sum(many_times for word, many_times in said.items() if is_nothing(word)):
        yield f"{number(n, one, many)} said only null, None, NaN or N/A, as programs write for no text."
    if failed := [word for word in said if word.lower() in _ERRORS]:
        n = sum(said[word] for word in failed)
        yield (
            f"{number(n, one, many)} said only {failed[0].upper()} or the like, as spreadsheets write for a "
            "formula that failed. Mend the formulas, and save the file again."
        )
    if garbled:
        yield (
            f"{number(garbled, one, many)} with characters such as “Ã©” or “�”, as of a file that was saved "
            "in the wrong encoding. Save it as UTF-8 where it comes from."
        )
    if defused:
        yield (
            f"{number(defused, one, many)} with an apostrophe in front of a mark such as = or -, as programs "
            "write it against formulas. It is shown as it is. To be rid of it, export the texts without the "
            "apostrophe."
        )
    if unbroken:
        yield (
            f"{number(unbroken, one, many)} of one line with “\\n” in it, as of a text that a program has "
            "escaped twice. It is shown as it is. Export the texts with their line breaks."
        )
    if lost:
        yield (
            f"{number(len(lost), one, many)} with a question mark inside a word, such as {lost[0][:40]!r}, "
            "as of a file that was saved in an encoding without some letters. Save it as UTF-8 where it "
            "comes from."
        )
    if escaped:
        yield (
            f"{number(escaped, one, many)} with marks of HTML such as &amp; or &#39;, which are shown as "
            "they are. Where that is wrong, export the texts as plain text."
        )
    if cut:
        yield (
            f"{number(cut, one, many)} of exactly {_CELL_OF_EXCEL:,} characters, after which Excel cuts a "
            "cell off. Bring the whole texts as CSV or JSON Lines."
        )


def spaced(texts: Iterable[str], one: str) -> Iterator[str]:
    """A warning where space stands around a text, which nobody sees, and a model reads."""
    if n := sum(text != text.strip() for text in texts):
        yield (
            f"{number(n, one)} with spaces or empty lines around the text. They stay, as a model reads them. "
            "If they are not meant, remove them."
        )


def whole_numbers(texts: Iterable[str], one: str, many: str) -> Iterator[str]:
    """A warning where texts are whole numbers with a fraction of 0, as programs make them of a column with
    empty cells.
    """
    if found := [text for text in texts if _WHOLE.fullmatch(text)]:
        yield (
            f"{number(len(found), one, many)} such as {found[0][:40]}, as programs write whole numbers "
            "beside empty cells. Where that is wrong, save the column as text."
        )


def is_nothing(word: str) -> bool:
    """True for a word that programs write for no value."""
    return word in _NOTHING_AS_WRITTEN or word.lower() in _NOTHING


def of_programs(texts: Iterable[str], one: str) -> Iterator[str]:
    """A warning where texts are lists or objects, as a program writes them that has no texts there."""
    if found := [text for text in texts if text[:1] in {"[", "{"} and _OF_A_PROGRAM.fullmatch(text.rstrip())]:
        yield (
            f"{number(len(found), one)} written as a list or an object, such as {found[0][:40]!r}. It "
            "is shown as it is. Bring lists and conversations as JSON Lines or Parquet."
        )


def messages(texts: Iterable[str], one: str) -> Iterator[str]:
    """A warning where texts are messages as a program writes them, of which only the content is meant."""
    if found := [text for text in texts if _OF_A_CHAT.match(text)]:
        yield (
            f"{number(len(found), one)} written as a message of a program, such as {found[0][:40]!r}. "
            "It is shown as it is. Bring its content alone."
        )


def no_names(names: Iterable[str], one: str, many: str = "") -> Iterator[str]:
    """A warning where a name is only what programs write for no name."""
    if n := sum(map(is_nothing, set(names))):
        yield f"{number(n, one, many)} called null, None, NaN or N/A, as programs write for no name."


# Names of columns, without marks, that may hold a part of what a task asks.
OF_A_TASK = {
    "context", "history", "system", "systemprompt", "systemmessage", "instructions", "passage", "document",
    "background",
}  # fmt: skip

# The column that is taken, and another one that may be the same thing.
Rivals = tuple[str, str]


def rivals(fields: Mapping[str, object], names: Sequence[str]) -> Rivals | None:
    """The first two of these columns in which a row has different values; the first one is taken."""
    given = [name for name in names if fields.get(name) not in (None, "", [])]
    other = next((name for name in given[1:] if fields[name] != fields[given[0]]), None)
    return None if other is None else (given[0], other)


def heading(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A warning where the first of these tasks and answers may be the names of their columns, as of cells
    copied from a spreadsheet. Also one where the lines have columns that nobody has named.
    """
    (task, answer), *_ = lines
    first, *rest = ("\t".join(filter(None, line)) for line in lines)
    names = [task, *answer.split("\t")] if answer else _cells_alike(task, rest)
    shown = " and ".join(name.strip() for name in names)
    if not _may_name_columns(names, rest, delimiter="\t" if answer else delimiter_of(task)):
        yield from _columns([first, *rest])
    elif not rest:
        yield (
            f"The only line, {shown}, may name columns, and is a task now. Check that this is the right file."
        )
    else:
        yield (
            f"The first line, {shown}, may name columns, and is a task now. If it names them, write task "
            "instead of the name of the column of the tasks."
        )


def _may_name_columns(names: Sequence[str], rest: Sequence[str], *, delimiter: str) -> bool:
    """True if the cells of the first line look like names above the other lines. A line that is none of a
    table is one cell.
    """
    are_sentences = not rest or 2 * sum(bool(_OF_SENTENCES.search(line)) for line in rest) > len(rest)
    # Where a space follows each comma, more than a word or two may be half of a sentence.
    are_words = all(_LIKE_A_NAME.fullmatch(name.strip()) for name in names)
    if len(names) == 1:
        # Not like the first of the tasks. Two lines may be a greeting and a question.
        is_name = _OF_TASKS.fullmatch(names[0]) or (are_words and not _SPACE.search(names[0]))
        return bool(is_name) and len(rest) != 1 and are_sentences
    if len(names) == 2 and delimiter == "\t":
        # They may be a task and its answer.
        return are_words and are_sentences
    are_close = all(map(headings.is_name, names))
    are_rows = len(names) > 2 or (are_close and any(delimiter in line for line in rest))
    return (are_close or are_words) and (are_sentences or are_rows)


def _cells_alike(task: str, others: Sequence[str]) -> list[str]:
    """The cells of the first line, where it alone or most other lines too are as many, or the whole line."""
    delimiter = delimiter_of(task)
    cells = cells_of(task, delimiter)
    n_alike = sum(len(cells_of(other, delimiter)) == len(cells) for other in others)
    is_close = len(cells) > 1 and not any(cell.startswith(" ") for cell in cells[1:])
    return cells if is_close or 2 * n_alike > len(others) else [task]


def _columns(lines: Sequence[str]) -> Iterator[str]:
    """A warning where most lines have as many cells, without a space after the delimiter as in a sentence.

    A tab separates a task from its answer, so it counts from the second on. A comma between two digits does
    not.
    """
    for delimiter, name in headings.DELIMITERS.items():
        sizes = Counter(_n_columns(line, delimiter) for line in lines if delimiter in line)
        n_columns, n = max(sizes.items(), key=lambda each: each[1], default=(0, 0))
        if len(lines) > 1 and n_columns > 1 + (delimiter == "\t") and 2 * n > len(lines):
            yield (
                f"{n:,} of {number(len(lines), 'line')} may have {n_columns} columns, with a {name} between "
                "them. Each line is one task now, whatever its columns hold. If there are columns, name them "
                "in a first line, such as task,reference."
            )


def _n_columns(line: str, delimiter: str) -> int:
    cells = cells_of(line, delimiter)
    return 0 if any(cell.startswith(" ") or not cell for cell in cells[1:]) else len(cells)


def left_out(found: Mapping[Rivals, int]) -> Iterator[str]:
    """A warning for each two columns that may both be the task, by the number of rows that have both."""
    for (taken, other), n in found.items():
        yield (
            f"{number(n, 'row')} with both {taken} and {other}: {taken} is read, and {other} is left out. "
            "Where that is wrong, say what each column is, or rename one."
        )


def columns_left_out(columns: Collection[str]) -> Iterator[str]:
    """A warning where columns are not read, with the names of the first."""
    if columns:
        shown = ", ".join(map(limits.shown, list(columns)[:_SHOWN]))
        yield f"{number(len(columns), 'column')} left out: {shown}{' …' * (len(columns) > _SHOWN)}."


def in_one_form(name: str) -> str:
    """The name in the one form that Unicode has for all forms of its letters, in which people's names are
    stored: "ﬁ" is "fi".
    """
    return unicodedata.normalize("NFKC", name)


def one_person(names: Iterable[str]) -> Iterator[str]:
    """A warning where people's names differ only in the forms of their letters: they become one person."""
    n_same, shown = _alike(names, in_one_form)
    if n_same:
        yield (
            f"{number(n_same, 'annotator')} came with names of the same letters in several forms of "
            f"Unicode, such as {shown}. They count as one person."
        )


def nearly_equal(names: Iterable[str], one: str, many: str) -> Iterator[str]:
    """A warning where names differ only in case, space, or characters that nobody sees."""
    n_near, shown = _alike(names, _as_seen)
    if n_near:
        yield (
            f"{number(n_near, one, many)} came with nearly equal names, such as {shown}. They count as "
            "different ones."
        )


def _alike(names: Iterable[str], form: Callable[[str], str]) -> tuple[int, str]:
    """The number of groups of different names that have one form, and two names of the first, to be shown."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(form(name), []).append(name)
    alike = [group for group in groups.values() if len(group) > 1]
    return len(alike), " and ".join(repr(name[:40]) for group in alike[:1] for name in group[:2])


def _as_seen(name: str) -> str:
    """The name without case and without what nobody sees: "é" may be one character or two."""
    if not name.isascii():
        name = "".join(
            each
            for each in in_one_form(name)
            if each.isspace() or not (each in _SELECTORS or unicodedata.category(each) in _UNSEEN)
        )
    return " ".join(name.casefold().split())

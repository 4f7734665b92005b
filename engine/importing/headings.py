"""The first lines of a text: the names of a table's columns, the first of plain lines, or another format."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from engine.domain import limits

# Each with its name.
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "|"}
# With its end.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_FED_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_END = re.compile(r"\r(?!\n)|\n")
_BLANK = re.compile(r"\s*")
_FIRST = re.compile(r"[^\ufeff \t\r\n][^\r\n]{0,1000000}")
# In front of a file's own lines we write "table", and its places count from the next line.
_SEPARATOR = re.compile(r'[\ufeff\s]*"?(?P<ours>table )?sep=(?P<mark>[,;\t|])"?(?=[\r\n]|$)', re.IGNORECASE)
# A column's name looks like this: "1. Frage", "Unnamed: 0", "Wie lautet die Frage an das Modell?".
_LONGEST_NAME = 60
_MOST_WORDS = 8
_IN_SENTENCES = re.compile(r"(?<=\w{4})[.?!](?=\s)|:(?=\s+\D)|(?<=\w{5})\.$|(?:\S+\s+){2}.*\.$")
_NUMBERED = re.compile(r"^\w{1,2}[.)] ?(?=\w)")
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))
# A name after a comma and a space has no more words than this.
_FEW_WORDS = 3
_OF_A_NUMBER = re.compile(r"(?<=\d),(?=\d)")
# After a tab stands the answer of a line, so two cells there are no sign of a table.
_FEWEST = {"\t": 3}

_TAG = re.compile(r"\s*<(?P<name>!doctype|!--|\?xml|[a-z][\w:-]*)(?=[\s/>-])[^<>]*>?", re.IGNORECASE)
_CLOSED = re.compile(r"</[\w:-]+\s*>\s*\Z")
_LONGEST_END = 1000
_DOCUMENTS = {"!doctype", "!--", "?xml", "html"}
# No task is one of these.
_PARTS_OF_DOCUMENTS = {"head", "body", "table", "thead", "tbody", "meta", "link", "style", "script"}
_MARKDOWN_RULE = re.compile(r"(?=.*\|)\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?")
# MySQL, DuckDB, PostgreSQL and Polars draw these. A rule of minus signs may stand below a title.
_DRAWN = re.compile(
    r"\+[-=]{2,}[-=+]*\+|[\u250c\u2554\u256d][\u2500-\u257f]+|-{3,}(?:\+-{3,})+|-{2,}(?: +-{2,})+"
    r"|-\[ RECORD 1 \][-+]*$|\*{9,} 1\. row \*{9,}|shape: \([\d_, ]+\)$"
)
# Between two columns that spaces keep apart; behind a sentence people write two.
_GAP = re.compile(r"(?<=\S)(?:(?<![.?!:]) {2,}| {3,})(?=\S)")
# Names of R and of Tcl.
_QUOTED_NAMES = re.compile(r'"[^"]+"(?: "[^"]+")+')
# The first row of pandas or of R, which number them.
_FIRST_OF_NUMBERED = re.compile(r"\s*[01] {2,}\S")
# Behind comments, the first line of a database that a program has written down. Programs write its words all
# in capitals, or all small; a sentence that begins with one of them has a single capital.
_SQL = re.compile(
    r"(?:[ \t]*+(?:--.*|/\*.*\*/;?)?\r?\n)*+\s*+"
    r"(?:(?:CREATE|DROP|ALTER)\s+(?:TABLE|TYPE|SCHEMA|DATABASE|SEQUENCE)|(?:INSERT|REPLACE)\s+INTO|USE\s+[`\[]"
    r"|COPY\s(?>.{1,200}?\sFROM)|SET\s+[\w@.]+\s*=|PRAGMA|BEGIN|START\s+TRANSACTION|LOCK\s+TABLES"
    r"|(?:create|drop|alter)\s+table|insert\s+into)"
    r".*(?:[;()\]]|VALUES|values)\s*$",
    re.MULTILINE,
)
_YAML_LIST = re.compile(
    r"\s*+(?:(?:#|---).*\n\s*+)*+(?<![ \t])- +"
    r"(?:task|prompt|input|question|instruction|messages|role|vars|policy(?:_a)?|model_a):(?:\s|$)"
)
_YAML_TASKS = re.compile(
    r"^(?:tasks|prompts|questions|examples|factors|gold|ready_made):[ \t]*\r?\n(?:[ \t]*\r?\n)*[ \t]*- ",
    re.MULTILINE,
)
OF_YAML = "YAML holds whole descriptions of experiments. Give tasks, responses and votes as JSON Lines."


class Lines(Iterator[str]):
    """The lines with their ends. A line ends as files have it: \\n, \\r\\n or \\r, and nothing else that
    Unicode knows. Where the first line of a ``table`` ends with \\n, \\r alone is part of a cell.

    ``number``: that of the line before the next one, from 1; 0 at the beginning.
    """

    # One by one: `io.StringIO` takes four bytes for each character.
    def __init__(self, text: str, *, table: bool = False) -> None:
        self._text = text.lstrip("\ufeff")
        end = _END.search(self._text) if table else None
        self._line = _FED_LINE if end is not None and end[0] == "\n" else _LINE
        self._at = 0
        self.number = 0

    def __next__(self) -> str:
        found = self._line.match(self._text, self._at)
        if found is None:
            raise StopIteration
        self._at = found.end()
        self.number += 1
        return found[0]

    def pass_over(self, blank: re.Pattern[str]) -> None:
        """Pass over the next lines that are blank: in one go, as a file may hold millions of them.

        ``blank``: matches all characters that a blank line may have, with its end.
        """
        found = blank.match(self._text, self._at)
        if found is None:
            return
        rest = self._text.rfind("\n", self._at, found.end()), self._text.rfind("\r", self._at, found.end())
        passed = self._text[self._at : max(rest) + 1]
        self._at += len(passed)
        self.number += passed.count("\n") + passed.count("\r") - passed.count("\r\n")


def full_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number."""
    given = Lines(text)
    given.pass_over(_BLANK)
    for line in given:
        if line.strip():
            yield given.number, line
        given.pass_over(_BLANK)


def without_separator(text: str) -> tuple[str, str]:
    """The delimiter that a first line such as ``sep=;`` names, and the text without that line.

    The line stays, empty, so that places count it; that of `as_table` goes, as no file has it.
    """
    if (found := _SEPARATOR.match(text)) is None:
        return "", text
    rest = text[found.end() :]
    return found["mark"], rest.removeprefix("\n") if found["ours"] else rest


def is_json(text: str) -> bool:
    """True if the text is read as JSON."""
    return text.lstrip("\ufeff \t\r\n")[:1] in {"{", "["}


def is_table(text: str, plain: Sequence[str], beside: Sequence[str]) -> bool:
    """True if the text has columns: it is JSON, it says so, or its first line is a heading, known or not."""
    declared = bool(without_separator(text)[0])
    return is_json(text) or declared or is_known(text, plain, beside) or bool(unknown(text))


def as_table(text: str) -> str:
    """A table whose first line says that it is one, as no name of a file says it any longer."""
    text = text.lstrip("\ufeff")
    return f"table sep={delimiter_of(text)}\n{text}"


def delimiter_of(text: str) -> str:
    """The delimiter of a table: the one that a line names, or the one that its first line has most often."""
    declared, text = without_separator(text)
    return declared or max(DELIMITERS, key=_first(text).count)


def is_spaced(text: str, delimiter: str) -> bool:
    """True if a space follows each delimiter of the first line, so that it belongs to no cell."""
    first = _first(text)
    return 0 < first.count(delimiter) == first.count(f"{delimiter} ")


def cells(text: str) -> list[str]:
    """The first line's cells, by any of the delimiters."""
    delimiter, text = without_separator(text)
    return [
        name_in(cell).strip(' "') for cell in re.split(f"[{delimiter or ''.join(DELIMITERS)}]", _first(text))
    ]


def name_in(cell: str) -> str:
    """The name in a cell, without the spaces around it and the marks that nobody sees."""
    return cell.strip().strip("\ufeff\u200b\u2060").strip()


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of one line; none where it is no CSV. A comma between two digits belongs to a number."""
    if delimiter == ",":
        line = _OF_A_NUMBER.sub("", line)
    return next(iter(_csv([line], delimiter)), [])


def holds_several(name: str) -> bool:
    """True if a cell holds the names of several columns, as where a whole line is one cell."""
    names = cells_of(name, delimiter_of(name))
    return len(names) > 1 and all(map(is_name, names))


def is_name(cell: str) -> bool:
    """True if a cell may name a column: a few words, as no sentence and no part of a call such as f(a,b)."""
    if len(cell) > _LONGEST_NAME or cell != cell.strip():
        return False
    words = _NUMBERED.sub("", cell)
    are_few = 0 < len(words.split()) <= _MOST_WORDS and not _IN_SENTENCES.search(words)
    are_closed = all(words.count(first) == words.count(last) for first, last in _PAIRS)
    return cell == "#" or (are_few and are_closed and any(map(str.isalpha, cell)))


def is_known(text: str, plain: Sequence[str], beside: Sequence[str], *, table: bool = False) -> bool:
    """True if the first line names a column of ``plain``, or one of ``beside`` and another one.

    A sentence may begin with such a word and a comma, unless the text is a ``table``.
    """
    found = {cell.lower() for cell in cells(text)}
    known = not found.isdisjoint(plain) or (len(found) > 1 and not found.isdisjoint(beside))
    return known and (table or bool(without_separator(text)[0]) or not _is_sentence(text))


def unknown(text: str, *, table: bool = False) -> list[str]:
    """The cells of a first line that is a heading, as of a ``table``, or looks like one. Such a line has
    names without a space after the delimiter, and the lines below have as many cells.

    Its rows would be tasks with the answers in them.
    """
    if table or without_separator(text)[0]:
        return [cell for cell in cells(text) if cell]
    delimiter = delimiter_of(text)
    names = cells_of(_first(text), delimiter)
    if len(names) < _FEWEST.get(delimiter, 2) or not all(map(is_name, names)):
        return []
    rows = _rows_below(text, delimiter)
    n_alike = sum(len(row) == len(names) for row in rows)
    is_heading = n_alike == len(rows) or 2 * _n_close(rows, len(names)) >= len(rows)
    return names if n_alike and is_heading else []


def no_rows(text: str) -> str:
    """The reason why a text has no rows: it is a document of another format; empty for any other text."""
    text = without_separator(text)[1].lstrip("\ufeff")
    if _is_markup(text):
        return "This is HTML or XML, and no table. Save it as CSV or XLSX."
    first, second = [*_first_two(text), "", ""][:2]
    if _DRAWN.match(first) or _DRAWN.fullmatch(second):
        return "This is a table drawn with lines, as programs show it to people. Write it as CSV."
    if _SQL.match(text):
        return "These are statements of SQL. Write the rows of the table as CSV."
    if _MARKDOWN_RULE.fullmatch(second) or (len(first) > 1 and first[0] == first[-1] == "|"):
        return "This is a table of Markdown. Save it as CSV."
    return OF_YAML if _YAML_LIST.match(text) else ""


def no_lines(text: str) -> str:
    """The reason why the lines of a text are no tasks, which only a table may have in its cells."""
    if _YAML_TASKS.search(text):
        return OF_YAML
    if _is_printed(text):
        return (
            "These are columns with spaces between them, as programs show a table to people. Write it as "
            "CSV. If each line is a task, write one space between its words, or the tasks as JSON Lines."
        )
    return ""


def _first(text: str) -> str:
    """The first line that is not empty, or as much of it as a heading may have."""
    found = _FIRST.search(text)
    return found[0].strip() if found else ""


def _first_two(text: str) -> Iterator[str]:
    for _, (_, line) in zip(range(2), full_lines(text), strict=False):
        yield line.strip()


def _is_sentence(text: str) -> bool:
    """True if the first line has delimiters as a sentence has commas, and few other lines have as many."""
    delimiter = delimiter_of(text)
    names = cells_of(_first(text), delimiter)
    rows = _rows_below(text, delimiter)
    if not rows or not all(cell.startswith(" ") for cell in names[1:]):
        return False
    if all(is_name(name.strip()) for name in names):
        n_words = max(len(name.split()) for name in names)
        return n_words > _FEW_WORDS and all(len(row) != len(names) for row in rows)
    return 2 * _n_close(rows, len(names)) <= len(rows)


def _n_close(rows: Iterable[Sequence[str]], n_cells: int) -> int:
    """The number of rows that have as many cells, without a space after the delimiter as in a sentence."""
    return sum(len(row) == n_cells and not any(cell.startswith(" ") for cell in row[1:]) for row in rows)


def _rows_below(text: str, delimiter: str) -> list[list[str]]:
    """The rows below the first line; none where they are no CSV."""
    found = _csv((line for _, line in full_lines(text)), delimiter)
    return [row for row in found if any(map(str.strip, row))][1:]


def _csv(given: Iterable[str], delimiter: str) -> list[list[str]]:
    csv.field_size_limit(limits.CELL_CHARACTERS.most)
    try:
        return list(csv.reader(given, delimiter=delimiter))
    except csv.Error:
        return []


def _is_printed(text: str) -> bool:
    """True if spaces keep columns apart: below names, or rows that a program has numbered."""
    lines = (line.rstrip() for _, line in full_lines(text))
    first, second = next(lines, ""), next(lines, "")
    if _QUOTED_NAMES.fullmatch(first) and '"' in second:
        return True
    names = _GAP.split(first.strip())
    is_numbered = _FIRST_OF_NUMBERED.match(second) is not None
    is_heading = (first.startswith("  ") or len(names) > 1) and all(map(is_name, names))
    if not (is_numbered or is_heading):
        return False
    apart = [_GAP.search(line) is not None for line in itertools.chain([second], lines)]
    return 2 * sum(apart) > len(apart) and (is_numbered or sum(apart) > 1)


def _is_markup(text: str) -> bool:
    found = _TAG.match(text)
    if found is None:
        return False
    name = found["name"].lower()
    if name in _DOCUMENTS:
        return True
    if not _CLOSED.search(text[-_LONGEST_END:]):
        return False
    end = f"</{name}"
    # A task may be a piece of HTML on its line.
    return name in _PARTS_OF_DOCUMENTS or (end not in _first(text).lower() and end in text.lower())

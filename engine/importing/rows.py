"""Rows out of CSV, JSON Lines, JSON and plain lines, each with the place that it came from."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.core import wording
from engine.domain import limits
from engine.domain.texts import UNSTORABLE, is_blank
from engine.importing import headings
from engine.importing.strict_json import JSONLimitError, loads, refused_entry

# Enough to see a pattern in; a page of thousands of them would help nobody.
MOST_FAULTS = 20
_GZIP = b"\x1f\x8b"
# How files begin that people take for a table.
_PACKED = {
    b"\xd0\xcf\x11\xe0": "an old workbook (.xls), or one with a password",
    b"%PDF-": "a PDF",
    b"BZh9": "a bzip2 archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"\xfd7zXZ": "an xz archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!\x1a": "a RAR archive",
    b"\x1f\x8b": "a gzip in a gzip",
    b"FEA1": "a Feather file of the first version",
    b"{\\rtf": "an RTF document",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite format 3": "a database of SQLite",
    b"\x93NUMPY": "an array of NumPy",
    b"Obj\x01": "an Avro file",
    b"\x80\x04": "a pickle of Python",
    b"\x80\x05": "a pickle of Python",
    b"X\n\x00\x00\x00": "a file of R",
    b"RDX2\n": "a file of R",
    b"RDX3\n": "a file of R",
}
# A tar archive says so behind the name of its first file.
_TAR, _TAR_AT = b"ustar", 257
# Names under which an object has the rows of a table, and those that say that it is a row.
_ROWS = ("data", "rows", "records", "votes", "items", "results")
_OF_A_ROW = ("task", "prompt", "input", "question", "instruction", "model_a", "policy_a")
# Beside the rows of a page, in small letters and without marks: the number of all rows, and more pages.
_ALL_ROWS = {
    "count", "total", "totalcount", "totalelements", "totalitems", "totalrecords", "totalresults",
    "totalrows",
}  # fmt: skip
_MORE_PAGES = {
    "hasmore", "hasnext", "hasnextpage", "next", "nextcursor", "nextpage", "nextpagetoken", "nexturl",
}  # fmt: skip


class BinaryFile(Protocol):
    """An open file, or one that was uploaded."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a place; returns it."""
        ...


@dataclass(frozen=True)
class Fault:
    """A fault and its place: "line 3", "entry 17", or empty for the text as a whole."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class ImportingError(ValueError):
    """Something cannot be read. ``faults`` holds every place, up to a number that can be read."""

    def __init__(self, faults: Collection[Fault]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    @classmethod
    def at(cls, place: str, message: str) -> ImportingError:
        """An error with a single fault."""
        return cls([Fault(place, message)])


@dataclass(frozen=True)
class Row:
    """A row of a table, and its place in what people gave.

    ``fields`` have their names in lower case; ``heading`` has the same names as they are written.
    """

    place: str
    fields: Mapping[str, Any]
    heading: Sequence[str] = ()


def same_name(columns: Iterable[str]) -> str:
    """The fault that two columns differ in capitals at most; empty if none do."""
    names = Counter(name.lower() for name in columns)
    if twice := [name for name, n in names.items() if n > 1]:
        return f"{names[twice[0]]:,} columns are named {limits.shown(twice[0])}. Rename all but one of them."
    return ""


class Heading:
    """The names of a table's columns, which its first row holds.

    Columns without a name are left out where programs number the rows in them. A cell that is no number is
    kept under the number of its column, so that somebody is told of it.
    """

    def __init__(self, cells: Sequence[str]) -> None:
        written = [headings.name_in(cell) for cell in cells]
        self._names = [name.lower() for name in written]
        self._shown = [name for name in written if name]
        self._nameless = [number for number, name in enumerate(self._names) if not name]
        self._end = max((number for number, name in enumerate(self._names, 1) if name), default=0)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def fault(self) -> str:
        """The reason why these can be no names of columns; empty if they can."""
        if len(self._shown) == 1 and headings.holds_several(self._shown[0]):
            return (
                f"All names of columns stand in one cell: {limits.shown(self._shown[0])}. Separate the "
                "columns, as by “Text to Columns” in Excel, or take away the quotation marks around lines."
            )
        return same_name(self._shown) or limits.COLUMNS.refusal(len(self))

    def row(self, place: str, cells: Sequence[str]) -> Row | Fault:
        """The row that these cells are, or its fault."""
        if any(map(str.strip, cells[self._end :])):
            return Fault(
                place,
                "A cell stands right of the last column that the first row names. Name it, or remove the "
                "rows above the names of the columns.",
            )
        if all(
            headings.name_in(cell).lower() == name for cell, name in zip(cells, self._names, strict=False)
        ):
            return Fault(place, "This row has the names of the columns again. Remove it.")
        padded = itertools.chain(cells, itertools.repeat(""))
        fields = {name: cell for name, cell in zip(self._names, padded, strict=False) if name}
        for number in self._nameless:
            for cell in cells[number : number + 1]:
                if cell.strip() and not cell.strip().isdecimal():
                    fields.setdefault(f"column {number + 1}", cell)
        return Row(place, fields, self._shown)


class Allowance:
    """Bytes that may still be unpacked, of all that belongs together."""

    def __init__(self, most: limits.Limit) -> None:
        self._most = most
        self._taken = 0

    @property
    def left(self) -> int:
        """The bytes that may still be unpacked."""
        return self._most.most - self._taken

    def take(self, n_bytes: int) -> None:
        """Count these bytes; raises :class:`ImportingError` where they are too many."""
        self._taken += n_bytes
        self.check(0)

    def check(self, n_bytes: int) -> None:
        """Raise :class:`ImportingError` where these bytes would be too many, without counting them."""
        if n_bytes > self.left:
            raise too_large("The unpacked file", self._most)


def contents(file: BinaryFile, most: limits.Limit) -> bytes:
    """The bytes of a file, unpacked where it is a gzip. No more than the limit and a byte is unpacked.

    Raises
    ------
    ImportingError
        It is too large, packed or unpacked, or the gzip is damaged.
    """
    data = file.read(most.most + 1)
    _check_size(data, most, "The file")
    if data.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
                data = unpacked.read(most.most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ImportingError.at(
                "", f"The gzip file is damaged: {error}. Copy it again, or unpack it first."
            ) from error
        _check_size(data, most, "The unpacked file")
    return data


def _check_size(data: bytes, most: limits.Limit, what: str) -> None:
    if len(data) > most.most:
        raise too_large(what, most)


def too_large(what: str, most: limits.Limit) -> ImportingError:
    """The refusal of ``what``, which has more bytes than the limit."""
    return ImportingError.at(
        "", f"{what} is larger than {most.most / 1e6:g} MB, which is the limit. {most.advice}"
    )


def decoded(file: BinaryFile, most: limits.Limit) -> str:
    """The text of a file of bytes, which may be a gzip. No more of it is read than the limit, and a byte.

    Raises
    ------
    ImportingError
        It is too large, or neither UTF-8 nor UTF-16.
    """
    return text_in(contents(file, most))


def text_in(data: bytes) -> str:
    """The text that these bytes are: UTF-8, or UTF-16 with its mark, as Excel saves “Unicode text”.

    Raises
    ------
    ImportingError
        They are neither.
    """
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    # The mark of UTF-32 begins with that of UTF-16.
    is_utf16 = data.startswith(marks) and not data.startswith(codecs.BOM_UTF32_LE)
    encoding = "utf-16" if is_utf16 else "utf-8-sig"
    # Counted before rows are made of it: a small archive may hold gigabytes.
    if message := limits.LINES.refusal(max(data.count(b"\n"), data.count(b"\r"))):
        raise ImportingError.at("", message)
    kind = next((kind for start, kind in _PACKED.items() if data.startswith(start)), "")
    if kind or data.startswith(_TAR, _TAR_AT):
        raise ImportingError.at(
            "", f"This is {kind or 'a tar archive'}, and no text. Save it as CSV or XLSX, or unpack it first."
        )
    nul = data.find(b"\x00") if encoding == "utf-8-sig" else -1
    try:
        if nul < 0:
            return data.decode(encoding)
        place, fault = nul, "This is not UTF-8 text: it holds a NUL character."
    except UnicodeDecodeError as error:
        place, fault = error.start, "This is not UTF-8 text."
    line = data.count(b"\n", 0, place) + 1
    raise ImportingError.at(
        f"line {line}", f"{fault} Save the file as UTF-8 and try again; in Excel, as “CSV UTF-8”."
    )


def rows_of(
    text: str, *, plain: Sequence[str] = (), beside: Sequence[str] = (), table: bool = False
) -> Iterator[Row | Fault]:
    """The rows of ``text``, in whichever of the formats it is written, faulty ones in their places as faults.

    Parameters
    ----------
    plain
        Where bare lines and bare texts in JSON are allowed: the names of the field that they are, any of
        which makes the first line a heading. A plain line may hold a second column after a tab, which is
        called "reference".
    beside
        Names of the fields beside it. One of them makes the first line a heading too, in which the field is
        missing.
    table
        The text is a table, such as that of a file that says so by its name: plain lines are none of it.
    """
    if not headings.is_json(text):
        yield from _text_rows(text, plain, beside, table=table)
        return
    try:
        document = loads(text)
    except json.JSONDecodeError as error:
        yield from _json_lines(text, plain, error)
        return
    except JSONLimitError as error:
        (_, first), *more = itertools.islice(headings.full_lines(text), 2)
        if more and _is_refused(first):
            # The first of JSON Lines.
            yield from _rows_of_lines(text, plain)
        else:
            # Such a document may be a single line, so its line would say nothing.
            number = refused_entry(text.lstrip("\ufeff"))
            yield Fault(f"entry {number}" if number else "", str(error))
        return
    yield from _document_rows(document, plain)


def _text_rows(
    text: str, plain: Sequence[str], beside: Sequence[str], *, table: bool
) -> Iterator[Row | Fault]:
    """The rows of a text that is no JSON."""
    if message := headings.no_rows(text):
        yield Fault("", message)
    elif not plain or headings.is_known(text, plain, beside, table=table):
        yield from _table_rows(text)
    elif (table or headings.without_separator(text)[0]) and not any(headings.cells(text)):
        if headings.without_separator(text)[1].strip():
            yield Fault("line 1", f"This line names no column. Call the column of the tasks {plain[0]}.")
    elif names := headings.unknown(text, table=table):
        said = table or headings.without_separator(text)[0]
        yield Fault(
            "line 1",
            f"These look like names of columns, and none is known: {', '.join(names)}. Rename the "
            f"column of the tasks to {plain[0]}. If each line is a task, write the tasks as JSON Lines"
            f"{', or name a file of such lines .txt' * bool(said)}.",
        )
    elif message := headings.no_lines(text):
        yield Fault("", message)
    else:
        yield from _plain_rows(text, plain[0])


def _plain_rows(text: str, plain: str) -> Iterator[Row | Fault]:
    for number, line in headings.full_lines(text):
        if not is_blank(line):
            value, _, reference = line.partition("\t")
            yield Row(f"line {number}", {plain: value.strip(), "reference": reference.strip()})


def _table_rows(text: str) -> Iterator[Row | Fault]:
    delimiter = headings.delimiter_of(text)
    _, text = headings.without_separator(text)
    csv.field_size_limit(limits.CELL_CHARACTERS.most)
    lines = headings.Lines(text, table=True)
    spaced = headings.is_spaced(text, delimiter)
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=spaced)
    blank = re.compile(rf"[\s{re.escape(delimiter)}]*")
    heading: Heading | None = None
    place = ""
    try:
        while True:
            lines.pass_over(blank)
            place = f"line {lines.number + 1}"
            if (cells := next(reader, None)) is None:
                return
            if not any(map(str.strip, cells)):
                continue
            if heading is None:
                heading = Heading(cells)
                if heading.fault:
                    yield Fault(place, heading.fault)
                    return
            elif len(cells) != len(heading):
                yield Fault(place, _length_fault(len(cells), len(heading), delimiter))
            else:
                yield heading.row(place, cells)
    except csv.Error as error:
        yield Fault(place, _csv_fault(error))


def _length_fault(n_cells: int, n_names: int, delimiter: str) -> str:
    name = headings.DELIMITERS[delimiter]
    advice = (
        f"Put a cell that holds a {name} into quotation marks, and remove lines above the names. If the "
        "first cell numbers the rows, as R writes them, name it too."
        if n_cells > n_names
        else f"Fill the row up, or remove it. If a {name} separates no columns here, say in a first line "
        "what does, such as sep=; or sep=,."
    )
    return f"This row has {wording.number(n_cells, 'column')}, but the first line has {n_names}. {advice}"


def _csv_fault(error: csv.Error) -> str:
    if "field limit" in str(error):
        limit = limits.CELL_CHARACTERS
        return f"More than {limit.most:,} {limit.thing}, which is the limit. {limit.advice}"
    if "unexpected end" in str(error):
        return "A quotation mark in this row is not closed. Close it, or write it twice."
    if "new-line character" in str(error):
        return "A cell holds a line break outside of quotation marks. Put the cell into quotation marks."
    return (
        f"This is not valid CSV: {error}. Separate columns by a comma, a semicolon, a tab or |, and write a "
        "quotation mark in a cell twice."
    )


def _is_refused(line: str) -> bool:
    """True if the line is JSON of its own, but for a value that cannot be stored."""
    try:
        loads(line)
    except JSONLimitError:
        return True
    except json.JSONDecodeError:
        pass
    return False


def _json_lines(text: str, plain: Sequence[str], whole: json.JSONDecodeError) -> Iterator[Row | Fault]:
    try:
        _, first = next(headings.full_lines(text))
        loads(first)
    except JSONLimitError:
        pass  # the line says so in its place
    except json.JSONDecodeError:
        # Not one document and not one on each line: then the fault is where the document breaks.
        fault = _json_fault(whole)
        if whole.msg == "Extra data":
            yield Fault(
                fault.place,
                "A value ends before this, and more follows. Write each on a line of its own, without a "
                "comma behind it, as jq -c does, or all as one list.",
            )
            return
        hint = (
            f" What begins with [ or {{ is read as JSON; a CSV with the heading {plain[0]} is not."
            if plain
            else ""
        )
        yield Fault(fault.place, fault.message + hint)
        return
    yield from _rows_of_lines(text, plain)


def _rows_of_lines(text: str, plain: Sequence[str]) -> Iterator[Row | Fault]:
    for number, line in headings.full_lines(text):
        try:
            # Of several files in one, each begins with a mark.
            yield _json_row(f"line {number}", loads(line.lstrip("\ufeff")), plain)
        except json.JSONDecodeError as error:
            yield Fault(f"line {number}", _json_fault(error).message)
        except JSONLimitError as error:
            yield Fault(f"line {number}", str(error))


def _json_fault(error: json.JSONDecodeError) -> Fault:
    return Fault(f"line {error.lineno}", f"This is not JSON: {error.msg} (column {error.colno}).")


def _document_rows(document: Any, plain: Sequence[str]) -> Iterator[Row | Fault]:
    entries = document
    prefix = ""
    choices = False
    if isinstance(document, dict) and "examples" in document:
        # BIG-bench: a list of examples; Instruction Induction: a mapping from their numbers.
        entries = document["examples"]
        prefix = document.get("task_prefix", "")
        choices = document.get("append_choices_to_input", True) is not False
        if not isinstance(prefix, str):
            yield Fault("task_prefix", "This must be a text.")
            return
    elif isinstance(document, dict) and _is_squad(document.get("data")):
        yield from _squad_rows(document["data"])
        return
    elif isinstance(document, dict):
        entries = _table_in(document)
        if entries is None:
            yield _json_row("line 1", document, plain)
            return
        if more := _more_pages(document, len(entries)):
            yield Fault(
                "",
                f"This is one page of a longer list, as {more} says. Fetch the others too, and put the rows "
                "of all pages into one list.",
            )
            return
    numbered = (
        entries.items()
        if isinstance(entries, dict)
        else enumerate(entries, 1)
        if isinstance(entries, list)
        else None
    )
    if numbered is None:
        yield Fault("examples", "This must be a list of examples, or examples by number.")
        return
    for number, entry in numbered:
        row = _json_row(f"entry {number}", entry, plain)
        yield _example(row, prefix, choices=choices) if isinstance(row, Row) else row


def _table_in(document: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of an object that is a table: under a usual name, or as pandas writes it; else ``None``."""
    if any(isinstance(document.get(name), str) for name in _OF_A_ROW):
        return None
    rows = next((document[name] for name in _ROWS if isinstance(document.get(name), list)), None)
    if rows is None:
        return _rows_of_pandas(document)
    if all(isinstance(row, dict) for row in rows):
        return list(rows)
    columns = document.get("columns")
    if isinstance(columns, list) and all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        # pandas' orient="split".
        return [dict(zip(map(str, columns), row, strict=True)) for row in rows]
    return None


def _more_pages(document: dict[str, Any], n_rows: int) -> str:
    """The name beside the rows, or in an object beside them, that says that they are not all; else empty."""
    if not any(isinstance(document.get(name), list) for name in _ROWS):
        return ""
    beside: list[dict[str, Any]] = [document, *(each for each in document.values() if isinstance(each, dict))]
    for name, value in itertools.chain.from_iterable(each.items() for each in beside):
        key = re.sub(r"[\W_]", "", name).lower()
        is_total = key in _ALL_ROWS and type(value) is int and value > n_rows
        if is_total or (key in _MORE_PAGES and (value is True or (isinstance(value, str) and value))):
            return name
    return ""


def _rows_of_pandas(document: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of an object that holds a column under each name, as a list or by the numbers of the rows, or
    a row under each number or name.
    """
    inside = list(document.values())
    if any(_is_column(document.get(name)) for name in _OF_A_ROW):
        # to_dict("list"), and that of `datasets`.
        if not all(isinstance(cells, list) and len(cells) == len(inside[0]) for cells in inside):
            return None
        return [dict(zip(document, row, strict=True)) for row in zip(*inside, strict=True)]
    first = inside[0] if inside and isinstance(inside[0], dict) else {}
    if not first or any(not isinstance(each, dict) or each.keys() != first.keys() for each in inside):
        return None
    if all(map(str.isdecimal, first)):
        return [{name: cells[row] for name, cells in document.items()} for row in first]
    if all(map(str.isdecimal, document)) or any(name.lower() in _OF_A_ROW for name in first):
        # orient="index".
        return inside
    return None


def _is_column(value: Any) -> bool:
    """True if the value is a list of texts, or of conversations; messages are one conversation."""
    return isinstance(value, list) and len(value) > 1 and not any(isinstance(each, dict) for each in value)


def _is_squad(articles: Any) -> bool:
    return (
        isinstance(articles, list)
        and bool(articles)
        and all(isinstance(each, dict) and "paragraphs" in each for each in articles)
    )


def _squad_rows(articles: list[dict[str, Any]]) -> Iterator[Row | Fault]:
    """SQuAD as it is published: articles hold paragraphs, and those hold the questions with their answers."""
    for n_article, article in enumerate(articles, 1):
        for n_paragraph, paragraph in _objects(article["paragraphs"]):
            at = f"article {n_article}, paragraph {n_paragraph}"
            if paragraph is None or not isinstance(paragraph.get("qas"), list):
                yield Fault(at, "A paragraph of SQuAD must hold its questions under “qas”.")
                continue
            for n_question, question in _objects(paragraph["qas"]):
                place = f"{at}, question {n_question}"
                if question is None:
                    yield Fault(place, "A question of SQuAD must be an object.")
                    continue
                fields = {"context": paragraph.get("context"), "title": article.get("title")} | question
                # Version 2 has questions that the paragraph does not answer.
                answers = [each and each.get("text") for _, each in _objects(question.get("answers"))]
                yield _json_row(place, fields | {"answers": answers}, ())


def _objects(entries: Any) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The objects of a list with their numbers; ``None`` for what is none."""
    for number, entry in enumerate(entries if isinstance(entries, list) else [None], 1):
        yield number, entry if isinstance(entry, dict) else None


def _json_row(place: str, entry: Any, plain: Sequence[str]) -> Row | Fault:
    if isinstance(entry, str) and plain:
        return Row(place, {plain[0]: entry})
    if not isinstance(entry, dict):
        return Fault(place, f"This must be an object of named fields, not {json.dumps(entry)[:60]}.")
    fields = {name.lower(): in_turns(value) for name, value in entry.items()}
    if len(fields) < len(entry):
        return Fault(place, "Two names differ only in capital letters; give each field once.")
    if message := limits.COLUMNS.refusal(len(fields)):
        return Fault(place, message)
    return Row(place, fields, list(entry))


def in_json(value: Any) -> Any:
    """The list or the object that a text is as JSON, which tables of texts hold so; any other value as it
    is.
    """
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        with contextlib.suppress(ValueError):
            return loads(value)
    return value


def in_turns(value: Any) -> Any:
    """The messages of an object of lists, one of roles and one of contents: of a list of objects `datasets`
    makes that. Any other value as it is.
    """
    if not isinstance(value, dict) or not value.keys() >= {"role", "content"}:
        return value
    lists = [each for each in value.values() if isinstance(each, list)]
    if len(lists) < len(value) or len({len(each) for each in lists}) > 1:
        return value
    return [dict(zip(value, parts, strict=True)) for parts in zip(*lists, strict=True)]


def _example(row: Row, prefix: str, *, choices: bool) -> Row | Fault:
    """BIG-bench's multiple choice: the choices belong to the question, the best one is the answer."""
    fields = dict(row.fields)
    scores = fields.pop("target_scores", None)
    if scores is not None:
        if (
            not isinstance(scores, dict)
            or not scores
            or not all(isinstance(s, (int, float)) for s in scores.values())
        ):
            return Fault(row.place, "target_scores must hold a number for each choice.")
        fields.setdefault("target", max(scores, key=scores.__getitem__))
        if choices and isinstance(fields.get("input"), str):
            fields["input"] += "".join(f"\nchoice: {choice}" for choice in scores)
    if prefix and isinstance(fields.get("input"), str):
        fields["input"] = prefix + fields["input"]
    # With scores it has other fields than its file, and no heading.
    return replace(row, fields=fields) if scores is None else Row(row.place, fields)


def text_of(row: Row, names: Collection[str], *, required: bool = True, several: bool = False) -> str:
    """The text of the first of these fields that the row has.

    ``several``: of a list, the first one is meant, as of several right answers.

    Raises
    ------
    ImportingError
        There is none, or it cannot be stored as text.
    """
    found = next((name for name in names if row.fields.get(name) not in (None, "", [])), None)
    if found is None:
        if required:
            written = {name.lower(): name for name in row.heading}
            if empty := next((name for name in names if name in row.fields or name in written), None):
                raise ImportingError.at(
                    row.place, f"{written.get(empty, empty)} is empty. Fill it in, or remove the row."
                )
            fields = ", ".join(
                written.get(name, name) for name, value in row.fields.items() if value not in (None, "", [])
            )
            raise ImportingError.at(
                row.place,
                f"{' or '.join(names)} is missing. Found: {fields or 'nothing'}. Add it, or rename a column.",
            )
        return ""
    value = row.fields[found]
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        # SQuAD's answers: their texts, and where each begins.
        value = value["text"] or ""
    if isinstance(value, list) and (several or len(value) == 1):
        value = value[0]
    if isinstance(value, list):
        raise ImportingError.at(
            row.place, f"{found} is a list of {len(value)}. Give each of them a row of its own."
        )
    if isinstance(value, Mapping):
        inside = limits.shown(", ".join(map(str, value)))
        raise ImportingError.at(
            row.place,
            f"{found} is an object of {inside}. Write the one that is meant in its place, as a text.",
        )
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ImportingError.at(row.place, f"{found} must be a text.")
    return storable(str(value), row.place, found)


def storable(text: str, place: str, name: str) -> str:
    """The text itself, unless no database could hold it."""
    # Most texts are ASCII, in which a search for one character is enough, and far faster.
    if "\x00" in text or (not text.isascii() and UNSTORABLE.search(text)):
        raise ImportingError.at(
            place, f"{name} holds a character that cannot be stored (NUL or half of a pair)."
        )
    if message := limits.TEXT_CHARACTERS.refusal(len(text)):
        raise ImportingError.at(place, f"{name}: {message}")
    return text


def raise_any(faults: list[Fault]) -> None:
    """Raise what was found wrong, if anything was."""
    if len(faults) > MOST_FAULTS:
        rest = len(faults) - MOST_FAULTS
        faults = [*faults[:MOST_FAULTS], Fault("", f"And {rest} more like these.")]
    if faults:
        raise ImportingError(faults)

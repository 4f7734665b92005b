"""Rows out of an XLSX workbook."""

from __future__ import annotations

import io
import itertools
import math
import re
import zipfile
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException

from engine.domain import limits
from engine.importing.number_formats import shown
from engine.importing.rows import Fault, Heading, ImportingError, Row

# The format has no more.
_MOST_ROWS = 1_048_576
# Rows, to see whether a sheet is empty.
_LOOKED_AT = 1000
# Fewer empty rows than this, one after the other, are read like any other rows.
_LONG_GAP = 1000
# Lines above the names of the columns, such as a title and a date.
_MOST_TITLES = 5
# The number of a row, and its cells.
_Numbered = tuple[int, list[str]]
# None of these patterns looks beyond the next tags: a hostile sheet may begin as many as it has bytes.
# Python below 3.11.5 misses matches where a group in them is possessive, so that no group is.
# A cell of a formula without a value: its attributes. Then the attributes of interest.
_FORMULA = re.compile(
    rb"<(?:\w+:)?c\b([^<>]*)>\s*+<(?:\w+:)?f\b(?:[^<>]*/>|[^<>]*>[^<]*</(?:\w+:)?f>)\s*+"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v></(?:\w+:)?v>)?\s*+</(?:\w+:)?c>"
)
_FORMULAS = re.compile(rb"<(?:\w+:)?f[\s/>]")
# A range of cells, with the column and the row of the first.
_MERGED = re.compile(
    rb"<(?:\w+:)?mergeCell\b[^<>]*?\bref=[\"'](([A-Z]{1,3})([0-9]{1,7}):[A-Z0-9]{2,10})[\"']"
)
_PLACE = re.compile(rb"\br=[\"']([A-Z]+)([0-9]+)[\"']")
_OF_TEXT = re.compile(rb"\bt=[\"']str[\"']")
# The beginning of a row or of a value: its name and its attributes.
_BEGINNING = re.compile(rb"<(?:\w+:)?(row|v|t)\b([^<>]*)>")
# A row without a value: its attributes. Then its number among them. The pattern remembers each cell of a row,
# so that it leaves out rows of very many.
_EMPTY_ROW = re.compile(
    rb"<(?:\w+:)?row\b([^<>]*)(?:/>|>(?:\s*+<(?:\w+:)?c\b[^<>]*(?:/>|>\s*+"
    rb"(?:<(?:\w+:)?v\s*+/>|<(?:\w+:)?v></(?:\w+:)?v>)?\s*+</(?:\w+:)?c>)){0,%d}\s*+</(?:\w+:)?row>)\s*+"
    % limits.COLUMNS.most
)
_NUMBER = re.compile(rb"\sr=[\"']([0-9]{1,7})[\"']")
# A row that a filter or a person hid has this attribute.
_HIDDEN = re.compile(rb"\shidden=[\"'](?:1|true)[\"']")
# A character that XML cannot hold or would change, such as the carriage return of a line of Windows.
_ESCAPED = re.compile("_x(00(?:0[1-9A-Fa-f]|1[0-9A-Fa-f]))_")
# Reading a damaged or hostile workbook raises these: openpyxl checks little.
_DAMAGED = (
    zipfile.BadZipFile, ParseError, DefusedXmlException, KeyError, IndexError, ValueError, TypeError,
    AttributeError, OSError, EOFError, NotImplementedError,
)  # fmt: skip


def workbook_rows(data: bytes, sheet: str = "") -> Iterator[Row | Fault]:
    """The rows of one sheet below the one that names the columns: its first row that is neither empty nor a
    title.

    Values are the texts that CSV would hold. A formula has its last result, a time is ISO 8601, and a number
    has its percent, currency and zeros in front. Empty rows are left out. The caller has checked the unpacked
    size.

    ``sheet``: its name; the first of `sheets_of` unless given.

    Raises
    ------
    ImportingError
        The workbook is damaged, or has no sheet of that name.
    """
    try:
        book = _opened(data)
        names = _names(book)
        if not names or (sheet and sheet not in names):
            raise ImportingError.at(
                "",
                f"There is no sheet {limits.shown(sheet)}. Found: {', '.join(names)}."
                if names
                else "The workbook has no sheet of cells.",
            )
        page = book[sheet or names[0]]
        lines = _filled(page, _without_result(data, page.title), _long_gaps(data, page.title))
        yield from _rows(lines, _merged(data, page.title))
    except ImportingError:
        raise
    except _DAMAGED as error:
        raise ImportingError.at(
            "", "The XLSX workbook cannot be read. Save it again, or save the sheet as CSV."
        ) from error


def sheets_of(data: bytes) -> list[str]:
    """The names of a workbook's sheets, that of the one that is read first; none where it cannot be read."""
    try:
        return _names(_opened(data))
    except _DAMAGED:
        return []


def _names(book: Any) -> list[str]:
    """The names of the sheets, those that people see first. Empty ones are left out if another has cells."""
    pages = sorted(book.worksheets, key=lambda page: page.sheet_state != "visible")
    return [page.title for page in pages if _has_cells(page)] or [page.title for page in pages]


def _has_cells(page: Any) -> bool:
    page.reset_dimensions()
    first = itertools.islice(page.iter_rows(values_only=True, max_col=limits.COLUMNS.most + 1), _LOOKED_AT)
    return any(values.count(None) < len(values) for values in first)


def _opened(data: bytes) -> Any:
    import openpyxl

    return openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)


def _without_result(data: bytes, sheet: str) -> dict[int, str]:
    """The first cell of each row whose formula nobody has computed yet. openpyxl takes them for empty.

    An empty text is a result: its cell has the type of texts.
    """
    found: dict[int, str] = {}
    for cell in _FORMULA.finditer(_part(data, sheet)):
        place = _PLACE.search(cell[1])
        if place is not None and not _OF_TEXT.search(cell[1]):
            found.setdefault(int(place[2]), (place[1] + place[2]).decode())
    return found


def _merged(data: bytes, sheet: str) -> dict[int, list[tuple[int, str]]]:
    """The ranges of merged cells by the first of their rows: each with the index of its first column."""
    from openpyxl.utils import column_index_from_string

    found: dict[int, list[tuple[int, str]]] = {}
    for cells, column, row in map(re.Match.groups, _MERGED.finditer(_part(data, sheet))):
        place = column_index_from_string(column.decode()) - 1, cells.decode()
        found.setdefault(int(row), []).append(place)
    return found


def _long_gaps(data: bytes, sheet: str) -> dict[int, float]:
    """The first and the last of many empty rows that a sheet states one after the other.

    Programs write them where somebody formatted whole columns, and openpyxl makes all possible cells of each.
    The last is infinite where no other row follows.
    """
    part = _part(data, sheet)
    found: dict[int, float] = {}
    first, following, end = 0, 0, -1
    for row in _EMPTY_ROW.finditer(part):
        stated = _NUMBER.search(row[1])
        number = int(stated[1]) if stated else 0
        if row.start() != end or number != following:
            first = number
        following, end = number + 1, row.end()
        if first and following - first >= _LONG_GAP:
            found[first] = number
    if first in found and part.startswith(b"</", end):
        found[first] = math.inf
    return found


def n_formulas(data: bytes, sheet: str = "") -> int:
    """The number of cells with a formula, which are read by its last result.

    ``sheet``: as in `workbook_rows`. The workbook can be read.
    """
    return sum(1 for _ in _FORMULAS.finditer(_part(data, sheet or _names(_opened(data))[0])))


def hidden_rows(data: bytes, sheet: str = "") -> int:
    """The number of rows with a value that nobody sees, as behind a filter. They are read as the others are.

    ``sheet``: as in `workbook_rows`. The workbook can be read.
    """
    part = _part(data, sheet or _names(_opened(data))[0])
    n_hidden, is_hidden = 0, False
    for tag in _BEGINNING.finditer(part) if b"hidden=" in part else ():
        name, attributes = tag.groups()
        if name == b"row":
            is_hidden = _HIDDEN.search(attributes) is not None
        elif is_hidden and not attributes.endswith(b"/"):
            n_hidden += 1
            is_hidden = False
    return n_hidden


def _part(data: bytes, sheet: str) -> bytes:
    """The XML of a sheet."""
    from openpyxl.reader.workbook import WorkbookParser
    from openpyxl.xml.constants import ARC_WORKBOOK

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        book = WorkbookParser(archive, ARC_WORKBOOK, keep_links=False)
        book.parse()
        [part] = [part.target for page, part in book.find_sheets() if page.name == sheet]
        return archive.read(part)


def _rows(
    lines: Iterator[_Numbered | Fault], merged: Mapping[int, Sequence[tuple[int, str]]]
) -> Iterator[Row | Fault]:
    heading: Heading | None = None
    for each in _below_titles(lines, merged):
        if isinstance(each, Fault):
            yield each
            continue
        number, cells = each
        place = f"row {number}"
        if heading is None:
            while not cells[-1].strip():
                cells.pop()
            heading = Heading(cells)
            if heading.fault:
                yield Fault(place, heading.fault)
                return
        elif across := _with_value(merged.get(number, ()), cells):
            yield Fault(
                f"cells {across}",
                "These cells are merged, so only the first of them has the value. Unmerge them, and write it "
                "into each; of pandas, use to_excel(merge_cells=False).",
            )
        else:
            yield heading.row(place, cells)


def _filled(
    sheet: Any, without_result: Mapping[int, str], long_gaps: Mapping[int, float]
) -> Iterator[_Numbered | Fault]:
    """The rows that are not empty."""
    # The size that a sheet states of itself is often wrong.
    sheet.reset_dimensions()
    missing: Any = None
    end_of_gap = 0.0
    for number, given in enumerate(sheet.iter_rows(max_col=limits.COLUMNS.most + 1), 1):
        if number > _MOST_ROWS:
            yield Fault(f"row {number}", "A sheet has no row of this number. Save the workbook again.")
            return
        if number <= end_of_gap:
            continue
        if cell := without_result.get(number):
            yield Fault(
                f"cell {cell}",
                "This formula has no stored result. If it is a text that begins with “=”, save the table as "
                "CSV or JSON Lines; else open the workbook in a spreadsheet program, and save it.",
            )
            continue
        # A row that states a large number is preceded by as many empty ones, all of them one and the same.
        if given is missing:
            continue
        if all(cell.value is None for cell in given):
            missing = given
            if (end_of_gap := long_gaps.get(number, 0.0)) == math.inf:
                return
            continue
        cells = [_text(cell) for cell in given]
        if any(map(str.strip, cells)):
            yield number, cells


def _below_titles(rows: Iterator[_Numbered | Fault], merged: Container[int]) -> Iterator[_Numbered | Fault]:
    """The rows from the names of the columns on. A title has a single cell, and is merged over several
    columns, or an empty row follows it.
    """
    above: list[_Numbered] = []
    for row in rows:
        if isinstance(row, Fault):
            yield row
            continue
        number, cells = row
        if sum(bool(cell.strip()) for cell in cells) == 1 and len(above) < _MOST_TITLES:
            above.append(row)
            continue
        if not above or not (number > above[-1][0] + 1 or all(at in merged for at, _ in above)):
            yield from above
        yield row
        yield from rows
        return
    yield from above


def _with_value(merged: Iterable[tuple[int, str]], cells: Sequence[str]) -> str:
    """The first range of merged cells that begins in this row with a value; empty if there is none."""
    return next((name for at, name in merged if at < len(cells) and cells[at].strip()), "")


def _duration(value: timedelta) -> str:
    """A duration as the format [h]:mm:ss shows it, with the parts of a second that there are."""
    minutes, seconds = divmod(abs(value), timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    parts = f".{seconds.microseconds:06}".rstrip("0").rstrip(".")
    return f"{'-' * (value < timedelta())}{hours}:{minutes:02}:{seconds.seconds:02}{parts}"


def _text(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime) and value.time() == time():
        # A date, for which openpyxl has no other type.
        value = value.date()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _duration(value)
    # Spreadsheets compute with two digits more than they show: 0.1 + 0.2 is 0.30000000000000004.
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    if isinstance(value, (int, float)):
        return (shown(Decimal(text), cell.number_format) if math.isfinite(value) else "") or text
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)

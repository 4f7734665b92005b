"""Rows out of an XLSX workbook."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException

from engine.domain import limits
from engine.importing.rows import Fault, ImportingError, Row

# The format has no more.
_MOST_ROWS = 1_048_576
# A cell of a formula without a value: its attributes. Then the attributes of interest.
_FORMULA = re.compile(
    rb"<(?:\w+:)?c\b([^>]*)>\s*<(?:\w+:)?f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v></(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
_PLACE = re.compile(rb"\br=[\"']([A-Z]+)([0-9]+)[\"']")
_OF_TEXT = re.compile(rb"\bt=[\"']str[\"']")
# What reading a damaged or hostile workbook raises: openpyxl checks little.
_DAMAGED = (
    zipfile.BadZipFile, ParseError, DefusedXmlException, KeyError, IndexError, ValueError, TypeError,
    AttributeError, OSError, EOFError, NotImplementedError,
)  # fmt: skip


def workbook_rows(data: bytes, sheet: str = "") -> Iterator[Row | Fault]:
    """The rows of one sheet below its first row that is not empty, which names the columns.

    Values are the texts that CSV would hold: of a formula its last result, of a time ISO 8601. Empty rows
    are left out. The caller has checked the unpacked size.

    ``sheet``: its name; the first one unless given.

    Raises
    ------
    ImportingError
        The workbook is damaged, or has no sheet of that name.
    """
    try:
        book = _opened(data)
        names = [page.title for page in book.worksheets]
        if not names or (sheet and sheet not in names):
            raise ImportingError.at(
                "",
                f"There is no sheet {limits.shown(sheet)}. Found: {', '.join(names)}."
                if names
                else "The workbook has no sheet of cells.",
            )
        page = book[sheet or names[0]]
        yield from _rows(page, _without_result(data, page.title))
    except ImportingError:
        raise
    except _DAMAGED as error:
        raise ImportingError.at(
            "", "The XLSX workbook cannot be read. Save it again, or save the sheet as CSV."
        ) from error


def sheets_of(data: bytes) -> list[str]:
    """The names of the sheets of a workbook; none where it cannot be read."""
    try:
        return [page.title for page in _opened(data).worksheets]
    except _DAMAGED:
        return []


def _opened(data: bytes) -> Any:
    import openpyxl

    return openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)


def _without_result(data: bytes, sheet: str) -> dict[int, str]:
    """The first cell of each row whose formula nobody has computed yet. openpyxl takes them for empty.

    An empty text is a result: its cell has the type of texts.
    """
    from openpyxl.reader.workbook import WorkbookParser
    from openpyxl.xml.constants import ARC_WORKBOOK

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        book = WorkbookParser(archive, ARC_WORKBOOK, keep_links=False)
        book.parse()
        [part] = [part.target for page, part in book.find_sheets() if page.name == sheet]
        cells = _FORMULA.finditer(archive.read(part))
    found: dict[int, str] = {}
    for cell in cells:
        place = _PLACE.search(cell[1])
        if place is not None and not _OF_TEXT.search(cell[1]):
            found.setdefault(int(place[2]), (place[1] + place[2]).decode())
    return found


def _rows(sheet: Any, without_result: Mapping[int, str]) -> Iterator[Row | Fault]:
    # The size that a sheet states of itself is often wrong.
    sheet.reset_dimensions()
    heading: list[str] = []
    names: list[str] = []
    for number, values in enumerate(sheet.iter_rows(values_only=True, max_col=limits.COLUMNS.most + 1), 1):
        if number > _MOST_ROWS:
            yield Fault(f"row {number}", "A sheet has no row of this number. Save the workbook again.")
            return
        if cell := without_result.get(number):
            yield Fault(
                f"cell {cell}",
                "This formula has no stored result. Open the workbook in a spreadsheet program, and save it.",
            )
            continue
        # A row that states a large number is preceded by as many empty ones.
        if values.count(None) == len(values):
            continue
        cells = [_text(value) for value in values]
        if not any(map(str.strip, cells)):
            continue
        place = f"row {number}"
        if not names:
            while not cells[-1].strip():
                cells.pop()
            if message := limits.COLUMNS.refusal(len(cells)):
                yield Fault(place, message)
                return
            heading = [cell.strip() for cell in cells]
            names = [name.lower() for name in heading]
            if len(set(names)) < len(names):
                yield Fault(place, "Two columns have the same name. Rename one of them.")
                return
        elif any(cell.strip() for cell in cells[len(names) :]):
            yield Fault(
                place,
                "A cell stands right of the last column that the first row names. Name it, or remove the "
                "rows above the names of the columns.",
            )
        else:
            cells += [""] * (len(names) - len(cells))
            fields = {name: cell for name, cell in zip(names, cells, strict=False) if name}
            yield Row(place, fields, [name for name in heading if name])


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, (datetime, date, time)) else str(value)

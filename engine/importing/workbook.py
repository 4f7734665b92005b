"""Rows out of an XLSX workbook."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any
from xml.etree.ElementTree import ParseError

import openpyxl
from defusedxml.common import DefusedXmlException

from engine.domain import limits
from engine.importing.rows import Fault, ImportingError, Row

# The format has no more.
_MOST_ROWS = 1_048_576
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
        yield from _rows(book[sheet or names[0]])
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
    return openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)


def _rows(sheet: Any) -> Iterator[Row | Fault]:
    # The size that a sheet states of itself is often wrong.
    sheet.reset_dimensions()
    heading: list[str] = []
    names: list[str] = []
    for number, values in enumerate(sheet.iter_rows(values_only=True, max_col=limits.COLUMNS.most + 1), 1):
        if number > _MOST_ROWS:
            yield Fault(f"row {number}", "A sheet has no row of this number. Save the workbook again.")
            return
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
            yield Fault(place, "A cell stands right of the last column that the first row names. Name it.")
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

"""Rows out of a text: a table with its heading, plain lines, or JSON."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from engine.core import wording
from engine.domain import limits
from engine.domain.texts import is_blank
from engine.importing import headings
from engine.importing.json_rows import json_rows
from engine.importing.rows import Fault, Heading, Remedy, Row


def rows_of(
    text: str, *, plain: Sequence[str] = (), beside: Sequence[str] = (), table: bool = False
) -> Iterator[Row | Fault]:
    """The rows of ``text``, in whichever of the formats it is written, faulty ones in their places as faults.

    Parameters
    ----------
    plain
        Where bare lines and bare texts in JSON are allowed: the names of the field that they are. Any of
        these makes the first line a heading. A plain line may hold a second column after a tab, which is
        called "reference".
    beside
        Names of the fields beside it. One of them makes the first line a heading too, in which the field is
        missing.
    table
        The text is a table, such as that of a file that says so by its name: plain lines are none of it.
    """
    if headings.is_json(text):
        return json_rows(text, plain)
    return _text_rows(text, plain, beside, table=table)


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
            Remedy.COLUMN,
            plain[0],
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

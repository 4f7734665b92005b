"""The rows of a table: CSV, JSON, XLSX, Parquet, Arrow, and a ZIP of them.

`reader` runs `main` in a process of its own, with limits on memory and time, since a file of a few
kilobytes may ask for gigabytes. Texts that somebody has typed are read in the web process by `rows_of_text`.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import posixpath
import re
import struct
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from pathlib import PurePosixPath
from typing import Any

from engine.domain import limits
from engine.importing.rows import Fault, ImportingError, Row
from engine.importing.strict_json import JSONLimitError, entry_at, loads

_GZIP, _ZIP, _PARQUET = b"\x1f\x8b", b"PK\x03\x04", b"PAR1"
_ARROW = (b"\xff\xff\xff\xff", b"ARROW1\x00\x00")
_WORKBOOK = "xl/workbook.xml"
_TABLES = {".parquet", ".arrow", ".jsonl", ".json", ".csv", ".tsv", ".txt", ".xlsx"}
# Inspect's logs are archives.
_ARCHIVES = {".zip", ".eval"}
_HEADERS, _SAMPLES = {"header.json", "_journal/start.json"}, "samples/"
# What a ZIP calls Zstandard, which the library does not unpack before Python 3.14.
_ZSTANDARD = 93
# Files beside the rows of a data set, which say what it is: of `datasets`, our own exports, and lm-eval.
_ABOUT = re.compile(
    r"(?:dataset_infos?|dataset_dict|state|.*\.manifest|results_\d{4}-[\dT.:-]+)\.json|cache-.*\.arrow"
)
# The time at which lm-eval wrote samples, and beside them its results under any name.
_TIME = re.compile(r"samples_[^/]*_(\d{4}-[\dT.:-]+)\.jsonl(?:\.gz)?$")
# Names under which a JSON document holds its rows, and names that say that it is one row itself.
_ROWS = ("data", "rows", "records", "votes", "items", "results", "examples", "requests")
_OF_A_ROW = {"task", "prompt", "input", "question", "instruction", "model_a", "policy_a"}
DELIMITERS = (",", ";", "\t", "|")
# A character that XML cannot hold, as workbooks write it.
_ESCAPED = re.compile("_x(00(?:0[1-9A-Fa-f]|1[0-9A-Fa-f]))_")
Found = Iterator[Row | Fault]

# ---------------------------------------------------------------- texts


def text_of(data: bytes) -> str:
    """The text that these bytes are: UTF-8, or UTF-16 with its mark, as Excel saves “Unicode text”."""
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff")) and not data.startswith(b"\xff\xfe\0\0")
    at = -1 if is_utf16 else data.find(b"\x00")
    try:
        if at < 0:
            return data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        at = error.start
    line = data.count(b"\n", 0, at) + 1
    raise ImportingError.at(
        f"line {line}",
        "This is not UTF-8 text. In Excel, choose “CSV UTF-8” as the file type, or bring the workbook "
        "(XLSX). In LibreOffice, choose “Unicode (UTF-8)” when you save.",
    )


def is_json(text: str) -> bool:
    """True if the text is read as JSON."""
    return text.lstrip("\ufeff \t\r\n")[:1] in {"{", "["}


def names_in(text: str) -> list[str]:
    """The cells of the first line, of a table its names of columns."""
    first = next(iter(text.lstrip("\ufeff \t\r\n").splitlines()), "")[:100_000]
    with contextlib.suppress(csv.Error):
        return [cell.strip() for cell in next(csv.reader([first], delimiter=_delimiter(first)), [])]
    return []


def rows_of_text(text: str, headings: Sequence[str] = (), *, table: bool = False) -> Found:
    """The rows of a text: JSON, a table, or plain lines.

    ``headings``: names of columns for which plain lines are allowed. A first line that has none of them
    begins plain lines, each a task, with its right answer after a tab. ``table``: the text is a table in
    any case.
    """
    if is_json(text):
        return _json_rows(text.lstrip("\ufeff"))
    named = {name.lower() for name in names_in(text)}
    if headings and not table and named.isdisjoint(headings):
        return _lines(text)
    return _csv_rows(text)


def _lines(text: str) -> Found:
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text.lstrip("\ufeff")), 1):
        if line.strip():
            task, _, reference = line.partition("\t")
            yield Row(f"line {number}", {"task": task.strip(), "reference": reference.strip()})


def _delimiter(first: str) -> str:
    """The delimiter that the first line has most often. The sniffer of `csv` guesses one for plain text
    too.
    """
    return max(DELIMITERS, key=first.count)


def _csv_rows(text: str) -> Found:
    text = text.lstrip("\ufeff")
    first = re.search(r"[^\r\n]*\S[^\r\n]*", text)
    csv.field_size_limit(limits.CELL_CHARACTERS.most)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=_delimiter(first[0] if first else ""),
        strict=True,
    )
    names: list[str] = []
    number = 0
    try:
        for cells in reader:
            place, number = f"line {number + 1}", reader.line_num
            if not any(map(str.strip, cells)):
                continue
            if not names:
                names = _names(cells)
            elif len(cells) != len(names):
                yield Fault(
                    place,
                    f"The number of cells is {len(cells)}, but the first line names {len(names)} "
                    "columns. Put a cell that holds a separator into quotation marks.",
                )
            else:
                yield Row(place, dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        yield Fault(
            f"line {number + 1}",
            f"The row is no CSV: {error}. Close each quotation mark, and write one inside of a cell twice.",
        )


def _names(cells: Sequence[Any]) -> list[str]:
    """The names of columns. A column without one is called by its number.

    Raises
    ------
    ImportingError
        Two have the same name, or there are too many.
    """
    written = [str(cell or "").strip().strip("\ufeff\u200b\u2060") for cell in cells]
    names = [name or f"column {number}" for number, name in enumerate(written, 1)]
    if message := limits.COLUMNS.refusal(len(names)):
        raise ImportingError.at("", message)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ImportingError.at("", f"Two columns are named {limits.shown(name)}. Rename one of them.")
        seen.add(name)
    return names


# ---------------------------------------------------------------- JSON


def _json_rows(text: str) -> Found:
    """The rows of a list, of JSON Lines, or of a document that holds a list of rows."""
    start = len(text) - len(text.lstrip())
    if text[start] == "[":
        yield from _entries(text, start + 1)
        return
    first = text[start:].split("\n", 1)
    try:
        if len(first) > 1 and first[1].strip():
            loads(first[0], of_table=True)
            yield from _json_lines(text)
            return
    except JSONLimitError:
        yield from _json_lines(text)
        return
    except ValueError:
        pass  # A document of several lines.
    try:
        document = loads(text, of_table=True)
    except (json.JSONDecodeError, JSONLimitError) as error:
        line = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        yield Fault(line, _json_fault(error))
        return
    if isinstance(document.get("eval"), dict):
        # Inspect's log, in the order of its archives.
        samples = document.pop("samples", None) or ()
        yield _json_row("the header", document)
        for number, sample in enumerate(samples, 1):
            yield _json_row(f"sample {number}", sample)
        return
    # Instruction Induction has its examples by number.
    by_number = document.get("examples") if isinstance(document.get("examples"), dict) else None
    rows = next((document[name] for name in _ROWS if isinstance(document.get(name), list)), by_number)
    if rows is None or not _OF_A_ROW.isdisjoint(name for name in document if isinstance(document[name], str)):
        yield _json_row("line 1", document)
        return
    # BIG-bench has words that go before each of its examples.
    beside = {name: document[name] for name in ("task_prefix",) if name in document}
    for number, entry in rows.items() if isinstance(rows, dict) else enumerate(rows, 1):
        yield _json_row(f"entry {number}", entry | beside if isinstance(entry, dict) else entry)


def _entries(text: str, at: int) -> Found:
    """The entries of a list, one by one: all of them together may take a hundred times the file's size."""
    between = re.compile(r"[\s]*(,?)[\s]*")
    number = 0
    while True:
        found = between.match(text, at)
        at = found.end() if found else at
        if text[at : at + 1] == "]":
            return
        if number and not (found and found[1]):
            yield Fault(
                f"line {text.count(chr(10), 0, at) + 1}", "The list of JSON is damaged here, or has no end."
            )
            return
        number += 1
        try:
            entry, at = entry_at(text, at)
        except (ValueError, RecursionError) as error:
            yield Fault(f"line {text.count(chr(10), 0, at) + 1}", _json_fault(error))
            return
        place = f"entry {number}"
        yield Fault(place, str(entry)) if isinstance(entry, JSONLimitError) else _json_row(place, entry)


def _json_lines(text: str) -> Found:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield _json_row(f"line {number}", loads(line.strip("\ufeff\r \t"), of_table=True))
            except (json.JSONDecodeError, JSONLimitError) as error:
                yield Fault(f"line {number}", _json_fault(error))


def _json_fault(error: Exception) -> str:
    said = f"{error.msg} (column {error.colno})" if isinstance(error, json.JSONDecodeError) else str(error)
    return said if isinstance(error, JSONLimitError) else f"This is not JSON: {said}."


def _json_row(place: str, entry: Any) -> Row | Fault:
    if isinstance(entry, str):
        return Row(place, {"task": entry})
    if not isinstance(entry, dict):
        return Fault(place, "A row must be an object of named values.")
    message = limits.COLUMNS.refusal(len(entry))
    return Fault(place, message) if message else Row(place, entry)


# ---------------------------------------------------------------- workbooks, Parquet and Arrow


def _workbook_rows(data: bytes, sheet: str) -> Found:
    """The rows of a sheet below the first one that is not empty, which names the columns.

    openpyxl and not calamine, which reads each number as a float: 107505301260286111 would lose its last
    digits.
    """
    import openpyxl

    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
        pages = {page.title: page for page in book.worksheets if page.sheet_state == "visible" or sheet}
        _tell({"sheets": [*pages]})
        page = pages.get(sheet or next(iter(pages), ""))
        if page is not None:
            yield from _rows_of_sheet(page)
            return
    except (ImportingError, MemoryError):
        raise
    except Exception as error:  # openpyxl checks little
        raise ImportingError.at("", "The XLSX workbook cannot be read. Save it again, or as CSV.") from error
    raise ImportingError.at("", f"There is no sheet {limits.shown(sheet)}. Found: {', '.join(pages)}.")


def _rows_of_sheet(page: Any) -> Found:
    # The size that a sheet states of itself is often wrong.
    page.reset_dimensions()
    names: list[str] = []
    for number, values in enumerate(page.iter_rows(values_only=True), 1):
        place, cells = f"row {number}", [_cell_text(value) for value in values]
        while cells and not cells[-1].strip():
            cells.pop()
        if not names:
            names = _names(cells) if cells else []
        elif len(cells) > len(names):
            yield Fault(place, "A cell stands right of the last column that the first row names.")
        elif cells:
            yield Row(place, dict(zip(names, cells + [""] * (len(names) - len(cells)), strict=True)))


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime) and value.time() == time():
        value = value.date()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, float):
        # Spreadsheets compute with two digits more than they show: 0.1 + 0.2 is 0.30000000000000004.
        return f"{value:.15g}"
    return str(value) if isinstance(value, (int, timedelta)) else _ESCAPED.sub(_character, str(value))


def _character(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))


def _arrow_rows(data: bytes) -> Found:
    """The rows of Parquet and of Arrow."""
    pa = _arrow()
    import pyarrow.parquet as pq
    from pyarrow import ipc

    try:
        source = pa.BufferReader(data)
        if data.startswith(_PARQUET):
            file = pq.ParquetFile(source)
            schema, batches = file.schema_arrow, file.iter_batches(batch_size=200, use_threads=False)
        elif data.startswith(_ARROW[1]):
            opened = ipc.open_file(source)
            schema, batches = opened.schema, (opened.get_batch(n) for n in range(opened.num_record_batches))
        else:
            opened = ipc.open_stream(source)
            schema, batches = opened.schema, opened
        _names(schema.names)
        number = 0
        for batch in batches:
            batch.validate(full=True)
            for start in range(0, batch.num_rows, 200):
                for fields in _in_microseconds(batch.slice(start, 200)).to_pylist():
                    number += 1
                    yield Row(f"row {number}", fields)
    except (ImportingError, MemoryError):
        raise
    except Exception as error:
        raise ImportingError.at(
            "", f"The file cannot be read: {error}. Write it again, or as JSON Lines."
        ) from error


def _arrow() -> Any:
    # Its own allocator reserves more address space than the limit leaves.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    import pyarrow as pa

    pa.set_cpu_count(1)
    return pa


def _in_microseconds(batch: Any) -> Any:
    """The same rows with times that Python has; of nanoseconds, pyarrow would ask for pandas."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp("us", field.type.tz))
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns"
        else field
        for field in batch.schema
    ]
    return batch.cast(pa.schema(fields), safe=False) if fields != list(batch.schema) else batch


# ---------------------------------------------------------------- files


def _files(name: str, data: bytes, most: int, depth: int = 2) -> Iterator[tuple[str, bytes]]:
    """The table that a file is, or the tables of an archive and of the archives in it, unpacked within the
    limit. The path of an archive goes before those of its files.
    """
    if data.startswith(_GZIP):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            data = packed.read(most + 1)
        name = name.removesuffix(".gz")
    if len(data) > most:
        raise _too_large(f"{name} is", most)
    if not data.startswith(_ZIP):
        yield name, data
        return
    archive = zipfile.ZipFile(io.BytesIO(data))
    if message := limits.ARCHIVE_FILES.refusal(len(archive.infolist())):
        raise ImportingError.at("", message)
    if sum(each.file_size for each in archive.infolist()) > most:
        raise _too_large(f"{name} is", most)
    if _WORKBOOK in archive.namelist():
        yield name, data
        return
    if not depth:
        raise ImportingError.at(name, "An archive lies in an archive of an archive. Unpack it first.")
    names = tables_in(each.filename for each in archive.infolist() if not each.is_dir())
    if not _HEADERS.isdisjoint(names):
        # The others repeat the samples, shortened.
        names = [each for each in names if each in _HEADERS or each.startswith(_SAMPLES)]
    for each in names:
        yield from _files(f"{name}/{each}", _unpacked(archive, each, most), most, depth - 1)


def names_of(name: str, data: bytes) -> list[str]:
    """The name of a file, or those of the files in an archive."""
    with contextlib.suppress(zipfile.BadZipFile):
        if data.startswith(_ZIP):
            return zipfile.ZipFile(io.BytesIO(data)).namelist()
    return [name]


def _unpacked(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A file of an archive, cut above the limit."""
    about = archive.getinfo(name)
    if about.compress_type != _ZSTANDARD or archive.fp is None:
        with archive.open(name) as packed:
            return packed.read(most + 1)
    archive.fp.seek(about.header_offset)
    # The lengths of a name and of an extra field, which stand before the content.
    lengths = struct.unpack("<26xHH", archive.fp.read(30))
    archive.fp.seek(sum(lengths), os.SEEK_CUR)
    pa = _arrow()
    with pa.CompressedInputStream(pa.BufferReader(archive.fp.read(about.compress_size)), "zstd") as packed:
        content: bytes = packed.read(most + 1)
        return content


def tables_in(names: Iterator[str]) -> list[str]:
    """The tables among the files of a folder or an archive, in the order of the numbers in their names."""
    found = []
    for name in _without_about([*names]):
        hidden = any(part.startswith((".", "__")) for part in PurePosixPath(name).parts)
        if _suffix(name) in _TABLES | _ARCHIVES and not hidden:
            found.append(name)
    if not found:
        raise ImportingError.at(
            "", f"There is no table here. Give files that end with {', '.join(sorted(_TABLES))}."
        )
    return sorted(
        found, key=lambda name: [int(p) if p.isdecimal() else p for p in re.split("([0-9]+)", name)]
    )


def _without_about(names: Sequence[str]) -> list[str]:
    """The files without those that only say what the others are."""
    ends = tuple(f"_{found[1]}.json" for name in names if (found := _TIME.search(name)))
    about = [name for name in names if name.endswith(ends) or _ABOUT.fullmatch(PurePosixPath(name).name)]
    return [name for name in names if name not in about]


def _suffix(name: str) -> str:
    return PurePosixPath(name.lower().removesuffix(".gz")).suffix


def is_plain(name: str, data: bytes) -> bool:
    """True if a file is a text that could have been typed, and no table by its name."""
    packed = data.startswith((_GZIP, _ZIP, _PARQUET, *_ARROW))
    return not packed and _suffix(name) not in {".csv", ".tsv"}


def _rows_of_file(name: str, data: bytes, sheet: str, headings: Sequence[str]) -> Found:
    if data.startswith((_PARQUET, *_ARROW)):
        return _arrow_rows(data)
    if data.startswith(_ZIP):
        return _workbook_rows(data, sheet)
    return rows_of_text(text_of(data), headings, table=_suffix(name) in {".csv", ".tsv"})


# ---------------------------------------------------------------- the process


def main() -> None:
    """Read the files on the standard input and write their rows to the standard output, a line of JSON
    each.
    """
    asked = json.loads(sys.argv[1])
    _limit(asked["memory"], asked["seconds"])
    try:
        for row in _all_rows(asked):
            _tell(
                {"row": (row.place, row.fields, row.file)}
                if isinstance(row, Row)
                else {"fault": (row.place, row.message)}
            )
        _tell({"end": True})
    except ImportingError as error:
        _tell({"stop": [[fault.place, fault.message] for fault in error.faults]})
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError, ValueError):
        _tell({"stop": [["", "The file is damaged or locked. Save it again, or unpack it first."]]})
    sys.stdout.flush()


def _limit(memory: int, seconds: int) -> None:
    """Limit this process. Windows can do none of it; there the other process ends this one in time."""
    if sys.platform == "win32":
        return
    import resource

    for what, most in (("DATA", memory), ("FSIZE", 0), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (most, most))
    # At the first limit the system sends SIGXCPU, which says why; at the second one it kills.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def _all_rows(asked: dict[str, Any]) -> Found:
    """The rows of all tables. A few bytes of a workbook may name one long text in each of its cells."""
    most, n_characters = asked["most"], 0
    tables: list[tuple[str, bytes]] = []
    for name, size in asked["files"]:
        tables += _files(name, sys.stdin.buffer.read(size), most)
    # A browser sends all files of a folder.
    rows = _without_about([name for name, _ in tables])
    tables = [each for each in tables if each[0] in rows] or tables
    if sum(len(data) for _, data in tables) > most:
        raise _too_large("The files are", most)
    columns: frozenset[str] = frozenset()
    # Places need no folder that all of them are in.
    shared = posixpath.commonpath([posixpath.dirname(f"/{name}") for name, _ in tables] or ["/"])
    for name, data in tables:
        prefix = f"{posixpath.relpath(f'/{name}', shared)}, " if len(tables) > 1 else ""
        try:
            for row in _rows_of_file(name, data, asked["sheet"], asked["headings"]):
                if isinstance(row, Row):
                    n_characters += sum(len(value) for value in row.fields.values() if isinstance(value, str))
                    if n_characters > 2 * most:
                        raise _too_large(f"{name} is", most)
                    columns = columns or frozenset(row.fields)
                    # A log of Inspect has a header before its samples.
                    if prefix and columns.isdisjoint(row.fields) and "eval" not in columns:
                        raise ImportingError.at("", "The columns are not those of the first file.")
                    yield replace(row, place=f"{prefix}{row.place}", file=name)
                    continue
                yield replace(row, place=f"{prefix}{row.place}")
        except ImportingError as error:
            raise ImportingError(
                [Fault(f"{prefix}{f.place}".rstrip(", "), f.message) for f in error.faults]
            ) from error


def _too_large(what: str, most: int) -> ImportingError:
    return ImportingError.at("", f"{what} larger than {most / 1e6:g} MB, unpacked, which is the limit.")


def _tell(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said, default=_text) + "\n")


def _text(value: Any) -> str:
    """A value that JSON lacks: a time, an exact number, bytes."""
    return value.isoformat() if isinstance(value, (date, time)) else str(value)

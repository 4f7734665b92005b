"""Rows out of Parquet, whose reader is an optional library."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from engine.importing.arrow import UNREADABLE, fields_of, labels_of
from engine.importing.rows import Allowance, Fault, ImportingError, Row, same_name

MAGIC = b"PAR1"
# Rows.
_BATCH = 1000
# pyarrow ends the process, without an exception, where what is said of a column contradicts itself. Files
# come one after the other, each after its length in four bytes, and a line says that one was looked at.
_LOOK_AT_COLUMNS = """
import sys

sys.modules["numpy"] = None  # pyarrow needs it for nothing here, and starts in half the time without it
import pyarrow
from pyarrow.parquet import read_metadata

while length := sys.stdin.buffer.read(4):
    data = sys.stdin.buffer.read(int.from_bytes(length, "little"))
    try:
        metadata = read_metadata(pyarrow.BufferReader(data))
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                metadata.row_group(group).column(column)
    except Exception:
        pass  # reading the file says why
    print(flush=True)
"""
_MOST_SECONDS = 60
# With which a process ends itself, or an error in its memory ends it. Other signals come from elsewhere, as
# where memory runs short, and say nothing about the file.
_BY_ITSELF = {
    -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL, -signal.SIGSEGV, -signal.SIGTRAP,
}  # fmt: skip
_UNCHECKED = (
    "The server could not check the Parquet file, perhaps as its memory is short. Try again, or save it as "
    "JSON Lines."
)


def parquet_rows(data: bytes, allowance: Allowance) -> Iterator[Row | Fault]:
    """The rows of a Parquet file, numbered from 1. Values come as texts, numbers, lists.

    The caller has checked the file with `damaged`.

    Parameters
    ----------
    allowance
        Pays for the unpacked columns, as a small file can hold very much of the same.

    Raises
    ------
    ImportingError
        The file is damaged or too large, or the library is not installed.
    """
    pa = _library()
    try:
        # A reader of Python's would hold the whole file once more.
        file = pa.parquet.ParquetFile(pa.BufferReader(data))
        names = [str(name) for name in file.schema_arrow.names]
        if fault := same_name(names):
            raise ImportingError.at("", fault)
        chunks = [
            file.metadata.row_group(group).column(column)
            for group in range(file.metadata.num_row_groups)
            for column in range(file.metadata.num_columns)
        ]
        # Before anything is unpacked: the sizes that the file states, and its cells, of which each needs a
        # byte.
        stated = max(
            sum(each.total_uncompressed_size for each in chunks), sum(each.num_values for each in chunks)
        )
        allowance.check(stated)
        # A text that comes again is stored once, so each row may be as large as all that is stated.
        at_once = max(1, min(_BATCH, 4 * allowance.left // max(1, stated)))
        labels = labels_of(file.schema_arrow)
        number = 0
        for batch in file.iter_batches(batch_size=at_once):
            allowance.take(batch.nbytes)
            for fields in fields_of(batch, labels, allowance):
                number += 1
                yield Row(f"row {number}", fields, names)
    except ImportingError:
        raise
    except (pa.ArrowException, OSError, *UNREADABLE) as error:
        reason = str(error).rstrip(".")
        raise ImportingError.at(
            "", f"The Parquet file cannot be read: {reason}. Write it again, or save it as JSON Lines."
        ) from error


def damaged(files: Sequence[bytes]) -> int | None:
    """The place of the first Parquet file whose metadata would end the process that reads it.

    All are looked at in one process, which takes most of its time to load its libraries.

    Raises
    ------
    ImportingError
        The metadata of all of them take too long to read, or the other process did not end its work; or the
        library is not installed.
    """
    _library()
    # At the end, before their length in four bytes and the file's mark.
    metadata = [data[-8 - int.from_bytes(data[-8:-4], "little") :] for data in files]
    try:
        looked = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-I", "-c", _LOOK_AT_COLUMNS],
            input=b"".join(len(each).to_bytes(4, "little") + each for each in metadata),
            capture_output=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ImportingError.at(
            "", "The Parquet file has too many columns. Save it as JSON Lines, or in parts."
        ) from error
    except OSError as error:
        raise ImportingError.at("", _UNCHECKED) from error
    n_looked = len(looked.stdout.splitlines())
    if looked.returncode in _BY_ITSELF:
        return n_looked
    if looked.returncode or n_looked < len(files):
        raise ImportingError.at("", _UNCHECKED)
    return None


def _library() -> Any:
    """pyarrow with its reader of Parquet.

    Raises
    ------
    ImportingError
        It is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportingError.at(
            "", "Parquet needs pyarrow on the server: pip install pyarrow. Or save the file as JSON Lines."
        ) from error
    return pyarrow

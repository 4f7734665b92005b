"""Rows out of Parquet, whose reader is an optional library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from engine.importing.arrow import UNREADABLE, cell, in_microseconds
from engine.importing.rows import Allowance, Fault, ImportingError, Row

MAGIC = b"PAR1"
# Rows.
_BATCH = 1000
# pyarrow ends the process, without an exception, where what is said of a column contradicts itself.
_LOOK_AT_COLUMNS = """
import sys
import pyarrow
from pyarrow.parquet import read_metadata

metadata = read_metadata(pyarrow.BufferReader(sys.stdin.buffer.read()))
for group in range(metadata.num_row_groups):
    for column in range(metadata.num_columns):
        metadata.row_group(group).column(column)
"""
_MOST_SECONDS = 60


def parquet_rows(data: bytes, allowance: Allowance) -> Iterator[Row | Fault]:
    """The rows of a Parquet file, numbered from 1. Values come as texts, numbers, lists.

    Parameters
    ----------
    allowance
        Pays for the unpacked columns, as a small file can hold very much of the same.

    Raises
    ------
    ImportingError
        The file is damaged or too large, or the library is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportingError.at(
            "", "Parquet needs pyarrow on the server: pip install pyarrow. Or save the file as JSON Lines."
        ) from error
    _check_metadata(data)
    try:
        # A reader of Python's would hold the whole file once more.
        file = ParquetFile(pa.BufferReader(data))
        names = [str(name) for name in file.schema_arrow.names]
        if len({name.lower() for name in names}) < len(names):
            raise ImportingError.at("", "Two columns have the same name. Rename one of them.")
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
        number = 0
        for batch in file.iter_batches(batch_size=at_once):
            allowance.take(batch.nbytes)
            for fields in in_microseconds(batch).to_pylist():
                number += 1
                yield Row(f"row {number}", _lower(fields), names)
    except ImportingError:
        raise
    except (pa.ArrowException, OSError, *UNREADABLE) as error:
        raise ImportingError.at(
            "", f"The Parquet file cannot be read: {error}. Write it again, or save it as JSON Lines."
        ) from error


def _check_metadata(data: bytes) -> None:
    """Look at the file's metadata in a process of its own, so that no file ends this one."""
    # At the end, before their length in four bytes and the file's mark.
    metadata = data[-8 - int.from_bytes(data[-8:-4], "little") :]
    try:
        subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-I", "-c", _LOOK_AT_COLUMNS],
            input=metadata,
            capture_output=True,
            timeout=_MOST_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        # What ends with an exception there does so here, and says why.
        if error.returncode > 0:
            return
        raise ImportingError.at(
            "", "The Parquet file is damaged. Write it again, or save it as JSON Lines."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ImportingError.at(
            "", "The Parquet file has too many columns. Save it as JSON Lines, or in parts."
        ) from error


def _lower(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.lower(): cell(value) for name, value in fields.items()}

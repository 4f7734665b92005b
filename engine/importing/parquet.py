"""Rows out of Parquet, whose reader is an optional library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.importing.arrow import cell
from engine.importing.rows import Allowance, Fault, ImportingError, Row

MAGIC = b"PAR1"
# Rows.
_BATCH = 1000


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
            for fields in batch.to_pylist():
                number += 1
                yield Row(f"row {number}", _lower(fields), names)
    except (pa.ArrowException, OSError) as error:
        raise ImportingError.at(
            "", f"The Parquet file cannot be read: {error}. Write it again, or save it as JSON Lines."
        ) from error


def _lower(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.lower(): cell(value) for name, value in fields.items()}

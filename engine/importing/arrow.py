"""Rows out of Arrow files, as `datasets.save_to_disk` writes them; their reader is an optional library."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from datetime import date, time
from decimal import Decimal
from typing import Any

from engine.importing.rows import Allowance, Fault, ImportingError, Row, same_name

# A file is a stream of messages with this before it.
_FILE = b"ARROW1\x00\x00"
MAGIC = (b"\xff\xff\xff\xff", _FILE)
_BATCH = 1000
# What reading a cell raises that Python has no value for: a year 10,000, a text that is no UTF-8.
UNREADABLE = (ValueError, OverflowError)


def arrow_rows(data: bytes, allowance: Allowance) -> Iterator[Row | Fault]:
    """The rows of an Arrow stream or file, numbered from 1. Values come as texts, numbers, lists.

    Nobody may make the reader take more memory than the file has bytes: compressed columns are refused, and
    types whose cells share their bytes.

    Raises
    ------
    ImportingError
        The file is damaged or too large, holds other columns, or the library is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import ipc
    except ImportError as error:
        raise ImportingError.at(
            "", "Arrow needs pyarrow on the server: pip install pyarrow. Or save the file as JSON Lines."
        ) from error
    stream = data[len(_FILE) :] if data.startswith(_FILE) else data
    number = 0
    try:
        messages = ipc.MessageReader.open_stream(pa.py_buffer(stream))
        schema = ipc.read_schema(_of_type("schema", messages.read_next_message()))
        names = [str(name) for name in schema.names]
        if fault := same_name(names):
            raise ImportingError.at("", fault)
        for field in schema:
            _check_type(str(field.name), field.type)
        while True:
            try:
                message = messages.read_next_message()
            except StopIteration:
                return
            if _is_compressed(_of_type("record batch", message).metadata.to_pybytes()):
                raise ImportingError.at("", "The Arrow file is compressed. Write it again as Parquet.")
            batch = ipc.read_record_batch(message, schema)
            batch.validate(full=True)
            allowance.take(batch.nbytes)
            batch = in_microseconds(batch)
            for start in range(0, batch.num_rows, _BATCH):
                for fields in batch.slice(start, _BATCH).to_pylist():
                    number += 1
                    yield Row(
                        f"row {number}", {name.lower(): cell(value) for name, value in fields.items()}, names
                    )
    except ImportingError:
        raise
    except (pa.ArrowException, OSError, *UNREADABLE, struct.error, EOFError, StopIteration) as error:
        raise ImportingError.at(
            "", f"The Arrow file cannot be read: {error}. Write it again, or save it as JSON Lines."
        ) from error


def in_microseconds(batch: Any) -> Any:
    """The same rows with times that Python has; of nanoseconds, pyarrow would ask for pandas."""
    import pyarrow as pa

    schema = pa.schema([field.with_type(_in_microseconds(field.type)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema, safe=False)


def _in_microseconds(kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if getattr(kind, "unit", "") != "ns":
        return kind
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if types.is_time(kind) else pa.duration("us")


def cell(value: Any) -> Any:
    """The value as JSON and CSV have it: a time and an exact number are texts, and NaN is nothing."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def _of_type(wanted: str, message: Any) -> Any:
    """The message. pyarrow reads one of another type as if it were of this one, past its end."""
    if message.type != wanted:
        raise ImportingError.at(
            "",
            f"The Arrow file has a part of the type {message.type} where one of the type {wanted} belongs. "
            "Write it again, or save it as JSON Lines.",
        )
    return message


def _check_type(name: str, kind: Any, *, inside: bool = False) -> None:
    """Refuse a column whose cells may share their bytes, or need none at all: a few would be gigabytes."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        return _check_type(name, kind.value_type, inside=True)
    if types.is_struct(kind) and kind.num_fields:
        for n in range(kind.num_fields):
            _check_type(name, kind.field(n).type, inside=inside)
        return None
    plain = (types.is_primitive, types.is_string, types.is_large_string, types.is_decimal)
    if any(check(kind) for check in plain) or (types.is_null(kind) and not inside):
        return None
    raise ImportingError.at(
        "", f"The column {name} has the type {kind}, which is not read. Remove it, or save it as JSON Lines."
    )


def _is_compressed(metadata: bytes) -> bool:
    """True if the head of a message says how its columns are packed.

    pyarrow unpacks without asking for a limit, and does not say beforehand. The head is a flatbuffer: a
    Message, whose third field is the RecordBatch, whose fourth field is the compression
    (https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format).
    """

    def field(table: int, number: int) -> int:
        """The place of a field of the table; 0 if it is missing."""
        slots = table - struct.unpack_from("<i", metadata, table)[0]
        (size,) = struct.unpack_from("<H", metadata, slots)
        place = 4 + 2 * number
        offset = struct.unpack_from("<H", metadata, slots + place)[0] if place < size else 0
        return table + offset if offset else 0

    def table_at(place: int) -> int:
        return place + int(struct.unpack_from("<I", metadata, place)[0])

    batch = field(table_at(0), 2)
    return bool(batch and field(table_at(batch), 3))

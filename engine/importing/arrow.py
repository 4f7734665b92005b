"""Rows out of Arrow files, as `datasets.save_to_disk` writes them; their reader is an optional library."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any

from engine.importing.contents import Allowance
from engine.importing.rows import Fault, ImportingError, Row, in_turns, same_name
from engine.importing.strict_json import loads

# A file is a stream of messages with this before it.
_FILE = b"ARROW1\x00\x00"
MAGIC = (b"\xff\xff\xff\xff", _FILE)
_BATCH = 1000
# Reading a cell raises these where Python has no value for it: a year 10,000, a text that is no UTF-8.
UNREADABLE = (ValueError, OverflowError)

# By column of labels: the label of each number, from 0.
Labels = Mapping[str, Sequence[str]]


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
        labels = labels_of(schema)
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
            for start in range(0, batch.num_rows, _BATCH):
                for fields in fields_of(batch.slice(start, _BATCH), labels, allowance):
                    number += 1
                    yield Row(f"row {number}", fields, names)
    except ImportingError:
        raise
    except (pa.ArrowException, OSError, *UNREADABLE, struct.error, EOFError, StopIteration) as error:
        reason = str(error).rstrip(".")
        raise ImportingError.at(
            "", f"The Arrow file cannot be read: {reason}. Write it as Parquet or JSON Lines."
        ) from error


def labels_of(schema: Any) -> Labels:
    """The labels of the columns in which `datasets` has a number in the place of each: its ClassLabel."""
    try:
        features = loads((schema.metadata or {})[b"huggingface"].decode())["info"]["features"]
        found = {
            name: feature["names"]
            for name, feature in features.items()
            if feature.get("_type") == "ClassLabel" and name in schema.names
        }
    except (KeyError, TypeError, AttributeError, ValueError):
        # Any program may write there.
        return {}
    return {
        name: labels
        for name, labels in found.items()
        if isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    }


def fields_of(batch: Any, labels: Labels, allowance: Allowance) -> Iterator[dict[str, Any]]:
    """The cells of each row, by the names of the columns in lower case.

    ``labels``: of `labels_of`. ``allowance``: pays for them, as many rows may have a long one.
    """
    for fields in _in_microseconds(batch).to_pylist():
        for name, texts in labels.items():
            fields[name] = label = _label(fields[name], texts)
            allowance.take(len(label) if isinstance(label, str) else 0)
        yield {name.lower(): _cell(value) for name, value in fields.items()}


def _label(value: Any, labels: Sequence[str]) -> Any:
    """The label of a number; nothing of -1, which is no label; any other value as it is."""
    if value == -1:
        return None
    return labels[value] if isinstance(value, int) and 0 <= value < len(labels) else value


def _in_microseconds(batch: Any) -> Any:
    """The same rows with times that Python has; of nanoseconds, pyarrow would ask for pandas."""
    import pyarrow as pa

    schema = pa.schema([field.with_type(_kind_in_microseconds(field.type)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema, safe=False)


def _kind_in_microseconds(kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_kind_in_microseconds(kind.value_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_kind_in_microseconds(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_kind_in_microseconds(field.type)) for field in kind])
    if getattr(kind, "unit", "") != "ns":
        return kind
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if types.is_time(kind) else pa.duration("us")


def _cell(value: Any) -> Any:
    """The value as JSON and CSV have it: a time and an exact number are texts, and NaN is nothing."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return None if isinstance(value, float) and math.isnan(value) else in_turns(value)


def _of_type(wanted: str, message: Any) -> Any:
    """The message. pyarrow reads one of another type as if it were of this one, past its end."""
    if message.type != wanted:
        raise ImportingError.at(
            "",
            f"The Arrow file has a part of the type {message.type} where one of the type {wanted} belongs. "
            "Write it as Parquet or JSON Lines.",
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
        "",
        f"The column {name} has the type {kind}, which is not read. Write the file as Parquet or "
        "JSON Lines, or remove the column.",
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

"""Rows as CSV, JSON lines and Parquet, in pieces of bytes; never more than a few thousand rows in memory."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from engine.domain.conversations import ASSISTANT, Message, as_json, transcript
from engine.importing.formula_cells import defused, is_harmless
from labeling.exports.judgments import COLUMNS, Kind, Row
from labeling.exports.training import Preference, Rated

_ROWS_PER_PIECE = 1000
_ROWS_PER_GROUP = 20_000
# `str.splitlines` and what reads a stream by it, such as httpx, end a line at these too.
_ENDS_OF_UNICODE = (("\x85", r"\u0085"), ("\u2028", r"\u2028"), ("\u2029", r"\u2029"))


def csv_pieces(rows: Iterable[Row], *, raw: bool = False) -> Iterator[bytes]:
    """CSV with a heading. Cells that a spreadsheet would run as formulas are defused unless ``raw``."""
    lines = _Lines()
    # `csv` quotes the characters that end a line. With this ending, a lone carriage return is quoted too, in
    # every release of Python, as PostgreSQL does it. `_Lines` ends the lines with a line feed nevertheless.
    write = csv.writer(lines, lineterminator="\r\n").writerow
    texts = itemgetter(
        *(n for n, column in enumerate(COLUMNS.values()) if column.kind == Kind.TEXT and not column.ours)
    )
    yield heading()
    for batch in _batches(rows, _ROWS_PER_PIECE):
        for row in batch:
            if raw or all(map(is_harmless, texts(row))):
                write(row)
            else:
                write([defused(cell) if isinstance(cell, str) else cell for cell in row])
        yield lines.taken()


class _Lines:
    """Takes the lines of a CSV, each of which ends with a carriage return and a line feed."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line[:-2])

    def taken(self) -> bytes:
        lines, self._lines = self._lines, []
        return "".join(f"{line}\n" for line in lines).encode()


def heading() -> bytes:
    """The first line of the CSV."""
    return f"{','.join(COLUMNS)}\n".encode()


def jsonl_pieces(rows: Iterable[Row]) -> Iterator[bytes]:
    """One JSON object per line; times in ISO 8601."""
    return json_lines(dict(zip(COLUMNS, row, strict=True)) for row in rows)


def dpo_pieces(pairs: Iterable[Preference], *, conversational: bool = False) -> Iterator[bytes]:
    """Prompt, chosen, rejected and their margin as JSON lines, as texts or as messages."""
    return json_lines(
        {
            "prompt": _asked(pair.task, conversational=conversational),
            "chosen": _answered(pair.chosen) if conversational else pair.chosen,
            "rejected": _answered(pair.rejected) if conversational else pair.rejected,
            "margin": pair.margin,
            "comparisons": pair.comparisons,
        }
        for pair in pairs
    )


def reward_pieces(pairs: Iterable[Preference], *, conversational: bool = False) -> Iterator[bytes]:
    """Chosen and rejected with the prompt in each, and their margin, for training a reward model."""

    def whole(task: Sequence[Message], text: str) -> Any:
        if conversational:
            return [*as_json(task), *_answered(text)]
        return f"{transcript(task)}\n\n{text}"

    return json_lines(
        {
            "chosen": whole(pair.task, pair.chosen),
            "rejected": whole(pair.task, pair.rejected),
            "margin": pair.margin,
        }
        for pair in pairs
    )


def kto_pieces(texts: Iterable[Rated], *, conversational: bool = False) -> Iterator[bytes]:
    """Prompt, completion and label, true where the text was chosen more often than rejected."""
    return json_lines(
        {
            "prompt": _asked(text.task, conversational=conversational),
            "completion": _answered(text.completion) if conversational else text.completion,
            "label": text.label,
        }
        for text in texts
    )


def _asked(task: Sequence[Message], *, conversational: bool) -> Any:
    return as_json(task) if conversational else transcript(task)


def _answered(text: str) -> list[dict[str, str]]:
    return as_json([Message(ASSISTANT, text)])


def json_lines(items: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """JSON lines of these objects. No program takes a character within one for the end of a line."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    for batch in _batches(items, _ROWS_PER_PIECE):
        lines = "".join(f"{encode(item)}\n" for item in batch)
        for character, escape in () if lines.isascii() else _ENDS_OF_UNICODE:
            lines = lines.replace(character, escape)
        yield lines.encode()


def json_list(items: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """One JSON list of these objects, a line each."""
    before = b"["
    for piece in json_lines(items):
        yield before + b"\n" + piece.removesuffix(b"\n").replace(b"\n", b",\n")
        before = b","
    yield b"\n]\n" if before == b"," else b"[]\n"


def parquet_pieces(rows: Iterable[Row]) -> Iterator[bytes]:
    """A Parquet file; its times are times."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    types = {
        Kind.INTEGER: pa.int64(),
        Kind.NUMBER: pa.float64(),
        Kind.TEXT: pa.string(),
        Kind.TIME: pa.timestamp("us", tz="UTC"),
        Kind.TRUTH: pa.bool_(),
    }
    schema = pa.schema([(column.name, types[column.kind]) for column in COLUMNS.values()])
    sink = _Sink()
    with ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in _batches(rows, _ROWS_PER_GROUP):
            arrays = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file that buffers written text until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch

"""Rows out of Parquet, whose reader is an optional library."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from engine.domain.limits import Limit
from engine.importing.arrow import UNREADABLE, fields_of, labels_of
from engine.importing.contents import Allowance, too_large
from engine.importing.rows import Fault, ImportingError, Row, same_name

MAGIC = b"PAR1"
# Rows.
_BATCH = 1000
# The other process's word for a file that takes too much memory.
_LARGE = "large"


def _stated(metadata: Any) -> int:
    """The size that a file states: the bytes of its unpacked columns, or its cells, as each needs a byte."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(metadata.num_columns)]
    n_bytes = sum(each.total_uncompressed_size for each in chunks)
    return int(max(n_bytes, sum(each.num_values for each in chunks)))


def _rows_at_once(stated: int, left: int, most: int) -> int:
    """The number of rows to unpack at a time, at most ``most``.

    A text that comes again is stored once, so each row may be as large as all that is stated.
    """
    return max(1, min(most, 4 * left // max(1, stated)))


# pyarrow ends the process, without an exception, where the description of a column contradicts itself. It
# takes the memory that a page asks for, whatever the file states of its columns. 6 kB asked for gigabytes.
# Files come one after the other, and a line says that one was read. The arguments are the rows of a batch,
# the most bytes to unpack, those that it may take, and the length of each file.
_READ_IT_ALL = f"""from __future__ import annotations
import resource
import sys

sys.modules["numpy"] = None  # pyarrow needs it for nothing here, and starts in half the time without it
import pyarrow
from pyarrow.parquet import ParquetFile

{inspect.getsource(_stated)}
{inspect.getsource(_rows_at_once)}
rows, most, spare, *lengths = map(int, sys.argv[1:])
pyarrow.set_memory_pool(pyarrow.system_memory_pool())
with open("/proc/self/status") as status:
    taken = next(1024 * int(line.split()[1]) for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (taken + spare, taken + spare))
for length in lengths:
    data = sys.stdin.buffer.read(length)
    try:
        file = ParquetFile(pyarrow.BufferReader(data))
        stated, unpacked = _stated(file.metadata), 0
        if stated <= most:  # else it is refused for that
            at_once = _rows_at_once(stated, most, rows)
            for batch in file.iter_batches(batch_size=at_once, use_threads=False):
                unpacked += batch.nbytes
                if unpacked > most:
                    break
    except MemoryError:
        print("{_LARGE}", flush=True)
        break
    except Exception:
        pass  # reading the file says why
    print(flush=True)
"""
_MOST_SECONDS = 60
# The process may take so much for itself, and so much for each byte that may be unpacked. These are the file,
# a page of it, and a batch.
_SPARE_BYTES, _BYTES_FOR_EACH = 50_000_000, 8
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
        stated = _stated(file.metadata)
        # Before anything is unpacked.
        allowance.check(stated)
        at_once = _rows_at_once(stated, allowance.left, _BATCH)
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


def damaged(files: Sequence[bytes], most: Limit) -> int | None:
    """The place of the first Parquet file that would end the process that reads it.

    All are read in one process, which takes most of its time to load its libraries. ``most``: the limit on
    their bytes, unpacked.

    Raises
    ------
    ImportingError
        One of them takes too much memory, or all take too long to read. Or the other process did not end its
        work, or the library is not installed.
    """
    _library()
    numbers = (_BATCH, most.most, _SPARE_BYTES + _BYTES_FOR_EACH * most.most, *map(len, files))
    try:
        looked = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-I", "-c", _READ_IT_ALL, *map(str, numbers)],
            # One file is large, and held in memory once.
            input=files[0] if len(files) == 1 else b"".join(files),
            env={},
            capture_output=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ImportingError.at(
            "", "The Parquet file takes too long to read. Save it as JSON Lines, or in parts."
        ) from error
    except OSError as error:
        raise ImportingError.at("", _UNCHECKED) from error
    said = looked.stdout.decode().splitlines()
    if looked.returncode in _BY_ITSELF:
        return len(said)
    if _LARGE in said:
        raise too_large("The unpacked file", most)
    if looked.returncode or len(said) < len(files):
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

"""Files to read, and their rows, which a process of its own reads within limits on memory and time."""

import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore, Timer
from typing import IO, Protocol

from engine.domain import limits
from engine.importing import table_files
from engine.importing.rows import Fault, ImportingError, Row

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from engine.importing.table_files import main; main()"
)
# A program of Python with its libraries; and what a value of a file takes, which is more than its bytes.
_MEMORY, _MEMORY_PER_BYTE = 224 << 20, 20
_SECONDS, _BYTES_PER_SECOND = 40, 1 << 20
# The signal that ends a process at its limit on processor time.
_SIGXCPU = 24
# Each process may take its whole memory, and a web process serves several people.
_PROCESSES = BoundedSemaphore(2)


class BinaryFile(Protocol):
    """An open file, or one that was uploaded."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        ...


@dataclass
class Source:
    """The files of one table.

    Attributes
    ----------
    parts
        Their names and contents, packed or not.
    most
        The limit on bytes, for all of them together and unpacked.
    sheet
        The sheet of a workbook; the first one unless given.
    sheets
        The names of a workbook's sheets, once its rows are asked for.
    on_row
        Called with the number of rows that came so far; what it raises ends the reading.
    """

    parts: Sequence[tuple[str, bytes]]
    most: limits.Limit
    sheet: str = ""
    sheets: list[str] = field(default_factory=list)
    on_row: Callable[[int], None] = lambda n: None

    @property
    def names(self) -> list[str]:
        """The names of the files, and of those in an archive."""
        return [each for name, data in self.parts for each in table_files.names_of(name, data)]

    @property
    def is_plain(self) -> bool:
        """True if it is one text that could have been typed."""
        return len(self.parts) == 1 and table_files.is_plain(*self.parts[0])

    @property
    def text(self) -> str:
        """The text that :attr:`is_plain` speaks of."""
        return table_files.text_of(self.parts[0][1])

    def rows(self, headings: Sequence[str] = ()) -> Generator[Row | Fault]:
        """The rows of all parts; where there are several, places begin with the part's name.

        ``headings`` are those of `table_files.rows_of_text`.
        """
        with _PROCESSES, tempfile.TemporaryFile() as file:
            for _, data in self.parts:
                file.write(data)
            file.seek(0)
            yield from self._rows(file, headings)

    def _rows(self, file: IO[bytes], headings: Sequence[str]) -> Iterator[Row | Fault]:
        seconds = _SECONDS + self.most.most // _BYTES_PER_SECOND
        asked = {
            "files": [(name, len(data)) for name, data in self.parts],
            "most": self.most.most,
            "sheet": self.sheet,
            "headings": list(headings),
            "memory": _MEMORY + _MEMORY_PER_BYTE * self.most.most,
            "seconds": seconds,
        }
        with subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps(asked)],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Python does not start on Windows without it.
            env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
            cwd="/",
        ) as child:
            timer = Timer(seconds, child.kill)
            timer.start()
            try:
                for number, line in enumerate(child.stdout or ()):
                    self.on_row(number)
                    if not line.endswith(b"\n"):
                        break  # It was killed in the middle of it.
                    # Not a number (NaN), of Parquet, is no value.
                    said = json.loads(line, parse_constant=lambda _: None)
                    if "row" in said:
                        yield Row(*said["row"])
                    elif "fault" in said:
                        yield Fault(*said["fault"])
                    elif "sheets" in said:
                        self.sheets = said["sheets"]
                    elif "stop" in said:
                        raise ImportingError([Fault(*each) for each in said["stop"]])
                    else:
                        return
            finally:
                is_late = timer.finished.is_set()
                timer.cancel()
                child.kill()
        is_late = is_late or child.returncode == -_SIGXCPU
        raise ImportingError.at(
            "",
            f"Reading the file takes too much {'time' if is_late else 'memory'}. Split it, or bring it as "
            "CSV or JSON Lines.",
        )


def source_of(files: Iterable[tuple[str, BinaryFile]], most: limits.Limit, sheet: str = "") -> Source:
    """The source that these files are, each with its name."""
    parts: list[tuple[str, bytes]] = []
    left = most.most
    for name, file in files:
        data = file.read(left + 1)
        left -= len(data)
        if left < 0:
            raise ImportingError.at(
                "", f"The file is larger than {most.most / 1e6:g} MB, which is the limit. {most.advice}"
            )
        parts.append((name, data))
    return Source(parts, most, sheet)


def source_at(path: Path, most: limits.Limit, sheet: str = "") -> Source:
    """The source at a path: a file, or a folder of the files of one table.

    Raises
    ------
    ImportingError
        As `source_of` does, or a folder holds no table.
    OSError
        There is no such file, or it cannot be read.
    """
    path = path.resolve()
    paths = [path]
    if path.is_dir():
        found = (str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())
        paths = [path / name for name in table_files.tables_in(found)]
    # Of some tools the folder names the model.
    above = path.parent if path.is_dir() else path.parent.parent
    files = ((each.relative_to(above).as_posix(), each) for each in paths)
    return source_of(((name, io.BytesIO(each.read_bytes())) for name, each in files), most, sheet)


def as_one(source: Source) -> tuple[str, bytes]:
    """The name and the content of one file, or of a ZIP of several."""
    if len(source.parts) == 1:
        return source.parts[0]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number, (name, data) in enumerate(source.parts, 1):
            archive.writestr(name if name not in archive.namelist() else f"{number} {name}", data)
    return f"{len(source.parts)} files", packed.getvalue()

"""Files to read: one, several of one table, a folder or an archive of them."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from engine.core.wording import number
from engine.domain import limits
from engine.importing import arrow, parquet
from engine.importing.arrow import arrow_rows
from engine.importing.contents import Allowance, BinaryFile, contents, text_in, too_large
from engine.importing.headings import OF_YAML
from engine.importing.pacing import paced
from engine.importing.parquet import parquet_rows
from engine.importing.rows import Fault, ImportingError, Remedy, Row
from engine.importing.text_rows import rows_of
from engine.importing.workbook import hidden_rows, n_formulas, sheets_of, workbook_rows

_ZIP = b"PK\x03\x04"
_WORKBOOK = "xl/workbook.xml"
# Parts of OpenDocument, of Microsoft's other formats (.docx, .xlsb), and of Apple's.
_OF_OFFICE = {"content.xml", "[Content_Types].xml", "Index/Document.iwa"}
_TABLES = {".parquet", ".arrow", ".jsonl", ".json", ".csv", ".tsv"}
# Beside the rows of a data set: they say what it is.
_ABOUT = {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"}
# Our own exports end with this.
_MANIFEST = ".manifest.json"
# `datasets` keeps such files beside the rows of a data set that it worked on.
_CACHE = "cache-"
_SHOWN = 6
_SHARD = re.compile(r"-(?P<number>\d+)-of-(?P<total>\d+)(-[0-9a-f]+)?$")


@dataclass(frozen=True)
class Source:
    """Files of one table.

    Attributes
    ----------
    parts
        Their names and contents, unpacked if gzip, in the order in which they are read.
    most
        The limit on bytes, for all of them together and unpacked.
    sheet
        The sheet of a workbook; the first one unless given.
    """

    parts: Sequence[tuple[str, bytes]]
    most: limits.Limit
    sheet: str = ""

    @property
    def is_text(self) -> bool:
        """True if it is one text, as could be typed."""
        packed = (parquet.MAGIC, *arrow.MAGIC, _ZIP)
        return len(self.parts) == 1 and not self.parts[0][1].startswith(packed)

    @property
    def text(self) -> str:
        """The text that :attr:`is_text` speaks of."""
        return _text_of(*self.parts[0])

    @property
    def is_table(self) -> bool:
        """True if the name of a text says that it has columns."""
        return self.is_text and _is_table(self.parts[0][0])

    @property
    def sheets(self) -> list[str]:
        """The names of a workbook's sheets, which a reader may choose from; none for other files."""
        [(_, data), *others] = self.parts
        return sheets_of(data) if data.startswith(_ZIP) and not others else []

    def nothing_in_it(self, message: str) -> ImportingError:
        """The refusal of a source without rows, which names the sheet that was read if there are others."""
        sheets = self.sheets
        if len(sheets) < 2:
            return ImportingError.at("", message)
        read = f"This is the sheet {self.sheet or sheets[0]} of {', '.join(sheets)}."
        return ImportingError([Fault("", f"{message} {read}", Remedy.SHEET)])

    @property
    def warnings(self) -> list[str]:
        """Warnings of shards that are not here, and of a workbook's formulas and the rows that nobody sees.
        Also of its sheets that are not read, unless somebody chose the one that is.
        """
        return [*self._about_shards(), *self._about_workbook()]

    def _about_shards(self) -> list[str]:
        stems = (_stem_of(PurePosixPath(name)) for name, _ in self.parts)
        if (lacking := _lacking(stems)) is None:
            return []
        total, n_here, _ = lacking
        return [
            f"{n_here:,} of {number(total, 'file')} of this table read, going by the names. Bring the others "
            "too, unless this is all that you want."
        ]

    def _about_workbook(self) -> list[str]:
        if not (sheets := self.sheets):
            return []
        warnings = []
        if hidden := hidden_rows(self.parts[0][1], self.sheet):
            warnings.append(
                f"{number(hidden, 'hidden row')} read too, as behind a filter. To leave them out, copy the "
                "rows that you see to another file."
            )
        if formulas := n_formulas(self.parts[0][1], self.sheet):
            warnings.append(
                f"{number(formulas, 'formula')} read by the last result. Where a text begins with “=”, some "
                "programs save it as a formula: bring such a table as CSV or JSON Lines."
            )
        first, *others = sheets
        if others and not self.sheet:
            warnings.append(
                f"{number(len(others), 'sheet')} left out: {', '.join(map(limits.shown, others[:_SHOWN]))}. "
                f"Only {limits.shown(first)} was read."
            )
        return warnings

    def rows(self, *, plain: Sequence[str] = (), beside: Sequence[str] = ()) -> Iterator[Row | Fault]:
        """The rows of all parts; where there are several, places begin with the part's name.

        ``plain`` and ``beside`` are those of `rows_of`.
        """
        if (damaged := self._damaged) is not None:
            raise ImportingError.at(
                damaged if len(self.parts) > 1 else "",
                "The Parquet file is damaged. Write it again, or save it as JSON Lines.",
            )
        allowance = Allowance(self.most)
        for name, data in self.parts:
            prefix = f"{name}, " if len(self.parts) > 1 else ""
            try:
                for row in paced(self._rows_of_part(name, data, allowance, plain, beside)):
                    yield replace(row, place=f"{prefix}{row.place}") if prefix else row
            except ImportingError as error:
                raise ImportingError(
                    [replace(fault, place=f"{prefix}{fault.place}".rstrip(", ")) for fault in error.faults]
                ) from error

    @cached_property
    def _damaged(self) -> str | None:
        """The name of a Parquet file that would end the process that reads it."""
        files = [(name, data) for name, data in self.parts if data.startswith(parquet.MAGIC)]
        place = parquet.damaged([data for _, data in files], self.most) if files else None
        return None if place is None else files[place][0]

    def _rows_of_part(
        self, name: str, data: bytes, allowance: Allowance, plain: Sequence[str], beside: Sequence[str]
    ) -> Iterator[Row | Fault]:
        if data.startswith(parquet.MAGIC):
            return parquet_rows(data, allowance)
        if data.startswith(arrow.MAGIC):
            return arrow_rows(data, allowance)
        if data.startswith(_ZIP):
            allowance.take(sum(each.file_size for each in _archive(io.BytesIO(data)).infolist()))
            return workbook_rows(data, self.sheet)
        return rows_of(_text_of(name, data), plain=plain, beside=beside, table=_is_table(name))


def _is_table(name: str) -> bool:
    """True if a file of this name holds columns, whatever its first line looks like."""
    return _suffix(name) in {".csv", ".tsv"}


def _suffix(name: str) -> str:
    return PurePosixPath(name.lower().removesuffix(".gz")).suffix


def _text_of(name: str, data: bytes) -> str:
    if _suffix(name) in {".yaml", ".yml"}:
        # Its lines would be tasks.
        raise ImportingError.at("", OF_YAML)
    return text_in(data)


def source_of(files: Iterable[tuple[str, BinaryFile]], most: limits.Limit, sheet: str = "") -> Source:
    """The source that these files are, each with its name: a file, shards of a data set, or an archive.

    No more is read and unpacked than ``most``, for all of them together.

    Raises
    ------
    ImportingError
        They are too large or damaged, or an archive does not hold one table.
    """
    allowance = Allowance(most)
    parts: list[tuple[str, bytes]] = []
    for name, file in files:
        data = b""
        if (archive := _archive_in(file, most)) is None:
            data = contents(file, most)
            # The content of a gzip may be an archive.
            archive = _archive_in(io.BytesIO(data), most)
        if archive is not None and _WORKBOOK not in archive.namelist():
            if not _OF_OFFICE.isdisjoint(archive.namelist()):
                raise ImportingError.at(
                    name, "This is a document of an office program, and no XLSX. Save it as XLSX or CSV."
                )
            names = tables_in(each.filename for each in archive.infolist() if not each.is_dir())
            # Before anything is unpacked: no more comes out of an entry than the size that it states.
            allowance.take(sum(archive.getinfo(each).file_size for each in names))
            for each in names:
                parts.append((each, _unpacked(archive, each, most)))
                # A gzip in the archive is larger than what the archive states.
                allowance.take(max(len(parts[-1][1]) - archive.getinfo(each).file_size, 0))
            continue
        if archive is not None:
            _check_workbook(archive, most)
            file.seek(0)
            data = data or contents(file, most)
        allowance.take(len(data))
        parts.append((name, data))
    return Source(parts, most, sheet)


def as_one(files: Sequence[tuple[str, BinaryFile]], most: limits.Limit) -> tuple[str, bytes]:
    """The name and the content of one file, or of a ZIP of several, each with its name.

    Raises
    ------
    ImportingError
        They are larger than ``most`` together, or two have the same name.
    """
    read: dict[str, bytes] = {}
    for name, file in files:
        if name in read:
            raise ImportingError.at(name, "Two files have this name. Rename one of them.")
        read[name] = file.read(most.most + 1)
        if sum(map(len, read.values())) > most.most:
            raise too_large("The file" if len(files) == 1 else "The whole of the files", most)
    if len(read) == 1:
        [(name, data)] = read.items()
        return name, data
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in read.items():
            archive.writestr(name, data)
    return f"{len(read)} files", packed.getvalue()


def source_at(path: Path, most: limits.Limit, sheet: str = "") -> Source:
    """The source at a path: a file, a folder that holds a data set, or a pattern such as ``data/train-*``.

    Raises
    ------
    ImportingError
        As `source_of` does, or a folder does not hold one table.
    OSError
        There is no such file, or it cannot be read.
    """
    if path.is_dir():
        inside = {str(each.relative_to(path)): each for each in path.rglob("*") if each.is_file()}
        found = [inside[name] for name in tables_in(inside)]
    elif "*" in path.name and not path.exists():
        found = sorted(path.parent.glob(path.name), key=lambda each: _as_numbered(each.name))
    else:
        found = []
    with ExitStack() as opened:
        files = [(each.name, opened.enter_context(each.open("rb"))) for each in found or [path]]
        return source_of(files, most, sheet)


def tables_in(names: Iterable[str]) -> list[str]:
    """The files of the one table among those of a folder or an archive, in the order of their shards.

    Files that say something about a data set, its caches, and hidden files are left out. Shards are named as
    ``train-00000-of-00002.parquet``, or ``train/0000.parquet``.

    Raises
    ------
    ImportingError
        There is no table, or more than one.
    """
    tables: dict[tuple[str, str, str], dict[str, str]] = {}
    for name in sorted(names):
        path = PurePosixPath(name.replace("\\", "/"))
        suffix = PurePosixPath(path.name.removesuffix(".gz")).suffix.lower()
        beside = path.name.endswith(_MANIFEST) or (suffix == ".arrow" and path.name.startswith(_CACHE))
        hidden = beside or any(part.startswith((".", "__")) for part in path.parts)
        if suffix in _TABLES and path.name not in _ABOUT and not hidden:
            stem = _stem_of(path)
            key = "" if stem.isdigit() else _SHARD.sub("", stem)
            tables.setdefault((str(path.parent), key, suffix), {})[name] = stem
    if not tables:
        raise ImportingError.at(
            "", f"There is no table here. Give files that end with {', '.join(sorted(_TABLES))}."
        )
    if len(tables) > 1:
        shown = ", ".join(next(iter(files)) for files in list(tables.values())[:6])
        raise ImportingError.at(
            "",
            f"There are {len(tables)} tables or splits here: {shown}. Give the files of one of them. If they "
            "are parts of one table, number them as votes-0-of-2. If each has the responses of one policy, "
            "make one table of them with a column policy.",
        )
    [files] = tables.values()
    _check_shards(files.values())
    return sorted(files, key=_as_numbered)


def _as_numbered(name: str) -> list[tuple[int, str]]:
    """A key that puts names in the order of the numbers in them: 2 before 10."""
    texts_and_numbers = re.split("([0-9]+)", name)
    # The larger of two numbers without zeros in front has more digits.
    stripped = [part.lstrip("0") if place % 2 else part for place, part in enumerate(texts_and_numbers)]
    return [(len(part) if place % 2 else 0, part) for place, part in enumerate(stripped)]


def _stem_of(path: PurePosixPath) -> str:
    """The name of a file without what says its kind."""
    return PurePosixPath(path.name.removesuffix(".gz")).stem


def _check_shards(stems: Iterable[str]) -> None:
    """Refuse a table without one of the shards that the names of the others count."""
    if (lacking := _lacking(stems)) is not None:
        total, n_here, first = lacking
        raise ImportingError.at(
            "",
            f"{total:,} files belong to this table by their names, and {n_here:,} of them came: number "
            f"{first} is missing. Add it, or, if these are all that you want, name them without “-of-”.",
        )


def _lacking(stems: Iterable[str]) -> tuple[int, int, int] | None:
    """The number of shards that the names of these count, the number that is here, and the first that is not.
    ``None`` if all are here.
    """
    numbered = [found for stem in stems if (found := _SHARD.search(stem))]
    total = max((int(found["total"]) for found in numbered), default=0)
    there = {int(found["number"]) for found in numbered}
    missing = [number for number in range(min(total, limits.ARCHIVE_FILES.most)) if number not in there]
    # Some count from 1.
    if missing and there != set(range(1, total + 1)):
        return total, len(there), missing[0]
    return None


# Unpacking a damaged or locked part raises these.
_DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError)


def _archive_in(file: BinaryFile, most: limits.Limit) -> zipfile.ZipFile | None:
    """The archive that a file is; ``None`` if it is none.

    It is not read here: in memory it would take as much again as its parts.
    """
    is_archive = file.read(len(_ZIP)) == _ZIP
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if not is_archive:
        return None
    if size > most.most:
        raise too_large("The file", most)
    return _archive(file)


def _archive(file: BinaryFile) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ImportingError.at("", "The ZIP file is damaged. Copy it again, or unpack it first.") from error
    if message := limits.ARCHIVE_FILES.refusal(len(archive.infolist())):
        raise ImportingError.at("", message)
    # Python unpacks no more of these than it is asked for. A few bytes of the others may be gigabytes.
    usual = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
    if odd := next((each.filename for each in archive.infolist() if each.compress_type not in usual), None):
        raise ImportingError.at(
            odd, "This part of the ZIP file is packed in an unusual way. Pack it again with “Deflate”."
        )
    return archive


def _unpacked(archive: zipfile.ZipFile, name: str, most: limits.Limit) -> bytes:
    try:
        with archive.open(name) as packed:
            return contents(packed, most)
    except _DAMAGED as error:
        raise ImportingError.at(
            name, "This part of the ZIP file cannot be unpacked. Pack it again."
        ) from error


def _check_workbook(archive: zipfile.ZipFile, most: limits.Limit) -> None:
    """Unpack a workbook once, a piece at a time: what reads it believes the sizes that it states."""
    Allowance(most).take(sum(each.file_size for each in archive.infolist()))
    with contextlib.suppress(*_DAMAGED):
        if all(_unpacks_to_its_size(archive, each) for each in archive.infolist()):
            return
    raise ImportingError.at("", "The XLSX workbook is damaged or locked. Save it again.")


def _unpacks_to_its_size(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    # Reading ends at the size that is stated, and so would the check of the sum.
    wider = copy.copy(entry)
    wider.file_size = entry.file_size + 1
    n_bytes = 0
    with archive.open(wider) as packed:
        while piece := packed.read(1 << 16):
            n_bytes += len(piece)
    return n_bytes == entry.file_size

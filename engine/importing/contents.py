"""The text in a file of bytes: unpacked where it is a gzip, within a limit, and decoded."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from typing import Protocol

from engine.domain import limits
from engine.importing.rows import ImportingError

_GZIP = b"\x1f\x8b"
# How files begin that people take for a table.
_PACKED = {
    b"\xd0\xcf\x11\xe0": "an old workbook (.xls), or one with a password",
    b"%PDF-": "a PDF",
    b"BZh9": "a bzip2 archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"\xfd7zXZ": "an xz archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!\x1a": "a RAR archive",
    b"\x1f\x8b": "a gzip in a gzip",
    b"FEA1": "a Feather file of the first version",
    b"{\\rtf": "an RTF document",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite format 3": "a database of SQLite",
    b"\x93NUMPY": "an array of NumPy",
    b"Obj\x01": "an Avro file",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x80\x04": "a pickle of Python",
    b"\x80\x05": "a pickle of Python",
    b"X\n\x00\x00\x00": "a file of R",
    b"RDX2\n": "a file of R",
    b"RDX3\n": "a file of R",
}
# The names of the files in it are not packed.
_ZIP, _WORKBOOK = b"PK\x03\x04", b"xl/workbook.xml"
# A tar archive says so behind the name of its first file.
_TAR, _TAR_AT = b"ustar", 257
_AS_UTF8 = (
    "In Excel, choose “CSV UTF-8” as the file type and not “CSV”, or bring the workbook (XLSX) itself. In "
    "LibreOffice, tick “Edit filter settings” when you save, and choose “Unicode (UTF-8)”."
)


class BinaryFile(Protocol):
    """An open file, or one that was uploaded."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a place; returns it."""
        ...


class Allowance:
    """Bytes that may still be unpacked, of all that belongs together."""

    def __init__(self, most: limits.Limit) -> None:
        self._most = most
        self._taken = 0

    @property
    def left(self) -> int:
        """The bytes that may still be unpacked."""
        return self._most.most - self._taken

    def take(self, n_bytes: int) -> None:
        """Count these bytes; raises :class:`ImportingError` where they are too many."""
        self._taken += n_bytes
        self.check(0)

    def check(self, n_bytes: int) -> None:
        """Raise :class:`ImportingError` where these bytes would be too many, without counting them."""
        if n_bytes > self.left:
            raise too_large("The unpacked file", self._most)


def contents(file: BinaryFile, most: limits.Limit) -> bytes:
    """The bytes of a file, unpacked where it is a gzip. No more than the limit and a byte is unpacked.

    Raises
    ------
    ImportingError
        It is too large, packed or unpacked, or the gzip is damaged.
    """
    data = file.read(most.most + 1)
    _check_size(data, most, "The file")
    if data.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
                data = unpacked.read(most.most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ImportingError.at(
                "", f"The gzip file is damaged: {error}. Copy it again, or unpack it first."
            ) from error
        _check_size(data, most, "The unpacked file")
    return data


def _check_size(data: bytes, most: limits.Limit, what: str) -> None:
    if len(data) > most.most:
        raise too_large(what, most)


def too_large(what: str, most: limits.Limit) -> ImportingError:
    """The refusal of ``what``, which has more bytes than the limit."""
    return ImportingError.at(
        "", f"{what} is larger than {most.most / 1e6:g} MB, which is the limit. {most.advice}"
    )


def packed_kind(data: bytes) -> str:
    """The kind of file that these bytes are where that is known and no text, in words; empty for others."""
    if data.startswith(_TAR, _TAR_AT):
        return "a tar archive"
    if data.startswith(_ZIP):
        return "an XLSX workbook" if _WORKBOOK in data else "a ZIP archive"
    return next((kind for start, kind in _PACKED.items() if data.startswith(start)), "")


def decoded(file: BinaryFile, most: limits.Limit) -> str:
    """The text of a file of bytes, which may be a gzip. No more of it is read than the limit, and a byte.

    Raises
    ------
    ImportingError
        It is too large, or neither UTF-8 nor UTF-16.
    """
    return text_in(contents(file, most))


def text_in(data: bytes, advice: str = _AS_UTF8) -> str:
    """The text that these bytes are: UTF-8, or UTF-16 with its mark, as Excel saves “Unicode text”.

    ``advice``: a sentence on how to save them as UTF-8.

    Raises
    ------
    ImportingError
        They are neither.
    """
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    # The mark of UTF-32 begins with that of UTF-16.
    is_utf16 = data.startswith(marks) and not data.startswith(codecs.BOM_UTF32_LE)
    encoding = "utf-16" if is_utf16 else "utf-8-sig"
    # Counted before rows are made of it: a small archive may hold gigabytes.
    if message := limits.LINES.refusal(max(data.count(b"\n"), data.count(b"\r"))):
        raise ImportingError.at("", message)
    if kind := packed_kind(data):
        raise ImportingError.at(
            "", f"This is {kind}, and no text. Save it as CSV or XLSX, or unpack it first."
        )
    nul = data.find(b"\x00") if encoding == "utf-8-sig" else -1
    try:
        if nul < 0:
            return data.decode(encoding)
        place, fault = nul, "This is not UTF-8 text: it holds a NUL character."
    except UnicodeDecodeError as error:
        place, fault = error.start, "This is not UTF-8 text."
    line = data.count(b"\n", 0, place) + 1
    raise ImportingError.at(f"line {line}", f"{fault} {advice}")

"""Files of tables, in tests."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import openpyxl
from django.http import HttpResponse
from django.test import Client

from engine.domain import limits
from engine.importing.reading_process import Source
from engine.services.imports import expire_imports
from engine.tasks import import_upload

MOST = limits.Limit("bytes", 200_000, "Give less.")


def source(data: bytes | str, name: str = "given.csv", sheet: str = "", most: limits.Limit = MOST) -> Source:
    """A file of this content."""
    return Source([(name, data if isinstance(data, bytes) else data.encode())], most, sheet)


def workbook(*sheets: list[list[Any]]) -> bytes:
    """An XLSX of these sheets, “Sheet 1” and so on."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets, 1):
        page = book.create_sheet(f"Sheet {number}")
        for row in rows:
            page.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def archive(files: Mapping[str, bytes]) -> bytes:
    """A ZIP of these files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return file.getvalue()


def imported(client: Client, address: str, form: dict[str, Any]) -> HttpResponse:
    """The page at which a form with a file ends, once a worker has imported the file."""
    answer: Any = client.post(address, form)
    while answer.status_code == 302:
        run_imports()
        answer = client.get(answer.url)
    return answer


def run_imports() -> None:
    """Do what a worker does for all files that wait."""
    for upload_id in expire_imports():
        import_upload(str(upload_id))

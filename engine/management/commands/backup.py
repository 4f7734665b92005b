"""Write the whole database to a file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from engine.management.backups import note_of, write_backup


class Command(BaseCommand):
    help = (
        "Write the whole database to a new file, while everybody goes on; manage.py restore reads it. "
        "The file holds personal data and secrets, but not SECRET_KEY or other settings."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        note = write_backup(file)
        self.stdout.write(f"{file}, {file.stat().st_size:,} bytes, SHA-256 {note.sha256}")
        self.stdout.write(f"Keep {note_of(file).name} beside it.")

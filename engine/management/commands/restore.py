"""Fill an empty database with a backup."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from engine.management.backups import restore_backup, unknown_migrations


class Command(BaseCommand):
    help = (
        "Fill the empty database that DATABASE_URL names with a file of manage.py backup, bring its tables "
        "up to date, and verify it. Nothing is overwritten."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        note = restore_backup(file)
        self.stdout.write(f"Restored what version {note.version} had on {note.made_at}.")
        if unknown := unknown_migrations():
            raise CommandError(
                f"The backup is of newer code, with {', '.join(unknown)}. Install version {note.version}."
            )
        call_command("migrate", verbosity=0)
        call_command("verify", stdout=self.stdout)

"""Derive again what was stored, and report what differs."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from engine.management.finding import find_experiments
from engine.selectors.verifying import faults_of


class Command(BaseCommand):
    help = (
        "Check that the stored rows agree: counts, outcomes, evidence, texts, sides and checks. "
        "Changes nothing. Exit status 1 if anything differs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", nargs="*", help="names, owner/name or numbers; default: all")

    def handle(self, *args: Any, experiment: list[str], **options: Any) -> None:
        found = find_experiments(experiment)
        n_faults = self._database()
        for each in found:
            faults = list(faults_of(each))
            n_faults += len(faults)
            self.stdout.write(
                f"{each.pk} {each.name}: {'in order' if not faults else f'{len(faults)} faults'}"
            )
            for fault in faults:
                self.stdout.write(f"  {fault}")
        if n_faults:
            raise CommandError(f"{n_faults} faults.")

    def _database(self) -> int:
        """The database's own check. PostgreSQL has none: it checks its references with every change."""
        if connection.vendor != "sqlite":
            return 0
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA integrity_check")
            said = [row[0] for row in cursor.fetchall() if row[0] != "ok"]
            cursor.execute("PRAGMA foreign_key_check")
            said += [
                f"{table}: row {row} refers to nothing in {parent}"
                for table, row, parent, _ in cursor.fetchall()
            ]
        for fault in said:
            self.stdout.write(f"Database: {fault}")
        return len(said)

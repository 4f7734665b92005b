"""Recompute every derived value, and report differences."""

import csv
import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from engine.management.lookups import find_experiments
from engine.selectors.verifying import differences_from, faults_of
from engine.selectors.voids import groups_of
from engine.services.showings import settle_now


class Command(BaseCommand):
    help = (
        "Check that the stored rows agree: counts, outcomes, evidence, texts, sides and checks. "
        "With --export: that a file of judgments says the same. Says what was voided by hand. "
        "Changes nothing but what waits for the planner. Exit status 1 if anything differs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", nargs="*", help="names, owner/name or numbers; default: all")
        parser.add_argument(
            "--export",
            type=Path,
            metavar="FILE",
            help="CSV or JSON lines of all judgments of one experiment, voided ones too",
        )

    def handle(self, *args: Any, experiment: list[str], export: Path | None, **options: Any) -> None:
        found = find_experiments(experiment)
        if export is not None and len(found) != 1:
            raise CommandError("Name the one experiment that the file is an export of.")
        n_faults = self._database()
        for each in found:
            settle_now(experiment_id=each.pk)
            faults = list(faults_of(each))
            if export is not None:
                faults += differences_from(each, _rows(export))
            n_faults += len(faults)
            self.stdout.write(
                f"{each.pk} {each.name}: {'in order' if not faults else f'{len(faults)} faults'}"
            )
            for fault in faults:
                self.stdout.write(f"  {fault}")
            for void in groups_of(each):
                self.stdout.write(
                    f"  Voided by hand: {void.judgments} of {void.of or void.judge} by {void.by} on "
                    f"{void.on:%Y-%m-%d}: {'; '.join(void.reasons)}"
                )
        if n_faults:
            raise CommandError(f"{n_faults} faults.")

    def _database(self) -> int:
        """The database's own check. PostgreSQL has none: it checks its references with every change."""
        if connection.vendor != "sqlite":
            return 0
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA integrity_check")
            faults = [row[0] for row in cursor.fetchall() if row[0] != "ok"]
            cursor.execute("PRAGMA foreign_key_check")
            faults += [
                f"{table}: row {row} refers to nothing in {parent}"
                for table, row, parent, _ in cursor.fetchall()
            ]
        for fault in faults:
            self.stdout.write(f"Database: {fault}")
        return len(faults)


def _rows(file: Path) -> Iterator[dict[str, str]]:
    """The rows of an export, each value as CSV writes it."""
    csv.field_size_limit(sys.maxsize)
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = csv.DictReader(lines) if file.suffix == ".csv" else map(json.loads, lines)
            for row in rows:
                if "line_digest" not in row:
                    raise CommandError(f"{file} has no column line_digest. Export judgments as CSV or JSONL.")
                yield {name: "" if value is None else str(value) for name, value in row.items()}
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error

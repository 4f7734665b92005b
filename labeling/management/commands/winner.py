"""Write the winner of an experiment as a configuration of promptfoo."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.management.lookups import find_experiment
from engine.publishing.promptfoo import promptfoo_of
from engine.publishing.winners import winner_of


class Command(BaseCommand):
    help = "Write the winner of a concluded experiment as a configuration of promptfoo (docs/export.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", help="the experiment's name, owner/name or number")
        parser.add_argument("--out", type=Path, help="output file; default: the terminal")

    def handle(self, *args: Any, experiment: str, out: Path | None, **options: Any) -> None:
        winner = winner_of(find_experiment(experiment))
        if winner is None:
            raise CommandError("There is no winner, or its prompt is not known here.")
        if out is None:
            self.stdout.write(promptfoo_of(winner), ending="")
            return
        try:
            out.write_text(promptfoo_of(winner), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"Cannot write {out}: {error.strerror}.") from error

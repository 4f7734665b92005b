"""Write the ranking of an experiment's policies."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.management.lookups import find_experiment
from engine.selectors.agreement import agreement_of_people
from engine.selectors.rankings import ranking
from labeling.exports.rankings import ranking_csv, ranking_table
from labeling.formatting import agreement


class Command(BaseCommand):
    help = "Rank an experiment's policies by the judgments so far, the leader first (docs/export.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", help="the experiment's name, owner/name or number")
        parser.add_argument("--format", choices=["table", "csv"], default="table")
        parser.add_argument("--out", type=Path, help="output file; default: the terminal")

    def handle(self, *args: Any, experiment: str, out: Path | None, **options: Any) -> None:
        found = find_experiment(experiment)
        ranked = ranking(found)
        if options["format"] == "csv":
            text = ranking_csv(ranked)
        else:
            text = f"{ranking_table(ranked)}\n\n{agreement(agreement_of_people(found))}\n"
        if out is None:
            self.stdout.write(text, ending="")
            return
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"Cannot write {out}: {error.strerror}.") from error
        self.stdout.write(f"{len(ranked):,} policies in {out}")

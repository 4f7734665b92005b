"""Derive sides and checks again from the secrets, and compare them with the record."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.management.lookups import find_experiment
from engine.selectors import blinding


class Command(BaseCommand):
    help = (
        "Verify that sides and checks follow from the experiment's secrets "
        "(docs/blinding.md). Shows no secret. Exit status 1 if a value differs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", help="the experiment's name, owner/name or number")

    def handle(self, *args: Any, experiment: str, **options: Any) -> None:
        found = blinding.verify_blinding(find_experiment(experiment))
        for difference in found.differences:
            self.stdout.write(difference)
        if found.differences:
            raise CommandError(
                f"{len(found.differences)} of {found.verified:,} values differ from the record."
            )
        self.stdout.write(f"All {found.verified:,} values agree with the secrets.")

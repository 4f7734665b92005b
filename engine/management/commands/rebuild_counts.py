"""Recount every pair from the judgments, and report and correct what differs."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from engine.domain.policy_space import code_of
from engine.management.lookups import find_experiments
from engine.services.judging import rebuild_counts


class Command(BaseCommand):
    help = (
        "Recount every pair from the judgments. Exit status 1 if a stored count was wrong (it is corrected)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", nargs="*", help="names, owner/name or numbers; default: all")

    def handle(self, *args: Any, experiment: list[str], **options: Any) -> None:
        wrong = 0
        for each in find_experiments(experiment):
            differences = rebuild_counts(experiment_id=each.pk)
            wrong += len(differences)
            self.stdout.write(f"{each.pk} {each.name}: {len(differences)} pair(s) differed")
            for (i, j), (stored, true) in sorted(differences.items()):
                pair = f"{code_of(i)} against {code_of(j)}"
                self.stdout.write(f"  {pair}: wins, comparisons were {stored}, are {true}")
        if wrong:
            raise SystemExit(1)

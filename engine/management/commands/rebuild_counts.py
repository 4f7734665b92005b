"""Recount every pair from the judgments, mend what differs, and say so."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from engine.models import Experiment
from engine.services.judging import rebuild_counts


class Command(BaseCommand):
    help = (
        "Recount every pair from the judgments. Exit status 1 if a stored count was wrong (it is corrected)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", nargs="*", type=int, help="experiment ids; default: all")

    def handle(self, *args: Any, **options: Any) -> None:
        experiments = Experiment.objects.order_by("pk")
        if options["experiment"]:
            experiments = experiments.filter(pk__in=options["experiment"])
        wrong = 0
        for experiment in experiments:
            differences = rebuild_counts(experiment_id=experiment.pk)
            wrong += len(differences)
            self.stdout.write(f"{experiment.pk} {experiment.name}: {len(differences)} pair(s) differed")
            for (i, j), (stored, true) in sorted(differences.items()):
                self.stdout.write(f"  P{i + 1} against P{j + 1}: wins, comparisons were {stored}, are {true}")
        if wrong:
            raise SystemExit(1)

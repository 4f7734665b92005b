"""Write an experiment's description as YAML."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q

from engine.importing import write_experiment
from engine.models import Experiment
from engine.selectors.specs import experiment_spec


class Command(BaseCommand):
    help = "Write an experiment's description as YAML, which load_experiment reads back."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", metavar="ID|NAME")

    def handle(self, *args: Any, experiment: str, **options: Any) -> None:
        by_id = Q(pk=int(experiment)) if experiment.isascii() and experiment.isdigit() else Q()
        found = Experiment.objects.filter(name=experiment).first() or (
            Experiment.objects.filter(by_id).first() if by_id else None
        )
        if found is None:
            names = ", ".join(
                f"{pk} ({name})" for pk, name in Experiment.objects.values_list("pk", "name")[:20]
            )
            raise CommandError(f"There is no experiment {experiment!r}; there are: {names or 'none'}.")
        self.stdout.write(write_experiment(experiment_spec(found)), ending="")

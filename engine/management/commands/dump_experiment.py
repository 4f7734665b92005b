"""Write an experiment's description as YAML."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from engine.importing.experiment_files import write_experiment
from engine.management.lookups import find_experiment
from engine.selectors.specs import experiment_spec


class Command(BaseCommand):
    help = "Write an experiment's description as YAML, which load_experiment reads back."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", metavar="NAME|OWNER/NAME|ID")

    def handle(self, *args: Any, experiment: str, **options: Any) -> None:
        self.stdout.write(write_experiment(experiment_spec(find_experiment(experiment))), ending="")

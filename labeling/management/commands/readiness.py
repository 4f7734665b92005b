"""Say whether what the processes need is there."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine import __version__
from engine.generation import smollm2
from labeling.middleware.health import readiness


class Command(BaseCommand):
    help = "Say whether database, migrations, broker and disk are in order. Exit status 1 if one is not."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"version: {__version__}\ndata: {settings.VAR_DIR}")
        found = readiness()
        for name, state in found.items():
            self.stdout.write(f"{name}: {state}")
        has_model = "ok" if smollm2.installed() else "not installed (optional)"
        self.stdout.write(f"{smollm2.MODEL_NAME}: {has_model}")
        if missing := [name for name, state in found.items() if state == "missing"]:
            raise CommandError(f"Missing: {', '.join(missing)}. `llmpo serve` makes the database.")

"""Compute the planner's estimates that pages wait for. Started by the control worker; does no harm by hand."""

import os
from typing import Any

from django.core.management.base import BaseCommand

from engine.services.estimates import compute_waiting


class Command(BaseCommand):
    help = "Compute the planner's waiting estimates, then exit."

    def handle(self, *args: Any, **options: Any) -> None:
        # Clicks and pages come first.
        os.nice(10)
        self.stdout.write(f"{compute_waiting()} estimate(s) computed.")

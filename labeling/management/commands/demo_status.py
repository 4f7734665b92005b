"""The status of every experiment, in words."""

from typing import Any

from django.core.management.base import BaseCommand

from engine.selectors import counts
from engine.selectors.experiments import every_experiment
from engine.selectors.queue_health import queue_health
from labeling.dashboard.status import status_of


class Command(BaseCommand):
    help = "Print a line per experiment: its badge, its status and its queue."

    def handle(self, *args: Any, **options: Any) -> None:
        for experiment in every_experiment():
            status = status_of(experiment)
            health = queue_health(experiment)
            self.stdout.write(f"{experiment.pk}. {experiment.name}")
            self.stdout.write(f"   [{status.badge}] {status.sentence}")
            self.stdout.write(
                f"   {counts.comparison_count(experiment.pk)} judged, {health.comparisons['ready']} ready, "
                f"{health.comparisons['planned']} planned; {health.responses['done']} responses written "
                f"({health.tokens} tokens), {health.responses['failed']} failed"
            )

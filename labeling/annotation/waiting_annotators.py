"""Annotators for whom no pair is ready."""

from engine.models import Experiment, User
from engine.services.undos_and_skips import note_waiting
from engine.tasks import wake_planner
from labeling.metrics import BUFFER_MISSES


def note_miss(experiment: Experiment, annotator: User) -> None:
    """Count an annotator who got no pair while the experiment runs, and wake the planner."""
    if experiment.state != Experiment.State.RUNNING:
        return
    BUFFER_MISSES.labels(experiment.pk).inc()
    if note_waiting(experiment_id=experiment.pk, annotator=annotator):
        wake_planner(experiment.pk)

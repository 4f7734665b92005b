"""Celery's way in. Messages only wake: each task finds its work in the rows, so one lost or doubled is harmless."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

from celery import Task, shared_task
from celery.worker import state
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import ChannelError, OperationalError

from engine.generation import registry
from engine.generation.base import BackendError
from engine.generation.worker import write_batch
from engine.judges.worker import judge_comparisons
from engine.models import Experiment, WorkerPulse
from engine.services import experiments, generation, judging, planning

logger = logging.getLogger(__name__)


def wake(task: Task, *args: Any) -> None:
    """Send a task's message once the transaction is committed.

    A broker that is away must not turn a stored click into an error: ``sweep`` finds the work later.
    """

    def send() -> None:
        try:
            # Whoever reads it later than this finds nothing that a sweep has not driven already.
            task.apply_async(args, expires=60)
        except (OperationalError, ChannelError, OSError) as error:
            logger.warning("The broker is away (%s); the sweep will drive %s", error, task.name)

    transaction.on_commit(send)


@shared_task
def advance(experiment_id: int) -> None:
    """Bring one experiment up to date and have what it planned written."""
    done = planning.advance(experiment_id=experiment_id)
    if done is not None and done.planned:
        wake(generate)
    if done is not None and done.ready:
        wake(judge, experiment_id)


@shared_task(bind=True)
def generate(self: Task) -> None:
    """Write what waits; come back for more."""
    worker = self.request.hostname or "local"

    def on_progress(touched: set[int]) -> None:
        _pulse("generation", worker, registry.details())
        for experiment_id in touched:
            wake(judge, experiment_id)

    _pulse("generation", worker)
    try:
        claimed, _ = write_batch(
            worker=worker,
            backend=registry.backend(),
            size=registry.batch_size(),
            stopping=_is_stopping,
            on_progress=on_progress,
        )
    except BackendError:
        # The next sweep tries again; trying at once would only fill the log.
        logger.exception("The generation backend is out of order")
        return
    if claimed:
        wake(generate)


def _is_stopping() -> bool:
    """Whether this worker was told to stop. A solo worker learns it in the middle of its task."""
    # Celery puts the exit status there, which may be 0.
    return any(flag is not None and flag is not False for flag in (state.should_stop, state.should_terminate))


@shared_task
def judge(experiment_id: int) -> None:
    """Let the rule judge decide what is ready; plan on from there."""
    judge_comparisons(experiment_id)
    wake(advance, experiment_id)


@shared_task
def estimate() -> None:
    """Have the planner's estimates computed: in a process of its own, since they take seconds and this worker's clicks wait."""
    subprocess.Popen(
        [sys.executable, "-m", "django", "compute_estimates"],
        cwd=settings.BASE_DIR,
        stdout=subprocess.DEVNULL,
    )


@shared_task(bind=True)
def sweep(self: Task) -> None:
    """Re-drive whatever got stuck: dead workers' claims, absent annotators' leases, lost messages."""
    _pulse("control", self.request.hostname or "local")
    generation.expire_claims()
    judging.expire_leases()
    experiments.discard_leftovers()
    for experiment_id in Experiment.objects.filter(state=Experiment.State.RUNNING).values_list(
        "pk", flat=True
    ):
        wake(judge, experiment_id)
    wake(generate)


def _pulse(queue: str, worker: str, details: dict[str, Any] | None = None) -> None:
    news = {"seen_at": timezone.now()} | ({} if details is None else {"details": details})
    WorkerPulse.objects.update_or_create(queue=queue, worker=worker, defaults=news)

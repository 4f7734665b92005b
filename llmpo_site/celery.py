"""The Celery application: ``celery -A llmpo_site worker -Q control``, ``-Q generation``, ``-Q analysis`` and
``-Q judging``.
"""

import os
import sys
from typing import Any

from celery import Celery
from celery.signals import setup_logging, task_postrun, task_prerun, worker_process_init

from engine.domain import log_context
from llmpo_site import folders

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
# The web process and manage.py make Django's checks. A worker would import every page and the whole API for
# them: half a second of its start, and 46 MB that it never uses.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

_path = list(sys.path)
app = Celery("llmpo_site")
# Celery puts the current folder first, in which a user of the wheel may have an `engine` of another kind.
sys.path[:] = _path if str(folders.BASE) in _path else [str(folders.BASE), *_path]
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["engine"])


@setup_logging.connect
def _leave_the_log(**_: Any) -> None:
    """Have the log as the settings made it: Celery changes nothing of it where somebody listens here."""


@worker_process_init.connect
def _observe(**_: Any) -> None:
    # Imported late: it reads Django's settings, which import this module's package.
    from llmpo_site import traces_and_errors  # noqa: PLC0415

    traces_and_errors.start("worker")


@task_prerun.connect
def _begin(task_id: str, task: Any, args: Any, **_: Any) -> None:
    """Have the log name the task, and its experiment where it has one."""
    if task.request.is_eager:
        return
    experiment = {"experiment": args[0]} if args else {}
    log_context.begin(task=task.name.removeprefix("engine.tasks."), task_id=task_id, **experiment)


@task_postrun.connect
def _end(task: Any, **_: Any) -> None:
    if not task.request.is_eager:
        log_context.begin()

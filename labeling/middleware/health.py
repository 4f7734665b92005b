"""``/healthz`` and ``/readyz``, for the system that starts, watches and replaces web processes.

They come before all checks of a request: probes have no session, use plain HTTP, and name the container's
address as their host.
"""

import logging
import tempfile
from collections.abc import Callable

from celery import current_app
from django.conf import settings
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

_BROKER_SECONDS = 2
_ROOM_BYTES = 1_000_000


class Health:
    """Middleware. ``/healthz``: the process answers. ``/readyz``: everything that it needs is there, or 503.

    The reply of ``/readyz`` says "ok" or "missing" for the database, the migrations, the broker and the space
    for temporary files; the log has the reasons. Without a broker clicks are still stored, but nothing is
    planned.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info not in {"/healthz", "/readyz"}:
            return self._get_response(request)
        if request.method not in {"GET", "HEAD"}:
            return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
        found = {} if request.path_info == "/healthz" else readiness()
        status = 503 if "missing" in found.values() else 200
        return JsonResponse(found or {"alive": "ok"}, status=status, headers={"Cache-Control": "no-store"})


def readiness() -> dict[str, str]:
    """What a process needs: "ok" or "missing" for each."""
    checks: dict[str, Callable[[], bool]] = {
        "database": _database,
        "migrations": _migrations,
        "broker": _broker,
        "disk_space": _disk_space,
    }
    return {name: "ok" if _passes(name, check) else "missing" for name, check in checks.items()}


def _passes(name: str, check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (Error, OperationalError, OSError) as error:
        logger.warning("Not ready: %s: %s", name, type(error).__name__)
        return False


def _database() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return True


def _migrations() -> bool:
    """No migration of this code is missing. Those of newer code do not matter: it runs beside this one."""
    executor = MigrationExecutor(connection)
    return not executor.migration_plan(executor.loader.graph.leaf_nodes())


def _broker() -> bool:
    with current_app.connection_for_write() as broker:
        broker.ensure_connection(max_retries=1, timeout=_BROKER_SECONDS, interval_start=0, interval_step=0)
    return True


def _disk_space() -> bool:
    """A megabyte can be written where temporary files and uploads go."""
    for folder in {None, settings.FILE_UPLOAD_TEMP_DIR}:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM_BYTES))
    return True

"""An installation of LLM-PO for one benchmark: settings, an empty database, gone at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def set_environment(**more: str) -> str:
    """Settings as in production but for where things lie, to be made before Django reads them; returns the
    folder.
    """
    folder = tempfile.mkdtemp(prefix="llmpo-benchmark-")
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "llmpo_site.settings",
        "DEBUG": "false",
        "VAR_DIR": folder,
        "SECRET_KEY": os.environ.get("SECRET_KEY") or "only-for-benchmarks-only-for-benchmarks",
        "LOG_LEVEL": "ERROR",
        **more,
    }
    return folder


@contextmanager
def installation(**environment: str) -> Iterator[Path]:
    """Set Django up on a SQLite database of its own, before anything imports a model; yields its folder."""
    folder = Path(set_environment(CELERY_BROKER_URL="filesystem://localhost"))
    os.environ |= {"DATABASE_URL": f"sqlite:///{folder}/benchmark.sqlite3", **environment}
    import django  # noqa: PLC0415 - reads the settings made here

    django.setup()
    from django.core.management import call_command  # noqa: PLC0415
    from django.db import connection  # noqa: PLC0415

    try:
        call_command("migrate", verbosity=0)
        yield folder
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)

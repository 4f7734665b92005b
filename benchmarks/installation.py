"""An installation of LLM-PO for one benchmark: settings, an empty database, processes, gone at the end."""

import argparse
import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# For processes that together fill the machine.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def options_of(description: str, arguments: Sequence[str] | None, **defaults: Any) -> argparse.Namespace:
    """The options of a benchmark by their defaults: of a tuple several values, and False for a switch."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(option, type=type(default[0]), nargs="+", default=list(default))
        else:
            parser.add_argument(option, type=type(default), default=default, help=f"default: {default}")
    return parser.parse_args(arguments)


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
    from django.db import connection  # noqa: PLC0415

    try:
        _create_tables(folder / "benchmark.sqlite3")
        yield folder
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch_database(**environment: str) -> Iterator[str]:
    """Set Django up on a test database of the server in DATABASE_URL, with static files; yields its URL."""
    folder = set_environment(**environment)
    import django  # noqa: PLC0415 - reads the settings

    django.setup()
    from django.core.management import call_command  # noqa: PLC0415
    from django.db import connection, connections  # noqa: PLC0415

    own = connection.settings_dict
    name = own["NAME"]
    scratch = _create_tables(Path(folder) / "scratch.sqlite3")
    login = quote(own["USER"]) + (f":{quote(own['PASSWORD'])}" if own["PASSWORD"] else "")
    url = (
        f"sqlite:///{scratch}"
        if connection.vendor == "sqlite"
        else f"postgres://{login}@{own['HOST']}:{own['PORT'] or 5432}/{scratch}"
    )
    try:
        call_command("collectstatic", interactive=False, verbosity=0)
        yield url
    finally:
        connections.close_all()
        connection.creation.destroy_test_db(name, verbosity=0)
        shutil.rmtree(folder, ignore_errors=True)


def _create_tables(file: Path) -> str:
    """Make an empty database, and go to it; returns its name. SQLite's is this file, as other processes are
    to open it.
    """
    from django.db import connection  # noqa: PLC0415 - Django is set up first

    # From the models: the migrations come to the same tables, and take ten times as long.
    connection.settings_dict["TEST"]["MIGRATE"] = False
    if connection.vendor == "sqlite":
        connection.settings_dict["TEST"]["NAME"] = str(file)
    return connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)


def session_of(user: Any, backend: str | None = None) -> str:
    """The cookie of somebody who is logged in, by this way of logging in; ``None``: the product's own."""
    from django.conf import settings  # noqa: PLC0415 - Django is set up first
    from django.test import Client  # noqa: PLC0415

    client = Client()
    client.force_login(user, backend=backend)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@contextmanager
def web_server(
    database_url: str, *, processes: int, application: str = "llmpo_site.wsgi", **environment: str
) -> Iterator[tuple[int, int]]:
    """Gunicorn as in production; yields its port and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = (
        f"gunicorn {application} --bind 127.0.0.1:{port} --threads 8 --workers {processes} --log-level error"
    )
    with _running([command.split()], database_url, environment) as [pid]:
        # Gunicorn listens before its processes have loaded: any reply says that one of them has.
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request("GET", "/")
                connection.getresponse().read()
                connection.close()
                break
            time.sleep(0.2)
        yield port, pid


@contextmanager
def celery_workers(database_url: str, *queues: str) -> Iterator[dict[str, int]]:
    """A worker for each queue; yields their processes by queue."""
    command = "celery -A llmpo_site worker -Q {0} -n {0}@%h -P solo -l error"
    commands = [command.format(queue).split() for queue in queues]
    with _running(commands, database_url, {}) as pids:
        yield dict(zip(queues, pids, strict=True))


@contextmanager
def _running(
    commands: Sequence[Sequence[str]], database_url: str, environment: dict[str, str]
) -> Iterator[list[int]]:
    all_of_it = {**os.environ, "DATABASE_URL": database_url, **environment}
    # Celery greets on standard output, whatever its level of logging. A group of its own, as Ctrl-C is meant
    # for the benchmark alone, which may have more to ask of them.
    running = [
        subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=all_of_it,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in commands
    ]
    try:
        yield [process.pid for process in running]
    finally:
        for process in running:
            process.terminate()
        for process in running:
            # gunicorn itself gives its requests 30 seconds.
            process.wait(timeout=90)


def cpu_seconds(parent: int) -> float:
    """Processor time of a process and its children, those that have ended too.

    Unlike waiting times it does not depend on what else the machine does.
    """
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            own = int(stat.parent.name) == parent
            if own or int(fields[1]) == parent:
                total += sum(map(int, fields[11:15] if own else fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """The median and two percentiles of waits, to a tenth of a millisecond; none of none."""
    if not milliseconds:
        return {}
    values = np.percentile(milliseconds, (50, 95, 99))
    return {f"p{q}": round(float(value), 1) for q, value in zip((50, 95, 99), values, strict=True)}

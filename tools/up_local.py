"""The services of compose.yaml as plain processes of this machine: ``make up-local``, until Ctrl-C.

PostgreSQL and Redis come from Debian's packages and keep their data below one folder. The other services are
the commands of compose.yaml, but for addresses; the settings are those of ``.env``.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from labeling.supervision import supervise

ROOT = Path(__file__).resolve().parent.parent
_BIND_IN_COMPOSE = "0.0.0.0:8000"
_BINARIES = Path("/usr/lib/postgresql")


def services() -> dict[str, str]:
    """The commands of our own services in compose.yaml that need no GPU, by name."""
    composed: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return {
        name: service["command"]
        for name, service in composed.items()
        if "build" in service and "profiles" not in service
    }


def environments() -> dict[str, str]:
    """The variables that these services have beyond those of all, as supervisor writes them."""
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text())
    common = composed["x-app"]["environment"]
    return {
        name: ",".join(
            f"{key}={value}"
            for key, value in composed["services"][name]["environment"].items()
            # Uploads have no folder of their own here.
            if key not in common and key != "UPLOAD_DIR"
        )
        for name in services()
    }


def local(command: str, port: int) -> list[str]:
    """A command of compose.yaml for this interpreter; the web server gets this port."""
    program, *arguments = shlex.split(command)
    arguments = [f"127.0.0.1:{port}" if each == _BIND_IN_COMPOSE else each for each in arguments]
    return [sys.executable, *([] if program == "python" else ["-m", program]), *arguments]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything until Ctrl-C. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "var" / "up-local", help="where data and logs go"
    )
    options = parser.parse_args(arguments)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _stop)
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as running:
        try:
            environment = {
                "DATABASE_URL": running.enter_context(postgres(folder)),
                **_redis_urls(running.enter_context(_redis(folder))),
                "VAR_DIR": str(folder / "site"),
            }
            commands = {name: local(command, options.port) for name, command in services().items()}
            for command in (
                commands.pop("migrate"),
                [sys.executable, "manage.py", "collectstatic", "--noinput"],
            ):
                _run(command, environment)
            supervisor = running.enter_context(_supervised(commands, folder, environment))
            _wait_until_ready(supervisor, f"http://127.0.0.1:{options.port}/readyz", folder)
        except _CannotStartError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"\n  Open http://127.0.0.1:{options.port}. Logs: {folder / 'log'}. Ctrl-C stops everything.")
        print("  For manage.py, as in `… python manage.py createsuperuser`:\n")
        print(
            "   ", " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items()), flush=True
        )
        supervisor.wait()
    return 0


class _CannotStartError(Exception):
    """Something that this needs is missing; the message says what to do."""


def _stop(*_: object) -> None:
    raise SystemExit(0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    subprocess.run(  # noqa: S603 - our own commands
        command, cwd=ROOT, env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL
    )


def _as_postgres() -> tuple[list[str], int | None]:
    """The prefix for PostgreSQL's commands, which refuse to run as root, and the owner of its folder."""
    if os.getuid() != 0:
        return [], None
    return ["runuser", "-u", "postgres", "--"], pwd.getpwnam("postgres").pw_uid


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL server of our own; yields the URL of its database."""
    versions = sorted(_BINARIES.glob("*/bin"), key=lambda path: float(path.parent.name))
    if not versions:
        raise _CannotStartError("PostgreSQL is not installed: apt-get install postgresql")
    programs, port = versions[-1], _free_port()
    prefix, owner = _as_postgres()
    outer, data = folder / "postgres", folder / "postgres" / "data"
    outer.mkdir(exist_ok=True)
    if owner is not None:
        os.chown(outer, owner, -1)

    def control(program: str, *arguments: str) -> None:
        command = [*prefix, str(programs / program), "-D", str(data), *arguments]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise _CannotStartError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")

    user = "llmpo"
    if not (data / "PG_VERSION").exists():
        control("initdb", "-U", user, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
    control("pg_ctl", "-l", str(outer / "log"), "-w", "-o", options, "start")
    try:
        yield f"postgres://{user}@127.0.0.1:{port}/postgres"
    finally:
        control("pg_ctl", "-m", "fast", "-w", "stop")


@contextmanager
def _redis(folder: Path) -> Iterator[int]:
    """A Redis server of our own, which stores nothing, as in compose.yaml; yields its port."""
    program = shutil.which("redis-server")
    if program is None:
        raise _CannotStartError("Redis is not installed: apt-get install redis-server")
    port = _free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with (folder / "redis.log").open("ab") as log:
        # Ctrl-C in a terminal reaches every process of a session; this one is to outlive the workers.
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


def _redis_urls(port: int) -> dict[str, str]:
    return {"CELERY_BROKER_URL": f"redis://127.0.0.1:{port}/0", "CACHE_URL": f"redis://127.0.0.1:{port}/1"}


@contextmanager
def _supervised(
    commands: Mapping[str, Sequence[str]], folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    supervisor = supervise(
        {name: shlex.join(command) for name, command in commands.items()},
        folder=folder,
        working_directory=ROOT,
        environment=environment,
        environments=environments(),
    )
    try:
        yield supervisor
    finally:
        supervisor.terminate()
        supervisor.wait()


def _wait_until_ready(supervisor: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    while supervisor.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own address
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise _CannotStartError(f"The processes did not start; see the logs in {folder / 'log'}.")


if __name__ == "__main__":
    sys.exit(main())

"""Real processes: Celery workers on the test database."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings
from django.db import connection

from tests.generation.chat_server import MODEL, ChatServer

ROOT = Path(__file__).resolve().parents[1]


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Fail where ``condition`` does not come true in time; the limit is there to end, not to measure."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"Waited {seconds} s in vain: {what}")
        time.sleep(0.2)


def has_ended(pid: int) -> bool:
    """True if the process is gone, or a zombie that nobody has waited for yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def database_url() -> str:
    database = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    login = quote(database["USER"]) + (f":{quote(database['PASSWORD'])}" if database["PASSWORD"] else "")
    return f"postgres://{login}@{database['HOST']}:{database['PORT']}/{database['NAME']}"


_COMMANDS = {
    "control": "worker -P solo -Q control -n control@%h --without-gossip --without-mingle",
    "generation": "worker -P solo -Q generation -n {called}@%h --without-gossip --without-mingle",
    "remote": (
        "worker -P threads -c 3 -Q generation,judging -n {called}@%h --without-gossip --without-mingle"
    ),
    "analysis": "worker -P solo -Q analysis -n analysis@%h --without-gossip --without-mingle",
    "judging": "worker -P solo -Q judging -n judging@%h --without-gossip --without-mingle",
    "beat": "beat --pidfile=",
}


class Workers:
    """The processes of an installation, each of which can be killed and started again."""

    def __init__(self, log_folder: Path) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log_folder = log_folder
        self.environment = {
            **os.environ,
            "DATABASE_URL": database_url(),
            "CELERY_BROKER_URL": settings.CELERY_BROKER_URL,
            "SWEEP_SECONDS": "1",
            "CLAIM_SECONDS": "5",
            "GENERATION_BATCH_MAX": "8",
            "ALLOW_PRIVATE_CONNECTIONS": "true",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def ask(self, server: ChatServer) -> None:
        """Have the worker "remote" write with this server, unless an experiment names another model."""
        self.environment |= {"OPENAI_MODEL": MODEL, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}

    def start(self, name: str, called: str = "") -> None:
        """``called``: to have several generation workers, each by a name of its own."""
        called = called or name
        command = _COMMANDS[name].format(called=called)
        with (self.log_folder / f"{called}.log").open("ab") as log:
            self.processes[called] = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "llmpo_site", *command.split()],
                cwd=ROOT,
                env=self.environment | ({"GENERATION_BACKEND": "remote"} if name == "remote" else {}),
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def stop_all(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            process.wait(timeout=120)

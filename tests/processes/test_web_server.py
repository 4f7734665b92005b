"""A real gunicorn, as compose.yaml starts it."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.conf import settings

from tests.workers import database_url, free_port, has_ended, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

METRICS = "only-for-prometheus"


class Server:
    """One server after another on the same port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._environment = {
            **os.environ,
            "SECRET_KEY": settings.SECRET_KEY,
            "DATABASE_URL": database_url(),
            "VAR_DIR": str(folder),
            "TMPDIR": str(folder),
            "DEBUG": "true",
            "CELERY_BROKER_URL": "filesystem://localhost",
            "METRICS_TOKEN": METRICS,
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        bound = ["--bind", f"127.0.0.1:{self.port}", "--threads", "2", "--no-control-socket"]
        self._running.append(
            subprocess.Popen(
                [sys.executable, "-m", "gunicorn", "llmpo_site.wsgi", *bound, *options],
                cwd=settings.BASE_DIR,
                env=self._environment,
                stderr=subprocess.DEVNULL,
            )
        )
        wait_until(self.answers, 120, "the server answers")
        return self._running[-1]

    def answers(self) -> bool:
        assert self._running[-1].poll() is None, "the server ended"
        with suppress(OSError):
            return self.read("/healthz") != ""
        return False

    def read(self, path: str) -> str:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {METRICS}"}
        )
        with urllib.request.urlopen(asked, timeout=20) as answer:  # noqa: S310 - our own server
            return answer.read().decode()

    def stop(self) -> None:
        for each in self._running:
            each.terminate()
            each.wait(timeout=60)


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="Elsewhere a worker ends after its last request.")
def test_a_server_whose_master_was_killed_leaves_the_port_to_the_next(server):
    """A worker with a half request kept it for 30 seconds, in which four new servers gave up."""
    master = server.start()
    orphans = children(master.pid)
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        half.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        master.send_signal(signal.SIGKILL)
        master.wait()
        wait_until(lambda: all(map(has_ended, orphans)), 10, "the orphans have ended")
        server.start()


@pytest.mark.parametrize(("processes", "shares"), [(1, False), (2, True)])
def test_figures_need_no_file_but_where_several_processes_share_them(server, tmp_path, processes, shares):
    """On a full /tmp a mapped file ended the process at its first write."""
    master = server.start("--workers", str(processes))
    wait_until(lambda: len(children(master.pid)) == processes, 60, "all processes run")
    server.read("/accounts/login/")
    assert "llmpo_request_seconds_count{" in server.read("/metrics")
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in children(master.pid))
    assert ("/llmpo-metrics-" in maps) == shares
    assert not [*tmp_path.glob("llmpo-metrics-*")]

"""`make demo` as its user meets it: one command, a page with a pair, Ctrl-C, nothing left; and again."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.workers import ROOT, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.waits]


class Demo:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "CELERY_BROKER_URL"}
        }
        # Nobody clicks here: one pair is enough, as SmolLM2 takes a second or two for each response.
        self.environment |= {"VAR_DIR": str(folder), "DEBUG": "false", "BUFFER_MIN": "1"}
        self.output = folder / "output.txt"

    def start(self) -> None:
        self.port = free_port()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", "--port", str(self.port)],
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        wait_until(
            lambda: "Ctrl-C stops" in self.output.read_text() or self.process.poll() is not None,
            300,
            "the demo",
        )
        assert self.process.poll() is None, self.output.read_text()

    def status(self) -> str:
        return subprocess.run(
            [sys.executable, "manage.py", "demo_status"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def concluded(self) -> int:
        """Experiments that have. The database says it for less than ``demo_status``, a new process."""
        with closing(sqlite3.connect(f"file:{self.folder}/llmpo.sqlite3?mode=ro", uri=True)) as database:
            [[n]] = database.execute("SELECT count(*) FROM engine_experiment WHERE state = 'concluded'")
        return n

    @contextmanager
    def visit(self, name: str, password: str) -> Iterator[httpx2.Client]:
        """A browser in which this person has logged in."""
        url = f"http://127.0.0.1:{self.port}"
        with httpx2.Client(base_url=url, follow_redirects=True, timeout=120) as client:
            client.get("/accounts/login/")
            form = {
                "username": name,
                "password": password,
                "csrfmiddlewaretoken": client.cookies["csrftoken"],
            }
            assert client.post("/accounts/login/", data=form).url.path == "/"
            yield client

    def pid_of(self, program: str) -> int:
        spawned = re.findall(
            rf"spawned: '{program}' with pid (\d+)", (self.folder / "log/supervisord.log").read_text()
        )
        return int(spawned[-1])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=120) == 0, self.output.read_text()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def judged(status: str) -> list[int]:
    return [int(number) for number in re.findall(r"(\d+) judged", status)]


def test_the_demo_starts_heals_concludes_stops_and_continues(tmp_path: Path):
    demo = Demo(tmp_path)
    demo.start()
    try:
        logins = dict(re.findall(r"(annotator|admin) +password (\S+)", demo.output.read_text()))
        assert set(logins) == {"annotator", "admin"}

        with demo.visit("annotator", logins["annotator"]) as annotator:
            pair = re.findall(r"/label/\d+/", annotator.get("/").text)[0]
            page = annotator.get(pair).text
            assert "Response A" in page
            [token] = set(re.findall(r'data-token="([^"]+)"', page))
            form = {"token": token, "choice": "left", "csrfmiddlewaretoken": annotator.cookies["csrftoken"]}
            assert annotator.post(f"{pair}judge/", data=form).status_code == 200

        victims = [demo.pid_of(name) for name in ("generation", "control")]
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        wait_until(demo.concluded, 300, "the rule-judged experiment to conclude by itself")
        status = demo.status()
        assert re.search(r"After \d+ comparisons: ", status)
        with demo.visit("admin", logins["admin"]) as admin:
            path, title = re.findall(r'(/experiments/\d+/)">([^<]*judged by rule)', admin.get("/").text)[0]
            dashboard = admin.get(path)
            assert dashboard.status_code == 200
            assert title in dashboard.text
        before = judged(status)
        pids = [demo.pid_of(name) for name in ("web", "control", "generation", "beat")]
        assert not set(victims) & set(pids)
    finally:
        demo.stop()
    assert not any(alive(pid) for pid in pids)

    demo.start()
    try:
        assert dict(re.findall(r"(annotator|admin) +password (\S+)", demo.output.read_text())) == logins
        assert judged(demo.status()) == before
    finally:
        demo.stop()

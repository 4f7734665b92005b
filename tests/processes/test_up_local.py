"""`make up-local`: the commands of compose.yaml as they stand, on a PostgreSQL and a Redis of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.workers import ROOT, free_port, wait_until
from tools.up_local import local, main, services

pytestmark = [pytest.mark.slow, pytest.mark.waits]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that PostgreSQL's own user may enter, too: PostgreSQL does not run as root."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_it_runs_what_needs_no_gpu():
    assert set(services()) == {"migrate", "web", "control", "analysis", "generation", "remote"}


def test_a_command_is_that_of_the_interpreter_at_the_port():
    assert local("python manage.py migrate", 1) == [sys.executable, "manage.py", "migrate"]
    gunicorn = local("gunicorn app --bind 0.0.0.0:8000", 4321)
    assert gunicorn == [sys.executable, "-m", "gunicorn", "app", "--bind", "127.0.0.1:4321"]


def processes_of(folder: Path) -> list[str]:
    """The command lines of all processes that have to do with the folder."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]


def test_an_experiment_runs_on_it_and_nothing_is_left_behind(folder: Path):
    output = folder / "output.txt"
    command = [sys.executable, "-m", "tools.up_local", "--port", str(free_port()), "--folder", str(folder)]
    unset = {"DATABASE_URL", "CELERY_BROKER_URL", "CACHE_URL", "VAR_DIR"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    with output.open("wb") as file:
        running = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file)
    try:
        wait_until(lambda: "manage.py" in output.read_text() or running.poll() is not None, 300, "a site")
        assert running.poll() is None, output.read_text()
        theirs = dict(re.findall(r"(\w+)=(\S+)", output.read_text().splitlines()[-1]))
        assert theirs.keys() == unset
        seed = [sys.executable, "manage.py", "seed_demo"]
        subprocess.run(seed, cwd=ROOT, env=environment | theirs, check=True, stdout=subprocess.DEVNULL)

        def judged() -> int:
            with psycopg.connect(theirs["DATABASE_URL"]) as database:
                found = database.execute("SELECT count(*) FROM engine_comparison WHERE state = 'judged'")
                [[n]] = found.fetchall()
            return n

        # Planned by the control worker, written by the generation worker, judged by rule.
        wait_until(lambda: judged() >= 40, 300, "comparisons to be judged")
        assert any("postgres" in line for line in processes_of(folder))
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=120) == 0, output.read_text()
    assert processes_of(folder) == []


def test_a_machine_without_postgresql_is_told_the_package(folder: Path, monkeypatch, capsys):
    monkeypatch.setattr("tools.up_local._BINARIES", folder)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["--folder", str(folder)]) == 1
    assert "apt-get install postgresql" in capsys.readouterr().err

"""`llmpo serve` and `llmpo demo` as their users meet them: one command, a page, Ctrl-C, and again."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from labeling.management.commands.serve import PROGRAMS
from tests.factories import PASSWORD
from tests.workers import ROOT, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.waits]

CONCLUDED = "SELECT count(*) FROM engine_experiment WHERE state = 'concluded'"
WRITTEN = "SELECT count(*) FROM engine_response WHERE text <> ''"


class Installation:
    def __init__(self, folder: Path, command: str) -> None:
        self.folder, self.command = folder, command
        self.environment = {
            k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "CELERY_BROKER_URL"}
        }
        # Nobody clicks here: one pair is enough, as SmolLM2 takes a second or two for each response.
        self.environment |= {"DEBUG": "false", "BUFFER_MIN": "1"}
        self.llmpo = [sys.executable, "-m", "llmpo_site", "--data", str(folder)]
        self.output = folder / "output.txt"

    def start(self) -> None:
        self.port = free_port()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*self.llmpo, self.command, "--port", str(self.port)],
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        wait_until(
            lambda: "Ctrl-C stops" in self.output.read_text() or self.process.poll() is not None,
            300,
            self.command,
        )
        assert self.process.poll() is None, self.output.read_text()

    def status(self) -> str:
        return subprocess.run(
            [*self.llmpo, "manage", "demo_status"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def count(self, query: str) -> int:
        """The answer of the database, which costs less than ``demo_status``, a new process."""
        with closing(sqlite3.connect(f"file:{self.folder}/llmpo.sqlite3?mode=ro", uri=True)) as database:
            [[n]] = database.execute(query)
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

    def pids(self) -> dict[str, int]:
        """The processes, each by the name of its log."""
        logs = {str(log): log.stem for log in (self.folder / "log").glob("*.log")}
        found = {}
        # The parent of several that write to one log is the oldest.
        for link in sorted(Path("/proc").glob("[0-9]*/fd/1"), key=lambda link: int(link.parts[2])):
            with suppress(OSError):
                if name := logs.get(os.readlink(link)):
                    found.setdefault(name, int(link.parts[2]))
        return found

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=120) == 0, self.output.read_text()


def test_an_empty_installation_starts_and_gives_its_first_account_to_its_link_alone(tmp_path: Path):
    run = Installation(tmp_path, "serve")
    run.start()
    try:
        [link] = re.findall(r"http://\S+/accounts/first/\S+", run.output.read_text())
        pids = run.pids()
        assert set(pids) == set(PROGRAMS) - {"generation"}
        # Links in messages lead where the printed one does.
        environment = Path(f"/proc/{pids['web']}/environ").read_text().split("\0")
        assert f"SITE_URL=http://127.0.0.1:{run.port}" in environment
        with httpx2.Client(follow_redirects=True, timeout=120) as client:
            client.get(link)
            form = {
                "username": "ana",
                "password1": PASSWORD,
                "password2": PASSWORD,
                "csrfmiddlewaretoken": client.cookies["csrftoken"],
            }
            home = client.post(link, data=form)
            assert home.url.path == "/"
            assert re.findall(r'data-step="(\w+)"', home.text) == ["model", "questions", "people"]
    finally:
        run.stop()
    assert run.pids() == {}

    run.start()
    try:
        assert "/accounts/first/" not in run.output.read_text()
        with run.visit("ana", PASSWORD):
            pass
    finally:
        run.stop()


def judged(status: str) -> list[int]:
    return [int(number) for number in re.findall(r"(\d+) judged", status)]


def test_the_demo_starts_heals_concludes_stops_and_continues(tmp_path: Path):
    demo = Installation(tmp_path, "demo")
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

        before = demo.pids()
        written = demo.count(WRITTEN)
        for name in ("generation", "control"):
            os.kill(before[name], signal.SIGKILL)
        wait_until(lambda: demo.count(CONCLUDED), 300, "the rule's experiment to conclude")
        wait_until(lambda: demo.count(WRITTEN) > written, 300, "another response")
        status = demo.status()
        assert "[Winner found]" in status
        with demo.visit("admin", logins["admin"]) as admin:
            path, title = re.findall(r'(/experiments/\d+/)">([^<]*judged by rule)', admin.get("/").text)[0]
            dashboard = admin.get(path)
            assert dashboard.status_code == 200
            assert title in dashboard.text
        judgments = judged(status)
        after = demo.pids()
        assert after.keys() == before.keys() == set(PROGRAMS)
        assert {name for name in after if after[name] != before[name]} == {"generation", "control"}
    finally:
        demo.stop()
    assert demo.pids() == {}

    demo.start()
    try:
        assert dict(re.findall(r"(annotator|admin) +password (\S+)", demo.output.read_text())) == logins
        assert judged(demo.status()) == judgments
    finally:
        demo.stop()


def test_the_key_stays_and_an_upgrade_backs_up_first(tmp_path: Path):
    environment = {name: os.environ[name] for name in ("PATH", "HOME")}

    def llmpo(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "llmpo_site", *arguments, "--data", str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    llmpo("manage", "upgrade")
    key = (tmp_path / ".env").read_text()
    assert not (tmp_path / "backups").exists()
    llmpo("manage", "migrate", "usersessions", "zero")
    assert "migrations: missing" in llmpo("check", code=1)
    llmpo("manage", "upgrade")
    assert "migrations: ok" in llmpo("check")
    [backup] = [file for file in (tmp_path / "backups").iterdir() if file.suffix != ".json"]
    with closing(sqlite3.connect(backup)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    assert "engine_experiment" in tables
    assert "usersessions_usersession" not in tables
    assert (tmp_path / ".env").read_text() == key

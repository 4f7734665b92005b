"""Backups: written while an experiment runs, restored into an empty database by the command, and verified."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from engine.management import backups
from engine.management.backups import note_of, restore_backup
from engine.models import Comparison, PairCount, Response
from engine.services.planning import advance
from tests.factories import click, make_experiment
from tests.workers import database_url

pytestmark = pytest.mark.postgres


def verified(*experiments: str) -> str:
    """The words of the command; it raises where something differs."""
    out = StringIO()
    call_command("verify", *experiments, stdout=out)
    return out.getvalue()


@pytest.fixture
def another_database(tmp_path: Path) -> Iterator[str]:
    """The address of an empty database beside the one of the tests."""
    if connection.vendor == "sqlite":
        yield f"sqlite:///{tmp_path}/restored.sqlite3"
        return
    name = f"restored_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def run(url: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=settings.BASE_DIR, env={**os.environ, "DATABASE_URL": url},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def restore(file: Path, url: str) -> subprocess.CompletedProcess[str]:
    return run(url, "manage.py", "restore", str(file))


@pytest.mark.django_db(transaction=True)
def test_a_backup_is_restored_into_an_empty_database_and_nowhere_else(another_database, annotator, tmp_path):
    experiment = make_experiment(name="Kept", ready=True, annotators=(annotator,))
    for _ in range(3):
        click(experiment, annotator)
    advance(experiment_id=experiment.pk)
    file = tmp_path / "llmpo.backup"
    call_command("backup", file, stdout=StringIO())
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(CommandError, match="there already"):
        call_command("backup", file)
    done = restore(file, another_database)
    assert done.returncode == 0, done.stderr
    assert f"{experiment.pk} Kept: in order" in done.stdout
    if connection.vendor == "sqlite":
        assert Path(another_database.removeprefix("sqlite:///")).stat().st_mode & 0o077 == 0
    again = restore(file, another_database)
    assert again.returncode == 1
    assert "The database is not empty" in again.stderr
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    damaged = restore(file, another_database)
    assert "is not as it was written" in damaged.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"database": "oracle"}, "This is a backup of oracle"),
        ({"sha256": "0" * 64}, "is not as it was written"),
        ({"unknown": 1}, "beside it are needed"),
    ],
)
def test_a_backup_with_another_note_is_refused(change, said, tmp_path):
    file = tmp_path / "llmpo.backup"
    file.write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    note = {"version": "0.2.0", "database": connection.vendor, "made_at": "2026", "sha256": empty}
    note_of(file).write_text(json.dumps(note | change))
    with pytest.raises(CommandError, match=said):
        call_command("restore", file)
    note_of(file).unlink()
    with pytest.raises(CommandError, match="beside it are needed"):
        call_command("restore", file)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL's own program checks the file")
@pytest.mark.slow
def test_a_file_that_is_no_database_leaves_nothing_behind(another_database, tmp_path):
    """It fits its note all the same. The next restore finds an empty database."""
    file = tmp_path / "llmpo.backup"
    file.write_bytes(b"no database at all" * 300)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    note = {"version": "0.2.0", "database": "sqlite", "made_at": "2026", "sha256": digest}
    note_of(file).write_text(json.dumps(note))
    refused = restore(file, another_database)
    assert "is no database of SQLite: file is not a database. Take an older backup." in refused.stderr
    assert "Traceback" not in refused.stderr
    with closing(sqlite3.connect(another_database.removeprefix("sqlite:///"))) as left:
        assert not left.execute("SELECT * FROM sqlite_master").fetchall()
    assert not [each for each in tmp_path.iterdir() if "unfinished" in each.name]


@pytest.mark.django_db
class TestVerify:
    @pytest.fixture
    def experiment(self, annotator):
        experiment = make_experiment(name="Looked at", ready=True, annotators=(annotator,))
        for _ in range(4):
            click(experiment, annotator)
        advance(experiment_id=experiment.pk)
        return experiment

    def test_what_agrees_is_in_order(self, experiment):
        make_experiment(name="Another", running=False)
        assert verified().count("in order") == 2
        assert "Another" not in verified("Looked at")

    @pytest.mark.parametrize(
        ("model", "which", "change", "said"),
        [
            (PairCount, {"comparisons__gt": 0}, {"comparisons": 9}, "has wins and comparisons"),
            (
                Comparison,
                {"state__in": Comparison.PENDING},
                {"state": "judged", "outcome": 1.0, "judged_at": timezone.now()},
                "no judgment of it stands",
            ),
            (Comparison, {"state": "judged"}, {"i_on_left": None}, ""),
            (Response, {"state": "done"}, {"text": "Forged"}, "is not the one of its digest"),
        ],
    )
    def test_what_was_changed_behind_its_back_is_named(self, model, which, change, said, experiment):
        row = model.objects.filter(**which).first()
        if "i_on_left" in change:
            change, said = {"i_on_left": not row.i_on_left}, f"Comparison {row.number}, "
        model.objects.filter(pk=row.pk).update(**change)
        out = StringIO()
        with pytest.raises(CommandError, match="fault"):
            call_command("verify", "Looked at", stdout=out)
        assert said in out.getvalue()

    def test_evidence_that_was_changed_is_named(self, experiment):
        evidence = experiment.evidence
        evidence.progress["peak_evidence"][0] += 0.01
        evidence.save(update_fields=["progress"])
        out = StringIO()
        with pytest.raises(CommandError, match="1 fault"):
            call_command("verify", stdout=out)
        assert "The evidence is not that of the events of its log" in out.getvalue()

    def test_evidence_that_another_processor_rounded_is_in_order(self, experiment):
        """A backup of another kind of machine could not be restored without a fault."""
        evidence = experiment.evidence
        evidence.progress["peak_evidence"][0] += 1e-14
        evidence.save(update_fields=["progress"])
        out = StringIO()
        call_command("verify", stdout=out)
        assert "in order" in out.getvalue()


def backups_at_once(n: int, file: Path) -> list[subprocess.Popen[bytes]]:
    environment = os.environ | {"DATABASE_URL": database_url()}
    command = [sys.executable, "manage.py", "backup", str(file)]
    return [
        subprocess.Popen(command, cwd=settings.BASE_DIR, env=environment, stderr=subprocess.DEVNULL)
        for _ in range(n)
    ]


@pytest.mark.django_db(transaction=True)
def test_of_two_backups_to_one_name_one_is_made_and_the_other_says_so(tmp_path):
    """The one wrote into the other's file, and the checksum was wrong."""
    make_experiment(ready=True)
    file = tmp_path / "llmpo.backup"
    codes = sorted(each.wait(timeout=300) for each in backups_at_once(2, file))
    assert codes == [0, 1]
    note = json.loads(note_of(file).read_text())
    assert note["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert {each.name for each in tmp_path.iterdir()} == {file.name, note_of(file).name}
    assert {each.stat().st_mode & 0o077 for each in tmp_path.iterdir()} == {0}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("killed_at", ["_sha256", "Path.rename"])
def test_a_backup_that_is_killed_leaves_nothing_that_looks_whole(killed_at, tmp_path):
    file = tmp_path / "llmpo.backup"
    script = f"""
import os, signal
from pathlib import Path
import django
django.setup()
from engine.management import backups
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
backups.{killed_at} = die
backups.write_backup(Path({str(file)!r}))
"""
    environment = os.environ | {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "llmpo_site.settings",
    }
    done = subprocess.run([sys.executable, "-c", script], cwd=settings.BASE_DIR, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not file.exists()
    with pytest.raises(CommandError, match="are needed"):
        restore_backup(file)


@pytest.mark.django_db(transaction=True)
def test_several_first_migrations_at_once_all_succeed(another_database):
    """Two of three failed at a table that the third had just made."""
    running = [
        subprocess.Popen(
            [sys.executable, "manage.py", "migrate", "--verbosity=0"],
            cwd=settings.BASE_DIR,
            env=os.environ | {"DATABASE_URL": another_database},
        )
        for _ in range(3)
    ]
    assert [each.wait(timeout=600) for each in running] == [0, 0, 0]


@pytest.mark.django_db
def test_programs_of_postgresql_get_no_secret_but_the_password(monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "of-the-site")
    monkeypatch.setenv("OPENAI_API_KEY", "of-somebody")
    monkeypatch.setenv("PGSSLMODE", "require")
    given: dict[str, str] = {}

    def run(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        given.update(env)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(backups.subprocess, "run", run)
    backups._run("pg_dump")
    assert given["PGSSLMODE"] == "require"
    assert all(name in {"PATH", "HOME"} or name.startswith("PG") for name in given)

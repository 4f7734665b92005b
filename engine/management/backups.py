"""Backups: the whole database in one file, and a note beside it that describes the file."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from engine import __version__
from engine.models import clock

_CHUNK = 1 << 20
# To find the program, and the certificates and passwords that PostgreSQL's programs look for there.
_FOR_CHILDREN = ("PATH", "HOME")


@dataclass(frozen=True)
class Note:
    """The content of the note: the version and the database that the file comes from, and its SHA-256."""

    version: str
    database: str
    made_at: str
    sha256: str


def note_of(file: Path) -> Path:
    """The path of the note of a backup."""
    return file.with_name(f"{file.name}.json")


def write_backup(file: Path) -> Note:
    """Write the database to a new file, as it is at one moment; everybody can keep working meanwhile.

    Raises
    ------
    CommandError
        There is such a file already, or the database's own program is missing or fails.
    """
    already = CommandError(f"{file} is there already. Give another name.")
    if file.exists() or note_of(file).exists():
        raise already
    # Complete or absent: the unfinished file has a name of its own. Both programs write into an existing,
    # empty file, which nobody else may read.
    descriptor, name = tempfile.mkstemp(dir=file.absolute().parent, prefix=f".{file.name}.")
    os.close(descriptor)
    unfinished = Path(name)
    try:
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("VACUUM INTO %s", [str(unfinished)])
        else:
            _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={unfinished}")
        note = Note(__version__, connection.vendor, clock.now().isoformat(), _sha256(unfinished))
        # Among several backups to one name, one makes the note, and its file gets the name.
        with note_of(file).open("x") as written:
            written.write(json.dumps(asdict(note), indent=2) + "\n")
        unfinished.rename(file)
    except FileExistsError as error:
        raise already from error
    finally:
        unfinished.unlink(missing_ok=True)
    return note


def restore_backup(file: Path) -> Note:
    """Fill the empty database with a backup.

    Raises
    ------
    CommandError
        The file differs from its note, or is no database or one of another kind. Or the database is not
        empty, or its own program is missing or fails. The database stays empty.
    """
    try:
        note = Note(**json.loads(note_of(file).read_text()))
        found = _sha256(file)
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(f"{file} and {note_of(file).name} beside it are needed: {error}") from error
    if found != note.sha256:
        raise CommandError(f"{file} is not as it was written: its SHA-256 is {found}, not {note.sha256}.")
    if note.database != connection.vendor:
        raise CommandError(
            f"This is a backup of {note.database}, and DATABASE_URL names {connection.vendor}. "
            "Use one of the same kind."
        )
    if connection.introspection.table_names():
        raise CommandError(
            "The database is not empty, and nothing is overwritten. Have DATABASE_URL name a new one."
        )
    if connection.vendor == "sqlite":
        name = Path(connection.settings_dict["NAME"])
        connection.close()
        for journal in ("-wal", "-shm"):
            name.with_name(name.name + journal).unlink(missing_ok=True)
        _copy_database(file, name)
    else:
        _run(
            "pg_restore",
            "--no-owner",
            "--no-privileges",
            "--exit-on-error",
            "--single-transaction",
            "--dbname=",
            str(file),
        )
    return note


def _copy_database(file: Path, name: Path) -> None:
    """Copy a SQLite database to its place, complete or not at all; only its owner can read the copy."""
    unfinished = name.with_name(f".{name.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        unfinished.touch(mode=0o600)
        shutil.copyfile(file, unfinished)
        with closing(sqlite3.connect(unfinished)) as copy:
            [(said,)] = copy.execute("PRAGMA quick_check(1)")
        if said != "ok":
            raise CommandError(f"{file} is a damaged database: {said}. Take an older backup.")
        unfinished.rename(name)
    except sqlite3.DatabaseError as error:
        raise CommandError(f"{file} is no database of SQLite: {error}. Take an older backup.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def unknown_migrations() -> list[str]:
    """Migrations that the database has and this code does not know: it is older than the backup."""
    from django.db.migrations.loader import MigrationLoader  # noqa: PLC0415 - reads all migrations

    known = MigrationLoader(None).disk_migrations
    applied: dict[tuple[str, str], Any] = MigrationRecorder(connection).applied_migrations()
    return [f"{app}.{name}" for app, name in applied if (app, name) not in known]


def _sha256(file: Path) -> str:
    found = hashlib.sha256()
    with file.open("rb") as read:
        while piece := read.read(_CHUNK):
            found.update(piece)
    return found.hexdigest()


def _run(program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL on our database, with the password in its environment, and no other secret
    of ours.
    """
    own = connection.settings_dict
    names = {
        "PGHOST": "HOST",
        "PGPORT": "PORT",
        "PGUSER": "USER",
        "PGPASSWORD": "PASSWORD",
        "PGDATABASE": "NAME",
    }
    theirs = {name: value for name, value in os.environ.items() if name in _FOR_CHILDREN or name[:2] == "PG"}
    environment = theirs | {variable: str(own[key]) for variable, key in names.items() if own[key]}
    command = [program, *(each + str(own["NAME"]) if each == "--dbname=" else each for each in arguments)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError as error:
        raise CommandError(f"{program} is missing. Install the client programs of PostgreSQL.") from error
    if done.returncode:
        raise CommandError(f"{program} failed: {done.stderr.strip()[-2000:]}")

"""A migration of tables that people are using: how long it takes, and how long their clicks take meanwhile.

    DATABASE_URL=postgres://… CELERY_BROKER_URL=redis://… python -m benchmarks.migration
    … python -m benchmarks.migration --judgments 1000000 --annotators 20

The migration is one that a later version may bring (CONTRIBUTING.md, "Migrations"). It has columns that may
be null or have a default in the database, a table, and indexes that are made concurrently. The web process
and the control worker run the code that knows nothing of it, as older processes do during an upgrade.
Afterwards the database is held against what was confirmed, and `manage.py verify` runs. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from io import StringIO
from typing import Any

from benchmarks import export_scale
from benchmarks.installation import (
    ONE_THREAD,
    celery_workers,
    percentiles,
    scratch_database,
    session_of,
    web_server,
)
from benchmarks.serving_load import (
    Load,
    Visitor,
    annotate,
    differences,
    experiment_on_ready_responses,
    run,
    settle,
)

# Answers before the first change, between two, and after the last.
_ANSWERS = 3
_PATIENCE_SECONDS = 120.0


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark, print its table, and fail where anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judgments", type=int, default=100_000)
    parser.add_argument("--annotators", type=int, default=8)
    parser.add_argument("--web-processes", type=int, default=1)
    options = parser.parse_args(arguments)
    if not os.environ.get("DATABASE_URL", "").startswith("postgres"):
        sys.exit("Set DATABASE_URL to a PostgreSQL database; one of the benchmark's own is made beside it.")
    with scratch_database(**ONE_THREAD) as url:
        export_scale.world(options.judgments)
        found = measure(url, options)
    print_table(found)
    json.dump(found, sys.stdout)
    print()
    if found["wrong"]:
        sys.exit(1)


def measure(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Migrate under clicks; returns the figures of each change and of the clicks, and what is wrong."""
    from engine.models import User

    count_on()
    users = [User.objects.create_user(f"clicker{k}") for k in range(options.annotators)]
    experiment = experiment_on_ready_responses(users)
    load, over = Load(), threading.Event()
    changes: list[dict[str, Any]] = []
    with web_server(url, processes=options.web_processes) as (port, _), celery_workers(url, "control"):
        settle(experiment)
        migrating = threading.Thread(target=migrate, args=(load, changes, over))
        migrating.start()
        base, cookies = f"/label/{experiment.pk}", [session_of(user) for user in users]
        run([annotate(Visitor(port, cookie, load), base, over.is_set, 0.0) for cookie in cookies])
        migrating.join()
    return {
        "judgments_before": options.judgments,
        "judgments_meanwhile": load.confirmed,
        "ms": percentiles(load.milliseconds),
        "slowest_ms": round(max(load.milliseconds, default=0)),
        "changes": changes,
        "wrong": wrong(experiment, load, changes),
    }


def count_on() -> None:
    """Have the numbers of new rows follow those that were seeded by hand."""
    from django.core.management.color import no_style
    from django.db import connection

    from engine.models import Comparison, Judgment, Response

    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), [Response, Comparison, Judgment]):
            cursor.execute(statement)


def later_version() -> list[tuple[str, Any]]:
    """The operations of a migration that this code does not know, with a name for each."""
    from django.contrib.postgres.operations import AddIndexConcurrently
    from django.db import migrations, models

    return [
        (
            "a column that may be null",
            migrations.AddField("judgment", "later", models.DateTimeField(null=True)),
        ),
        (
            "a column with a default",
            migrations.AddField("judgment", "weight", models.FloatField(db_default=1.0)),
        ),
        (
            "the same of comparisons",
            migrations.AddField("comparison", "mark", models.CharField(db_default="")),
        ),
        (
            "a table",
            migrations.CreateModel(
                "Reminder",
                [
                    ("id", models.BigAutoField(primary_key=True)),
                    ("judgment", models.ForeignKey("engine.judgment", models.CASCADE)),
                ],
            ),
        ),
        (
            "an index of judgments",
            AddIndexConcurrently(
                "judgment", models.Index(fields=["weight", "created_at"], name="later_weight")
            ),
        ),
        (
            "an index of comparisons",
            AddIndexConcurrently("comparison", models.Index(fields=["mark", "judged_at"], name="later_mark")),
        ),
    ]


def migrate(load: Load, changes: list[dict[str, Any]], over: threading.Event) -> None:
    """Make one change after the other, each after some more answers, as ``manage.py migrate`` makes them."""
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    state = MigrationLoader(None).project_state()
    try:
        for name, operation in later_version():
            await_answers(load)
            before, state = state, state.clone()
            operation.state_forwards("engine", state)
            answered, began = len(load.milliseconds), time.perf_counter()
            tries = 1
            # So does manage.py migrate, where a table is not to be had within two seconds.
            while not changed(operation, before, state):
                tries += 1
            seconds = time.perf_counter() - began
            await_answers(load)
            # Requests that were under way at any time of it.
            slowest = max(load.milliseconds[answered:])
            changes.append(
                {
                    "change": name,
                    "seconds": round(seconds, 3),
                    "tries": tries,
                    "slowest_click_ms": round(slowest),
                }
            )
    finally:
        over.set()
        connection.close()


def changed(operation: Any, before: Any, after: Any) -> bool:
    """Make one change; ``False`` if somebody kept a table for too long."""
    from django.db import OperationalError, connection

    from engine.management.commands.migrate import LOCK_NOT_AVAILABLE

    try:
        with connection.schema_editor(atomic=operation.atomic) as editor:
            operation.database_forwards("engine", editor, before, after)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


def await_answers(load: Load) -> None:
    """Wait until everybody has answered a few times more."""
    wanted, ends = len(load.milliseconds) + _ANSWERS, time.monotonic() + _PATIENCE_SECONDS
    while len(load.milliseconds) < wanted and time.monotonic() < ends:
        time.sleep(0.01)


def wrong(experiment: Any, load: Load, changes: list[dict[str, Any]]) -> dict[str, Any]:
    """Contradictions of the promises; empty where there are none."""
    from django.core.management import CommandError, call_command

    found: dict[str, Any] = dict(differences(experiment, load))
    # 204: no pair is ready.
    if others := {status: n for status, n in load.statuses.items() if status not in {200, 204}}:
        found["other replies than 200 and 204"] = others
    if missing := len(later_version()) - len(changes):
        found["changes that were not made"] = missing
    try:
        call_command("verify", str(experiment.pk), stdout=StringIO(), stderr=StringIO())
    except CommandError as error:
        found["verify"] = str(error)
    return found


def print_table(found: dict[str, Any]) -> None:
    """Lines for each change, and for the clicks meanwhile."""
    print(f"{found['judgments_before']:,} judgments; {found['judgments_meanwhile']} more meanwhile")
    for change in found["changes"]:
        print(
            f"  {change['change']:26s} {change['seconds']:8.3f} s   slowest click "
            f"{change['slowest_click_ms']:6d} ms"
        )
    print(f"  clicks: {found['ms']}, slowest {found['slowest_ms']} ms; wrong {found['wrong'] or 'nothing'}")


if __name__ == "__main__":
    main()

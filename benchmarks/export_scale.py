"""Speed of an export of a million judged comparisons, and the server's memory for it.

    DATABASE_URL=postgres://… python -m benchmarks.export_scale
    DATABASE_URL=postgres://… python -m benchmarks.export_scale --rows 100000

A gunicorn as in production (one worker of eight threads) on this machine serves the CSV to a client that only
counts. The peer is PostgreSQL's own COPY of the same query, with all its joins, to a client that only counts.
Makes a database of its own beside the one named, and drops it. The last line is JSON.
"""

import http.client
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.history import write_history
from benchmarks.installation import cpu_seconds, options_of, scratch_database, session_of, web_server


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    options = options_of(__doc__, arguments, rows=1_000_000)
    if not os.environ.get("DATABASE_URL", "").startswith("postgres"):
        sys.exit("Set DATABASE_URL to a PostgreSQL database; one of the benchmark's own is made beside it.")
    with scratch_database() as url:
        experiment_id, session = world(options.rows)
        summary: dict[str, Any] = {"rows": options.rows, "load_before": round(os.getloadavg()[0], 2)}
        with web_server(url, processes=1) as (port, gunicorn):
            address, pid = f"127.0.0.1:{port}", worker_of(gunicorn)
            path = f"/experiments/{experiment_id}/judgments.csv"
            download(address, f"{path}?policy=P1&against=P2&text=nowhere", session)  # imports, connections
            for name, target, gzip in (
                ("csv", path, False),
                ("csv_gzip", path, True),
                ("jsonl", path.replace(".csv", ".jsonl"), False),
            ):
                row = timed(address, target, session, pid, gzip=gzip)
                row["rows_per_second"] = round(options.rows / row["seconds"])
                summary[name] = row
                print_row(name, row)
        seconds, megabytes = copied(experiment_id)
        summary["copy"] = {
            "seconds": round(seconds, 2),
            "mb": round(megabytes),
            "rows_per_second": round(options.rows / seconds),
        }
        print_row("COPY (peer)", summary["copy"])
        summary["share_of_copy"] = round(
            summary["csv"]["rows_per_second"] / summary["copy"]["rows_per_second"], 2
        )
        summary["load_after"] = round(os.getloadavg()[0], 2)
        summary["cores"] = os.cpu_count()
    json.dump(summary, sys.stdout)
    print()


def world(rows: int) -> tuple[int, str]:
    """An experiment of eight policies with that many judged comparisons, and the cookie of its admin."""
    from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
    from engine.models import User
    from engine.services.drafts import create_experiment

    admin = User.objects.create_user("admin", is_superuser=True)
    people = User.objects.bulk_create(User(username=f"annotator{n}") for n in range(20))
    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Benchmark",
            factors=[FactorSpec("Prompt", "prompt", {f"Prompt {k}": {"text": f"Be {k}."} for k in range(8)})],
            tasks=[
                TaskSpec(f"I have {n} apples and a pear. How many fruits?", str(n + 1)) for n in range(200)
            ],
            settings={"budget": 2_000_000, "delta": 1e-9},
        )
    )
    start = time.perf_counter()
    write_history(experiment, people, rows)
    print(f"{rows:,} comparisons seeded in {time.perf_counter() - start:.0f} s", flush=True)
    return experiment.pk, session_of(admin)


def worker_of(gunicorn: int) -> int:
    """The child that serves, whose memory is watched."""
    [worker] = Path(f"/proc/{gunicorn}/task/{gunicorn}/children").read_text().split()
    return int(worker)


def timed(address: str, path: str, session: str, pid: int, *, gzip: bool) -> dict[str, Any]:
    """One download: seconds, seconds to the first byte and to the first row, megabytes,
    growth of the server.
    """
    before, cpu = memory_mb(pid), cpu_seconds(pid)
    peak, over = [before], threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            peak.append(memory_mb(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = download(address, path, session, gzip=gzip)
    over.set()
    watcher.join()
    return result | {
        "server_mb": round(before),
        "growth_mb": round(max(peak) - before, 1),
        "server_cpu_seconds": round(cpu_seconds(pid) - cpu, 2),
    }


def download(address: str, path: str, session: str, *, gzip: bool = False) -> dict[str, Any]:
    """Fetch and count."""
    connection = http.client.HTTPConnection(address, timeout=300)
    secret = "c" * 32
    headers = {"Cookie": f"{session}; csrftoken={secret}", "X-CSRFToken": secret}
    if gzip:
        headers["Accept-Encoding"] = "gzip"
    start = time.perf_counter()
    connection.request("POST", path, headers=headers)
    response = connection.getresponse()
    assert response.status == 200, (response.status, response.read()[:500])
    size = len(response.read(1))
    first_byte = time.perf_counter() - start
    first_row = None
    while piece := response.read(65536):
        size += len(piece)
        if first_row is None and size > 8192:
            first_row = time.perf_counter() - start
    seconds = time.perf_counter() - start
    return {
        "seconds": round(seconds, 2),
        "first_byte_seconds": round(first_byte, 3),
        "first_rows_seconds": None if first_row is None else round(first_row, 3),
        "mb": round(size / 1e6, 1),
    }


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    [line] = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) / 1000


def copied(experiment_id: int) -> tuple[float, float]:
    """Seconds and megabytes of COPY of the same query."""
    from django.db import connection

    from engine.models import Experiment
    from engine.selectors import browsing
    from engine.selectors.browsing import Selection
    from labeling.exports.judgments import FIELDS

    rows = browsing.selected_judgments(
        Experiment.objects.get(pk=experiment_id), Selection(judgments="standing")
    ).values_list(*FIELDS.values())
    sql, parameters = rows.query.sql_with_params()
    start = time.perf_counter()
    size = 0
    with (
        connection.cursor() as cursor,
        cursor.cursor.copy(f"COPY ({sql}) TO STDOUT (FORMAT csv)", parameters) as copy,
    ):
        for piece in copy:
            size += len(piece)
    return time.perf_counter() - start, size / 1e6


def print_row(name: str, run: dict[str, Any]) -> None:
    """One line of the table."""
    first = f"first byte {run['first_byte_seconds']:.3f} s" if "first_byte_seconds" in run else ""
    growth = f"server +{run['growth_mb']} MB" if "growth_mb" in run else ""
    print(
        (
            f"{name:12s} {run['rows_per_second']:>8,} rows/s  {run['mb']:8.1f} MB in "
            f"{run['seconds']:7.2f} s  {first}  {growth}"
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()

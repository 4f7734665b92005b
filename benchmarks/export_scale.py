"""Speed of an export of a million judged comparisons, and the server's memory for it.

    DATABASE_URL=postgres://… python -m benchmarks.export_scale
    DATABASE_URL=postgres://… python -m benchmarks.export_scale --rows 100000

A gunicorn as in production (one worker of eight threads) on this machine serves the CSV to a client that only
counts. The peer is PostgreSQL's own COPY of the same query, with all its joins, to a client that only counts.
Makes a database of its own beside the one named, and drops it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.installation import cpu_seconds, scratch_database, session_of, web_server

# Rows as the services leave them. Responses of 40 to 340 characters; each comparison judged by one of twenty
# people.
SEED = """
INSERT INTO engine_response (id, policy_id, task_id, seed, state, claimed_by, attempts, crashes, failure_reason, said,
    thinking, refusal, marks, served_model, text, digest, model, prompt_tokens, completion_tokens, finish_reason, guardrail, latency_seconds, leak, created_at, done_at)
SELECT 2 * n + side, CASE side WHEN 0 THEN p.i ELSE p.j END, t.id, (n::bigint * 7919 + side) %% 2147483647, 'done', 'w', 1, 0, '', '',
    '', '', '[]', '', 'Answer ' || n || ': ' || repeat('so it is, and so on; ', 2 + (n * 31 + side * 17) %% 15), md5(n::text)::char(16), 'bench-1', 60,
    20 + n %% 90, 'stop', '', 0.5, '', now(), now()
FROM generate_series(1, %(rows)s) n CROSS JOIN generate_series(0, 1) side
JOIN bench_pairs p ON p.number = n %% %(pairs)s JOIN bench_tasks t ON t.number = n %% %(tasks)s;
INSERT INTO engine_comparison (id, experiment_id, number, policy_i_id, policy_j_id, task_id, response_i_id, response_j_id,
    texts, i_on_left, plan, state, skips, outcome, discard_reason, showing, created_at, ready_at, judged_at)
SELECT n, %(experiment)s, n, p.i, p.j, t.id, 2 * n, 2 * n + 1, '', n %% 2 = 0, jsonb_build_object('rules', 1, 'number', n - 1,
    'sampler', 'balanced', 'stopping', 'certified', 'delta', 0.05, 'epsilon', 0.0, 'seed', jsonb_build_array(0, n - 1),
    'draw', 0, 'comparisons', n - 1, 'in_flight', 4, 'evidence', jsonb_build_array(n * 0.00123, n * 0.00077),
    'propensity', null), 'judged', 0, (n %% 3 = 0)::int, '', 'told', now(), now(), now()
FROM generate_series(1, %(rows)s) n
JOIN bench_pairs p ON p.number = n %% %(pairs)s JOIN bench_tasks t ON t.number = n %% %(tasks)s;
INSERT INTO engine_judgment (id, comparison_id, judge, via, annotator_id, annotator_could_see_policies, token, choice,
    outcome, reason, comment, standing, shown_at, created_at)
SELECT n, n, 'human', 'page', u.id, false, gen_random_uuid(), CASE WHEN (n %% 2 = 0) = (n %% 3 = 0) THEN 'left' ELSE 'right' END,
    (n %% 3 = 0)::int, '', '', true, now() - interval '9 seconds', now()
FROM generate_series(1, %(rows)s) n JOIN bench_people u ON u.number = n %% 20;
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1, help="downloads; the best of them counts")
    options = parser.parse_args(arguments)
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
                runs = [timed(address, target, session, pid, gzip=gzip) for _ in range(options.repeats)]
                best = max(runs, key=lambda run: run["mb"] / run["seconds"])
                best["rows_per_second"] = round(options.rows / best["seconds"])
                summary[name] = best
                print_row(name, best)
            summary["browser_ms"] = browsed(address, experiment_id, session, options.rows)
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
    from django.db import connection

    from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
    from engine.models import User
    from engine.services.drafts import create_experiment
    from engine.services.judging import rebuild_counts

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
    policies = list(experiment.policies.values_list("pk", flat=True))
    pairs = [(i, j) for a, i in enumerate(policies) for j in policies[a + 1 :]]
    tasks = list(experiment.tasks.values_list("pk", flat=True))
    start = time.perf_counter()
    with connection.cursor() as cursor:
        for table, values in (
            ("bench_pairs (number int, i bigint, j bigint)", [(n, *pair) for n, pair in enumerate(pairs)]),
            ("bench_tasks (number int, id bigint)", list(enumerate(tasks))),
            ("bench_people (number int, id bigint)", [(n, user.pk) for n, user in enumerate(people)]),
        ):
            cursor.execute(f"CREATE TEMPORARY TABLE {table}")
            marks = ", ".join(["%s"] * len(values[0]))
            cursor.executemany(f"INSERT INTO {table.split()[0]} VALUES ({marks})", values)  # noqa: S608
        figures = {
            "rows": rows, "pairs": len(pairs), "tasks": len(tasks), "experiment": experiment.pk
        }  # fmt: skip
        for statement in filter(str.strip, SEED.split(";\nINSERT")):
            text = statement if "INSERT" in statement[:10] else f"INSERT{statement}"
            cursor.execute(text, figures)
    rebuild_counts(experiment_id=experiment.pk)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
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


def download(
    address: str, path: str, session: str, *, gzip: bool = False, method: str = "POST"
) -> dict[str, Any]:
    """Fetch and count. A file is sent to who presses its button, a page to who looks at it (GET)."""
    connection = http.client.HTTPConnection(address, timeout=300)
    secret = "c" * 32
    headers = {"Cookie": f"{session}; csrftoken={secret}", "X-CSRFToken": secret}
    if gzip:
        headers["Accept-Encoding"] = "gzip"
    start = time.perf_counter()
    connection.request(method, path, headers=headers)
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


def browsed(address: str, experiment_id: int, session: str, rows: int) -> dict[str, int]:
    """Milliseconds of pages of the comparison browser, the median of five."""
    path = f"/experiments/{experiment_id}/comparisons/"
    queries = {
        "newest": "",
        "oldest": f"?before={rows // 100}",
        "pair": "?policy=P1&against=P8",
        "annotator": "?annotator=annotator7",
        "flagged": "?flag=any",
        "text of one": f"?text=Answer+{rows // 3}:",
    }
    milliseconds = {}
    for name, query in queries.items():
        seconds = sorted(download(address, path + query, session, method="GET")["seconds"] for _ in range(5))
        milliseconds[name] = round(1000 * seconds[2])
        print(f"browser: {name:12s} {milliseconds[name]:7,} ms", flush=True)
    return milliseconds


def copied(experiment_id: int) -> tuple[float, float]:
    """Seconds and megabytes of COPY of the same query."""
    from django.db import connection

    from engine.models import Experiment
    from engine.selectors import browsing
    from engine.selectors.browsing import Selection
    from labeling.exports.columns import FIELDS

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

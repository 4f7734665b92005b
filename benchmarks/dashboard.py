"""Response times of a dashboard with many viewers while annotators click.

    DATABASE_URL=postgres://… python -m benchmarks.dashboard

100,000 judgments among 50 policies are made in a test database of its own. Then gunicorn and a control worker
run as they do in production. One viewer opens each tab, of which nothing is kept yet, and fetches the parts
that it asks for. Then 50 viewers poll as the page of the result does, every 2 s, and annotators click. Times
are those of a client on the same machine, a new connection each. The login page, which asks the database
nothing of the experiment, is polled in the same run as the floor. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import random
import re
import sys
import threading
import time
from collections import defaultdict
from typing import Any
from urllib.parse import urlencode

from benchmarks.history import write_history
from benchmarks.installation import (
    ONE_THREAD,
    celery_workers,
    cpu_seconds,
    percentiles,
    scratch_database,
    session_of,
    web_server,
)

_READY = 3000


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judgments", type=int, default=100_000)
    parser.add_argument("--policies", type=int, default=50, help="a multiple of 5")
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--annotators", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--web-processes", type=int, default=2)
    options = parser.parse_args(arguments)
    with scratch_database(**ONE_THREAD) as url:
        if url.startswith("sqlite"):
            sys.exit("This benchmark needs PostgreSQL: set DATABASE_URL.")
        started = time.monotonic()
        experiment, viewers, annotators = world(options)
        print(f"seeded in {time.monotonic() - started:.0f} s", flush=True)
        with (
            web_server(url, processes=options.web_processes) as (port, web),
            celery_workers(url, "control", "analysis"),
        ):
            load = Load(port, experiment.pk)
            before = cpu_seconds(web)
            load.run(viewers, annotators, options.seconds)
            load.cpu_seconds = cpu_seconds(web) - before
        report(load, options)


def world(options: argparse.Namespace) -> tuple[Any, list[str], list[str]]:
    """A running experiment with its history, and the sessions of its viewers and annotators."""
    from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
    from engine.models import Membership, User
    from engine.services.drafts import create_experiment
    from engine.services.evidence import catch_up
    from engine.services.experiments import start

    rows = options.policies // 5
    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Benchmark",
            factors=[
                FactorSpec("Prompt", "prompt", {f"Prompt {k}": {"text": f"Be {k}."} for k in range(rows)}),
                FactorSpec(
                    "Strategy", "strategy", {f"Way {k}": {"instruction": f"Do {k}."} for k in range(5)}
                ),
            ],
            tasks=[TaskSpec(f"How many are {n} and one?") for n in range(100)],
            settings={"budget": 10_000_000, "delta": 1e-9},
        )
    )
    start(experiment_id=experiment.pk)
    users = {
        role: User.objects.bulk_create(
            User(username=f"{role}{k}", is_active=True) for k in range(getattr(options, f"{role}s"))
        )
        for role in ("viewer", "annotator")
    }
    for role, members in users.items():
        Membership.objects.bulk_create(
            Membership(experiment=experiment, user=user, role=role) for user in members
        )
    write_history(experiment, users["annotator"], options.judgments, ready=_READY, watched=True)
    catch_up(experiment_id=experiment.pk)
    return (
        experiment,
        [session_of(user) for user in users["viewer"]],
        [session_of(u) for u in users["annotator"]],
    )


class Load:
    """Viewers and annotators, each a thread; what each kind of request took."""

    def __init__(self, port: int, experiment_id: int) -> None:
        self.port = port
        self.base = f"/experiments/{experiment_id}"
        self.label = f"/label/{experiment_id}"
        self.milliseconds: dict[str, list[float]] = defaultdict(list)
        self.bytes: dict[str, int] = defaultdict(int)
        self.errors: list[str] = []
        self.ends = 0.0
        self.cpu_seconds = 0.0

    def run(self, viewers: list[str], annotators: list[str], seconds: float) -> None:
        for tab, path, parts in _TABS:
            status, _ = self.request("GET", f"{self.base}/{path}", viewers[0], f"first {tab}")
            if status != 200:
                raise RuntimeError(f"{tab} answered {status}")
            for part in parts:
                self.request("GET", f"{self.base}/{path}{part}/", viewers[0], f"first {tab}, {part}")
        self.ends = time.monotonic() + seconds
        threads = [threading.Thread(target=self.watch, args=(cookie,)) for cookie in viewers]
        threads += [threading.Thread(target=self.click, args=(cookie,)) for cookie in annotators]
        threads.append(threading.Thread(target=self.floor))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def request(
        self, method: str, path: str, cookie: str, kind: str, form: dict[str, Any] | None = None
    ) -> tuple[int, str]:
        headers = {"Cookie": cookie, "HX-Request": "true", "Accept-Encoding": "gzip", "Host": "localhost"}
        body = None
        if form is not None:
            body = urlencode(form, doseq=True)
            headers |= {"Content-Type": "application/x-www-form-urlencoded", "X-CSRFToken": _TOKEN}
            headers["Cookie"] += f"; csrftoken={_TOKEN}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        start = time.perf_counter()
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        took = (time.perf_counter() - start) * 1000
        self.bytes[kind] += len(content)
        connection.close()
        if response.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        if response.status >= 400:
            self.errors.append(f"{method} {path}: {response.status}")
        html = content.decode()
        self.milliseconds[kind].append(took)
        if kind == _POLL:
            self.milliseconds[_WITH_CHARTS if 'id="charts"' in html else _WITHOUT_CHARTS].append(took)
        return response.status, html

    def watch(self, cookie: str) -> None:
        """Poll as the page does."""
        time.sleep(random.uniform(0, 2))
        seen = ""
        while time.monotonic() < self.ends:
            _, html = self.request("GET", f"{self.base}/live/?seen={seen}", cookie, _POLL)
            if found := re.search(r"seen=(\w+)", html):
                seen = found[1]
            time.sleep(2)

    def click(self, cookie: str) -> None:
        """Judge a pair every three seconds."""
        while time.monotonic() < self.ends:
            time.sleep(random.uniform(2, 4))
            _, html = self.request("GET", f"{self.label}/", cookie, "pair")
            if (token := re.search(r'data-token="([^"]+)"', html)) is None:
                self.errors.append("no pair was ready")
                return
            form = {"token": token[1], "choice": random.choice(["left", "right"])}
            self.request("POST", f"{self.label}/judge/", cookie, "click", form)

    def floor(self) -> None:
        while time.monotonic() < self.ends:
            self.request("GET", "/accounts/login/", "", "login page (floor)")
            time.sleep(0.5)


_TOKEN = "a" * 32
_POLL, _WITH_CHARTS, _WITHOUT_CHARTS = "poll", "poll, charts changed", "poll, charts unchanged"
# Each tab, its path, and the parts that it fetches once it is there.
_TABS = (("Result", "", ()), ("Quality", "quality/", ("charts",)), ("Method", "method/", ("charts",)))


def report(load: Load, options: argparse.Namespace) -> None:
    """The table, and the line of JSON."""
    n_requests = sum(len(times) for kind, times in load.milliseconds.items() if not kind.startswith("poll,"))
    summary: dict[str, Any] = {
        "judgments": options.judgments,
        "policies": options.policies,
        "viewers": options.viewers,
        "annotators": options.annotators,
        "seconds": options.seconds,
        "load_average": round(os.getloadavg()[0], 1),
        "errors": len(load.errors),
        "web_cpu_ms_per_request": round(1000 * load.cpu_seconds / n_requests, 1),
        "web_cpu_share_of_one_core": round(load.cpu_seconds / options.seconds, 2),
        "kilobytes": {kind: round(n / 1000) for kind, n in load.bytes.items()},
        "ms": {},
    }
    for kind, times in load.milliseconds.items():
        row = percentiles(times)
        summary["ms"][kind] = row | {"n": len(times)}
        cells = "   ".join(f"{q} {value:7.1f} ms" for q, value in row.items())
        print(f"{kind:24s} {len(times):6d}   {cells}", flush=True)
    print(
        f"web processes: {summary['web_cpu_ms_per_request']} ms of processor per request, "
        f"{summary['web_cpu_share_of_one_core']:.0%} of one core; load average {summary['load_average']}"
    )
    for error in sorted(set(load.errors))[:5]:
        print(error)
    json.dump(summary, sys.stdout)
    print()


if __name__ == "__main__":
    main()

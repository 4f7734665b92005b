"""Response times of a dashboard with many viewers while annotators click.

    DATABASE_URL=postgres://… python -m benchmarks.dashboard

100,000 judgments among 50 policies are made in a test database of its own. Then gunicorn and a control worker
run as they do in production. One viewer opens each tab, of which nothing is kept yet, and fetches the parts
that it asks for. Then 50 viewers poll as the page of the result does, every 2 s, and annotators click. Times
are those of a client on the same machine. The login page, which asks the database nothing of the experiment,
is polled in the same run as the floor. The last line is JSON.
"""

import argparse
import asyncio
import html
import json
import os
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks.history import write_history
from benchmarks.installation import (
    ONE_THREAD,
    celery_workers,
    cpu_seconds,
    options_of,
    percentiles,
    scratch_database,
    session_of,
    web_server,
)
from benchmarks.serving_load import Load, Visitor, annotate, run

_READY = 3000


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    options = options_of(
        __doc__,
        arguments,
        judgments=100_000,
        policies=50,
        viewers=50,
        annotators=10,
        seconds=60.0,
        web_processes=2,
    )
    with scratch_database(**ONE_THREAD) as url:
        if url.startswith("sqlite"):
            sys.exit("This benchmark needs PostgreSQL: set DATABASE_URL.")
        started = time.monotonic()
        experiment, people = world(options)
        print(f"seeded in {time.monotonic() - started:.0f} s", flush=True)
        with (
            web_server(url, processes=options.web_processes) as (port, web),
            celery_workers(url, "control", "analysis"),
        ):
            before = cpu_seconds(web)
            found = measure(port, experiment, people, options.seconds)
            found["web_share_of_one_core"] = round((cpu_seconds(web) - before) / options.seconds, 2)
    print(json.dumps(vars(options) | found | {"load_average": round(os.getloadavg()[0], 1)}))


def world(options: argparse.Namespace) -> tuple[Any, dict[str, list[str]]]:
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
    return experiment, {role: [session_of(user) for user in members] for role, members in users.items()}


class Timed(Visitor):
    """A visitor who notes how long each kind of request took."""

    def __init__(self, port: int, cookie: str, load: Load, times: dict[str, list[float]]) -> None:
        super().__init__(port, cookie, load)
        self._times = times

    async def timed(self, path: str, kind: str) -> str:
        start = time.perf_counter()
        page = await self.get(path)
        took = (time.perf_counter() - start) * 1000
        self._times[kind].append(took)
        if kind == _POLL:
            self._times[_WITH_CHARTS if 'id="charts"' in page else _WITHOUT_CHARTS].append(took)
        return page


async def open_tabs(viewer: Timed, base: str) -> None:
    """Open each tab, of which nothing is kept yet, and the parts that it asks for."""
    for tab, path, parts in _TABS:
        await viewer.timed(f"{base}/{path}", f"first {tab}")
        for part in parts:
            await viewer.timed(f"{base}/{path}{part}/", f"first {tab}, {part}")


async def watch(viewer: Timed, base: str, over: Callable[[], bool]) -> None:
    """Poll as the page does."""
    await asyncio.sleep(random.uniform(0, 2))
    page = await viewer.sign(f"{base}/")
    while not over():
        if found := re.search(r'hx-get="([^"]*/live/[^"]*)"', page):
            address = html.unescape(found[1])
        await asyncio.sleep(2)
        page = await viewer.timed(address, _POLL)


async def poll_login(visitor: Timed, over: Callable[[], bool]) -> None:
    while not over():
        await visitor.timed("/accounts/login/", "login page (floor)")
        await asyncio.sleep(0.5)


_POLL, _WITH_CHARTS, _WITHOUT_CHARTS = "poll", "poll, charts changed", "poll, charts unchanged"
# Each tab, its path, and the parts that it fetches once it is there.
_TABS = (("Result", "", ()), ("Quality", "quality/", ("charts",)), ("Method", "method/", ("charts",)))


def measure(port: int, experiment: Any, people: dict[str, list[str]], seconds: float) -> dict[str, Any]:
    """Open the tabs, then watch and click for so long; print a line for each kind of request."""
    times: dict[str, list[float]] = defaultdict(list)
    load, clicks = Load(), Load()
    viewers = [Timed(port, cookie, load, times) for cookie in people["viewer"]]
    base = f"/experiments/{experiment.pk}"
    run([open_tabs(Timed(port, people["viewer"][0], load, times), base)])
    ends = time.monotonic() + seconds

    def over() -> bool:
        return time.monotonic() >= ends

    run(
        [
            *(watch(viewer, base, over) for viewer in viewers),
            *(
                annotate(Visitor(port, cookie, clicks), f"/label/{experiment.pk}", over, 3.0)
                for cookie in people["annotator"]
            ),
            poll_login(Timed(port, "", load, times), over),
        ]
    )
    times["click"] = clicks.milliseconds
    rows = {kind: percentiles(took) | {"n": len(took)} for kind, took in times.items()}
    for kind, row in rows.items():
        print(f"{kind:24s} {row}", flush=True)
    statuses = load.statuses + clicks.statuses
    return {"ms": rows, "errors": sum(n for status, n in statuses.items() if status >= 400)}


if __name__ == "__main__":
    main()

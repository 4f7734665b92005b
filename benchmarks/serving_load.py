"""Many annotators at once: judgments a second, waits, and the processor time of a judgment by process.

    python -m benchmarks.serving_load --annotators 1 10 50 100 --seconds 60
    DATABASE_URL=postgres://… CELERY_BROKER_URL=redis://… python -m benchmarks.serving_load --think 2

Gunicorn and the workers run as in production, on a test database of their own. Annotators do what the page
does. They hold the pair on show and the one behind it, answer under the session and its CSRF token, and send
heartbeats. They take one answer in 50 back, and skip one pair in 50. Without --think they answer at once. In
the middle of it another experiment is started, and its first pair waited for. In the same run, as many people
click a bare Django view, the floor. It does one update, one insert and one select. Afterwards the database is
held against what the server had confirmed. The last line is JSON.
"""

import argparse
import asyncio
import json
import os
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

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

_POLICIES, _TASKS = 16, 400
_BEAT_SECONDS = 60.0
# One answer in so many is taken back, and as many pairs are skipped.
_UNDO_ONE_IN = _SKIP_ONE_IN = 50
# Where nothing is ready the page looks again after 0.4 seconds and then every 1.5; here sooner, to see how
# fast pairs come.
_LOOK_AGAIN_SECONDS = 0.2


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    options = options_of(
        __doc__, arguments, annotators=(1, 10, 50, 100), seconds=60.0, think=0.0, web_processes=2
    )
    rows = []
    with scratch_database(**ONE_THREAD) as url:
        people = annotators(max(options.annotators))
        for n in options.annotators:
            rows.append(measure(url, people[:n], options))
            print_row(rows[-1])
    json.dump({"think": options.think, "web_processes": options.web_processes, "rows": rows}, sys.stdout)
    print()


@dataclass(frozen=True)
class Person:
    """An annotator, logged in to the product and to the floor."""

    user: Any
    cookie: str
    floor_cookie: str


def annotators(n: int) -> list[Person]:
    """People, and the tables of the floor."""
    from django.db import connection

    from benchmarks.floor import Click
    from benchmarks.floor import Counter as Floor
    from engine.models import User

    with connection.schema_editor() as editor:
        editor.create_model(Floor)
        editor.create_model(Click)
    users = User.objects.bulk_create(User(username=f"annotator{k}", is_active=True) for k in range(n))
    Floor.objects.bulk_create(Floor(pk=user.pk) for user in users)
    bare = "django.contrib.auth.backends.ModelBackend"
    return [Person(user, session_of(user), session_of(user, bare)) for user in users]


def experiment_on_ready_responses(users: list[Any]) -> Any:
    """A running experiment of sixteen policies that none of this load will end."""
    from engine.services.experiments import start

    experiment = draft_on_ready_responses(f"Load of {len(users)}", users)
    start(experiment_id=experiment.pk)
    return experiment


def draft_on_ready_responses(name: str, users: list[Any]) -> Any:
    """The same, not started yet."""
    from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
    from engine.models import Experiment, Membership
    from engine.services.drafts import create_experiment

    names = [f"Model {k}" for k in range(_POLICIES)]
    experiment = create_experiment(
        spec=ExperimentSpec(
            name=name,
            factors=[FactorSpec("Model", "imported", {name: {} for name in names})],
            tasks=[TaskSpec(f"What is {n} and one?") for n in range(_TASKS)],
            ready_made=[
                ReadyMade(n, name, f"It is **{n + 1}**, says {name}. " + "So it is. " * 20)
                for name in names
                for n in range(_TASKS)
            ],
            # Answers at random make all policies equal. At five points one is certified as good enough after
            # 128,000 of them, and nobody has anything left to do.
            settings={
                "responses": Experiment.Responses.IMPORTED,
                "budget": 1_000_000,
                "delta": 1e-9,
                "epsilon": 0.01,
            },
        )
    )
    Membership.objects.bulk_create(Membership(experiment=experiment, user=user) for user in users)
    return experiment


@dataclass
class Load:
    """Answers of annotators and the times that they waited: for each reply, and for the first pair.

    ``undone``: the undos that were asked for; ``taken_back``: those that the server confirmed.
    """

    confirmed: int = 0
    undone: int = 0
    taken_back: int = 0
    empty: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    milliseconds: list[float] = field(default_factory=list)
    first_pair: list[float] = field(default_factory=list)


class Visitor:
    """One person's connection, kept open as browsers keep it."""

    def __init__(self, port: int, cookie: str, load: Load) -> None:
        self._port, self._cookie, self.load = port, cookie, load
        self._csrf = ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> str:
        return await self._send("GET", path, "")

    async def post(self, path: str, form: list[tuple[str, str]]) -> str:
        return await self._send("POST", path, urlencode(form))

    async def sign(self, path: str) -> str:
        """Open the first page, whose CSRF token is sent from then on."""
        page = await self.get(path)
        found = re.search(r"X-CSRFToken&quot;: &quot;(\w+)|X-CSRFToken\": \"(\w+)|^(\w+)$", page)
        if found is None:
            raise RuntimeError(f"{path} has no CSRF token:\n{page[:500]}")
        self._csrf = next(filter(None, found.groups()))
        return page

    async def _send(self, method: str, path: str, body: str) -> str:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {self._cookie}\r\nHX-Request: true\r\n"
        )
        if not self._csrf:
            head = head.replace("HX-Request: true\r\n", "")
        if method == "POST":
            head += f"X-CSRFToken: {self._csrf}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            head += f"Content-Length: {len(body)}\r\n"
        message = f"{head}\r\n{body}".encode()
        for attempt in range(2):
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            try:
                writer.write(message)
                await writer.drain()
                return await self._reply(reader)
            except (ConnectionError, asyncio.IncompleteReadError):
                # The server closes what was idle, and has read nothing then.
                self.close()
                if attempt:
                    raise
        raise AssertionError

    async def _reply(self, reader: asyncio.StreamReader) -> str:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.load.statuses[int(head[0].split()[1])] += 1
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        if cookie := re.search(
            r"^set-cookie: (csrftoken=\w+)", "\n".join(head), re.IGNORECASE | re.MULTILINE
        ):
            # In the place of the last one: a header that grew with each reply would be refused (431).
            others = [each for each in self._cookie.split("; ") if not each.startswith("csrftoken=")]
            self._cookie = "; ".join([*others, cookie[1]])
        body = (
            await reader.readexactly(int(headers["content-length"])) if "content-length" in headers else b""
        )
        if headers.get("connection") == "close":
            self.close()
        return body.decode()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def token_of(html: str) -> str:
    found = re.search(r'data-token="([^"]+)"', html)
    return found[1] if found else ""


async def annotate(visitor: Visitor, base: str, over: Callable[[], bool], think: float) -> None:
    """Judge as the page does, until it is over; then leave."""
    rng = random.Random(base + str(id(visitor)))
    arrived = time.perf_counter()
    held = [token for token in [token_of(await visitor.sign(f"{base}/"))] if token]
    while not held and not over():
        visitor.load.empty += 1
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        held = [token for token in [token_of(await visitor.get(f"{base}/?waits=1"))] if token]
    visitor.load.first_pair.append((time.perf_counter() - arrived) * 1000)
    last_beat = time.monotonic()
    while not over():
        if not held:
            visitor.load.empty += 1
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        if len(held) < 2:
            after = f"after={held[-1]}" if held else "waits=1"
            token = token_of(await visitor.get(f"{base}/?{after}"))
            if token and token not in held:
                held.append(token)
            if not held:
                continue
        if think:
            await asyncio.sleep(rng.uniform(0.5, 1.5) * think)
        shown, *behind = held
        after_form = [("after", token) for token in behind[-1:]]
        counted = False
        if rng.random() * _SKIP_ONE_IN < 1:
            reply = await visitor.post(f"{base}/skip/", [("token", shown), ("reason", "task"), *after_form])
        else:
            form = [("token", shown), ("choice", rng.choice(["left", "right"])), *after_form]
            started = time.perf_counter()
            reply = await visitor.post(f"{base}/judge/", form)
            visitor.load.milliseconds.append((time.perf_counter() - started) * 1000)
            # The page marks an answer that was not counted.
            counted = 'data-said=""' in reply
            visitor.load.confirmed += counted
        held = [*behind, *({token_of(reply)} - {"", *behind})]
        if counted and rng.random() * _UNDO_ONE_IN < 1:
            reply = await visitor.post(f"{base}/undo/", [("answer", shown)])
            visitor.load.undone += 1
            visitor.load.taken_back += 'data-said="Taken back.' in reply
            token = token_of(reply)
            held = [token, *(t for t in held if t != token)] if token else held
        if time.monotonic() - last_beat > _BEAT_SECONDS:
            await visitor.post(f"{base}/beat/", [])
            last_beat = time.monotonic()
    if held:
        await visitor.post(f"{base}/leave/", [])
    visitor.close()


async def click(visitor: Visitor, ends: float, think: float) -> None:
    """Click the bare view until it is time."""
    rng = random.Random(id(visitor))
    await visitor.sign("/click/")
    while time.monotonic() < ends:
        if think:
            await asyncio.sleep(rng.uniform(0.5, 1.5) * think)
        started = time.perf_counter()
        reply = await visitor.post("/click/", [("choice", "left")])
        visitor.load.milliseconds.append((time.perf_counter() - started) * 1000)
        visitor.load.confirmed += reply.isdigit()
    visitor.close()


def measure(url: str, people: list[Person], options: argparse.Namespace) -> dict[str, Any]:
    """One row: the product and then the floor, with as many people."""
    users = [person.user for person in people]
    experiment = experiment_on_ready_responses(users)
    newcomer = Newcomer(draft_on_ready_responses(f"Newcomer among {len(users)}", users), options.seconds / 2)
    database = database_process()
    with (
        web_server(url, processes=options.web_processes) as (port, web),
        celery_workers(url, "control", "analysis") as workers,
    ):
        pids = {"web": web, "control": workers["control"], "analysis": workers["analysis"]}
        pids |= {"database": database} if database else {}
        settle(experiment)
        load = Load()
        ends = time.monotonic() + options.seconds
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        client_before = time.process_time()
        base = f"/label/{experiment.pk}"
        started = time.monotonic()
        newcomer.start()
        run(
            [
                annotate(Visitor(port, p.cookie, load), base, lambda: time.monotonic() >= ends, options.think)
                for p in people
            ]
        )
        seconds = time.monotonic() - started
        newcomer.join()
        client = time.process_time() - client_before
        spent = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    wrong = differences(experiment, load)
    bare = Load()
    with web_server(
        url, processes=options.web_processes, DJANGO_SETTINGS_MODULE="benchmarks.floor_settings"
    ) as (port, web):
        before_floor = cpu_seconds(web)
        floor_seconds = min(options.seconds, max(5.0, options.seconds / 4))
        ends = time.monotonic() + floor_seconds
        run([click(Visitor(port, p.floor_cookie, bare), ends, options.think) for p in people])
        floor_cpu = cpu_seconds(web) - before_floor
    if set(bare.statuses) - {200}:
        raise RuntimeError(f"The floor answered {dict(bare.statuses)}")
    rate, floor_rate = load.confirmed / seconds, bare.confirmed / floor_seconds
    return {
        "annotators": len(people),
        "judgments": load.confirmed,
        "per_second": round(rate, 1),
        "ms": percentiles(load.milliseconds),
        "first_pair_ms": percentiles(load.first_pair),
        "new_experiment_ms": newcomer.milliseconds,
        "cpu_ms": {name: round(1000 * value / max(1, load.confirmed), 1) for name, value in spent.items()},
        "cpu_ms_in_all": round(1000 * sum(spent.values()) / max(1, load.confirmed), 1),
        "client_cores": round(client / seconds, 2),
        "floor_per_second": round(floor_rate, 1),
        "floor_web_cpu_ms": round(1000 * floor_cpu / max(1, bare.confirmed), 1),
        "of_the_floor": round(rate / floor_rate, 3) if floor_rate else None,
        "requests_a_judgment": round(load.statuses.total() / max(1, load.confirmed), 2),
        "waited_for_pairs": load.empty,
        "server_errors": sum(n for status, n in load.statuses.items() if status >= 500),
        "wrong": wrong,
    }


def run(visits: list[Any]) -> None:
    async def everybody() -> None:
        await asyncio.gather(*visits)

    asyncio.run(everybody())


def database_process() -> int | None:
    """The server's process, where it runs on this machine."""
    from django.db import connection

    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (backend,) = cursor.fetchone()
    stat = Path(f"/proc/{backend}/stat")
    return int(stat.read_text().rsplit(")", 1)[1].split()[1]) if stat.exists() else None


class Newcomer(threading.Thread):
    """Starts a draft after so many seconds; then ``milliseconds`` tells how long its first pair took."""

    def __init__(self, draft: Any, seconds: float) -> None:
        super().__init__()
        self.draft, self.seconds, self.milliseconds = draft, seconds, 0

    def run(self) -> None:
        """Wait, start and wait again; afterwards nobody plans for it any more."""
        from django.db import connection

        from engine.services.experiments import pause, start

        time.sleep(self.seconds)
        try:
            began = time.perf_counter()
            start(experiment_id=self.draft.pk)
            settle(self.draft, look_seconds=0.02)
            self.milliseconds = round(1000 * (time.perf_counter() - began))
            pause(experiment_id=self.draft.pk)
        finally:
            connection.close()


def settle(experiment: Any, look_seconds: float = 0.5) -> None:
    """Wait until the first pairs are ready, looking so often."""
    from engine.models import Comparison
    from engine.tasks import advance, wake

    deadline = time.monotonic() + 120
    wake(advance, experiment.pk)
    while not Comparison.objects.filter(experiment=experiment, state=Comparison.State.READY).exists():
        if time.monotonic() > deadline:
            sys.exit("No pair was ready within two minutes: does the control worker run?")
        time.sleep(look_seconds)


def differences(experiment: Any, load: Load) -> dict[str, int]:
    """Counts in which the database differs from what the server confirmed; empty where all is well."""
    from django.db.models import Count, Q, Sum

    from engine.models import Assignment, Comparison, Judgment
    from engine.services.judging import rebuild_counts

    # It settles the last answers, too.
    rebuilt = rebuild_counts(experiment_id=experiment.pk)
    judgments = Judgment.objects.filter(comparison__experiment=experiment)
    counted = experiment.pair_counts.aggregate(n=Sum("comparisons"))["n"] or 0
    standing = judgments.filter(standing=True)
    comparisons = Comparison.objects.filter(experiment=experiment)
    found = {
        "answers not taken back": load.undone - load.taken_back,
        "judgments lost": load.confirmed - judgments.count(),
        "judgments that should be void": standing.count() - (load.confirmed - load.taken_back),
        "counts that differ": len(rebuilt),
        "counts beside standing judgments": counted - standing.count(),
        "comparisons judged twice": comparisons.annotate(
            n=Count("judgments", filter=Q(judgments__standing=True))
        )
        .filter(n__gt=1)
        .count(),
        "pairs given twice": Assignment.objects.filter(comparison__experiment=experiment)
        .values("comparison")
        .annotate(n=Count("pk"))
        .filter(n__gt=1)
        .count(),
    }
    return {what: n for what, n in found.items() if n}


def print_row(row: dict[str, Any]) -> None:
    """One line of the table."""
    cpu = " + ".join(f"{name} {ms}" for name, ms in row["cpu_ms"].items())
    waits, firsts = (
        "  ".join(f"{q} {ms} ms" for q, ms in row[name].items()) for name in ("ms", "first_pair_ms")
    )
    print(
        f"{row['annotators']:4d} people  {row['per_second']:6.1f} judgments/s  {waits}\n"
        f"      first pair  {firsts}; of an experiment that starts meanwhile {row['new_experiment_ms']} ms\n"
        f"      requests a judgment: {row['requests_a_judgment']}; looks in vain {row['waited_for_pairs']}\n"
        f"      processor ms a judgment: {row['cpu_ms_in_all']} ({cpu}); the load itself "
        f"{row['client_cores']} cores\n"
        f"      floor {row['floor_per_second']}/s at {row['floor_web_cpu_ms']} ms; ratio "
        f"{row['of_the_floor']}; 5xx {row['server_errors']}; wrong {row['wrong'] or 'nothing'}; load "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

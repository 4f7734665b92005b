"""Hours of clicks while processes are killed: nothing lost or doubled, and memory that stays.

    DATABASE_URL=postgres://… CELERY_BROKER_URL=redis://… python -m benchmarks.soak --judgments 200000
    … python -m benchmarks.soak --seconds 300

Three web processes, two control workers, three generation workers, two for analysis, and beat run on a test
database. Annotators answer, skip, take back, and go away without a word, so that assignments expire. After a
day's answers each gives the place to somebody else. Meanwhile judgments are voided and processes are killed
with -9, and an experiment that a rule judges has responses written. Afterwards the database is held against
what was confirmed, and `manage.py verify` runs. The last line is JSON.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.installation import ONE_THREAD, ROOT, options_of, scratch_database, session_of, web_server
from benchmarks.serving_load import Load, Visitor, experiment_on_ready_responses, run, settle, token_of

_SETTINGS = ONE_THREAD | {"ASSIGNMENT_SECONDS": "10", "CLAIM_SECONDS": "10", "LOG_LEVEL": "CRITICAL"}
_WORKERS = {"control": 2, "generation": 3, "analysis": 2}
# The first of each is never killed: what leaks shows in a process that grows old.
_SPARED = {f"{kind}-1" for kind in _WORKERS}
_UNDO_ONE_IN, _SKIP_ONE_IN, _VANISH_ONE_IN = 50, 50, 400
_VANISHED_SECONDS = 15.0
# One person's answers of a day: every click counts them, and nobody gives thousands.
_ANSWERS_A_SHIFT = 400
# Minutes of a process at work in which its caches fill: its memory is held against that of the next one.
_WARM_UP_MINUTES = 5


def main(arguments: list[str] | None = None) -> None:
    """Run the soak, print what was found, and fail where anything was."""
    options = options_of(
        __doc__, arguments, judgments=200_000, seconds=24 * 3600.0, annotators=100, fault_every=20.0
    )
    with scratch_database(**_SETTINGS) as url:
        found = soak(url, options)
    json.dump(found, sys.stdout)
    print()
    if found["wrong"]:
        sys.exit(1)


@dataclass
class Processes:
    """The workers, each of which is started again when it was killed, and the memory of everything."""

    database_url: str
    web: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    _started: Counter[str] = field(default_factory=Counter)
    _at_work: dict[int, float] = field(default_factory=dict)
    # By kind and process: the least memory in each minute of its work.
    _least: dict[tuple[str, int], dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def start(self, kind: str) -> None:
        """Start a worker of a kind, or beat. Its name is new: what it has done is told by the name."""
        self._started[kind] += 1
        name = f"{kind}-{self._started[kind]}"
        command = f"worker -Q {kind} -n {name}@%h -P solo --without-gossip --without-mingle".split()
        self.running[name] = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "llmpo_site", *(["beat"] if kind == "beat" else command)],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": self.database_url, "SWEEP_SECONDS": "2"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def kill_one(self, rng: random.Random) -> None:
        """Kill one with -9, but none that is spared; gunicorn starts a web process again itself."""
        name = rng.choice([*sorted(self.running.keys() - _SPARED), "web"])
        kind = _kind(name)
        self.kills[kind] += 1
        if name == "web":
            if others := sorted(self._children())[1:]:
                os.kill(rng.choice(others), signal.SIGKILL)
            return
        killed = self.running.pop(name)
        killed.kill()
        killed.wait()
        self.start(kind)

    def stop(self) -> None:
        """End all of them."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(timeout=60)

    def look_at_memory(self) -> None:
        """Note what each process takes now, if it is the least of this minute.

        That is what it keeps from one piece of work to the next. What it takes for a piece of work comes and
        goes: a batch of responses takes a third of a generation worker's memory.
        """
        now = time.monotonic()
        for pid, name in self._pids().items():
            minute = int(now - self._at_work.setdefault(pid, now)) // 60
            if resident := _resident_kib(pid):
                least = self._least[_kind(name), pid]
                least[minute] = min(resident, least.get(minute, resident))

    def growth_percent(self) -> dict[str, tuple[float, int]]:
        """By kind, of the process that grew most: its growth since the warm-up, and for how many minutes."""
        found: dict[str, tuple[float, int]] = {}
        for (kind, _pid), least in self._least.items():
            # The last minute is not over.
            warm, *later = [least[minute] for minute in sorted(least)[_WARM_UP_MINUTES:-1]] or [0]
            if later:
                grown = (round(100 * (max(later) / warm - 1), 1), len(later))
                found[kind] = max(grown, found.get(kind, grown))
        return found

    def _pids(self) -> dict[int, str]:
        return {each.pid: name for name, each in self.running.items()} | dict.fromkeys(
            self._children(), "web"
        )

    def _children(self) -> list[int]:
        return list(map(int, Path(f"/proc/{self.web}/task/{self.web}/children").read_text().split()))


def _kind(name: str) -> str:
    return name.split("-", maxsplit=1)[0]


def _resident_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


class PatientVisitor(Visitor):
    """Sends a request again until it is answered, as the page does."""

    async def _send(self, method: str, path: str, body: str) -> str:
        while True:
            # Each reply may set the CSRF cookie anew; a browser keeps the last.
            cookies = dict(each.split("=", 1) for each in self._cookie.split("; "))
            self._cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
            refused = self.load.statuses[503]
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reply = await super()._send(method, path, body)
                if self.load.statuses[503] == refused:
                    return reply
            self.close()
            await asyncio.sleep(0.5)


async def annotate(visitor: Visitor, base: str, confirmed: set[str], over: threading.Event) -> None:
    """Judge, skip, take back and vanish until the shift is over, or everything."""
    rng = random.Random(id(visitor))
    held = [token for token in [token_of(await visitor.sign(f"{base}/"))] if token]
    n_judged = 0
    while n_judged < _ANSWERS_A_SHIFT and not over.is_set():
        if rng.random() * _VANISH_ONE_IN < 1:
            held = []
            await asyncio.sleep(_VANISHED_SECONDS)
        if not held:
            held = [token for token in [token_of(await visitor.get(f"{base}/"))] if token]
            if not held:
                await asyncio.sleep(0.3)
                continue
        shown = held[0]
        if rng.random() * _SKIP_ONE_IN < 1:
            reply = await visitor.post(f"{base}/skip/", [("token", shown), ("reason", "task")])
        else:
            form = [("token", shown), ("choice", rng.choice(["left", "right"]))]
            reply = await visitor.post(f"{base}/judge/", form)
            if 'data-said=""' in reply:
                confirmed.add(shown)
                n_judged += 1
                if rng.random() * _UNDO_ONE_IN < 1:
                    reply = await visitor.post(f"{base}/undo/", [("answer", shown)])
        held = [token for token in [token_of(reply)] if token]
    visitor.close()


def soak(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run it all; returns what was done and what is wrong."""
    from engine.models import User

    n_people = options.annotators + options.judgments // _ANSWERS_A_SHIFT
    users = [User.objects.create_user(f"annotator{k}") for k in range(n_people)]
    admin = User.objects.create_user("admin", is_superuser=True)
    cookies = cycle([session_of(user) for user in users])
    experiment = experiment_on_ready_responses(users)
    confirmed: set[str] = set()
    over = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: over.set())
    load = Load()
    with web_server(url, processes=3) as (port, web):
        processes = Processes(url, web)
        for kind, n in _WORKERS.items():
            for _ in range(n):
                processes.start(kind)
        processes.start("beat")
        try:
            settle(experiment)
            chaos = threading.Thread(
                target=disturb, args=(processes, experiment, admin, confirmed, over, options)
            )
            started = time.monotonic()
            chaos.start()
            base = f"/label/{experiment.pk}"

            async def take_turns() -> None:
                while not over.is_set():
                    await annotate(PatientVisitor(port, next(cookies), load), base, confirmed, over)

            run([take_turns() for _ in range(options.annotators)])
            chaos.join()
            seconds = time.monotonic() - started
        finally:
            over.set()
            processes.stop()
    return {
        "judgments": len(confirmed),
        "per_second": round(len(confirmed) / seconds, 1),
        "kills": dict(processes.kills),
        "statuses": dict(load.statuses),
        "memory_growth_percent_and_minutes": processes.growth_percent(),
        "wrong": wrong(experiment, confirmed, load),
    }


def disturb(  # noqa: PLR0917 - the arguments of one thread
    processes: Processes,
    experiment: Any,
    admin: Any,
    confirmed: set[str],
    over: threading.Event,
    options: argparse.Namespace,
) -> None:
    """Kill and void until enough was judged, and keep the generation workers at work."""
    from django.db import connection

    from engine.domain.errors import WrongStateError
    from engine.models import Judgment
    from engine.services.voids import void_one

    rng = random.Random(1)
    started = last_fault = time.monotonic()
    try:
        keep_generating()
        while not over.is_set():
            done = max(len(confirmed) / options.judgments, (time.monotonic() - started) / options.seconds)
            if done >= 1:
                over.set()
            processes.look_at_memory()
            if time.monotonic() - last_fault > options.fault_every:
                last_fault = time.monotonic()
                processes.kill_one(rng)
                standing = Judgment.objects.filter(comparison__experiment=experiment, standing=True)
                if (newest := standing.order_by("-pk")[rng.randrange(50) :].first()) is not None:
                    with contextlib.suppress(WrongStateError):
                        void_one(judgment_id=newest.pk, by=admin, reason="Soak")
                keep_generating()
            time.sleep(0.5)
    finally:
        over.set()
        connection.close()


def keep_generating() -> None:
    """Have an experiment run whose responses are written and judged here."""
    from engine.models import Experiment
    from engine.services.drafts import create_experiment
    from engine.services.experiments import start
    from labeling.demo import rule_spec

    if not Experiment.objects.filter(judge=Experiment.Judge.RULE, state=Experiment.State.RUNNING).exists():
        spec = rule_spec()
        name = f"{spec.name} {Experiment.objects.count()}"
        start(experiment_id=create_experiment(spec=replace(spec, name=name)).pk)


def wrong(experiment: Any, confirmed: set[str], load: Load) -> dict[str, Any]:
    """Contradictions of the promises; empty where there are none."""
    from django.core.management import CommandError, call_command
    from django.db.models import Count, F

    from engine.models import Assignment, Comparison, Experiment, Judgment

    tokens = set(
        map(
            str,
            Judgment.objects.filter(comparison__experiment=experiment).values_list("token", flat=True),
        )
    )
    fresh = Comparison.objects.filter(experiment__responses=Experiment.Responses.FRESH)
    found: dict[str, Any] = {
        "confirmed and lost": len(confirmed - tokens),
        "given twice": Assignment.objects.filter(comparison__experiment__overlap=1)
        .values("comparison")
        .annotate(n=Count("pk"))
        .filter(n__gt=1)
        .count(),
        "responses used twice": sum(
            fresh.values(name).annotate(n=Count("pk")).filter(n__gt=1).count()
            for name in ("response_i", "response_j")
        )
        + fresh.filter(response_i=F("response_j")).count(),
        "experiments planned twice": sum(
            [each["number"] for each in plans] != list(range(len(plans)))
            for plans in (
                list(each.comparisons.order_by("pk").values_list("plan", flat=True))
                for each in Experiment.objects.all()
            )
        ),
        "other replies than 200 and 503": load.statuses.total() - load.statuses[200] - load.statuses[503],
    }
    try:
        call_command("verify", stdout=StringIO(), stderr=StringIO())
    except CommandError as error:
        found["verify"] = str(error)
    return {what: n for what, n in found.items() if n}


if __name__ == "__main__":
    main()

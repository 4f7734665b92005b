"""An arena's votes come in by the page while people go on clicking.

    python -m benchmarks.past_votes
    DATABASE_URL=postgres://… CELERY_BROKER_URL=redis://… python -m benchmarks.past_votes

60 policies, 13 tasks, 9,000 votes of which 40% are ties. Gunicorn and the workers run as in production, on a
test database of their own. Annotators of another experiment click before, and from the upload until the
evidence of the votes is up to date: their waits are compared. At the end the export is held against the file,
vote by vote. The last line is JSON.
"""

import argparse
import asyncio
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.installation import (
    ONE_THREAD,
    celery_workers,
    options_of,
    percentiles,
    scratch_database,
    session_of,
    web_server,
)
from benchmarks.serving_load import (
    Load,
    Visitor,
    annotate,
    annotators,
    experiment_on_ready_responses,
    run,
    settle,
)

_NAME = "Arena"
_ENOUGH_SECONDS = 300


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    options = options_of(__doc__, arguments, votes=9_000, annotators=5, think=1.0, before=20.0)
    with scratch_database(**ONE_THREAD) as url:
        row = measure(url, options)
    print(
        f"{row['votes']:,} votes: imported {row['import_seconds']} s, ranking {row['ranking_seconds']} s, "
        f"evidence up to date {row['evidence_seconds']} s\n"
        f"clicks before  {row['clicks_before']}\n"
        f"clicks during  {row['clicks_during']}  ({row['n_clicks_during']} clicks, "
        f"5xx {row['server_errors']})\n"
        + "".join(f"  {phase:<13}{waits}\n" for phase, waits in row["clicks_by_phase"].items())
        + f"votes that came out otherwise: {row['differences']}"
    )
    print(json.dumps(row))


def measure(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Clicks, then clicks and an import, then the export."""
    from django.conf import settings

    from benchmarks.arena import arena, as_record
    from engine.models import Experiment, User

    votes = [as_record(vote) for vote in arena(options.votes, spread=0.46)]
    people = annotators(options.annotators)
    owner = User.objects.create_superuser("owner", "owner@example.org", "only for this benchmark")
    clicked = experiment_on_ready_responses([person.user for person in people])
    cookie = session_of(owner)
    file = settings.VAR_DIR / "arena.jsonl"
    file.write_text("".join(f"{json.dumps(vote)}\n" for vote in votes))
    with web_server(url, processes=2) as (port, _), celery_workers(url, "control", "analysis"):
        settle(clicked)
        before = Load()
        during = {phase: Load() for phase in ("import", "ranking", "evidence")}

        def visitors(load: Load) -> list[Visitor]:
            return [Visitor(port, person.cookie, load) for person in people]

        def visits(who: list[Visitor], ends: float) -> list[Any]:
            base = f"/label/{clicked.pk}"
            return [annotate(each, base, lambda: time.monotonic() >= ends, options.think) for each in who]

        run(visits(visitors(before), time.monotonic() + options.before))

        async def import_among_clicks() -> dict[str, float]:
            who = visitors(during["import"])

            def enter(phase: str) -> None:
                for each in who:
                    each.load = during[phase]

            clicks = [asyncio.create_task(visit) for visit in visits(who, math.inf)]
            try:
                return await asyncio.to_thread(imported, port, cookie, file, enter)
            finally:
                for click in clicks:
                    click.cancel()
                await asyncio.gather(*clicks, return_exceptions=True)

        seconds = asyncio.run(import_among_clicks())
    experiment = Experiment.objects.get(name=_NAME)
    waits = [wait for load in during.values() for wait in load.milliseconds]
    statuses = sum((load.statuses for load in during.values()), Counter[int]())
    return {
        "votes": len(votes),
        **{f"{name}_seconds": round(value, 1) for name, value in seconds.items()},
        "clicks_before": percentiles(before.milliseconds),
        "clicks_during": percentiles(waits),
        "clicks_by_phase": {phase: percentiles(load.milliseconds) for phase, load in during.items()},
        "n_clicks_during": len(waits),
        "server_errors": sum(n for status, n in statuses.items() if status >= 500),
        "differences": differences(experiment, votes),
    }


def imported(port: int, cookie: str, file: Path, enter: Callable[[str], None]) -> dict[str, float]:
    """Upload the file by the page, and measure the seconds until it is stored. Then measure until its ranking
    is on the page, and until its evidence is up to date. ``enter`` is told each of these phases when it
    begins.
    """
    name, _, value = cookie.partition("=")
    browser = httpx2.Client(
        base_url=f"http://localhost:{port}", cookies={name: value}, timeout=_ENOUGH_SECONDS
    )
    browser.get("/experiments/new/votes/")
    data = file.read_bytes()
    enter("import")
    started = time.monotonic()
    reply = browser.post(
        "/experiments/new/votes/",
        data={"name": _NAME, "csrfmiddlewaretoken": browser.cookies["csrftoken"]},
        files={"votes": (file.name, data)},
    )
    if reply.status_code != httpx2.codes.FOUND:
        sys.exit(f"The import answered {reply.status_code}:\n{reply.text[:2000]}")
    # The page of the upload leads to the experiment once a worker has imported the file.
    upload = reply.headers["location"]
    while (reply := browser.get(upload)).status_code != httpx2.codes.FOUND:
        if time.monotonic() - started > _ENOUGH_SECONDS:
            sys.exit("The file was not imported in time: does the analysis worker run?")
        time.sleep(0.1)
    stored = time.monotonic()
    enter("ranking")
    page = browser.get(reply.headers["location"])
    ranked = time.monotonic()
    enter("evidence")
    if "model-1" not in page.text:
        sys.exit("The page of the imported experiment has no ranking.")
    while is_behind():
        if time.monotonic() - ranked > _ENOUGH_SECONDS:
            sys.exit("The evidence was not up to date in time: does the control worker run?")
        time.sleep(0.2)
    return {
        "import": stored - started,
        "ranking": ranked - stored,
        "evidence": time.monotonic() - ranked,
    }


def is_behind() -> bool:
    """True while the votes are replayed."""
    from django.db import connection

    from engine.models import Experiment

    try:
        return Experiment.objects.get(name=_NAME).evidence_stale
    finally:
        # This connection belongs to the thread in which the browser runs.
        connection.close()


def differences(experiment: Any, votes: list[dict[str, Any]]) -> int:
    """Votes of the file that the export lacks, and the other way round."""
    from django.conf import settings
    from django.core.management import call_command

    file = settings.VAR_DIR / "out.jsonl"
    call_command("export", str(experiment.pk), format="jsonl", out=file, verbosity=0)
    outcomes = {1.0: "i", 0.0: "j", 0.5: "tie"}
    found: Counter[tuple[str, ...]] = Counter()
    for line in file.read_text().splitlines():
        row = json.loads(line)
        better = {"i": row["policy_i_name"], "j": row["policy_j_name"]}.get(outcomes[row["outcome"]], "tie")
        sides = sorted([(row[f"policy_{k}_name"], row[f"response_{k}"]) for k in "ij"])
        found[(row["task"], *sides[0], *sides[1], better)] += 1
    given: Counter[tuple[str, ...]] = Counter()
    for vote in votes:
        better = {"a": vote["policy_a"], "b": vote["policy_b"]}.get(vote["winner"], "tie")
        sides = sorted([(vote[f"policy_{k}"], vote[f"response_{k}"]) for k in "ab"])
        given[(vote["task"], *sides[0], *sides[1], better)] += 1
    return (found - given).total() + (given - found).total()


if __name__ == "__main__":
    main()

"""Attacks over HTTP on a running installation: is a policy certified that loses 43 of 100?

    python -m benchmarks.live_attacks --runs 4
    DATABASE_URL=postgres://… CELERY_BROKER_URL=redis://… python -m benchmarks.live_attacks --acts leave skip

Four policies, of which the first beats the others by 57 of 100; five people, one of whom wants the last one
named and never lies. They leave the pairs that it would lose, skip them, answer them last, or take the answer
back; or an editor voids what it lost. The others are honest. Each run ends with the claim, with the budget,
or when nobody gets a pair any more. The table has the policy that was named, and what the card and `verify`
say. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import re
import sys
import time
from typing import Any

from benchmarks.installation import ONE_THREAD, celery_workers, scratch_database, session_of, web_server
from benchmarks.serving_load import Load, Visitor, settle, token_of

_ACTS = ("leave", "skip", "delay", "undo", "void")
_RATE, _N_POLICIES, _N_TASKS, _WANTED = 0.57, 4, 200, 3
# Looks in a row that bring no pair, after which a person goes home.
_MOST_LOOKS = 60
_LOOK_AGAIN_SECONDS = 0.2
_OVER = re.compile(r'<div id="stage"[^>]*data-over')


def main(arguments: list[str] | None = None) -> None:
    """Run the attacks and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--acts", nargs="+", choices=_ACTS, default=_ACTS)
    parser.add_argument("--runs", type=int, default=4, help="of each act")
    parser.add_argument("--budget", type=int, default=2500, help="most comparisons of a run")
    options = parser.parse_args(arguments)
    rows = []
    with (
        scratch_database(**ONE_THREAD) as url,
        web_server(url, processes=2) as (port, _),
        celery_workers(url, "control", "analysis"),
    ):
        for act in options.acts:
            for number in range(options.runs):
                rows.append(attack(port, act, number, options.budget))
                print_row(rows[-1])
    json.dump({"rate": _RATE, "runs": rows}, sys.stdout)
    print()


def attack(port: int, act: str, number: int, budget: int) -> dict[str, Any]:
    """One run, and what the product says of it."""
    from engine.models import Judgment, Membership, User
    from engine.services.experiments import start

    people = [User.objects.create(username=f"{act}{number}-{k}", is_active=True) for k in range(5)]
    editor = User.objects.create(username=f"{act}{number}-editor", is_active=True)
    experiment = draft(f"{act} {number}", budget)
    Membership.objects.bulk_create(Membership(experiment=experiment, user=user) for user in people)
    Membership.objects.create(experiment=experiment, user=editor, role=Membership.Role.EDITOR)
    start(experiment_id=experiment.pk)
    settle(experiment)
    run = Run(experiment.pk, act)
    visits = [
        person(run, Visitor(port, session_of(user), Load()), k == 0, random.Random(f"{act} {number} {k}"))
        for k, user in enumerate(people)
    ]
    if act == "void":
        visits.append(editing(run, Visitor(port, session_of(editor), Load())))
    asyncio.run(everybody(run, visits))
    experiment.refresh_from_db()
    return said_of(experiment) | {
        "act": act,
        "judgments": Judgment.objects.filter(comparison__experiment=experiment).count(),
        "statuses": {str(status): n for status, n in run.statuses.items() if status >= 400},
    }


def draft(name: str, budget: int) -> Any:
    """An experiment on ready-made responses, each of which names its policy."""
    from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
    from engine.models import Experiment
    from engine.services.drafts import create_experiment

    names = [f"Model {k}" for k in range(_N_POLICIES)]
    return create_experiment(
        spec=ExperimentSpec(
            name=name,
            factors=[FactorSpec("Model", "imported", {name: {} for name in names})],
            tasks=[TaskSpec(f"What is {n} and one?") for n in range(_N_TASKS)],
            ready_made=[
                ReadyMade(n, name, f"It is {n + 1}, says {name}.") for name in names for n in range(_N_TASKS)
            ],
            settings={"responses": Experiment.Responses.IMPORTED, "budget": budget},
        )
    )


class Run:
    """The things that the people of one run know together."""

    def __init__(self, experiment_id: int, act: str) -> None:
        self.base = f"/label/{experiment_id}"
        self.experiment_id, self.act = experiment_id, act
        self.at_work = 5
        self.over = False
        self.lost: list[str] = []
        self.statuses: dict[int, int] = {}


async def everybody(run: Run, visits: list[Any]) -> None:
    await asyncio.gather(*visits)


def pair_of(html: str) -> tuple[int, int]:
    """The policies of the responses on the left and on the right."""
    left, right = re.findall(r"says Model (\d)", html)[:2]
    return int(left), int(right)


def preferred(left: int, right: int, rng: random.Random) -> str:
    """The side that this person prefers."""
    chance = 0.5 if 0 not in {left, right} else _RATE if left == 0 else 1 - _RATE
    return "left" if rng.random() < chance else "right"


async def person(run: Run, visitor: Visitor, chooses: bool, rng: random.Random) -> None:
    """Answer until there is nothing more; who chooses acts on the pairs that the wanted policy would lose."""
    would: dict[str, str] = {}
    regretted: list[str] = []
    looks = waits = 0
    html = await visitor.sign(f"{run.base}/")
    while looks < _MOST_LOOKS and not _OVER.search(html):
        token = token_of(html)
        if not token:
            looks += 1
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            html = await visitor.get(f"{run.base}/?waits=1")
            continue
        left, right = pair_of(html)
        choice = would.setdefault(token, preferred(left, right, rng))
        lost = _WANTED in (left, right) and (left, right)[choice == "right"] != _WANTED
        acts = chooses and lost
        if acts and run.act in {"leave", "delay"}:
            # The same pair comes again; who waits does so until the others have gone.
            waits += 1
            if run.act == "leave":
                await visitor.post(f"{run.base}/leave/", [])
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            if run.act == "leave" and waits > _MOST_LOOKS:
                break
            if run.at_work > 1 or run.act == "leave":
                html = await visitor.get(f"{run.base}/")
                continue
        looks = 0
        if acts and run.act == "skip":
            html = await visitor.post(f"{run.base}/skip/", [("token", token), ("reason", "cannot_tell")])
            continue
        if token in regretted:
            html = await visitor.post(f"{run.base}/skip/", [("token", token), ("reason", "cannot_tell")])
            continue
        html = await visitor.post(f"{run.base}/judge/", [("token", token), ("choice", choice)])
        if lost:
            run.lost.append(token)
        if acts and run.act == "undo":
            html = await visitor.post(f"{run.base}/undo/", [("answer", token)])
            regretted.append(token_of(html))
    run.at_work -= 1
    for status, n in visitor.load.statuses.items():
        run.statuses[status] = run.statuses.get(status, 0) + n
    visitor.close()


async def editing(run: Run, visitor: Visitor) -> None:
    """Void two of five answers that the wanted policy lost: those who gave them tell which they are."""
    rng = random.Random(run.base)
    await visitor.sign(f"/experiments/{run.experiment_id}/log/")
    while run.at_work:
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        while run.lost:
            token = run.lost.pop()
            if rng.random() < 0.4:
                number = await asyncio.to_thread(judgment_of, token)
                path = f"/experiments/{run.experiment_id}/judgments/{number}/void/"
                await visitor.post(path, [("reason", "Not careful.")])
    visitor.close()


def judgment_of(token: str) -> int:
    from django.db import connection

    from engine.models import Judgment

    try:
        return Judgment.objects.get(token=token).pk
    finally:
        connection.close()


def said_of(experiment: Any) -> dict[str, Any]:
    """The policy that was named, and the words of the card, the report's doubts and `verify`."""
    from django.core.management import call_command

    from engine.models import JudgmentVoid
    from engine.selectors.doubts import doubts

    out = io.StringIO()
    call_command("verify", str(experiment.pk), stdout=out)
    found = doubts(experiment)
    return {
        "named": None if experiment.winner is None else experiment.winner.index,
        "certified": bool(experiment.certified_claim),
        "conclusion": experiment.conclusion,
        "finding": experiment.finding,
        "missing": found.n_missing,
        "doubts": [each.text for each in found.found],
        "voids": JudgmentVoid.objects.filter(judgment__comparison__experiment=experiment).count(),
        "verify": out.getvalue().strip().splitlines(),
    }


def print_row(row: dict[str, Any]) -> None:
    """One line of the table, and what was said."""
    named = "nobody" if row["named"] is None else f"policy {row['named']}"
    wrong = "WRONG" if row["certified"] and row["named"] == _WANTED else "right"
    print(
        f"{time.strftime('%H:%M:%S')} {row['act']:6} {wrong}: {named} ({row['conclusion'] or 'open'}), "
        f"{row['judgments']} judgments, {row['missing']} without an outcome, {row['voids']} voids; "
        f"{len(row['doubts'])} doubts; refused {row['statuses'] or 'nothing'}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""A worker on four connections, of which three give trouble: what it stores, loses and asks twice.

    python -m benchmarks.connections [--responses 2000]

One server on the loopback answers for four models: "healthy"; "limited", which answers 429 with Retry-After
in 30% of the cases; "broken", 500 in 10%; "hanging", which takes a minute in one of a hundred. The worker is
Celery's, as in production, and is killed (-9) three times in a further round: answers under way are lost,
and those that had arrived and were not stored yet. The last line is JSON.
"""

import asyncio
import json
import multiprocessing
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.installation import ONE_THREAD, installation, options_of

MODELS = ("healthy", "limited", "broken", "hanging")
AT_ONCE, LATENCY_SECONDS, HANG_SECONDS, DEADLINE_SECONDS = 8, 0.4, 60.0, 900.0
_WORKER = (
    "-m celery -A llmpo_site worker -Q generation,judging -P threads -c 3 -n remote@%h --without-gossip "
    "--without-mingle --without-heartbeat"
)


async def _answer(log: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            headers = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(headers.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            asked = json.loads(await reader.readexactly(length))
            model, task, began = asked["model"], asked["messages"][-1]["content"], time.time()
            draw, status, more = random.random(), 200, b""
            await asyncio.sleep(HANG_SECONDS if model == "hanging" and draw < 0.01 else LATENCY_SECONDS)
            if model == "limited" and draw < 0.3:
                status, more = 429, b"Retry-After: 1\r\n"
            elif model == "broken" and draw < 0.1:
                status = 500
            message = {"role": "assistant", "content": f"{model} on {task}"}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
            body = json.dumps({"model": model, "choices": [choice], "usage": usage}).encode()
            writer.write(
                b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s"
                % (status, more, len(body), body)
            )
            await writer.drain()
            with log.open("a") as file:
                file.write(json.dumps([model, task, status, began, time.time()]) + "\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _serve(listener: socket.socket, log: Path) -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda *streams: _answer(log, *streams), sock=listener)
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def _server(log: Path) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, log), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        process.terminate()
        process.join()


def _plan(name: str, models: tuple[str, ...], responses: int) -> Any:
    """A running experiment with so many waiting responses of each of these models, one a task and policy."""
    from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
    from engine.models import Comparison, Response
    from engine.services.drafts import create_experiment
    from engine.services.experiments import start

    # Two policies a model, so that each has a pair of its own.
    prompts = {"Kind": {"text": "Be kind."}, "Terse": {"text": "Be terse."}}
    factors = [
        FactorSpec("Model", "model", {model: {"name": model} for model in models}),
        FactorSpec("Prompt", "prompt", prompts),
    ]
    tasks = [TaskSpec(f"{name} task {n}") for n in range(responses)]
    experiment = create_experiment(spec=ExperimentSpec(name=name, factors=factors, tasks=tasks))
    start(experiment_id=experiment.pk)
    task_ids = list(experiment.tasks.order_by("pk").values_list("pk", flat=True))
    number = 0
    for model in models:
        i, j = experiment.policies.filter(levels__value__name=model).order_by("index")
        halves = Response.objects.bulk_create(
            Response(policy=policy, task_id=task_id, seed=task_id)
            for at, task_id in enumerate(task_ids)
            for policy in (i, j)
            if at % 2 == 0
        )
        pairs = zip(halves[::2], halves[1::2], strict=True)
        comparisons = [
            Comparison(
                experiment=experiment,
                number=number + n,
                policy_i=i,
                policy_j=j,
                task_id=first.task_id,
                response_i=first,
                response_j=second,
                i_on_left=True,
                plan={},
            )
            for n, (first, second) in enumerate(pairs, 1)
        ]
        number += len(comparisons)
        Comparison.objects.bulk_create(comparisons)
    return experiment


class _Worker:
    """The worker's process, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "worker.log").open("ab")
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, *_WORKER.split()], stdout=self._log, stderr=self._log)

    def kill(self) -> tuple[float, float]:
        """Kill it, and start it again; the moments of the kill and of the new one being ready."""
        from engine.models import WorkerPulse

        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        killed_at = time.time()
        self._process = self._started()
        since = datetime.fromtimestamp(killed_at, UTC)
        while not WorkerPulse.objects.filter(queue="generation", seen_at__gt=since).exists():
            time.sleep(0.05)
        return killed_at, time.time()

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)
        self._log.close()


def _write(experiment: Any, worker: _Worker, kills: int, log: Path) -> dict[str, Any]:
    """Wait until everything is stored; the parts of a sweep are done here."""
    from engine.models import Response
    from engine.services.generation import expire_claims
    from engine.tasks import generate

    rows = Response.objects.filter(policy__experiment=experiment)
    total = rows.count()
    marks = [total * (n + 1) // (kills + 2) for n in range(kills)]
    away: list[tuple[float, float]] = []
    began = time.monotonic()
    while (open_ := rows.filter(state__in=[Response.State.WAITING, Response.State.GENERATING]).count()) > 0:
        if time.monotonic() - began > DEADLINE_SECONDS:
            break
        expire_claims()
        generate.apply_async(expires=5)
        if marks and total - open_ >= marks[0]:
            marks.pop(0)
            away.append(worker.kill())
        time.sleep(1)
    found: dict[str, Any] = {"seconds": round(time.monotonic() - began, 1)}
    found["stored"] = rows.filter(state=Response.State.DONE).count()
    found["discarded"] = experiment.comparisons.filter(state="discarded").count()
    for model in MODELS:
        # Steady speed: without the first and last tenth.
        done = rows.filter(model=model).values_list("done_at", flat=True)
        times = sorted(at.timestamp() for at in done if at is not None)
        if times:
            inner = times[len(times) // 10 : -(len(times) // 10) or None]
            found[f"{model}_per_second"] = round(len(inner) / (inner[-1] - inner[0]), 2)
            starting = sum(ready - killed for killed, ready in away if inner[0] < killed < inner[-1])
            if starting:
                steady = len(inner) / (inner[-1] - inner[0] - starting)
                found[f"{model}_per_second_without_starts"] = round(steady, 2)
    if away:
        found["start_seconds"] = [round(ready - killed, 1) for killed, ready in away]
    return found | _asked_again(experiment, log, [killed for killed, _ in away])


def _asked_again(experiment: Any, log: Path, kills: list[float]) -> dict[str, int]:
    """Requests that were begun after the response to the same task and policy had been stored; and the
    answers that were lost, of which so many had arrived before a kill.
    """
    from engine.models import Response

    stored: dict[tuple[str, str], list[float]] = {}
    rows = Response.objects.filter(policy__experiment=experiment, state=Response.State.DONE)
    for model, task, done_at in rows.values_list("model", "task__prompt", "done_at"):
        if done_at is not None:
            stored.setdefault((model, task), []).append(done_at.timestamp())
    answers: dict[tuple[str, str], list[float]] = {}
    late = 0
    for line in log.read_text().splitlines():
        model, task, status, began, ended = json.loads(line)
        if times := stored.get((model, task)):
            late += began > max(times)
            if status == 200:
                answers.setdefault((model, task), []).append(ended)
    arrived = 0
    for killed_at in kills:
        for key, times in stored.items():
            # A kill follows long after the one before: what was lost then has been stored since.
            recent = [ended for ended in answers[key] if killed_at - 2 < ended < killed_at]
            arrived += max(0, len(recent) - sum(killed_at - 2 < at < killed_at + 1 for at in times))
    lost = sum(map(len, answers.values())) - sum(map(len, stored.values()))
    return {"after_stored": late, "answers_lost": lost, "of_which_had_arrived": arrived}


def measure(folder: Path, responses: int) -> dict[str, Any]:
    """The three rounds: the healthy connection alone, all four, and all four with three kills."""
    from engine.models import Connection

    log = folder / "asked.jsonl"
    log.touch()
    each = responses // len(MODELS)
    found: dict[str, Any] = {}
    with _server(log) as url:
        for model in MODELS:
            Connection.objects.create(
                name=model, provider="compatible", model_id=model, address=url, everybody=True,
                at_once=AT_ONCE, answer_seconds=120,
            )  # fmt: skip
        worker = _Worker(folder)
        try:
            for name, models, kills in (
                ("alone", MODELS[:1], 0), ("together", MODELS, 0), ("killed", MODELS, 3)
            ):  # fmt: skip
                experiment = _plan(name, models, each)
                found[name] = _write(experiment, worker, kills, log)
                print(name, json.dumps(found[name]), flush=True)
        finally:
            worker.end()
    alone = found["alone"]["healthy_per_second"]
    for name in ("together", "killed"):
        for speed in ("healthy_per_second", "healthy_per_second_without_starts"):
            if speed in found[name]:
                found[f"{name}: {speed} / alone"] = round(found[name][speed] / alone, 3)
    return found


def main() -> None:
    options = options_of(__doc__, None, responses=2000)
    with installation(
        GENERATION_BACKEND="remote", ALLOW_PRIVATE_CONNECTIONS="true", CLAIM_SECONDS="10", **ONE_THREAD
    ) as folder:
        print(json.dumps(measure(folder, options.responses)))


if __name__ == "__main__":
    main()

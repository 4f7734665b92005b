"""The demo's human experiment on one backend after another: the same configuration but for the backend's
name.

    python -m benchmarks.generation_backends [--backends embedded vllm remote] [--clicks 60]

Needs an environment with vLLM for ``vllm`` and ``remote`` (``.ci/vllm-tests`` makes one): the server of the
latter is ``vllm serve``, started here on a free port. All of them run the repository's small model, on the
CPU. Real Celery workers plan and write; the annotator is simulated, prefers right answers, and among those
the shorter one. Each experiment names its backend in its settings; the environment of all workers is the same
but for GENERATION_BACKEND. Greedy texts are compared with those of the first backend.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.generation_throughput import environment_of
from benchmarks.installation import installation

COLUMNS = ["backend", "clicks", "written", "failed", "right", "same greedy text"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of our own, ended afterwards."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=120)


def worker(queue: str, folder: Path, **environment: str) -> Any:
    command = (
        f"-m celery -A llmpo_site worker -P solo -Q {queue} -n {queue}@%h --without-gossip --without-mingle"
    )
    return running([sys.executable, *command.split()], folder / f"{queue}.log", **environment)


@contextmanager
def vllm_serve(folder: Path, port: int) -> Iterator[None]:
    """vLLM's own server with the small model, up and answering."""
    # The server's engine always runs in a process of its own.
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", os.environ["GENERATION_MODEL"],
        "--port", str(port), "--dtype", "float32", "--max-model-len", "512", "--enforce-eager",
        "--max-num-batched-tokens", "32768", "--kv-cache-memory-bytes", str(256 << 20),
        "--generation-config", "vllm",
    ]  # fmt: skip
    log = folder / "server.log"
    with running(command, log, VLLM_ENABLE_V1_MULTIPROCESSING="1") as server:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                if server.poll() is not None:
                    sys.exit(f"The server ended:\n{log.read_text()[-4000:]}")
                time.sleep(1)
        yield


def click_through(experiment: Any, clicks: int, patience_seconds: float = 600.0) -> int:
    """Let one simulated annotator judge until so many clicks or the conclusion;
    returns how many there were.
    """
    from engine.judges.rule import judge  # noqa: PLC0415
    from engine.models import Check, Experiment, Membership, User  # noqa: PLC0415
    from engine.services.checks import answer_check, expected_choice  # noqa: PLC0415
    from engine.services.judging import judge_leased  # noqa: PLC0415
    from engine.services.serving import desk  # noqa: PLC0415
    from engine.tasks import advance, wake  # noqa: PLC0415

    user = User.objects.create_user(f"annotator of {experiment.pk}")
    Membership.objects.create(experiment=experiment, user=user, role=Membership.Role.ANNOTATOR)
    deadline = time.monotonic() + patience_seconds
    done = 0
    while done < clicks and time.monotonic() < deadline:
        experiment.refresh_from_db()
        if experiment.state == Experiment.State.CONCLUDED:
            break
        lease = next(iter(desk(experiment=experiment, annotator=user, n_wanted=1).pairs), None)
        if lease is None:
            wake(advance, experiment.pk)
            time.sleep(0.3)
            continue
        if isinstance(lease, Check):
            right = expected_choice(lease)
            answer_check(experiment_id=experiment.pk, token=lease.token, annotator=user, choice=right)
            continue
        pair = lease.comparison
        verdict = judge(
            left=pair.left.text,
            right=pair.right.text,
            reference=pair.task.reference,
            prefer="concise",
            seed=pair.pk,
        )
        judge_leased(experiment_id=experiment.pk, token=lease.token, annotator=user, choice=verdict.choice)
        wake(advance, experiment.pk)
        done += 1
    return done


def greedy_texts(backend: str) -> list[str]:
    """Output of ``check_generation`` for ten tasks of the demo at temperature 0, in a process of its own."""
    code = (
        "import django, json; django.setup()\n"
        "from engine.domain.conversations import chat\n"
        "from engine.generation import registry\n"
        "from engine.generation.base import GenerationRequest, SamplingParams\n"
        "from labeling.demo import human_spec\n"
        "ask = [GenerationRequest(n, chat(task.prompt + '\\n\\nThink step by step, then give the answer.',"
        " 'You are a careful tutor. Check every step.'), SamplingParams(temperature=0.0, max_tokens=64))"
        " for n, task in enumerate(human_spec().tasks[:10])]\n"
        "texts = {o.key: getattr(o, 'text', '') for o in registry.backend().generate(ask)}\n"
        "print('\\n' + json.dumps([texts[n] for n in range(10)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"GENERATION_BACKEND": backend},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def run(backend: str, clicks: int, folder: Path) -> dict[str, Any]:
    """The experiment on one backend."""
    from engine.judges.rule import is_correct  # noqa: PLC0415 - needs Django
    from engine.models import Response  # noqa: PLC0415
    from engine.services.drafts import create_experiment  # noqa: PLC0415
    from engine.services.experiments import start  # noqa: PLC0415
    from labeling.demo import human_spec  # noqa: PLC0415

    spec = human_spec()
    spec = replace(spec, name=f"{spec.name} ({backend})", settings={**spec.settings, "backend": backend})
    experiment = create_experiment(spec=spec)
    with worker("control", folder), worker("generation", folder, GENERATION_BACKEND=backend):
        start(experiment_id=experiment.pk)
        done = click_through(experiment, clicks)
    rows = Response.objects.filter(policy__experiment=experiment).select_related("task")
    written = [row for row in rows if row.state == Response.State.DONE]
    if not written:
        sys.exit(f"{backend} wrote nothing:\n{(folder / 'generation.log').read_text()[-4000:]}")
    return {
        "backend": backend,
        "clicks": done,
        "written": len(written),
        "failed": sum(row.state == Response.State.FAILED and row.attempts > 0 for row in rows),
        "right": round(statistics.mean(is_correct(row.text, row.task.reference) for row in written), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=["embedded", "vllm", "remote"])
    parser.add_argument("--clicks", type=int, default=60)
    arguments = parser.parse_args()
    port = free_port()
    environment = environment_of("vllm")
    environment |= {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_MODEL": environment.get("GENERATION_MODEL", os.environ.get("GENERATION_MODEL", "")),
        "ALLOW_PRIVATE_CONNECTIONS": "true",
    }
    results: list[dict[str, Any]] = []
    texts: list[list[str]] = []
    with installation(**environment) as folder:
        print("  ".join(f"{column:>16}" for column in COLUMNS))
        for backend in arguments.backends:
            with ExitStack() as stack:
                if backend == "remote":
                    stack.enter_context(vllm_serve(folder, port))
                result = run(backend, arguments.clicks, folder)
                texts.append(greedy_texts(backend))
            same = sum(a == b for a, b in zip(texts[0], texts[-1], strict=True))
            results.append(result | {"same greedy text": f"{same} of {len(texts[0])}"})
            print("  ".join(f"{results[-1][column]!s:>16}" for column in COLUMNS), flush=True)
    print(json.dumps({"benchmark": "generation_backends", "results": results}))


if __name__ == "__main__":
    main()

"""The whole path from planned rows to stored texts, against one bare batched call of the same engine.

    python -m benchmarks.generation_throughput --backend smollm2 [--responses 512] [--rounds 9]
    python -m benchmarks.generation_throughput --backend vllm [--tokens 200]

Path: the rows of a 6-policy experiment wait. A message wakes a real Celery worker, which claims them, has its
backend write them and stores them. The time runs from the message to the last stored row. Bare: the same
prompts, sampling and seeds in one call in this process (for vLLM: ``LLM.chat``). Both engines are loaded and
warm, and take turns, so that a busy machine is as busy for one as for the other. GENERATION_* variables of
the environment are kept; without them vLLM runs the repository's small model, on a CPU in this process. Two
engines share a GPU only if each takes less than half of it:
GENERATION_ENGINE_OPTIONS='{"gpu_memory_utilization": 0.45}'.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.installation import installation

STRATEGIES = {
    "Direct": {},
    "Steps": {"instruction": "Think step by step."},
    "Explain": {"instruction": "Answer first, then explain."},
}
PROMPTS = {"None": {"text": ""}, "Tutor": {"text": "You are a patient tutor. Be exact."}}
TASKS = ["12 29", "93 48", "government", "I have a pig, two ducks, and a dog. How many animals do I have?"]


def environment_of(backend: str) -> dict[str, str]:
    """Default environment variables, used unless the caller's environment sets them."""
    environment = {"GENERATION_BACKEND": backend, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if backend == "vllm" and "GENERATION_MODEL" not in os.environ:
        environment |= {
            "GENERATION_MODEL": str(Path(__file__).parents[1] / "benchmarks/tinylm/model"),
            "GENERATION_DTYPE": "float32",
            "GENERATION_MAX_LENGTH": "512",
            "GENERATION_ENGINE_OPTIONS": json.dumps(
                {
                    "enforce_eager": True,
                    "kv_cache_memory_bytes": 256 << 20,
                    # vLLM 0.32 on a CPU cannot split the prompt of a request that has a seed.
                    "max_num_batched_tokens": 32768,
                }
            ),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
    return environment


@contextmanager
def celery_worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A generation worker as in production."""
    command = "-m celery -A llmpo_site worker -P solo -Q generation --without-gossip --without-mingle"
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen([sys.executable, *command.split()], stdout=log, stderr=log)
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait(timeout=60)


def plan(name: str, responses: int, tokens: int) -> Any:
    """An experiment with so many waiting responses, of at most so many tokens."""
    from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec  # noqa: PLC0415
    from engine.models import Response  # noqa: PLC0415 - needs Django
    from engine.services.drafts import create_experiment  # noqa: PLC0415
    from engine.services.experiments import start  # noqa: PLC0415
    from engine.services.planning import advance  # noqa: PLC0415

    spec = ExperimentSpec(
        name=name,
        factors=[
            FactorSpec("Prompt", "prompt", PROMPTS),
            FactorSpec("Strategy", "strategy", STRATEGIES),
            FactorSpec("Draw", "sampling", {"Usual": {"temperature": 0.7, "max_tokens": tokens}}),
        ],
        tasks=[TaskSpec(task) for task in TASKS],
    )
    experiment = create_experiment(spec=spec)
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    waiting = Response.objects.filter(policy__experiment=experiment).order_by("pk")
    surplus = list(waiting.values_list("pk", flat=True)[responses:])
    Response.objects.filter(pk__in=surplus).update(state=Response.State.FAILED)
    return experiment


def write_by_path(experiment: Any, worker: subprocess.Popen[bytes], log: Path) -> tuple[int, float]:
    """Tokens and seconds from the message to the last stored row."""
    from django.db.models import Max, Sum  # noqa: PLC0415
    from django.utils import timezone  # noqa: PLC0415

    from engine.models import Response  # noqa: PLC0415
    from engine.tasks import generate  # noqa: PLC0415

    rows = Response.objects.filter(policy__experiment=experiment)
    began = timezone.now()
    generate.apply_async()
    while rows.filter(state__in=[Response.State.WAITING, Response.State.GENERATING]).exists():
        if worker.poll() is not None or "The generation backend does not work" in log.read_text():
            sys.exit(f"The worker does not write:\n{log.read_text()[-4000:]}")
        time.sleep(0.2)
    done = rows.filter(state=Response.State.DONE)
    figures = done.aggregate(tokens=Sum("completion_tokens"), end=Max("done_at"))
    return figures["tokens"], (figures["end"] - began).total_seconds()


def requests_of(experiment: Any) -> list[Any]:
    """The requests that the worker sent to its backend."""
    from engine.generation.responses import composition_of, request_for  # noqa: PLC0415
    from engine.models import Response  # noqa: PLC0415

    rows = Response.objects.filter(policy__experiment=experiment, state=Response.State.DONE)
    return [
        request_for(composition_of(row.policy), key=row.pk, task=row.task, seed=row.seed)
        for row in rows.select_related("task", "policy").prefetch_related("policy__levels__factor")
    ]


def bare_call(backend: Any) -> Callable[[list[Any]], int]:
    """A function that writes all requests in one call of the engine and says how many tokens that were."""
    if backend.name != "vllm":
        return lambda requests: sum(outcome.completion_tokens for outcome in backend.generate(requests))
    vllm_backend = importlib.import_module("engine.generation.vllm")

    def chat(requests: list[Any]) -> int:
        outputs = backend._llm.chat(
            [backend._messages(request) for request in requests],
            [vllm_backend._sampling(request) for request in requests],
            use_tqdm=False,
        )
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return chat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["smollm2", "vllm"], required=True)
    parser.add_argument("--responses", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=96, help="the most that a response may have")
    arguments = parser.parse_args()
    buffer = str(arguments.responses // 2 + 1)
    environment = environment_of(arguments.backend)
    with installation(BUFFER_MIN=buffer, BUFFER_MAX=buffer, **environment) as folder:
        from engine.generation.registry import backend  # noqa: PLC0415

        bare = bare_call(backend())
        path_rates, bare_rates = [], []
        with celery_worker(folder) as worker:
            for number in range(arguments.rounds + 1):
                experiment = plan(f"Round {number}", arguments.responses, arguments.tokens)
                tokens, seconds = write_by_path(experiment, worker, folder / "worker.log")
                requests = requests_of(experiment)
                began = time.perf_counter()
                bare_tokens = bare(requests)
                bare_seconds = time.perf_counter() - began
                if number == 0:
                    # Both have loaded their engines meanwhile.
                    print(f"{'round':>6} {'path tokens/s':>14} {'bare tokens/s':>14} {'ratio':>7}")
                    continue
                path_rates.append(tokens / seconds)
                bare_rates.append(bare_tokens / bare_seconds)
                ratio = path_rates[-1] / bare_rates[-1]
                print(
                    f"{number:>6} {path_rates[-1]:>14.0f} {bare_rates[-1]:>14.0f} {ratio:>7.2f}", flush=True
                )
    print(
        json.dumps(
            {
                "benchmark": "generation_throughput",
                "backend": arguments.backend,
                "responses": arguments.responses,
                "rounds": arguments.rounds,
                "tokens": arguments.tokens,
                "path_tokens_per_second": round(statistics.median(path_rates)),
                "bare_tokens_per_second": round(statistics.median(bare_rates)),
                "ratio": round(
                    statistics.median(p / b for p, b in zip(path_rates, bare_rates, strict=True)), 3
                ),
            }
        )
    )


if __name__ == "__main__":
    main()

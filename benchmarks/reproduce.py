"""The figures of the paper's section "Numerical Experiments", drawn again.

    python -m benchmarks.reproduce                                  # all of them, into var/reproduction
    python -m benchmarks.reproduce --figures unstructured --runs 20

`unstructured` and `structured`: how often each sampling rule names the best policy after so many comparisons,
and when it stops. `real`: the former on text that a small model writes, judged by rule. Results are kept
in the output folder, and an interrupted run goes on from there. After a change of the code or of the model,
delete the folder. docs/reproduction.md has the results. The last line is JSON.
"""

import argparse
import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Curves, draw_pcs, draw_stopping
from benchmarks.real_text import POLICIES, PREFER, Judged, judge_pool, save_json, write_pool
from benchmarks.simulated import Instance, Job, Summary, paper_instance, run
from engine.core.samplers import SAMPLERS

SYNTHETIC = ("unstructured", "structured")
FIGURES = (*SYNTHETIC, "real")
# The paper's 200, but fewer where a run takes long, and more where it takes next to nothing.
RUNS = {"unstructured": 200, "structured": 100, "real": 1000}
SYNTHETIC_CAP = 30_000
REAL_CAPS = {"object_counting": 90, "word_unscrambling": 90, "second_word_letter": 90, "sum": 60}
DELTA = 0.05
HEURISTIC = tuple((sampler, "heuristic") for sampler in SAMPLERS)
CERTIFIED = (("balanced", "certified"),)


def run_once(path: Path, job: Job) -> Summary:
    """The job's summary, from the file if it is there."""
    if not path.exists():
        save_json(path, asdict(run(job)))
    row = json.loads(path.read_text("utf-8"))
    return Summary(**row | {"pcs": {int(mark): share for mark, share in row["pcs"].items()}})


def digest(*parts: bytes) -> str:
    """A short name of what a result depends on."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def compare(
    name: str,
    instance: Instance,
    *,
    designs: Iterable[tuple[str, str]],
    marks: tuple[int, ...],
    options: argparse.Namespace,
    executor: Executor,
) -> Curves:
    """Every design on an instance up to the last mark; a line for each."""
    cap, n_runs = marks[-1], len(instance.mu)
    folder = options.out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [Job(sampler, stop, instance, DELTA, cap, marks, options.seed + 1) for sampler, stop in designs]
    # Other responses or settings make another instance, and so other files.
    settings = str((DELTA, marks, options.seed)).encode()
    setting = digest(instance.mu.tobytes(), instance.right.tobytes(), settings)
    paths = [folder / f"{name}-{job.sampler}-{job.stopping}-{setting}.json" for job in jobs]
    rows = executor.map(run_once, paths, jobs)
    print(f"\n{name}: {n_runs} runs, at most {cap:,} comparisons")
    shown = [marks[int(place)] for place in np.linspace(0, len(marks) - 1, 5)[1:]]
    curves = Curves({}, n_runs, cap)
    for job, row in zip(jobs, rows, strict=True):
        curves.rows[job.sampler, job.stopping] = row
        pcs = "  ".join(f"{mark}: {row.pcs[mark]:.3f}" for mark in shown)
        print(
            f"  {job.sampler:12s} {job.stopping:10s} {row.mean:8.0f} ± {row.half_width:4.0f}"
            f"  stopped {row.stopped:.2f}  errors {row.error_rate:.3f}  PCS {pcs}  [{row.seconds:.0f} s]",
            flush=True,
        )
    return curves


def synthetic(space: str, options: argparse.Namespace, executor: Executor) -> dict[str, Any]:
    """The two figures of a synthetic instance."""
    n_runs = options.runs or RUNS[space]
    instance = paper_instance(space, n_runs, delta=DELTA, seed=options.seed)
    # In steps of 20: in a structured space the simulation looks no more often.
    spaced = 20 * np.round(np.geomspace(options.cap / 300, options.cap, 40) / 20)
    marks = np.unique(np.maximum(spaced, 20)).astype(int).tolist()
    curves = compare(
        space,
        instance,
        designs=HEURISTIC + CERTIFIED,
        marks=(*marks[:-1], options.cap),
        options=options,
        executor=executor,
    )
    files = [options.out / f"{space}-pcs.svg", options.out / f"{space}-stopping.svg"]
    draw_pcs(files[0], {"": curves}, level=0.95, logarithmic=True)
    formula = f"{next(iter(instance.yardsticks))} kl(δ, 1 - δ)"
    draw_stopping(files[1], curves, yardstick=instance.yardsticks["yardstick"], formula=formula)
    return {"files": [str(file) for file in files], "table": table(curves), **instance.yardsticks}


def real(options: argparse.Namespace, executor: Executor) -> dict[str, Any]:
    """The figure on written text."""
    kinds, folder = list(PREFER), options.out / "responses"
    write_pool(kinds, options.tasks, options.samples, folder, executor)
    look = partial(judge_pool, n_tasks=options.tasks, n_samples=options.samples, folder=folder)
    judged = dict(zip(kinds, executor.map(look, kinds), strict=True))
    panels, report = {}, {}
    for kind in kinds:
        instance = judged[kind].instance(options.runs or RUNS["real"], options.seed)
        marks = tuple(range(5, REAL_CAPS[kind] + 1, 5))
        panels[kind] = compare(
            kind, instance, designs=HEURISTIC, marks=marks, options=options, executor=executor
        )
        print_policies(judged[kind])
        report[kind] = {
            "oracle": np.flatnonzero(judged[kind].oracle).tolist(),
            "mu": judged[kind].mu.round(4).tolist(),
            "accuracy": judged[kind].accuracy.round(4).tolist(),
            "table": table(panels[kind]),
        }
    file = options.out / "real-pcs.svg"
    draw_pcs(file, {kind.replace("_", " "): panel for kind, panel in panels.items()}, level=0.9)
    return {"files": [str(file)], "policies": ["+".join(policy) for policy in POLICIES], "tasks": report}


def print_policies(judged: Judged) -> None:
    """The true values, known to the oracle only."""
    for k, policy in enumerate(POLICIES):
        worst = np.delete(judged.mu[k], k).min()
        mark = "  in the oracle best set" if judged.oracle[k] else ""
        print(
            f"  {'+'.join(policy):15s} correct {judged.accuracy[k]:.3f}"
            f"  wins at least {worst:.3f} of its comparisons with any other{mark}"
        )


def table(curves: Curves) -> dict[str, Any]:
    """Every design's summary, by name."""
    return {"+".join(design): asdict(row) for design, row in curves.rows.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the figures and print their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--runs", type=int, help=f"runs of each design, instead of {RUNS}")
    parser.add_argument("--cap", type=int, default=SYNTHETIC_CAP, help="of the synthetic experiments")
    parser.add_argument("--tasks", type=int, default=150, help="of each kind that are answered")
    parser.add_argument("--samples", type=int, default=4, help="responses of a policy to a task")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=Path("var/reproduction"))
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as executor:
        figures = {
            figure: real(options, executor) if figure == "real" else synthetic(figure, options, executor)
            for figure in options.figures
        }
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    summary = {
        "seed": options.seed,
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(sum(usage.ru_utime + usage.ru_stime for usage in used), 1),
        "figures": figures,
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main(sys.argv[1:])

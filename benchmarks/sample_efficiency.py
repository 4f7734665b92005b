"""How many comparisons each sampling rule takes to decide, under each stopping rule.

    python -m benchmarks.sample_efficiency --space unstructured --runs 200 --jobs 2
    python -m benchmarks.sample_efficiency --space structured --runs 200 --jobs 2

All competitors face the same instances, cap and risk level. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.instances import preference_matrix, structured_instance, unstructured_instances
from engine.core.allocation import best_policy, lower_bound, pairwise_characteristic_time
from engine.core.maxmin import maxmin_allocation
from engine.core.problem import BradleyTerry, Space
from engine.core.samplers import SAMPLERS
from engine.core.simulate import simulate
from engine.core.thresholds import heuristic_threshold
from engine.core.types import FloatArray

MARKS = (500, 1000, 2000, 5000, 10_000, 20_000)
# U* between 500 and 700, as in the paper's structured experiment.
STRUCTURED_SEED = 39
Row = dict[str, object]


@dataclass(frozen=True)
class Job:
    """One sampler under one stopping rule."""

    sampler: str
    stopping: str
    mu: FloatArray
    space: Space | None
    options: argparse.Namespace


def run(job: Job) -> Row:
    """Simulate and summarise: means with half-widths of their 95% intervals, and processor time."""
    start = time.process_time()
    runs = simulate(
        job.mu,
        space=job.space,
        sampler=job.sampler,
        stopping=job.stopping,
        delta=job.options.delta,
        budget=job.options.cap,
        marks=MARKS,
        observe_every=20,
        seed=job.options.seed + 1,
    )
    truth = best_policy(job.mu)
    counts = runs.n_comparisons
    return {
        "mean": round(float(counts.mean()), 1),
        "half_width": round(1.96 * float(counts.std(ddof=1)) / np.sqrt(counts.size), 1),
        "stopped": round(float(runs.stopped.mean()), 4),
        "error_rate": round(float(np.mean(runs.stopped & (runs.best != truth))), 4),
        "correct": round(float(np.mean(runs.best == truth)), 4),
        "pcs": {
            mark: round(float(np.mean(guess == truth)), 3)
            for mark, guess in zip(runs.marks, runs.guesses, strict=True)
        },
        "seconds": round(time.process_time() - start, 1),
    }


def print_row(job: Job, row: Row, yardstick: float) -> None:
    """One line of the table."""
    pcs = " ".join(f"{value:.2f}" for value in row["pcs"].values())
    print(
        f"{job.sampler:12s} {job.stopping:10s} {row['mean']:8.0f} ± {row['half_width']:4.0f}"
        f"  x{row['mean'] / yardstick:5.2f}  stopped {row['stopped']:.2f}  errors {row['error_rate']:.3f}"
        f"  PCS {pcs}  [{row['seconds']:.0f} s]",
        flush=True,
    )


def instance(options: argparse.Namespace) -> tuple[FloatArray, Space | None, Row]:
    """Preference matrices of all runs, the space, and the yardsticks."""
    if options.space == "unstructured":
        mu = unstructured_instances(options.runs, options.seed)
        characteristic = float(np.mean([pairwise_characteristic_time(matrix) for matrix in mu]))
        return mu, None, {"T*": characteristic, "yardstick": lower_bound(characteristic, options.delta)}
    features, theta = structured_instance(32, 6, STRUCTURED_SEED)
    surrogate = 1.0 / maxmin_allocation(features, theta, tolerance=1e-6).separation
    mu = np.repeat(preference_matrix(features @ theta)[None], options.runs, axis=0)
    # The limit for the heuristic threshold: the t that solves t = U* threshold(t).
    limit = surrogate
    for _ in range(100):
        limit = surrogate * float(heuristic_threshold(options.delta, limit))
    yardsticks = {
        "U*": surrogate,
        "yardstick": lower_bound(surrogate, options.delta),
        "U*_threshold": limit,
        "instance_seed": STRUCTURED_SEED,
    }
    return mu, BradleyTerry(features), yardsticks


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--space", choices=["unstructured", "structured"], default="unstructured")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--cap", type=int, default=30_000)
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--stops", nargs="+", default=["certified", "heuristic"])
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    mu, space, yardsticks = instance(options)
    print(
        {name: round(value, 1) for name, value in yardsticks.items()}, "x: over yardstick; PCS after", MARKS
    )
    jobs = [
        Job(sampler, stop, mu, space, options) for sampler, stop in product(options.samplers, options.stops)
    ]
    table: dict[str, Row] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for job, row in zip(jobs, pool.map(run, jobs), strict=True):
            table[f"{job.sampler}+{job.stopping}"] = row
            print_row(job, row, float(yardsticks["yardstick"]))
    summary = {
        "space": options.space,
        "runs": options.runs,
        "seed": options.seed,
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(sum(float(row["seconds"]) for row in table.values()), 1),
    }
    print(json.dumps(summary | yardsticks | {"table": table}))


if __name__ == "__main__":
    main(sys.argv[1:])

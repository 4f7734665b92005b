"""Comparisons that each sampling rule needs under each stopping rule.

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
from dataclasses import asdict
from itertools import product

from benchmarks.simulated import Job, Summary, paper_instance, run
from engine.core.samplers import SAMPLERS

MARKS = (500, 1000, 2000, 5000, 10_000, 20_000)


def print_row(job: Job, row: Summary) -> None:
    """One line of the table."""
    pcs = " ".join(f"{value:.2f}" for value in row.pcs.values())
    print(
        f"{job.sampler:12s} {job.stopping:10s} {row.mean:8.0f} ± {row.half_width:4.0f}"
        f"  x{row.mean / job.instance.yardsticks['yardstick']:5.2f}  stopped {row.stopped:.2f}"
        f"  errors {row.error_rate:.3f}  PCS {pcs}  [{row.seconds:.0f} s]",
        flush=True,
    )


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
    parser.add_argument("--plain", action="store_true", help="leave the streams out")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    instance = paper_instance(options.space, options.runs, delta=options.delta, seed=options.seed)
    print(
        {name: round(value, 1) for name, value in instance.yardsticks.items()},
        "x: over yardstick; PCS after",
        MARKS,
    )
    jobs = [
        Job(sampler, stop, instance, options.delta, options.cap, MARKS, options.seed + 1, not options.plain)
        for sampler, stop in product(options.samplers, options.stops)
    ]
    table: dict[str, Summary] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for job, row in zip(jobs, pool.map(run, jobs), strict=True):
            table[f"{job.sampler}+{job.stopping}"] = row
            print_row(job, row)
    summary = {
        "space": options.space,
        "runs": options.runs,
        "plain": options.plain,
        "seed": options.seed,
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(sum(row.seconds for row in table.values()), 1),
        "table": {name: asdict(row) for name, row in table.items()},
    }
    print(json.dumps(summary | instance.yardsticks))


if __name__ == "__main__":
    main(sys.argv[1:])

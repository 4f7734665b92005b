"""How many comparisons each sampling rule takes to decide, under each stopping rule.

    python -m benchmarks.sample_efficiency --space unstructured --runs 200

All competitors face the same instances, cap and risk level. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from benchmarks.instances import unstructured_instances
from engine.core.allocation import lower_bound, pairwise_characteristic_time
from engine.core.samplers import SAMPLERS
from engine.core.simulate import SimulatedRuns, simulate

MARKS = (500, 1000, 2000, 5000, 10_000, 20_000)


def summarise(runs: SimulatedRuns, bound: float) -> dict[str, object]:
    """Figures of one sampler and stop: means with half-widths of their 95% intervals."""
    n_runs = runs.n_comparisons.size
    half_width = 1.96 * runs.n_comparisons.std(ddof=1) / np.sqrt(n_runs)
    return {
        "mean": round(float(runs.n_comparisons.mean()), 1),
        "half_width": round(float(half_width), 1),
        "over_bound": round(float(runs.n_comparisons.mean()) / bound, 3),
        "stopped": round(float(runs.stopped.mean()), 4),
        "error_rate": round(float(np.mean(runs.stopped & (runs.best != 0))), 4),
        "correct": round(float(np.mean(runs.best == 0)), 4),
        "pcs": {
            mark: round(float(np.mean(g == 0)), 3) for mark, g in zip(runs.marks, runs.guesses, strict=True)
        },
    }


def print_row(sampler: str, stopping: str, row: dict[str, object], seconds: float) -> None:
    """One line of the table."""
    pcs = " ".join(f"{value:.2f}" for value in row["pcs"].values())
    print(
        f"{sampler:12s} {stopping:10s} {row['mean']:9.0f} ± {row['half_width']:5.0f}  x{row['over_bound']:6.2f}"
        f"  stopped {row['stopped']:.2f}  errors {row['error_rate']:.3f}  PCS {pcs}  [{seconds:.0f} s]",
        flush=True,
    )


def unstructured(options: argparse.Namespace) -> dict[str, object]:
    """The paper's K = 16 instance."""
    mu = unstructured_instances(options.runs, options.seed)
    times = [pairwise_characteristic_time(matrix) for matrix in mu]
    bound = lower_bound(float(np.mean(times)), options.delta)
    print(f"T* = {np.mean(times):.0f} on average, T* kl(δ, 1-δ) = {bound:.0f}; PCS after {MARKS}")
    table: dict[str, object] = {}
    for sampler in options.samplers:
        for stopping in options.stops:
            start = time.perf_counter()
            runs = simulate(
                mu,
                sampler=sampler,
                stopping=stopping,
                delta=options.delta,
                budget=options.cap,
                marks=MARKS,
                seed=options.seed + 1,
            )
            row = summarise(runs, bound)
            table[f"{sampler}+{stopping}"] = row
            print_row(sampler, stopping, row, time.perf_counter() - start)
    return {
        "space": "unstructured",
        "characteristic_time": float(np.mean(times)),
        "bound": bound,
        "table": table,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--space", choices=["unstructured"], default="unstructured")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--cap", type=int, default=30_000)
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--stops", nargs="+", default=["certified", "heuristic"])
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    result = unstructured(options)
    result |= {"runs": options.runs, "seed": options.seed, "seconds": round(time.perf_counter() - start, 1)}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])

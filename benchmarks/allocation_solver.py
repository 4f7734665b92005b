"""The max-min allocation solver against CVXPY with Clarabel, in the same process.

    python -m benchmarks.allocation_solver

Cold starts solve the paper's structured instance; warm ones a slightly moved estimate from that solution.
Times are medians of processor time, which other programs do not disturb; set OMP_NUM_THREADS=1, or threads
count twice. CVXPY's include setting the problem up, which every new estimate needs; a solve that takes longer
than --cvxpy-limit is broken off. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np

from benchmarks.instances import structured_instance
from engine.core.maxmin import MaxMinAllocation, maxmin_allocation
from engine.core.types import FloatArray

# K, d and the seed of the instance; U* is a few hundred to a few thousand in each.
SIZES = ((32, 6, 39), (64, 8, 1), (100, 10, 2), (200, 12, 3), (300, 12, 3))


def timed(solve: Callable[[], MaxMinAllocation], repeats: int) -> tuple[MaxMinAllocation, float]:
    """The solution and the median processor time (seconds)."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        solution = solve()
        seconds.append(time.process_time() - start)
    return solution, float(np.median(seconds))


def by_cvxpy(features: FloatArray, theta: FloatArray, repeats: int) -> tuple[float, float]:
    """Value of CVXPY's solution and the median processor time (seconds),
    to be run in a process of its own.
    """
    solution, seconds = timed(lambda: maxmin_allocation(features, theta, solver="cvxpy"), repeats)
    return solution.value, seconds


def limit_processor_time(seconds: int) -> None:
    """Have the system end this process once it has used up that much processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def measure(K: int, d: int, seed: int, options: argparse.Namespace) -> dict[str, object]:
    """All figures of one size."""
    features, theta = structured_instance(K, d, seed)
    moved = theta + 0.01 * np.random.default_rng(seed).standard_normal(d)
    cold, cold_s = timed(lambda: maxmin_allocation(features, theta), options.repeats)
    warm, warm_s = timed(lambda: maxmin_allocation(features, moved, start=cold), options.repeats)
    row: dict[str, object] = {
        "K": K,
        "d": d,
        "seed": seed,
        "U*": 1.0 / cold.separation,
        "cold_s": cold_s,
        "warm_s": warm_s,
        "cold_gap": cold.relative_gap,
        "warm_gap": warm.relative_gap,
    }
    if options.cvxpy_up_to >= K:
        limit = options.cvxpy_limit
        try:
            with ProcessPoolExecutor(1, initializer=limit_processor_time, initargs=(limit,)) as pool:
                value, cvxpy_s = pool.submit(by_cvxpy, features, theta, options.cvxpy_repeats).result()
            row |= {
                "cvxpy_s": cvxpy_s,
                "cold_speedup": cvxpy_s / cold_s,
                "warm_speedup": cvxpy_s / warm_s,
                "value_over_cvxpy": cold.value / value,
            }
        except BrokenProcessPool:
            row["cvxpy_error"] = f"broken off after {limit} s, or out of memory"
        except ArithmeticError as error:
            row["cvxpy_error"] = str(error)
    return row


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cvxpy-repeats", type=int, default=1)
    parser.add_argument("--cvxpy-limit", type=int, default=300, help="seconds for all its repeats together")
    parser.add_argument("--cvxpy-up-to", type=int, default=100, help="largest K to try with CVXPY")
    options = parser.parse_args(arguments)
    rows = []
    for K, d, seed in SIZES:
        row = measure(K, d, seed, options)
        rows.append(row)
        print(
            " ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()),
            flush=True,
        )
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

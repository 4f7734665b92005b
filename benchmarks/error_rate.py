"""Share of wrong certified decisions on instances made to cause them.

    python -m benchmarks.error_rate --runs 2000

Two kinds, both with one best policy. On the `edge` it leads every other by just the margin asked for, ε, so
that its null is true with nothing to spare: where nothing is assumed its e-process is then a martingale, and can do
no worse. With a `close` runner-up there is no margin, and a second policy that wins almost half of the time.

A run is an error when it stops and does not name the best policy, "no single best" included, and also when it
has ruled out the best policy and not stopped yet. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from scipy import special, stats

from benchmarks.instances import preference_matrix
from engine.core.problem import BradleyTerry, Space, Unstructured
from engine.core.simulate import simulate
from engine.core.types import FloatArray

SIZES = (3, 4, 5, 6)


@dataclass(frozen=True)
class Kind:
    """Strength of the best policy, number 0, against the others, and the horizon of a run.

    ``times`` as many runs as asked for are made, where errors come as often as they may and a bound on their rate has to be narrow.
    """

    epsilon: float
    runner_up: float
    others: float
    horizon: int
    times: int = 1


KINDS = {
    ("unstructured", "edge"): Kind(epsilon=0.1, runner_up=0.6, others=0.6, horizon=4000, times=4),
    ("unstructured", "close"): Kind(epsilon=0.0, runner_up=0.54, others=0.65, horizon=8000),
    ("structured", "edge"): Kind(epsilon=0.1, runner_up=0.6, others=0.6, horizon=600),
    ("structured", "close"): Kind(epsilon=0.0, runner_up=0.6, others=0.75, horizon=1200),
}


@dataclass(frozen=True)
class Cell:
    """One line of the table; `size` is K where nothing is assumed, and d in a Bradley-Terry space."""

    space: str
    kind: str
    size: int
    delta: float
    in_flight: int


def unstructured(kind: Kind, n_policies: int) -> tuple[Space, FloatArray]:
    """Policy 0 beats the others as `kind` says, policy 1 the rest as policy 0 does, and the rest tie."""
    mu = np.full((n_policies, n_policies), 0.5)
    mu[:2, 2:], mu[2:, :2] = kind.others, 1.0 - kind.others
    mu[0, 1], mu[1, 0] = kind.runner_up, 1.0 - kind.runner_up
    if kind.runner_up == kind.others:
        mu[1, 2:] = mu[2:, 1] = 0.5
    return Unstructured(n_policies), mu


def structured(kind: Kind, n_features: int, seed: int) -> tuple[Space, FloatArray]:
    """2d policies whose strength is their first feature; the other features are random and worth nothing."""
    rng = np.random.default_rng(seed)
    features = 0.5 * rng.standard_normal((2 * n_features, n_features))
    features[:, 0] = -special.logit(kind.others)
    features[:2, 0] = 0.0, -special.logit(kind.runner_up)
    return BradleyTerry(features), preference_matrix(features[:, 0])


def upper_limit(errors: int, n_runs: int) -> float:
    """Upper end of the one-sided 95% Clopper-Pearson interval of a rate."""
    return 1.0 if errors == n_runs else float(stats.beta.ppf(0.95, errors + 1, n_runs - errors))


def measure(cell: Cell, options: argparse.Namespace) -> dict[str, object]:
    """Simulate and summarise."""
    start = time.process_time()
    kind = KINDS[cell.space, cell.kind]
    n_runs = options.runs * kind.times
    space, mu = (
        unstructured(kind, cell.size)
        if cell.space == "unstructured"
        else structured(kind, cell.size, options.seed)
    )
    runs = simulate(
        np.repeat(mu[None], n_runs, axis=0),
        space=space,
        sampler=options.sampler,
        delta=cell.delta,
        claim="best_if_any",
        streams=options.streams,
        epsilon=kind.epsilon,
        budget=kind.horizon,
        pending=cell.in_flight,
        observe_every=10,
        seed=options.seed,
    )
    errors = int(np.sum((runs.stopped & (runs.best != 0)) | runs.refuted[:, 0]))
    return asdict(cell) | {
        "runs": n_runs,
        "horizon": kind.horizon,
        "decided": float(runs.stopped.mean()),
        "comparisons": float(runs.n_comparisons.mean()),
        "error_rate": errors / n_runs,
        "upper_95": round(upper_limit(errors, n_runs), 5),
        "seconds": round(time.process_time() - start, 1),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--spaces", nargs="+", default=["unstructured", "structured"])
    parser.add_argument("--kinds", nargs="+", default=["edge", "close"])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--sampler", default="balanced")
    parser.add_argument("--streams", action="store_true", help="pool opponents in the evidence")
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args(arguments)
    cells = [
        Cell(*values)
        for values in product(options.spaces, options.kinds, options.sizes, (0.05, 0.2), (0, 20))
    ]
    rows = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(measure, cells, [options] * len(cells)):
            rows.append(row)
            print(
                f"{row['space']:12s} {row['kind']:5s} {row['size']}  δ {row['delta']:.2f}"
                f"  in flight {row['in_flight']:2d}  decided {row['decided']:.3f}"
                f" after {row['comparisons']:5.0f}  errors {row['error_rate']:.4f}"
                f"  upper 95% {row['upper_95']:.4f}  [{row['seconds']:.0f} s]",
                flush=True,
            )
    worst = max(float(row["upper_95"]) / float(row["delta"]) for row in rows)
    seconds = round(sum(float(row["seconds"]) for row in rows), 1)
    print(
        json.dumps(
            {
                "sampler": options.sampler,
                "worst_upper_over_delta": worst,
                "processor_seconds": seconds,
                "rows": rows,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])

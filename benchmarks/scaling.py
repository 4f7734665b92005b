"""Comparisons until the stop against the number of policies, the comparisons in flight, and the risk δ.

    python -m benchmarks.scaling
    python -m benchmarks.scaling --runs 5 --sizes 8 16 --in-flight --deltas

Random instances: strengths with a standard deviation of 0.5 in log-odds. Where nothing is assumed each run
has strengths of its own. In a Bradley-Terry space all runs share 6 random features, and the effect of each
feature differs by run. One axis varies at a time, from 16 policies, none in flight, δ = .05. The claim
"good_enough" has a margin of 5 points. A run is wrong where it names a policy about which the claim is false,
or names none. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.claims import true_claims
from benchmarks.instances import preference_matrix
from engine.core.problem import BradleyTerry, Space
from engine.core.simulate import simulate
from engine.core.types import Claim, FloatArray

SIZES = (8, 16, 32, 64, 128)
IN_FLIGHT = (0, 5, 10, 20, 50)
DELTAS = (0.2, 0.1, 0.05, 0.02, 0.01)
AXES = ("policies", "in flight", "risk")
# Spaces and claims, each a line of a picture. In a Bradley-Terry space the claims take about the same.
LINES = (
    ("unstructured", Claim.GOOD_ENOUGH),
    ("unstructured", Claim.BEST_IF_ANY),
    ("structured", Claim.GOOD_ENOUGH),
)
CAP = 10_000
SPREAD = 0.5
FEATURES = 6
MARGIN = 0.05


@dataclass(frozen=True)
class Cell:
    """One point of a line; ``axis`` is what varies along it."""

    axis: str
    space: str
    claim: str
    n_policies: int
    in_flight: int
    delta: float
    runs: int
    cap: int
    seed: int


def cells(
    sizes: tuple[int, ...],
    in_flight: tuple[int, ...],
    deltas: tuple[float, ...],
    *,
    runs: int,
    cap: int,
    seed: int,
) -> list[Cell]:
    """Every point, axis by axis."""
    points = [(AXES[0], size, 0, 0.05) for size in sizes]
    points += [(AXES[1], 16, pending, 0.05) for pending in in_flight]
    points += [(AXES[2], 16, 0, delta) for delta in deltas]
    return [
        Cell(axis, space, claim.value, size, pending, delta, runs, cap, seed)
        for axis, size, pending, delta in points
        for space, claim in LINES
    ]


def instance(cell: Cell) -> tuple[Space | None, FloatArray]:
    """The space, None where nothing is assumed, and the preference probabilities, shape (R, K, K)."""
    rng = np.random.default_rng([cell.seed, cell.n_policies])
    if cell.space == "unstructured":
        return None, preference_matrix(SPREAD * rng.standard_normal((cell.runs, cell.n_policies)))
    features = rng.standard_normal((cell.n_policies, FEATURES))
    theta = SPREAD / FEATURES**0.5 * rng.standard_normal((cell.runs, FEATURES))
    return BradleyTerry(features), preference_matrix(theta @ features.T)


def measure(cell: Cell) -> dict[str, Any]:
    """Simulate a point and summarise; a run that does not end counts as the cap."""
    start = time.process_time()
    space, mu = instance(cell)
    claim = Claim(cell.claim)
    epsilon = MARGIN if claim is Claim.GOOD_ENOUGH else 0.0
    runs = simulate(
        mu,
        space=space,
        claim=claim,
        epsilon=epsilon,
        delta=cell.delta,
        budget=cell.cap,
        pending=cell.in_flight,
        observe_every=20,
        seed=cell.seed + 1,
    )
    true = (runs.best >= 0) & true_claims(mu, claim, epsilon)[np.arange(cell.runs), runs.best]
    counts = runs.n_comparisons
    return asdict(cell) | {
        "mean": round(float(counts.mean()), 1),
        "half_width": round(1.96 * float(counts.std(ddof=1)) / cell.runs**0.5, 1),
        "ended": float(runs.stopped.mean()),
        "wrong": int(np.sum(runs.stopped & ~true)),
        "seconds": round(time.process_time() - start, 1),
    }


def show(row: dict[str, Any]) -> None:
    """One line of the table."""
    print(
        f"{row['axis']:9s} {row['space']:12s} {row['claim']:11s} K {row['n_policies']:3d}"
        f"  in flight {row['in_flight']:2d}  δ {row['delta']:.2f}"
        f"  {row['mean']:7.0f} ± {row['half_width']:4.0f}  ended {row['ended']:.2f}"
        f"  wrong {row['wrong']} of {row['runs']}  [{row['seconds']:.0f} s]",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--cap", type=int, default=CAP)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--in-flight", type=int, nargs="*", default=IN_FLIGHT)
    parser.add_argument("--deltas", type=float, nargs="*", default=DELTAS)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args(arguments)
    rows = []
    for cell in cells(
        tuple(options.sizes),
        tuple(options.in_flight),
        tuple(options.deltas),
        runs=options.runs,
        cap=options.cap,
        seed=options.seed,
    ):
        rows.append(measure(cell))
        show(rows[-1])
    print(json.dumps({"options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Share of wrong certified decisions on instances made to cause them.

    python -m benchmarks.error_rate
    python -m benchmarks.error_rate --runs 2000 --claims best_if_any --ties 0 --sizes 3 4 5 6

Every claim, with nothing assumed and in a Bradley-Terry space, with 0 and 20 comparisons in flight, without
ties and with 40% of them. Three kinds of instances:

* On the `edge` policy 0 leads every other by just the margin ε, so that a null is true with nothing to spare.
  Where nothing is assumed its e-process is then a martingale, and can do no worse. Naming another policy is
  wrong.
* With the best two `tied` it is wrong to name anybody the best, and right to find that there is no best.
* With a `close` runner-up policy 0 is the best, and a second one wins almost half of the time against it.

A run is an error when it stops on something wrong. For `best_if_any` it is one also when it has ruled out the
best policy and not stopped yet. The last line is JSON.
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
from scipy import special

from benchmarks.claims import true_claims
from benchmarks.installation import options_of
from benchmarks.instances import preference_matrix, upper_limit
from benchmarks.simulate import simulate
from engine.core.spaces import BradleyTerry, Space, Unstructured
from engine.core.types import Claim, FloatArray

# Kinds on which a claim is worth testing: of a tie "best_if_any" says nothing, and both of the best are good
# enough.
KINDS_OF = {
    Claim.BEST: ("tied", "close"),
    Claim.BEST_IF_ANY: ("edge", "close"),
    Claim.GOOD_ENOUGH: ("edge", "close"),
}
# Margin of "good_enough" where the instance has none of its own.
MARGIN = 0.05


@dataclass(frozen=True)
class Kind:
    """Strength of the best policy, number 0, against the others, and the horizon of a run.

    ``times`` as many runs as asked for are made. That is for errors that come as often as they may, where a
    bound on their rate has to be narrow.
    """

    epsilon: float
    runner_up: float
    others: float
    horizon: int
    times: int = 1


KINDS = {
    ("unstructured", "edge"): Kind(epsilon=0.1, runner_up=0.6, others=0.6, horizon=4000, times=4),
    ("unstructured", "close"): Kind(epsilon=0.0, runner_up=0.54, others=0.65, horizon=8000),
    ("unstructured", "tied"): Kind(epsilon=0.0, runner_up=0.5, others=0.6, horizon=2000, times=4),
    ("structured", "tied"): Kind(epsilon=0.0, runner_up=0.5, others=0.6, horizon=600),
    ("structured", "edge"): Kind(epsilon=0.1, runner_up=0.6, others=0.6, horizon=600),
    ("structured", "close"): Kind(epsilon=0.0, runner_up=0.6, others=0.75, horizon=1200),
}


@dataclass(frozen=True)
class Cell:
    """One line of the table; `size` is K where nothing is assumed, and d in a Bradley-Terry space."""

    claim: str
    space: str
    kind: str
    size: int
    delta: float
    in_flight: int
    ties: float


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


def right_answers(cell: Cell, mu: FloatArray, epsilon: float) -> list[int]:
    """Policies that it is right to name, and -1 where it is right that none is the best."""
    if cell.kind == "tied":
        return [-1]
    if cell.kind == "close" and cell.claim == Claim.GOOD_ENOUGH:
        return [int(b) for b in np.flatnonzero(true_claims(mu[None], Claim.GOOD_ENOUGH, epsilon)[0])]
    return [0]


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
    epsilon = kind.epsilon
    if cell.claim == Claim.GOOD_ENOUGH and cell.kind == "close":
        epsilon = MARGIN
    runs = simulate(
        np.repeat(mu[None], n_runs, axis=0),
        space=space,
        delta=cell.delta,
        claim=cell.claim,
        epsilon=epsilon,
        budget=kind.horizon,
        pending=cell.in_flight,
        ties=cell.ties,
        observe_every=10,
        seed=options.seed,
    )
    wrong = runs.stopped & ~np.isin(runs.best, right_answers(cell, mu, epsilon))
    if cell.claim == Claim.BEST_IF_ANY:
        wrong |= runs.refuted[:, 0]
    errors = int(np.sum(wrong))
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
    options = options_of(
        __doc__, arguments, runs=200, jobs=1, spaces=("unstructured", "structured"), claims=tuple(Claim),
        kinds=("edge", "tied", "close"), sizes=(4,), deltas=(0.05,), in_flight=(0, 20), ties=(0.0, 0.4),
        seed=2026,
    )  # fmt: skip
    settings = product(
        options.claims,
        options.spaces,
        options.kinds,
        options.sizes,
        options.deltas,
        options.in_flight,
        options.ties,
    )
    cells = [cell for cell in (Cell(*values) for values in settings) if cell.kind in KINDS_OF[cell.claim]]
    rows = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(measure, cells, [options] * len(cells)):
            rows.append(row)
            print(row, flush=True)
    worst = max(float(row["upper_95"]) / float(row["delta"]) for row in rows)
    print(json.dumps({"options": vars(options), "worst_upper_over_delta": worst, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

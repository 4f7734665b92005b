"""How often a certified decision is wrong on instances made to fool it: near-ties for the best.

    python -m benchmarks.error_rate --runs 2000

In every instance one policy leads all others by a hair. A run is an error when it stops and does not name
that policy, "no single best" included. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import product

import numpy as np
from scipy import stats

from benchmarks.instances import preference_matrix
from engine.core.problem import BradleyTerry
from engine.core.simulate import simulate
from engine.core.types import FloatArray

LEAD = 0.505


def unstructured_near_tie(n_policies: int) -> FloatArray:
    """Policy 0 beats every other with probability 0.505; all others tie. Shape (K, K)."""
    mu = np.full((n_policies, n_policies), 0.5)
    mu[0, 1:], mu[1:, 0] = LEAD, 1.0 - LEAD
    return mu


def structured_near_tie(n_features: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """2d policies with random features whose strengths tie, but for policy 0 ahead by logit(0.505).

    Returns
    -------
    Features, shape (2d, d), and preference probabilities, shape (2d, 2d).
    """
    rng = np.random.default_rng(seed)
    theta = np.zeros(n_features)
    theta[0] = 1.0
    features = 0.5 * rng.standard_normal((2 * n_features, n_features))
    features[:, 0] = 0.0
    features[0, 0] = np.log(LEAD / (1.0 - LEAD))
    return features, preference_matrix(features @ theta)


def upper_limit(errors: int, n_runs: int) -> float:
    """Upper end of the one-sided 95% Clopper-Pearson interval of a rate."""
    return 1.0 if errors == n_runs else float(stats.beta.ppf(0.95, errors + 1, n_runs - errors))


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--structured-runs", type=int, default=None, help="as --runs by default")
    parser.add_argument("--horizon", type=int, default=3000)
    parser.add_argument("--structured-horizon", type=int, default=1000)
    parser.add_argument("--spaces", nargs="+", default=["unstructured", "structured"])
    parser.add_argument("--sampler", default="balanced")
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args(arguments)
    rows = []
    for space_name, size, delta, pending in product(options.spaces, (3, 4, 5, 6), (0.05, 0.2), (0, 20)):
        start = time.perf_counter()
        if space_name == "unstructured":
            n_runs, space, mu = options.runs, None, unstructured_near_tie(size)
            horizon = options.horizon
        else:
            n_runs = options.structured_runs or options.runs
            features, mu = structured_near_tie(size, options.seed)
            space, horizon = BradleyTerry(features), options.structured_horizon
        runs = simulate(
            np.repeat(mu[None], n_runs, axis=0),
            space=space,
            sampler=options.sampler,
            delta=delta,
            budget=horizon,
            pending=pending,
            observe_every=10,
            seed=options.seed,
        )
        errors = int(np.sum(runs.stopped & (runs.best != 0)))
        row = {
            "space": space_name,
            "K or d": size,
            "delta": delta,
            "in_flight": pending,
            "runs": n_runs,
            "horizon": horizon,
            "error_rate": errors / n_runs,
            "upper_95": round(upper_limit(errors, n_runs), 5),
            "stopped": float(runs.stopped.mean()),
        }
        rows.append(row)
        print(
            f"{space_name:12s} {size}  δ {delta:.2f}  in flight {pending:2d}  errors {row['error_rate']:.4f}"
            f"  upper 95% {row['upper_95']:.4f}  stopped {row['stopped']:.3f}  [{time.perf_counter() - start:.0f} s]",
            flush=True,
        )
    worst = max(row["upper_95"] / row["delta"] for row in rows)
    print(json.dumps({"sampler": options.sampler, "worst_upper_over_delta": worst, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

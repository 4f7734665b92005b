"""Comparisons that strengths expected beforehand save, and that wrong ones cost.

    python -m benchmarks.warm_start

Random strengths of 12 policies, with a standard deviation of 0.5 in log-odds. The expected strengths have the
same spread and are right in rank, unrelated to the true ones, or the opposite of right. Right in rank is a
correlation of .74 with the true ones, as a language model's ranking had with a crowd's. Each instance is run
several times with each of them and without any, on the same outcomes' seeds. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from benchmarks.claims import true_claims
from benchmarks.instances import preference_matrix
from engine.core.simulate import simulate
from engine.core.types import Claim, FloatArray

SPREAD = 0.5
CORRELATION = {"none": None, "right": 0.74, "unrelated": 0.0, "opposite": -0.74}


def related(strengths: FloatArray, correlation: float, rng: np.random.Generator) -> FloatArray:
    """Shape (K,): strengths of the same spread that have just this correlation with the given ones."""
    true = strengths - strengths.mean()
    noise = rng.standard_normal(true.size)
    noise -= noise.mean() + true * (noise @ true) / (true @ true)
    noise *= np.linalg.norm(true) / np.linalg.norm(noise)
    mixed: FloatArray = correlation * true + np.sqrt(1.0 - correlation**2) * noise
    return mixed


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=24)
    parser.add_argument("--runs", type=int, default=8, help="of each instance")
    parser.add_argument("--policies", type=int, default=12)
    parser.add_argument("--claim", choices=list(Claim), default="good_enough")
    parser.add_argument("--cap", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args(arguments)
    claim = Claim(options.claim)
    epsilon = 0.05 if claim is Claim.GOOD_ENOUGH else 0.0
    means = {name: np.zeros(options.instances) for name in CORRELATION}
    false = dict.fromkeys(CORRELATION, 0)
    for n in range(options.instances):
        rng = np.random.default_rng([options.seed, n])
        strengths = SPREAD * rng.standard_normal(options.policies)
        mu = np.repeat(preference_matrix(strengths)[None], options.runs, axis=0)
        for name, correlation in CORRELATION.items():
            prior = None if correlation is None else related(strengths, correlation, rng)
            runs = simulate(
                mu,
                claim=claim,
                epsilon=epsilon,
                prior_strengths=prior,
                budget=options.cap,
                seed=[options.seed, n],
            )
            means[name][n] = runs.n_comparisons.mean()
            true = true_claims(mu, claim, epsilon)[np.arange(options.runs), runs.best]
            false[name] += int(np.sum(runs.stopped & ~true))
    rows = []
    for name, mean in means.items():
        change = mean - means["none"]
        rows.append(
            {
                "prior": name,
                "mean": round(float(mean.mean()), 1),
                "over_none": round(float(mean.mean() / means["none"].mean()), 3),
                "change": round(float(change.mean()), 1),
                "change_half_width": round(1.96 * float(change.std(ddof=1)) / options.instances**0.5, 1),
                "false": false[name],
            }
        )
        print(rows[-1], flush=True)
    print(json.dumps({"options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

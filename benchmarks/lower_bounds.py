"""Comparisons that any rule needs for each claim, averaged over the instances of `benchmarks.claims`.

    python -m benchmarks.lower_bounds
    python -m benchmarks.lower_bounds --instances random3 random12 --claims good_enough

A rule that errs with at most δ for all preferences needs T* kl(δ, 1 - δ) comparisons on average [LLM-PO,
theorem "lower bound"]. Where runs are cut at C comparisons it may take fewer. If it names the right policy by
then with probability p, it takes T* kl(p, δ) at least, and C (1 - p - δ) at least. `cut` has the p for which
the larger of the two is least. Instances without a best policy have no bound here. Of several policies that
are good enough, the bound is for a rule that names the best of them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from benchmarks.claims import instances
from engine.core.allocation import best_policy, lower_bound, pairwise_characteristic_time
from engine.core.likelihood import bernoulli_kl
from engine.core.types import Claim, FloatArray

INSTANCES = ("random3", "random6", "random9", "random12", "paper16")
_GRID = 2_000


def characteristic_times(mu: FloatArray, claim: Claim, epsilon: float) -> FloatArray:
    """Comparisons per nat that naming the best policy takes.

    Parameters
    ----------
    mu
        Shape (R, K, K): preference probabilities, with a policy that beats all others.
    claim
        The claim that names it.
    epsilon
        The claim's margin.

    Returns
    -------
    Shape (R,).
    """
    if claim is Claim.BEST_IF_ANY:
        # Each other policy might be the best: its losses to the one that beats it most speak against that.
        return np.array([pairwise_characteristic_time(each) for each in mu])
    # Each other policy might beat the one named: only their own comparisons speak against that.
    best = best_policy(mu)[:, None]
    rate = bernoulli_kl(1.0 - np.take_along_axis(mu, best[..., None], axis=1)[:, 0], 0.5 + epsilon)
    np.put_along_axis(rate, best, np.inf, axis=1)
    times: FloatArray = np.sum(1.0 / rate, axis=1)
    return times


def cut_bound(times: FloatArray, delta: float, cap: int) -> FloatArray:
    """Shape (R,): the least expected number of comparisons where a run ends at `cap` in any case."""
    p = np.linspace(delta, 1.0 - delta, _GRID)
    needed = times[:, None] * bernoulli_kl(p, delta)
    cut = cap * (1.0 - p - delta)
    # Between two points of the grid the one curve is at least its left end, and the other its right end.
    least: FloatArray = np.maximum(needed[:, :-1], cut[1:]).min(axis=1)
    return least


def main(arguments: list[str] | None = None) -> None:
    """Print the bounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", nargs="+", default=list(INSTANCES))
    parser.add_argument("--claims", nargs="+", choices=list(Claim), default=list(Claim))
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--cap", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args(arguments)
    rows = []
    for name in options.instances:
        mu = instances(name, options.runs, options.seed)
        for claim in map(Claim, options.claims):
            epsilon = options.epsilon if claim is Claim.GOOD_ENOUGH else 0.0
            times = characteristic_times(mu, claim, epsilon)
            bounds = lower_bound(1.0, options.delta) * times
            row = {
                "instance": name,
                "claim": claim.value,
                "mean": round(float(bounds.mean()), 1),
                "median": round(float(np.median(bounds)), 1),
                "cut": round(float(cut_bound(times, options.delta, options.cap).mean()), 1),
                "above_cap": float(np.mean(bounds > options.cap)),
            }
            rows.append(row)
            print(row, flush=True)
    print(json.dumps({"options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Comparisons until each claim, share of false claims, and quality of the leader meanwhile.

    python -m benchmarks.claims --runs 200
    python -m benchmarks.claims --instances cycle0.6 tie2 --claims best good_enough --runs 2000 --cap 2000

Instances: the paper's (`paper16`; any number of policies), and random strengths (`random6`, log-odds with a
standard deviation of 0.6, 0.5 from nine on, or that of `--spread`). `arbitrary9` has arbitrary preferences
with a best policy. `ring9` has a ring of losers who beat each other by .8 while the best beats each by .55.
There are cycles of the three best of six (`cycle0.6`), and exact ties of the two best (`tie2`, `tie6`). All
claims face the same instances. A name is false where the claim about that policy is. That of `best_if_any`
cannot be false where no policy is best; such names are counted as `crowned`. `--ties`: the share
of ties. The last line is JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time

import numpy as np

from benchmarks.installation import options_of
from benchmarks.instances import preference_matrix, unstructured_instances, upper_limit
from benchmarks.simulate import SimulatedRuns, simulate
from engine.core.types import BoolArray, Claim, FloatArray

MARKS = (250, 500, 1000, 2000)
INSTANCES = (
    "paper16",
    "random3",
    "random6",
    "random12",
    "arbitrary9",
    "ring6",
    "ring9",
    "cycle0.6",
    "tie2",
    "tie6",
)


def instances(name: str, n_runs: int, seed: int, *, spread: float = 0.0) -> FloatArray:
    """Preference probabilities, shape (R, K, K), with the policies in random order.

    ``spread`` is the standard deviation of random strengths in log-odds; 0: the usual one.
    """
    kind, size = re.fullmatch(r"([a-z]+)([\d.]+)", name).groups()
    rng = np.random.default_rng(seed)
    if kind == "paper":
        return unstructured_instances(n_runs, seed, int(size))
    if kind == "random":
        spread = spread or (0.6 if int(size) < 9 else 0.5)
        return preference_matrix(spread * rng.standard_normal((n_runs, int(size))))
    if kind == "arbitrary":
        mu = np.stack([_arbitrary(int(size), rng) for _ in range(n_runs)])
    elif kind == "ring":
        mu = np.repeat(_ring(int(size))[None], n_runs, axis=0)
    elif kind == "cycle":
        mu = np.repeat(_cycle(float(size))[None], n_runs, axis=0)
    elif kind == "tie":
        strengths = np.linspace(0.5, -0.9, int(size))
        strengths[1] = strengths[0]
        mu = np.repeat(preference_matrix(strengths)[None], n_runs, axis=0)
    else:
        raise SystemExit(f"there is no instance {name!r}; for example {', '.join(INSTANCES)}")
    orders = [rng.permutation(mu.shape[1]) for _ in range(n_runs)]
    return np.stack([one[np.ix_(order, order)] for one, order in zip(mu, orders, strict=True)])


def _arbitrary(n_policies: int, rng: np.random.Generator) -> FloatArray:
    upper = np.triu(rng.uniform(0.2, 0.8, (n_policies, n_policies)), 1)
    upper[0, 1:] = rng.uniform(0.55, 0.75, n_policies - 1)
    return upper + np.tril(1.0 - upper.T, -1) + 0.5 * np.eye(n_policies)


def _ring(n_policies: int) -> FloatArray:
    mu = np.full((n_policies, n_policies), 0.5)
    mu[0, 1:], mu[1:, 0] = 0.55, 0.45
    losers = n_policies - 1
    for i in range(losers):
        for step in range(1, (losers - 1) // 2 + 1):
            j = (i + step) % losers
            mu[1 + i, 1 + j], mu[1 + j, 1 + i] = 0.8, 0.2
    return mu


def _cycle(rate: float) -> FloatArray:
    mu = np.full((6, 6), 0.5)
    mu[:3, 3:], mu[3:, :3] = 0.75, 0.25
    for i, j in ((0, 1), (1, 2), (2, 0)):
        mu[i, j], mu[j, i] = rate, 1.0 - rate
    return mu


def true_claims(mu: FloatArray, claim: Claim, epsilon: float) -> BoolArray:
    """Shape (R, K): whether the claim would be true of each policy."""
    worst = np.where(np.eye(mu.shape[1], dtype=np.bool_), 1.0, mu).min(axis=2)
    if claim is Claim.GOOD_ENOUGH:
        return worst >= 0.5 - epsilon - 1e-12
    best = worst > 0.5
    return best if claim is Claim.BEST else best | ~best.any(axis=1, keepdims=True)


def summary(mu: FloatArray, runs: SimulatedRuns, claim: Claim, epsilon: float) -> dict[str, object]:
    """The results, with the upper end of a one-sided 95% interval of the share of false names."""
    n_runs = mu.shape[0]
    rows = np.arange(n_runs)
    named = runs.stopped & (runs.best >= 0)
    false = named & ~true_claims(mu, claim, epsilon)[rows, runs.best]
    best = true_claims(mu, Claim.BEST, 0.0)
    n_false = int(false.sum())
    counts = runs.n_comparisons
    return {
        "runs": n_runs,
        "mean": round(float(counts.mean()), 1),
        "half_width": round(1.96 * float(counts.std(ddof=1)) / n_runs**0.5, 1),
        "ended": float(runs.stopped.mean()),
        "false": n_false,
        "false_upper_95": round(upper_limit(n_false, n_runs), 4),
        "crowned": int(np.sum(named & ~best.any(axis=1))),
        "none_where_one_is": int(np.sum(runs.stopped & (runs.best < 0) & best.any(axis=1))),
        "named_the_best": float(np.mean(named & best[rows, runs.best])),
        "leader_is_best": {
            mark: round(float(np.mean(best[rows, leader] & (leader >= 0))), 3)
            for mark, leader in zip(runs.marks, runs.leaders, strict=True)
        },
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    options = options_of(
        __doc__, arguments, instances=INSTANCES, claims=tuple(Claim), epsilon=0.05, runs=100, delta=0.05,
        cap=30_000, spread=0.0, pending=0, ties=0.0, seed=2026,
    )  # fmt: skip
    rows = []
    for name in options.instances:
        mu = instances(name, options.runs, options.seed, spread=options.spread)
        for claim in options.claims:
            start = time.process_time()
            epsilon = options.epsilon if claim is Claim.GOOD_ENOUGH else 0.0
            runs = simulate(
                mu,
                claim=claim,
                epsilon=epsilon,
                delta=options.delta,
                budget=options.cap,
                pending=options.pending,
                ties=options.ties,
                marks=[mark for mark in MARKS if mark <= options.cap],
                seed=options.seed + 1,
            )
            row = {"instance": name, "claim": claim} | summary(mu, runs, claim, epsilon)
            row["seconds"] = round(time.process_time() - start, 1)
            rows.append(row)
            print(row, flush=True)
    print(json.dumps({"options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

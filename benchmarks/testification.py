"""Comparisons against the nearest peers, which are told the smallest gap h beforehand.

    python -m benchmarks.testification --runs 200

Random instances with a best policy. Every pair is at least h away from ½, evenly up to certainty. The best
policy beats each other, and the others beat each other at random. The peers solve the same task: to name the
policy that beats all others, or to say that there is none. They are wrong with probability at most δ
[Haddenhorst et al. 2021, "Testification of Condorcet Winners in Dueling Bandits"]. Both are written anew from
their ideas:

* NTS, noisy tournament sampling: a knock-out tournament, then its winner against those that it has not met.
  Each match is a sequential probability ratio test of ½ + h against ½ - h [Wald 1945] at an equal part of δ.
* SELECT, then verify: a knock-out tournament [Mohajer et al. 2017], each match decided by a number of
  comparisons that is fixed beforehand [Hoeffding 1963], at δ/2. Then its winner meets each other one in the
  same way.

Both count on |μ - ½| ≥ h for every pair. `good_enough` with ε = h is told h as well, `best` and `best_if_any`
are told nothing. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.core.simulate import simulate
from engine.core.types import Claim, FloatArray

NOBODY = -1


@dataclass(frozen=True)
class Outcome:
    """Comparisons made, and the policy named or `NOBODY`."""

    n_comparisons: int
    named: int


@dataclass
class Matches:
    """Comparisons of one run, counted. `first_wins` says who won a match of two policies."""

    mu: FloatArray
    rng: np.random.Generator
    n_comparisons: int = 0

    def sequential(self, i: int, j: int, lead: int) -> bool:
        """Compare until one is ahead by `lead`."""
        ahead = 0
        while abs(ahead) < lead:
            ahead += 1 if self.rng.random() < self.mu[i, j] else -1
            self.n_comparisons += 1
        return ahead > 0

    def fixed(self, i: int, j: int, size: int) -> bool:
        """Compare so many times; the majority wins, and the first one where they are level."""
        self.n_comparisons += size
        return 2 * int(self.rng.binomial(size, self.mu[i, j])) >= size


def knock_out(n_policies: int, first_wins: Callable[[int, int], bool]) -> tuple[int, set[int]]:
    """Winner of a knock-out tournament in the order of the policies, and those that it beat on its way."""
    still = list(range(n_policies))
    beaten: dict[int, set[int]] = {policy: set() for policy in still}
    while len(still) > 1:
        following = []
        for i, j in zip(still[::2], still[1::2], strict=False):
            winner, loser = (i, j) if first_wins(i, j) else (j, i)
            beaten[winner].add(loser)
            following.append(winner)
        still = following + still[len(still) - len(still) % 2 :]
    return still[0], beaten[still[0]]


def noisy_tournament(mu: FloatArray, h: float, delta: float, rng: np.random.Generator) -> Outcome:
    """NTS.

    Parameters
    ----------
    mu
        Shape (K, K).
    h
        Every |μ - ½| is at least this.
    delta
        Risk.
    rng
        Source of randomness.
    """
    K, matches = mu.shape[0], Matches(mu, rng)
    # A winner of the whole tournament has met at least ⌊log₂ K⌋ others by then.
    part = delta / (2 * K - 2 - int(math.log2(K)))
    lead = math.ceil(math.log((1.0 - part) / part) / math.log((0.5 + h) / (0.5 - h)))
    winner, met = knock_out(K, lambda i, j: matches.sequential(i, j, lead))
    for other in set(range(K)) - met - {winner}:
        if not matches.sequential(winner, other, lead):
            return Outcome(matches.n_comparisons, NOBODY)
    return Outcome(matches.n_comparisons, winner)


def select_then_verify(mu: FloatArray, h: float, delta: float, rng: np.random.Generator) -> Outcome:
    """SELECT, then a verification of its winner; parameters as for `noisy_tournament`."""
    K, matches = mu.shape[0], Matches(mu, rng)
    size = math.ceil(math.log(2.0 * (K - 1) / (delta / 2.0)) / (2.0 * h**2))
    winner, _ = knock_out(K, lambda i, j: matches.fixed(i, j, size))
    for other in set(range(K)) - {winner}:
        if not matches.fixed(winner, other, size):
            return Outcome(matches.n_comparisons, NOBODY)
    return Outcome(matches.n_comparisons, winner)


def instances(n_runs: int, n_policies: int, h: float, seed: int) -> FloatArray:
    """Shape (R, K, K): preference probabilities with a best policy, every pair at least h from ½."""
    rng = np.random.default_rng(seed)
    rows, columns = np.triu_indices(n_policies, 1)
    mu = np.full((n_runs, n_policies, n_policies), 0.5)
    for matrix in mu:
        rate = rng.uniform(0.5 + h, 1.0, rows.size)
        rate[rng.random(rows.size) < 0.5] *= -1.0
        rate[rate < 0.0] += 1.0
        best = rng.integers(n_policies)
        rate[rows == best] = np.maximum(rate[rows == best], 1.0 - rate[rows == best])
        rate[columns == best] = np.minimum(rate[columns == best], 1.0 - rate[columns == best])
        matrix[rows, columns], matrix[columns, rows] = rate, 1.0 - rate
    return mu


def row(n_comparisons: FloatArray, wrong: int, seconds: float) -> dict[str, float]:
    """Mean and half-width of its 95% interval, and false answers."""
    half_width = 1.96 * float(np.std(n_comparisons, ddof=1)) / n_comparisons.size**0.5
    return {
        "mean": round(float(np.mean(n_comparisons)), 1),
        "half_width": round(half_width, 1),
        "wrong": wrong,
        "seconds": round(seconds, 1),
    }


def measure(n_policies: int, h: float, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Every method on the same instances."""
    mu = instances(options.runs, n_policies, h, options.seed)
    best = (mu > 0.5).sum(axis=2).argmax(axis=1)
    table = {}
    for name, peer in (("NTS", noisy_tournament), ("SELECT-then-verify", select_then_verify)):
        start, rng = time.process_time(), np.random.default_rng(options.seed + 1)
        ended = [peer(matrix, h, options.delta, rng) for matrix in mu]
        wrong = int(np.sum(np.array([one.named for one in ended]) != best))
        spent = np.array([one.n_comparisons for one in ended], dtype=np.float64)
        table[name] = row(spent, wrong, time.process_time() - start)
    for claim in options.claims:
        start = time.process_time()
        epsilon = h if claim == Claim.GOOD_ENOUGH else 0.0
        runs = simulate(
            mu, claim=claim, epsilon=epsilon, delta=options.delta, budget=options.cap, seed=options.seed + 2
        )
        # With gaps of at least h, losing to nobody by more than h is being the best, up to a loss by just h.
        worst = np.where(np.eye(n_policies, dtype=np.bool_), 1.0, mu).min(axis=2)
        right = worst[np.arange(options.runs), runs.best] >= 0.5 - epsilon
        right &= runs.best >= 0
        spent = runs.n_comparisons.astype(np.float64)
        wrong = int(np.sum(runs.stopped & ~right))
        table[claim] = row(spent, wrong, time.process_time() - start) | {"ended": float(runs.stopped.mean())}
    for line in table.values():
        line["over_nts"] = round(line["mean"] / table["NTS"]["mean"], 3)
    return table


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--cells", nargs="+", default=["5:0.1", "8:0.1", "8:0.05"], help="K:h")
    parser.add_argument("--claims", nargs="+", choices=list(Claim), default=["good_enough", "best"])
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--cap", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args(arguments)
    rows = []
    for cell in options.cells:
        size, h = cell.split(":")
        for method, line in measure(int(size), float(h), options).items():
            rows.append({"K": int(size), "h": float(h), "method": method} | line)
            print(rows[-1], flush=True)
    print(json.dumps({"options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

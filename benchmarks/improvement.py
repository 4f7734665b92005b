"""Better prompts from clicks: the race of `engine.core.Improvement` beside other ways to spend them.

    python -m benchmarks.improvement [--runs 1000] [--clicks 100 300 500 1000] [--rows 0 1 2 3 4] [--rules …]

A writer makes children. The strength of a child, in log-odds over the original, is that of its parent less
30% of the parent's lead, plus N(m, s²). Clicks are Bradley-Terry draws. The beliefs of all rules expect
N(-.1, .3²), whatever m and s are; what the race recommends rests on N(-.15, .2²). Rows are pairs of m and s;
in the last one, all children are worse.

Rules: `race`, the product's. `fixed`: the original and five children of it, top-two Thompson sampling.
`random`: twelve children of the original, each against it in turn. `double_thompson`: Double Thompson
sampling, and each ten clicks a child of the best, as in PDO. `greedy`: the race, where whoever leads is
promoted. All look for three quarters of the clicks, and compare what they found with the original in the
last quarter, by the same claim at δ = .05.

Printed for each rule and row: mean strength of what is recommended with its 95% interval, and the shares of
runs whose recommendation is worse than the original, that recommend the original, and that certify; and the
number of false certificates. The last line is JSON.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from engine.core import Improvement, Succession, improvement
from engine.core.improvement import HOPE, clicks_to_explore

ROWS = ((-0.2, 0.3), (0.0, 0.3), (-0.2, 0.5), (0.1, 0.5), (-0.3, 0.1))
DELTA, REGRESS = 0.05, 0.3
_RANDOM_CHILDREN, _JOINS_EVERY, _MOST_AT_A_TIME = 12, 10, 16
# In place of no variance, for the factor of a covariance.
_JITTER = 1e-7

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Found:
    """What R runs recommend: strength, whether it is the original, and whether it is certified."""

    strength: Array
    is_original: Flags
    certified: Flags

    def line(self) -> dict[str, float]:
        n = self.strength.size
        return {
            "strength": round(float(self.strength.mean()), 3),
            "half_width": round(float(1.96 * self.strength.std() / np.sqrt(n)), 3),
            "worse": round(float(np.mean(self.strength < 0.0)), 3),
            "original": round(float(self.is_original.mean()), 3),
            "certified": round(float(self.certified.mean()), 3),
            "false": int(np.count_nonzero(self.certified & (self.strength <= 0.0))),
        }


def born(parent: Array, m: float, s: float, rng: np.random.Generator) -> Array:
    """Strengths of children of these parents."""
    deviation = m + s * rng.standard_normal(np.shape(parent))
    return np.asarray(parent - REGRESS * np.maximum(parent, 0.0) + deviation)


def race(n_runs: int, clicks: int, m: float, s: float, seed: list[int]) -> Found:
    """The product's own class, one run after the other."""
    found = []
    for run in range(n_runs):
        rng = np.random.default_rng([*seed, run])
        strengths = [0.0]
        own = Improvement(0, clicks=clicks, delta=DELTA, seed=run)
        while own.phase != "ended":
            for parent, n in own.wants().items():
                for _ in range(n):
                    own.add(len(strengths), parent)
                    strengths.append(float(born(np.float64(strengths[parent]), m, s, rng)))
            i, j = own.ask() or (0, 0)
            own.tell(i, j, float(rng.random() < special.expit(strengths[i] - strengths[j])))
        verdict = own.verdict
        found.append((strengths[verdict.policy], verdict.policy == 0, verdict.kind == "certified"))
    return Found(*(np.array(column) for column in zip(*found, strict=True)))


def greedy(n_runs: int, clicks: int, m: float, s: float, seed: list[int]) -> Found:
    before, improvement.PROMOTE = improvement.PROMOTE, 0.5
    try:
        return race(n_runs, clicks, m, s, seed)
    finally:
        improvement.PROMOTE = before


class Pool:
    """R runs side by side, each of an original and P - 1 places for children, with the beliefs of a race."""

    def __init__(self, n_runs: int, n: int, m: float, s: float, seed: list[int]) -> None:
        self.rng = np.random.default_rng(seed)
        self.runs = np.arange(n_runs)
        self._m, self._s = m, s
        self.strength = np.zeros((n_runs, n))
        self.mean = np.zeros((n_runs, n))
        self.covariance = np.zeros((n_runs, n, n))
        self.there: Flags = np.zeros((n_runs, n), dtype=np.bool_)
        self.there[:, 0] = True

    def child(self, place: Numbers | int, parent: Numbers | int) -> None:
        """Put a child of the parent in this place of each run."""
        r = self.runs
        self.strength[r, place] = born(self.strength[r, parent], self._m, self._s, self.rng)
        self.mean[r, place] = self.mean[r, parent] + HOPE[0]
        row = self.covariance[r, parent]
        row[r, place] = self.covariance[r, parent, parent] + HOPE[1] ** 2
        self.covariance[r, place] = self.covariance[r, :, place] = row
        self.there[r, place] = True

    def compare(self, i: Numbers | int, j: Numbers | int) -> Flags:
        """A click on a pair of each run: whether i was preferred."""
        r = self.runs
        won = self.rng.random(r.size) < special.expit(self.strength[r, i] - self.strength[r, j])
        column = self.covariance[r, i] - self.covariance[r, j]
        variance = np.maximum(column[r, i] - column[r, j], _JITTER)
        before = self.mean[r, i] - self.mean[r, j]
        gap = before.copy()
        for _ in range(4):
            chance = special.expit(gap)
            gap += (won - chance - (gap - before) / variance) / (chance * (1.0 - chance) + 1.0 / variance)
        weight = special.expit(gap) * special.expit(-gap)
        self.mean += column * ((gap - before) / variance)[:, None]
        share = weight / (1.0 + variance * weight)
        self.covariance -= column[:, :, None] * column[:, None, :] * share[:, None, None]
        return won

    def drawn(self) -> Array:
        """Strengths drawn from the beliefs; of nobody, -inf."""
        factor = np.linalg.cholesky(self.covariance + _JITTER * np.eye(self.mean.shape[1]))
        deviations = self.rng.standard_normal((*self.mean.shape, 1))
        return np.where(self.there, self.mean + np.matmul(factor, deviations)[..., 0], -np.inf)

    def best(self) -> Numbers:
        return np.where(self.there, self.mean, -np.inf).argmax(axis=1)

    def certify(self, clicks: int) -> Found:
        """Compare the best with the original, and recommend it if it is still expected to be better."""
        best, claims = self.best(), [Succession(DELTA) for _ in self.runs]
        certified = np.zeros(best.size, dtype=np.bool_)
        for _ in range(clicks):
            won = self.compare(best, 0)
            for run in np.flatnonzero((best > 0) & ~certified):
                claims[run].tell(float(won[run]))
                certified[run] = claims[run].holds
        better = certified | (self.mean[self.runs, best] > 0.0)
        return Found(np.where(better, self.strength[self.runs, best], 0.0), ~better, certified)


def fixed(n_runs: int, clicks: int, m: float, s: float, seed: list[int]) -> Found:
    pool = Pool(n_runs, 6, m, s, seed)
    for place in range(1, 6):
        pool.child(place, 0)
    for _ in range(clicks_to_explore(clicks)):
        i = (first := pool.drawn()).argmax(axis=1)
        # Another draw's best, if one of a few has another; else the second of the first.
        j = i.copy()
        for _ in range(6):
            j = np.where(j == i, pool.drawn().argmax(axis=1), j)
        first[pool.runs, i] = -np.inf
        pool.compare(i, np.where(j == i, first.argmax(axis=1), j))
    return pool.certify(clicks - clicks_to_explore(clicks))


def random(n_runs: int, clicks: int, m: float, s: float, seed: list[int]) -> Found:
    pool = Pool(n_runs, _RANDOM_CHILDREN + 1, m, s, seed)
    for place in range(1, _RANDOM_CHILDREN + 1):
        pool.child(place, 0)
    for click in range(clicks_to_explore(clicks)):
        pool.compare(1 + click % _RANDOM_CHILDREN, 0)
    return pool.certify(clicks - clicks_to_explore(clicks))


def double_thompson(n_runs: int, clicks: int, m: float, s: float, seed: list[int]) -> Found:
    pool = Pool(n_runs, _MOST_AT_A_TIME, m, s, seed)
    for place in range(1, 6):
        pool.child(place, 0)
    for click in range(1, clicks_to_explore(clicks) + 1):
        i, second = pool.drawn().argmax(axis=1), pool.drawn()
        second[pool.runs, i] = -np.inf
        pool.compare(i, second.argmax(axis=1))
        if click % _JOINS_EVERY == 0:
            # In a free place, else in that of the worst but the original.
            worst = np.where(pool.there, pool.mean, -np.inf)
            worst[:, 0] = np.inf
            pool.child(worst.argmin(axis=1), pool.best())
    return pool.certify(clicks - clicks_to_explore(clicks))


Rule = Callable[[int, int, float, float, list[int]], Found]
RULES: dict[str, Rule] = {rule.__name__: rule for rule in (race, fixed, random, double_thompson, greedy)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--clicks", type=int, nargs="+", default=[100, 300, 500, 1000])
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(len(ROWS))))
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    given = parser.parse_args()
    started, lines = time.perf_counter(), []
    print(f"{'m, s':10} {'rule':16} {'clicks':>6}  strength       worse original certified false")
    for row in given.rows:
        m, s = ROWS[row]
        for name in given.rules:
            for clicks in given.clicks:
                line = RULES[name](given.runs, clicks, m, s, [12, row, clicks]).line()
                lines.append({"m": m, "s": s, "rule": name, "clicks": clicks} | line)
                gain = f"{line['strength']:5.2f} ± {line['half_width']:.2f}"
                shares = f"{line['worse']:7.2f} {line['original']:8.2f} {line['certified']:9.2f}"
                print(f"{m:4}, {s:3}  {name:16} {clicks:6}  {gain}  {shares} {line['false']:5}", flush=True)
    seconds = round(time.perf_counter() - started, 1)
    print(json.dumps({"benchmark": "improvement", "runs": given.runs, "seconds": seconds, "lines": lines}))


if __name__ == "__main__":
    main()

"""Decisions of every method, and how often they are wrong, where assumptions fail.

    python -m benchmarks.assumptions
    python -m benchmarks.assumptions --worlds cycle drift --runs 50

Six policies, at most 3,000 comparisons, δ = .05. In `plain` everything is as assumed: strengths add up, the
best policy wins 60% against the second and 77% against the last. The other worlds differ in one way:

* `cycle`: of the three best each beats the next by .6, in a ring, so that none is the best or good enough.
* `level`: the two best are exactly level, so that none is the best and both are good enough.
* `ties`: two in five comparisons end in a tie.
* `turns`: two annotators judge in turns of 100 comparisons. They differ by .3 about each pair of the best
  policy and agree with `plain` on average. In `alternating` they take turns at every comparison.
* `sides`: in three of ten comparisons the left response is chosen unread; sides are drawn. In `one side` the
  policy with the smaller number is always on the left.
* `drift`: at first the second policy is as good as the best is in the end, and the other way round. It moves
  evenly over the first 1,000 comparisons. Right is what is right in the end.

An answer is wrong where it is false. A policy that is named has to beat all others; under "good_enough" it
must lose to none by more than 5 points. "None is best" is false where one is. "best_if_any" says nothing
where no policy is best. Its names there count as wrong all the same, because the name is what is read.
`leader_wrong` counts the runs whose last answer is wrong, stopped or not. The other designs are the paper's,
under its heuristic stop. The last line is JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.claims import true_claims
from benchmarks.installation import options_of
from benchmarks.instances import preference_matrix
from benchmarks.simulate import simulate
from engine.core.samplers import SAMPLERS
from engine.core.types import Claim, FloatArray

STRENGTHS = np.array([0.4, 0.0, -0.1, -0.3, -0.6, -0.8])
CAP = 3000
MARGIN = 0.05
TURN = 100
DISAGREEMENT = 0.15
UNREAD = 0.3
MOVING = 1000
WORLDS = ("plain", "cycle", "level", "ties", "alternating", "turns", "sides", "one side", "drift")
# Sampler, stopping rule, claim.
METHODS = (
    *(("balanced", "certified", claim) for claim in (Claim.GOOD_ENOUGH, Claim.BEST, Claim.BEST_IF_ANY)),
    *((sampler, "heuristic", Claim.BEST) for sampler in SAMPLERS),
)


@dataclass(frozen=True)
class Cell:
    """One method in one world."""

    world: str
    sampler: str
    stopping: str
    claim: str
    runs: int
    cap: int
    seed: int


@dataclass(frozen=True)
class World:
    """Preference probabilities by which the judgments are drawn, and those by which names are right.

    Attributes
    ----------
    truth
        Shape (K, K).
    at
        Gives those of a comparison by its number, from 1: shape (K, K).
    ties
        Share of comparisons that end in a tie.
    unread
        Share of comparisons that the left side wins unread.
    drawn
        Whether sides are drawn; otherwise the smaller number is on the left.
    """

    truth: FloatArray
    at: Callable[[int], FloatArray]
    ties: float = 0.0
    unread: float = 0.0
    drawn: bool = True


def world(name: str) -> World:
    """One of `WORLDS`."""
    plain = preference_matrix(STRENGTHS)
    if name in ("plain", "ties"):
        return World(plain, lambda _: plain, 0.4 if name == "ties" else 0.0)
    if name == "cycle":
        mu = plain.copy()
        for i, j in ((0, 1), (1, 2), (2, 0)):
            mu[i, j], mu[j, i] = 0.6, 0.4
        return World(mu, lambda _: mu)
    if name == "level":
        strengths = np.array([STRENGTHS[0], STRENGTHS[0], *STRENGTHS[2:]])
        mu = preference_matrix(strengths)
        return World(mu, lambda _: mu)
    if name in ("alternating", "turns"):
        shift = np.zeros_like(plain)
        shift[0, 1:], shift[1:, 0] = DISAGREEMENT, -DISAGREEMENT
        both = (plain - shift, plain + shift)
        length = TURN if name == "turns" else 1
        return World(plain, lambda t: both[(t - 1) // length % 2])
    if name in ("sides", "one side"):
        return World(plain, lambda _: plain, unread=UNREAD, drawn=name == "sides")
    before = STRENGTHS[[1, 0, *range(2, STRENGTHS.size)]]

    def drifting(t: int) -> FloatArray:
        gone = min(1.0, t / MOVING)
        return preference_matrix((1.0 - gone) * before + gone * STRENGTHS)

    return World(plain, drifting)


def measure(cell: Cell) -> dict[str, Any]:
    """Simulate and summarise."""
    start = time.process_time()
    claim, setting = Claim(cell.claim), world(cell.world)
    epsilon = MARGIN if claim is Claim.GOOD_ENOUGH else 0.0
    rng = np.random.default_rng(cell.seed)
    # In one order, a rule that prefers small numbers would seem to know the best policy.
    orders = np.argsort(rng.random((cell.runs, STRENGTHS.size)), axis=1)
    half = np.full_like(setting.truth, 0.5)
    left = half if setting.drawn else np.triu(2.0 * half, 1) + 0.5 * np.eye(STRENGTHS.size)

    def ordered(mu: FloatArray) -> FloatArray:
        return mu[orders[:, :, None], orders[:, None, :]]

    def judged_at(t: int) -> FloatArray:
        return (1.0 - setting.unread) * ordered(setting.at(t)) + setting.unread * left

    truth = ordered(setting.truth)
    runs = simulate(
        truth,
        sampler=cell.sampler,
        stopping=cell.stopping,
        claim=claim,
        epsilon=epsilon,
        budget=cell.cap,
        ties=setting.ties,
        mu_at=judged_at,
        seed=cell.seed + 1,
    )
    judged = Claim.GOOD_ENOUGH if claim is Claim.GOOD_ENOUGH else Claim.BEST
    true = true_claims(truth, judged, epsilon)
    named = runs.stopped & (runs.best >= 0)
    none = runs.stopped & (runs.best < 0)
    right = np.where(runs.best < 0, ~true.any(axis=1), true[np.arange(cell.runs), runs.best])
    counts = runs.n_comparisons
    return asdict(cell) | {
        "mean": round(float(counts.mean()), 1),
        "half_width": round(1.96 * float(counts.std(ddof=1)) / cell.runs**0.5, 1),
        "named": int(named.sum()),
        "none": int(none.sum()),
        "wrong": int(np.sum(runs.stopped & ~right)),
        "leader_wrong": int(np.sum(~right)),
        "seconds": round(time.process_time() - start, 1),
    }


def cells(worlds: Sequence[str], *, runs: int, cap: int, seed: int) -> list[Cell]:
    """Every method in these worlds."""
    return [
        Cell(name, sampler, stopping, claim.value, runs, cap, seed)
        for name in worlds
        for sampler, stopping, claim in METHODS
    ]


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    options = options_of(__doc__, arguments, worlds=WORLDS, runs=200, cap=CAP, seed=2026)
    rows = []
    for cell in cells(options.worlds, runs=options.runs, cap=options.cap, seed=options.seed):
        rows.append(measure(cell))
        print(rows[-1], flush=True)
    print(json.dumps({"options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

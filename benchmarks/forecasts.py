"""How often forecasts hold, and how wide they are, on simulated experiments.

    python -m benchmarks.forecasts --runs 400
    python -m benchmarks.forecasts --runs 200 --factorial

Each experiment has K policies, K from 2 to 16 or of two factors, and strengths of a normal law whose standard
deviation is uniform from .2 to 1.5. It runs as the product runs it, to its decision or its budget. `held`:
the share of the ranges that held what it took; a range that ends beyond the budget holds what takes longer.
`width`: the upper end, the budget at most, over the lower end, in the median. The last line is JSON.
"""

import json
from collections import defaultdict

import numpy as np
from scipy import special

from benchmarks.installation import options_of
from engine.core import Design, Factorial, Plan, Remaining, Unstructured, forecast, random_strengths
from engine.core.types import FloatArray

MARKS = (20, 32, 50, 100, 200, 400, 800)
BEFORE = 0
_LEAST, _MOST = 0.2, 1.5


def main() -> None:
    """Run the experiments and print the table."""
    options = options_of(
        __doc__, None, runs=400, seed=1, delta=0.05, epsilon=0.05, claim="good_enough", budget=2000,
        factorial=False,
    )  # fmt: skip
    rules = {name: getattr(options, name) for name in ("delta", "epsilon", "claim", "budget")}
    found: dict[int, list[tuple[bool, bool, float, float]]] = defaultdict(list)
    for run in range(options.runs):
        space, strengths = instance(np.random.default_rng([options.seed, run]), factorial=options.factorial)
        for mark, ranges, took in forecasts_of(space, strengths, run, rules):
            found[mark].append(figures(ranges, took, options.budget - mark))
    print(f"{'comparisons':>12}{'runs':>6}{'held':>6}{'below':>7}{'width':>7}{'likely/took':>13}")
    told = {}
    for mark in sorted(found):
        held, below, width, ratio = (np.array(each) for each in zip(*found[mark], strict=True))
        row = {
            "runs": len(held),
            "held": round(float(held.mean()), 3),
            "below": round(float(below.mean()), 3),
            "width": round(float(np.median(width)), 2),
            "likely_over_took": round(float(np.median(ratio)), 2),
        }
        told[mark] = row
        where = "before" if mark == BEFORE else str(mark)
        print(
            f"{where:>12}" + "".join(f"{row[key]:>{n}}" for key, n in zip(row, (6, 6, 7, 7, 13), strict=True))
        )
    print(json.dumps({"options": vars(options), "forecasts": told}))


def instance(rng: np.random.Generator, *, factorial: bool) -> tuple[Unstructured | Factorial, FloatArray]:
    """A space, and strengths of its policies."""
    scale = rng.uniform(_LEAST, _MOST)
    if not factorial:
        K = int(rng.integers(2, 17))
        return Unstructured(K), scale * rng.standard_normal(K)
    a, b = rng.integers(2, 5, 2)
    space = Factorial({"a": [str(n) for n in range(a)], "b": [str(n) for n in range(b)]})
    effects = rng.standard_normal(a)[:, None] + rng.standard_normal(b)
    return space, scale * effects.ravel() / np.sqrt(2.0)


def forecasts_of(
    space: Unstructured | Factorial, strengths: FloatArray, seed: int, rules: dict
) -> list[tuple[int, Remaining, float]]:
    """The comparisons so far, the forecast there, and what it took from there, infinite beyond the budget."""
    rng = np.random.default_rng([seed, 1])
    design = Design(space, seed=seed, **rules)
    ranges = [(BEFORE, forecast(Plan(space, **rules), random_strengths(space.n_policies)))]
    while not design.stopped:
        i, j = design.ask()
        design.tell(i, j, float(rng.random() < special.expit(strengths[i] - strengths[j])))
        if design.n_comparisons in MARKS and (remaining := design.remaining) is not None:
            ranges.append((design.n_comparisons, remaining.within(rules["budget"] - design.n_comparisons)))
    n = design.n_comparisons if design.decision.reason == "certified" else np.inf
    return [(mark, remaining, n - mark) for mark, remaining in ranges]


def figures(remaining: Remaining, took: float, left: float) -> tuple[bool, bool, float, float]:
    """Whether a range held, whether it took less than its lower end, its width, and the likely number over
    that which it took, both the budget at most.
    """
    below = min(took, left) < remaining.low
    above = remaining.high is not None and took > remaining.high
    width = (left if remaining.high is None else remaining.high) / remaining.low
    likely = left if remaining.likely is None else remaining.likely
    return not (below or above), below, width, likely / min(took, left)


if __name__ == "__main__":
    main()

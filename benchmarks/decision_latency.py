"""Time of one click: `tell`, `decision` and `ask` on a live design.

    python -m benchmarks.decision_latency

Medians over the clicks after each number of comparisons: the time must not grow with it. It is processor
time, which other programs do not disturb; set OMP_NUM_THREADS=1, or threads count twice. The last line is
JSON.
"""

import json
import sys
import time

import numpy as np

from benchmarks.installation import options_of
from benchmarks.instances import preference_matrix, structured_instance
from engine.core import BradleyTerry, Claim, Design, Unstructured

# (space, K, d): d is None where nothing is assumed about μ.
CASES = (
    ("unstructured", 16, None),
    ("unstructured", 50, None),
    ("unstructured", 500, None),
    ("unstructured", 2000, None),
    ("structured", 32, 6),
    ("structured", 100, 10),
    ("structured", 300, 12),
)


def clicks(design: Design, mu: np.ndarray, n_clicks: int, rng: np.random.Generator) -> tuple[float, float]:
    """Median processor time (seconds) of that many clicks: of `tell` and `ask`, and with `decision` too."""
    without, complete = [], []
    for _ in range(n_clicks):
        i, j = design.ask()
        outcome = float(rng.random() < mu[i, j])
        start = time.process_time()
        design.tell(i, j, outcome)
        told = time.process_time()
        _ = design.decision
        decided = time.process_time()
        pair = design.ask()
        complete.append(time.process_time() - start)
        without.append(complete[-1] - (decided - told))
        design.cancel(*pair)
    return float(np.median(without)), float(np.median(complete))


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    options = options_of(
        __doc__, arguments, clicks=60, claim="best", policies=(0,), after=(0, 300, 3000, 100_000), seed=3
    )
    epsilon = 0.05 if options.claim == Claim.GOOD_ENOUGH else 0.0
    settings = {"delta": 1e-6, "claim": options.claim, "epsilon": epsilon}
    rows = []
    for name, K, d in CASES:
        if options.policies != [0] and K not in options.policies:
            continue
        features, theta = structured_instance(K, d or 6, options.seed)
        mu = preference_matrix(features @ theta)
        space = BradleyTerry(features) if d else Unstructured(K)
        for after in options.after:
            # A low risk level keeps the design from having ruled out everything already.
            rng = np.random.default_rng(options.seed)
            lively = Design(space, **settings)
            for _ in range(min(after, 300)):
                i, j = lively.ask()
                lively.tell(i, j, float(rng.random() < mu[i, j]))
            # Further comparisons fall on the pairs that the design chose, each at its expected outcome.
            scale = max(1.0, after / 300)
            counts = np.rint(lively.counts * scale)
            upper = np.triu(np.rint(counts * mu), 1)
            wins = upper + np.tril(counts - upper.T, -1)
            design = Design.from_counts(space, wins, **settings)
            without, complete = clicks(design, mu, options.clicks, rng)
            row = {"space": name, "K": K, "d": d, "after": after}
            row |= {"ask_tell_ms": round(1e3 * without, 3), "with_decision_ms": round(1e3 * complete, 3)}
            rows.append(row)
            print(row, flush=True)
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

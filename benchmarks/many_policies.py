"""Policies that are ruled out as the best by many votes on pairs that nobody chose.

    python -m benchmarks.many_policies

60 policies whose strengths have a standard deviation of .46 in log-odds, and 9,000 votes on random pairs.
Every pair has 39% ties; decided votes follow the strengths. With nothing assumed, and in a Bradley-Terry
space with one feature for each policy. A best policy that is ruled out counts as wrong. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
from scipy import special

from engine.core.ledger import Ledger
from engine.core.problem import BradleyTerry, Space, Unstructured
from engine.core.types import Claim, IntArray, Tally

SPREAD = 0.46
LOOK_EVERY = 1_000
SPACES = ("unstructured", "structured")


def many_votes(space: Space, options: argparse.Namespace) -> tuple[IntArray, int]:
    """Shape (R,): how many policies are ruled out in each instance; and in how many the best one is."""
    rng = np.random.default_rng(options.seed)
    n_runs, n_policies = options.instances, options.policies
    strengths = SPREAD * rng.standard_normal((n_runs, n_policies))
    ledger = Ledger(
        space,
        Tally.empty(n_policies, n_runs),
        delta=0.05,
        epsilon=0.0,
        stopping="certified",
        claim=Claim.BEST_IF_ANY,
        watch_all=False,
        streams=True,
    )
    runs = np.arange(n_runs)
    for vote in range(1, options.votes + 1):
        i = rng.integers(n_policies, size=n_runs)
        j = (i + rng.integers(1, n_policies, size=n_runs)) % n_policies
        won = rng.random(n_runs) < special.expit(strengths[runs, i] - strengths[runs, j])
        outcome = np.where(rng.random(n_runs) < options.ties, 0.5, won)
        # Nobody waits for a decision, and in a Bradley-Terry space each look takes long.
        ledger.record(i, j, outcome, observe=vote % LOOK_EVERY == 0 or vote == options.votes)
    refuted = ledger.rule.refuted
    return refuted.sum(axis=1), int(refuted[runs, strengths.argmax(axis=1)].sum())


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=list(SPACES))
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--policies", type=int, default=60)
    parser.add_argument("--votes", type=int, default=9_000)
    parser.add_argument("--ties", type=float, default=0.39)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args(arguments)
    rows = []
    for name in options.spaces:
        start = time.process_time()
        ruled_out, wrong = many_votes(
            Unstructured(options.policies)
            if name == "unstructured"
            else BradleyTerry.one_hot(options.policies),
            options,
        )
        rows.append(
            {
                "space": name,
                "ruled_out": ruled_out.tolist(),
                "mean": round(float(ruled_out.mean()), 1),
                "wrong": wrong,
                "seconds": round(time.process_time() - start, 1),
            }
        )
        print(rows[-1], flush=True)
    print(json.dumps({"options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])

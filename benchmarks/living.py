"""Policies that join and leave: false conclusions where somebody adds clones until one is named, and costs.

    python -m benchmarks.living attack [--runs 100000] [--naive]
    python -m benchmarks.living challenge [--runs 60] [--sizes 4 6 12]
    python -m benchmarks.living row [--runs 60]

`attack`: a champion beats each clone by just the margin, and all clones are level. Each clone meets the
champion alone until it is excluded that the champion beats it, which is false, or hopeless; then the next one
joins, 30 at most. All of it is one stage. The classes that decide are the engine's: tally, evidence, proofs.
`--naive` gives each clone a fresh half of the capital, as a page would that began a proof for each newcomer.

`challenge`: one newcomer after a conclusion, once with the losers gone and once with them there; comparisons
until the new conclusion, beside those of two policies alone who are told the same outcomes.

`row`: ten challenges in a row, each by a child of the champion; the loser leaves. Beside each, comparisons of
its two alone.

"good_enough", δ = .05, ε = .05, Bradley-Terry outcomes, strengths with a standard deviation of .5 log-odds.
The last line is JSON.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
from scipy import special, stats

from engine.core import Design, Unstructured
from engine.core.capital import Stakes
from engine.core.claims import HeadToHead, starting_capital
from engine.core.evidence import PairwiseEvidence
from engine.core.types import FloatArray, IntArray, Tally

DELTA, EPSILON = 0.05, 0.05
RULES = {"claim": "good_enough", "epsilon": EPSILON, "delta": DELTA}
N_CLONES = 30
# A clone is given up once this e-value against the champion's beating it is not reached after a few.
HOPELESS, AT_LEAST = 0.3, 5
SIDE_BY_SIDE = 4_000
ENOUGH_TO_DROP = 0.2
# Wins and losses of a pair below which e-values are looked up.
_REMEMBERED = 400
CUT = 4_000


class Remembered(PairwiseEvidence):
    """Evidence that looks its e-values up: they take half of the time, and few counts occur."""

    def __init__(self, tally: Tally, epsilon: float) -> None:
        self._table: FloatArray | None = None
        super().__init__(tally, epsilon)
        each = np.arange(_REMEMBERED, dtype=np.float64)
        won, lost = np.meshgrid(each, each, indexing="ij")
        self._table = np.asarray(super().of_counts(won.ravel(), lost.ravel(), np.zeros(won.size)))

    def of_counts(self, wins: Any, losses: Any, ties: Any) -> Any:
        if self._table is None or wins.max() >= _REMEMBERED or losses.max() >= _REMEMBERED:
            return super().of_counts(wins, losses, ties)
        return self._table[(wins * _REMEMBERED + losses).astype(np.int64)]


def attack(n_runs: int, seed: list[int], *, naive: bool) -> IntArray:
    """Shape (R,): the clone that was falsely held for good enough, 0 where none was."""
    rng, n = np.random.default_rng(seed), N_CLONES + 1
    tally = Tally.empty(n, n_runs)
    present = np.zeros((n_runs, n), dtype=np.bool_)
    present[:, :2] = True
    tally.set_present(present)
    tally.tell_ties_apart()
    evidence = Remembered(tally, EPSILON)
    log_share, account = starting_capital(present[0], EPSILON, None)
    stakes = Stakes(tally, log_share, EPSILON, account=account)
    proof = HeadToHead(evidence, DELTA, stakes=stakes)
    fell, met, alive = np.zeros(n_runs, dtype=np.int64), np.zeros(n_runs, dtype=np.int64), np.arange(n_runs)
    clone, over = np.ones(n_runs, dtype=np.int64), np.zeros(n_runs, dtype=np.bool_)
    while alive.size:
        champion, runs = np.zeros_like(alive), np.arange(alive.size)
        tally.record(champion, clone, (rng.random(alive.size) < 0.5 + EPSILON).astype(np.float64))
        evidence.update(champion, clone)
        proof.update(champion, clone)
        met += 1
        false = ~over & (proof.log_capital(runs, champion, clone) >= proof.threshold)
        fell[alive[false]] = clone[false]
        lost = ~over & ~false & (evidence.log_e[runs, 0, clone] < np.log(HOPELESS)) & (met >= AT_LEAST)
        over |= false | (lost & (clone == N_CLONES))
        more = np.flatnonzero(lost & (clone < N_CLONES))
        if more.size:
            clone[more], met[more] = clone[more] + 1, 0
            now = tally.present.copy()
            now[more, clone[more]] = True
            tally.set_present(now)
            proof.join(more, clone[more], None)
            if naive:
                stakes.log_share[more, :, clone[more]] = np.log(0.5)
                proof.move(more, np.column_stack([champion[more], clone[more]]))
        # To drop a run copies all of them.
        if over.mean() > ENOUGH_TO_DROP:
            for part in (tally, evidence, stakes, proof):
                part.keep(~over)
            alive, clone, met, over = alive[~over], clone[~over], met[~over], over[~over]
    return fell


def attacked(n_runs: int, *, naive: bool) -> dict[str, object]:
    """The share of runs in which a clone was falsely named, with its upper bound."""
    started = time.perf_counter()
    parts: list[IntArray] = []
    for first in range(0, n_runs, SIDE_BY_SIDE):
        parts.append(attack(min(SIDE_BY_SIDE, n_runs - first), [7, first], naive=naive))
        so_far = np.concatenate(parts)
        print(f"{so_far.size:,}: {np.count_nonzero(so_far):,}", flush=True)
    fell = np.concatenate(parts)
    wrong = int(np.count_nonzero(fell))
    share = wrong / n_runs
    within = {k: round(float(np.mean((fell > 0) & (fell <= k))), 4) for k in (1, 5, 10, 30)}
    upper = float(stats.beta.ppf(0.95, wrong + 1, n_runs - wrong))
    print(f"{'naive ' if naive else ''}{wrong:,} of {n_runs:,} = {share:.4f}, at most {upper:.4f}; {within}")
    return {"naive": naive, "runs": n_runs, "wrong": wrong, "upper": upper, "within": within} | _took(started)


class Answers:
    """Outcomes of each pair in a row of their own, so that every design is told the same."""

    def __init__(self, strengths: dict[int, float], seed: list[int]) -> None:
        self.strengths, self._seed = strengths, seed
        self.rows: dict[tuple[int, int], np.random.Generator] = {}

    def __call__(self, i: int, j: int) -> float:
        if i > j:
            return 1.0 - self(j, i)
        row = self.rows.setdefault((i, j), np.random.default_rng([*self._seed, i, j]))
        return float(row.random() < special.expit(self.strengths[i] - self.strengths[j]))


def _go_on(design: Design, answers: Answers) -> int:
    """Comparisons until the next conclusion."""
    before = design.n_comparisons
    while not design.stopped and design.n_comparisons - before < CUT:
        i, j = design.ask()
        design.tell(i, j, answers(i, j))
    return design.n_comparisons - before


def _losers_leave(design: Design) -> int:
    named = int(design.decision.best or 0)
    for policy in np.flatnonzero(design.present).tolist():
        if policy != named:
            design.retire(policy)
    return named


def challenged(n_runs: int, sizes: list[int]) -> dict[str, object]:
    """Comparisons of one challenge after a conclusion."""
    started, found = time.perf_counter(), {}
    for K in sizes:
        theta = 0.5 * np.random.default_rng([1, K]).standard_normal((n_runs, K))
        needed: dict[tuple[float, str], list[int]] = {}
        for run in range(n_runs):
            first = Design(Unstructured(K), seed=run, **RULES)
            answers = Answers(dict(enumerate(theta[run].tolist())), [5, K, run])
            _go_on(first, answers)
            if not first.stopped:
                continue
            state = first.state()
            for gap in (0.3, 0.0, -0.5):
                for losers in ("leave", "stay"):
                    design = Design.from_state(Unstructured(K), state)
                    named = _losers_leave(design) if losers == "leave" else int(design.decision.best or 0)
                    newcomer = design.add(parent=named)
                    anew = Answers(answers.strengths | {newcomer: theta[run, named] + gap}, [6, K, run])
                    needed.setdefault((gap, losers), []).append(_go_on(design, anew))
                pair = Design(Unstructured(2), seed=run, **RULES)
                anew = Answers({0: theta[run, named], 1: theta[run, named] + gap}, [6, K, run])
                anew.rows[0, 1] = np.random.default_rng([6, K, run, named, newcomer])
                needed.setdefault((gap, "alone"), []).append(_go_on(pair, anew))
        means = {f"{gap:+} {who}": round(float(np.mean(each)), 1) for (gap, who), each in needed.items()}
        print(f"K = {K}, {n_runs} runs: {means}", flush=True)
        found[str(K)] = means
    return {"runs": n_runs, "comparisons": found} | _took(started)


def in_a_row(n_runs: int) -> dict[str, object]:
    """Comparisons of each of ten challenges in a row, by children of the champion: N(-.1, .4²) better."""
    started, n_rows = time.perf_counter(), 10
    needed, wrong = np.zeros((2, n_runs, n_rows)), 0
    for run in range(n_runs):
        rng = np.random.default_rng([8, run])
        answers = Answers(dict(enumerate((0.4 * rng.standard_normal(2)).tolist())), [9, run])
        design = Design(Unstructured(2), seed=run, **RULES)
        _go_on(design, answers)
        for place in range(n_rows):
            named = _losers_leave(design)
            newcomer = design.add(parent=named)
            answers.strengths[newcomer] = answers.strengths[named] + 0.4 * float(rng.standard_normal()) - 0.1
            needed[0, run, place] = _go_on(design, answers)
            strengths = dict(enumerate([answers.strengths[named], answers.strengths[newcomer]]))
            alone = Answers(strengths, [9, run])
            alone.rows[0, 1] = np.random.default_rng([9, run, named, newcomer])
            needed[1, run, place] = _go_on(Design(Unstructured(2), seed=run, **RULES), alone)
            best = int(design.decision.best or 0)
            other = named if best == newcomer else newcomer
            gap = answers.strengths[other] - answers.strengths[best]
            wrong += bool(design.stopped and special.expit(gap) >= 0.5 + EPSILON)
    means, alone = needed.mean(axis=1).round(1).tolist()
    print(f"challenges 1 to {n_rows}: {means}; of the same two alone: {alone}")
    print(f"{wrong} of {n_runs * n_rows} conclusions wrong")
    return {"runs": n_runs, "means": means, "alone": alone, "wrong": wrong} | _took(started)


def _took(started: float) -> dict[str, float]:
    return {"seconds": round(time.perf_counter() - started, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["attack", "challenge", "row"])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 6, 12])
    parser.add_argument("--naive", action="store_true")
    given = parser.parse_args()
    if given.what == "attack":
        result = attacked(given.runs or 100_000, naive=given.naive)
    elif given.what == "challenge":
        result = challenged(given.runs or 60, given.sizes)
    else:
        result = in_a_row(given.runs or 60)
    print(json.dumps({"benchmark": "living", "part": given.what} | result))


if __name__ == "__main__":
    main()

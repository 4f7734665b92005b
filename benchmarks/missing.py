"""Showings without an outcome: wrong certificates where people choose what they answer, and what it costs.

    python -m benchmarks.missing attacks [--runs 400] [--claims good_enough]
    python -m benchmarks.missing cost [--sizes 2 4 8 16] [--claims good_enough best_if_any best]

`attacks`: four policies, of which the first beats the others by 57, 60 or 65 of 100. Some of five people
want the last one named and never lie: they leave pairs in which it would lose, skip them, answer them late,
or take the answer back. Or an editor voids what it lost, or its texts fail on the tasks that it would lose.
Up to six showings are open at a time. Who has let go of 5 pairs and of more than a tenth of what they were
shown gets no more. Each line has the rule (`against`), and beside it what counted before: answers alone,
where what is let go of, taken back or voided leaves no trace.

`cost`: answers until the claim with the rule over those without it, for honest people and outcomes that are
missing at random, with one showing open at a time and with twenty. Strengths are normal with a standard
deviation of .5 log-odds. Once the claim would hold without the open pairs, no new one is shown.

δ = .05, ε = .05 for "good_enough". The last line is JSON.
"""

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special, stats

from engine.core.claims import HeadToHead
from engine.core.ledger import NONE, OPEN, Ledger
from engine.core.pooled_evidence import Bets
from engine.core.samplers import build_sampler
from engine.core.spaces import Unstructured
from engine.core.types import BoolArray, Bounds, Claim, FloatArray, IntArray, Missing, Tally

DELTA, EPSILON = 0.05, 0.05
N_PEOPLE = 5
# The policy that some people want to be named, and the most pairs that one person has on the screen.
WANTED, MOST_HELD = 3, 3
LEFT_AT_LEAST, LEFT_SHARE = 5, 0.1
FREE, IS_OPEN, ANSWERED = 0, 1, 2
# Steps between two looks whether the claim would hold without the open pairs.
_LOOK_EVERY = 4


@dataclass(frozen=True)
class People:
    """The way outcomes come about.

    ``act``: what the first ``n_choose`` of five people do with a pair in which the wanted policy would lose.
    ``fails``: share of the tasks on which that policy's texts fail; it would lose on these. ``voids``: share
    of the answers against it that an editor voids. ``missing``: share of all pairs that anybody skips.
    """

    act: str = ""
    n_choose: int = 0
    fails: float = 0.0
    voids: float = 0.0
    missing: float = 0.0

    @property
    def text(self) -> str:
        if self.act:
            return f"{self.n_choose} of 5 {self.act}"
        if self.voids:
            return "an editor voids by outcome"
        return f"fails on {self.fails:.0%} of tasks" if self.fails else f"{self.missing:.1%} missing"


HONEST = People()
ATTACKS = (
    HONEST,
    *(People(act, n) for act in ("leave", "skip", "delay", "undo") for n in (1, 2)),
    People(voids=0.4),
    People(fails=0.1),
    People(fails=0.4),
)


@dataclass(frozen=True)
class Ends:
    """Ends of R runs: the policy named, -1 for none, -2 where a run did not end; answers and showings."""

    named: IntArray
    answers: IntArray
    showings: IntArray


class Crowd:
    """R runs side by side, each with some showings open at a time."""

    def __init__(
        self, mu: FloatArray, claim: Claim, rule: Missing, people: People, *, n_open: int, seed: int
    ) -> None:
        n_runs, n_policies = mu.shape[:2]
        self.mu, self.people, self.rule = mu, people, rule
        self.rng = np.random.default_rng(seed)
        self.ledger = Ledger(
            Unstructured(n_policies),
            Tally.empty(n_policies, n_runs),
            delta=DELTA,
            epsilon=EPSILON if claim is Claim.GOOD_ENOUGH else 0.0,
            stopping="certified",
            claim=claim,
            watch_all=False,
            missing=rule,
        )
        self.picker = build_sampler("balanced")
        shape = (n_open, n_runs)
        self.state: IntArray = np.zeros(shape, dtype=np.int64)
        self.i, self.j, self.person = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self.outcome = np.zeros(shape)
        self.stakes, self.favourite = np.zeros((n_open, 2, n_runs)), np.zeros((n_open, 2, n_runs), dtype=bool)
        self.shown, self.left = (np.zeros((n_runs, N_PEOPLE), dtype=np.int64) for _ in range(2))
        self.closing: BoolArray = np.zeros(n_runs, dtype=np.bool_)

    @property
    def n_open(self) -> int:
        return self.state.shape[0]

    def keep(self, runs: BoolArray) -> None:
        self.mu, self.closing = self.mu[runs], self.closing[runs]
        self.ledger.keep(runs)
        self.picker.keep(runs)
        for name in ("state", "i", "j", "person", "outcome"):
            setattr(self, name, getattr(self, name)[:, runs])
        self.stakes, self.favourite = self.stakes[:, :, runs], self.favourite[:, :, runs]
        self.shown, self.left = self.shown[runs], self.left[runs]

    def turn(
        self, slot: int, runs: IntArray, was: Bounds | None, now: Bounds | None, **answers: object
    ) -> None:
        if runs.size:
            bets = Bets(self.stakes[slot][:, runs], self.favourite[slot][:, runs])
            self.ledger.turn(self.i[slot, runs], self.j[slot, runs], bets, was, now, runs=runs, **answers)

    def settle(self, slot: int) -> None:
        """Have what is open in this slot end, or stay."""
        state, people = self.state[slot], self.people
        open_ones = state == IS_OPEN
        against = self.against_wanted(slot)
        chooses = (self.person[slot] < people.n_choose) & against
        lets_go = self.rng.random(state.size) < people.missing
        fails = self.rng.random(state.size) < self.failing(slot)
        stays = open_ones & chooses & self.waits()
        # A pair that was left went to somebody else, where answers alone counted: as if it had never been.
        gone = people.act == "skip" or (people.act == "leave" and self.rule is Missing.ANSWERS)
        none = open_ones & ~stays & (lets_go | fails | (chooses & gone))
        answered = open_ones & ~stays & ~none
        taken_back = state == ANSWERED
        self.under_way(slot, np.flatnonzero(none | answered), -1)
        at = np.flatnonzero(none)
        self.turn(slot, at, OPEN, NONE)
        self.left[at, self.person[slot, at]] += ~fails[at]
        at = np.flatnonzero(answered)
        told = self.outcome[slot, at]
        self.turn(slot, at, OPEN, Bounds(told, told), outcome=told)
        at = np.flatnonzero(taken_back)
        told = self.outcome[slot, at]
        now = Bounds(np.zeros(at.size), np.ones(at.size), missing=True)
        self.turn(slot, at, Bounds(told, told), now, instead_of=told)
        self.left[at, self.person[slot, at]] += 1
        later = chooses & (people.act == "undo")
        if self.rule is Missing.ANSWERS and people.voids:
            # A judgment that was voided left no trace.
            later |= against & (self.rng.random(state.size) < people.voids)
        state[none | taken_back | answered] = FREE
        state[answered & later] = ANSWERED

    def against_wanted(self, slot: int) -> BoolArray:
        """Shape (R,): whether the outcome would be a loss of the wanted policy."""
        lost = np.where(self.i[slot] == WANTED, self.outcome[slot] == 0.0, self.outcome[slot] == 1.0)
        return lost & ((self.i[slot] == WANTED) | (self.j[slot] == WANTED))

    def failing(self, slot: int) -> FloatArray:
        """Shape (R,): the chance that a text fails: where the wanted policy loses, on average `fails`."""
        if not self.people.fails:
            return np.zeros(self.state.shape[1])
        rows = np.arange(self.state.shape[1])
        i, j = self.i[slot], self.j[slot]
        loses = np.where(i == WANTED, self.mu[rows, j, i], self.mu[rows, i, j])
        return self.against_wanted(slot) * np.minimum(self.people.fails / np.maximum(loses, 1e-9), 1.0)

    def waits(self) -> BoolArray | bool:
        """Shape (R,), or for all: whether a chooser keeps a pair that the wanted policy would lose."""
        if self.people.act == "leave":
            return self.rule is Missing.AGAINST
        if self.people.act != "delay":
            return False
        full: BoolArray = (self.held() >= MOST_HELD)[:, : self.people.n_choose].all(axis=1)
        return ~full

    def held(self) -> IntArray:
        """Shape (R, people): pairs on the screen of each."""
        return np.array(
            [((self.state == IS_OPEN) & (self.person == p)).sum(axis=0) for p in range(N_PEOPLE)]
        ).T

    def begin(self, slot: int) -> None:
        """Show a pair in this slot, where it is free and somebody may have one."""
        i, j = self.picker.pick(self.ledger.situation(), self.rng)
        may = self.held() < max(MOST_HELD, self.n_open)
        if self.people.act:
            may = self.held() < MOST_HELD
            if self.rule is Missing.AGAINST:
                may &= (self.left < LEFT_AT_LEAST) | (self.left <= LEFT_SHARE * self.shown)
        drawn = np.where(may, self.rng.random(may.shape), -1.0)
        runs = np.flatnonzero((self.state[slot] == FREE) & may.any(axis=1) & ~self.closing)
        outcome = (self.rng.random(i.size) < self.mu[np.arange(i.size), i, j]).astype(np.float64)
        self.i[slot, runs], self.j[slot, runs] = i[runs], j[runs]
        self.outcome[slot, runs], self.person[slot, runs] = outcome[runs], drawn.argmax(axis=1)[runs]
        if not runs.size:
            return
        self.under_way(slot, runs, 1)
        bets = self.ledger.show(i[runs], j[runs], runs)
        self.stakes[slot][:, runs], self.favourite[slot][:, runs] = bets.stakes, bets.favourite
        self.state[slot, runs] = IS_OPEN
        self.shown[runs, self.person[slot, runs]] += 1

    def under_way(self, slot: int, runs: IntArray, change: int) -> None:
        """Tell the sampler how many more pairs are on a screen."""
        tally, i, j = self.ledger.tally, self.i[slot, runs], self.j[slot, runs]
        for k, b in ((i, j), (j, i)):
            tally.in_flight[runs, k, b] += change
            tally.pending[runs, k] += change
        tally.n_in_flight[runs] += change

    def look(self) -> None:
        """Note in which runs the claim would hold without what is open."""
        proof, tally = self.ledger.head_to_head(), self.ledger.tally
        # Pairs that somebody keeps back are not waited for.
        waits = self.people.act in {"leave", "delay"}
        if self.rule is Missing.ANSWERS or waits or not isinstance(proof, HeadToHead):
            return
        n = tally.n_policies
        held_back = proof.evidence.held_back()
        capital = proof.log_capital(*np.ix_(range(tally.n_runs), range(n), range(n)))
        capital = capital if held_back is None else capital + held_back
        capital[:, range(n), range(n)] = np.inf
        self.closing = (capital.min(axis=1) >= proof.threshold).any(axis=1)


def run(
    mu: FloatArray,
    claim: Claim,
    rule: Missing,
    people: People = HONEST,
    *,
    n_open: int = 6,
    most: int = 3000,
    seed: int = 11,
) -> Ends:
    """Run R experiments until each has come to its claim, or has `most` answers or three times as many
    showings.
    """
    # Pairs that choosers never answer do not count among those that are open at a time.
    spare = MOST_HELD * people.n_choose if people.act == "leave" and rule is Missing.AGAINST else 0
    crowd = Crowd(mu, claim, rule, people, n_open=n_open + spare, seed=seed)
    n_runs = mu.shape[0]
    named, answers = np.full(n_runs, -2), np.full(n_runs, most)
    showings, alive = np.zeros(n_runs, dtype=np.int64), np.arange(n_runs)
    for step in range(3 * most):
        slot = step % crowd.n_open
        crowd.settle(slot)
        established, none_best = crowd.ledger.settled()
        ended = established | none_best | (crowd.ledger.tally.n_comparisons >= most)
        if ended.any():
            at = alive[ended]
            best = np.where(established, crowd.ledger.best(), np.where(none_best, -1, -2))
            named[at], answers[at] = best[ended], np.minimum(crowd.ledger.tally.n_comparisons[ended], most)
            showings[at] = crowd.shown[ended].sum(axis=1)
            alive = alive[~ended]
            crowd.keep(~ended)
        if not alive.size:
            break
        if n_open > 1 and step % _LOOK_EVERY == 0:
            crowd.look()
        crowd.begin(slot)
    return Ends(named, answers, showings)


def wrong(named: IntArray, mu: FloatArray, claim: Claim) -> int:
    """The number of runs that ended with something false."""
    n = mu.shape[1]
    off = ~np.eye(n, dtype=bool)
    number = 0
    for b, rates in zip(named, mu, strict=True):
        best = [k for k in range(n) if all(rates[k, off[k]] > 0.5)]
        if b == -1:
            number += bool(best)
        elif b >= 0 and claim is Claim.BEST_IF_ANY:
            number += bool(best) and best[0] != b
        elif b >= 0:
            null = 0.5 + (EPSILON if claim is Claim.GOOD_ENOUGH else 0.0)
            number += bool((rates[off[:, b], b] >= null - 1e-12).any())
    return int(number)


def attack(claim: Claim, rate: float, people: People, n_runs: int) -> dict[str, object]:
    """One line of the table of attacks."""
    mu = np.full((4, 4), 0.5)
    mu[0, 1:], mu[1:, 0] = rate, 1.0 - rate
    every = np.tile(mu, (n_runs, 1, 1))
    line: dict[str, object] = {"claim": claim, "rate": rate, "people": people.text, "runs": n_runs}
    for rule in Missing:
        ends = run(every, claim, rule, people)
        n_wrong = wrong(ends.named, every, claim)
        line[rule] = {
            "wrong": n_wrong,
            "upper": float(stats.beta.ppf(0.975, n_wrong + 1, n_runs - n_wrong)) if n_wrong < n_runs else 1.0,
            "ended": float(np.mean(ends.named > -2)),
            "answers": float(ends.answers.mean()),
        }
    return line


def cost(claim: Claim, size: int, n_runs: int, most: int) -> Iterator[dict[str, object]]:
    """The lines of the table of costs for one claim and one number of policies."""
    strengths = np.random.default_rng(100 + size).normal(0.0, 0.5, (n_runs, size))
    mu = special.expit(strengths[:, :, None] - strengths[:, None, :])
    for n_open in (1, 20):
        base = run(mu, claim, Missing.ANSWERS, n_open=n_open, most=most, seed=7).answers.astype(float)
        for missing in (0.0, 0.01, 0.02, 0.05):
            people = People(missing=missing)
            ends = run(mu, claim, Missing.AGAINST, people, n_open=n_open, most=most, seed=7)
            ratio = ends.answers.mean() / base.mean()
            error = np.std(ends.answers - ratio * base) / np.sqrt(n_runs) / base.mean()
            yield {
                "claim": claim,
                "policies": size,
                "open": n_open,
                "missing": missing,
                "answers": float(ends.answers.mean()),
                "ratio": float(ratio),
                "half_width": float(1.96 * error),
                "medians": float(np.median(ends.answers) / np.median(base)),
                "ended": float(np.mean(ends.named > -2)),
                "wrong": wrong(ends.named, mu, claim),
                "runs": n_runs,
            }


# Runs and the most answers of a cell of the table of costs, by the number of policies.
_COST_RUNS = {2: (400, 4000), 4: (300, 4000), 8: (120, 4000), 16: (60, 5000)}


def main() -> None:
    """Print the table and one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("attacks", "cost"))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.57, 0.60, 0.65])
    parser.add_argument("--claims", nargs="+", type=Claim, default=[Claim.GOOD_ENOUGH])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(_COST_RUNS))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    began = time.process_time()
    lines: list[dict[str, object]] = []
    if options.table == "cost":
        for claim in options.claims:
            for size in options.sizes:
                n_runs, most = _COST_RUNS[size]
                for line in cost(claim, size, options.runs or n_runs, most):
                    lines.append(line)
                    print(line, flush=True)
    else:
        cells = [
            (claim, rate, people) for claim in options.claims for rate in options.rates for people in ATTACKS
        ]
        with ProcessPoolExecutor(options.workers) as executor:
            for line in executor.map(partial(_attack, n_runs=options.runs or 400), cells):
                lines.append(line)
                print(line, flush=True)
    print(json.dumps({"table": options.table, "lines": lines, "seconds": time.process_time() - began}))


def _attack(cell: tuple[Claim, float, People], n_runs: int) -> dict[str, object]:
    return attack(*cell, n_runs=n_runs)


if __name__ == "__main__":
    main()

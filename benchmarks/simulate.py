"""Simulated experiments: many runs of one design against known preference probabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.core.ledger import Ledger
from engine.core.samplers import build_sampler
from engine.core.spaces import Space, Unstructured
from engine.core.types import BoolArray, Claim, FloatArray, IntArray, Seed, Tally

# The most comparisons between two looks: beyond 20, t is never a multiple of 1 + t // 20.
_MOST_UNSEEN = 20


@dataclass(frozen=True, slots=True)
class SimulatedRuns:
    """The ends of R simulated runs.

    Attributes
    ----------
    n_comparisons
        Shape (R,): comparisons when the run stopped; the budget, or where `go_on` ended it, for the others.
    stopped
        Shape (R,): whether the run stopped before its budget was spent.
    best
        Shape (R,): the policy named, the leader for a run out of budget, -1 for "no single best".
    refuted
        Shape (R, K): the policies ruled out by the end.
    leaders
        Shape (M, R): the leader after each of the M numbers in `marks`; a stopped run keeps its answer.
    """

    n_comparisons: IntArray
    stopped: BoolArray
    best: IntArray
    refuted: BoolArray
    leaders: IntArray
    marks: tuple[int, ...]


def simulate(
    mu: FloatArray,
    *,
    space: Space | None = None,
    sampler: str = "balanced",
    stopping: str = "certified",
    delta: float = 0.05,
    claim: Claim | str = Claim.BEST,
    epsilon: float = 0.0,
    capital_moves: bool = True,
    prior_strengths: FloatArray | None = None,
    budget: int = 30_000,
    pending: int = 0,
    ties: float = 0.0,
    marks: Sequence[int] = (),
    observe_every: int = 1,
    wins: FloatArray | None = None,
    progress: Mapping[str, Any] | None = None,
    seed: Seed = 0,
    mu_at: Callable[[int], FloatArray] | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> SimulatedRuns:
    """Run one design R times side by side.

    Parameters
    ----------
    mu
        Shape (R, K, K): preference probabilities of each run.
    space
        The assumption of the design; none by default.
    claim
        The claim to stop on.
    capital_moves
        As for `Design`.
    prior_strengths
        Shape (K,): prior strengths, in log-odds.
    budget
        Comparisons after which a run ends regardless.
    pending
        How many comparisons are under way whenever one is judged.
    ties
        Share of comparisons, in [0, 1], that end in a tie, or as many as the pair's win rate allows.
    marks
        Numbers of comparisons after which to note the leader.
    observe_every
        In a Bradley-Terry space, estimate and evidence are brought up to date only every so many
        comparisons, at most 20, and more often at first. That puts off some stops by up to as many.
    wins, progress
        `Design.wins` and `Design.progress` from which every run goes on; a fresh start by default. What comes
        out counts these comparisons too.
    mu_at
        Called with the number of each comparison, from 1: shape (R, K, K), what holds for this one in place
        of `mu`. For judges who differ or change.
    go_on
        Asked after every step; False ends all runs there, undecided.
    """
    n_runs, n_policies = mu.shape[:2]
    rng = np.random.default_rng(seed)
    peak, memory, lived = (
        None if progress is None else progress.get(part) for part in ("peak_evidence", "streams", "lived")
    )
    tally = Tally(np.zeros(mu.shape) if wins is None else np.repeat(wins[None], n_runs, axis=0))
    tally.leave_out(() if lived is None else lived["absent"])
    ledger = Ledger(
        space or Unstructured(n_policies),
        tally,
        delta=delta,
        epsilon=epsilon,
        stopping=stopping,
        claim=Claim(claim),
        watch_all=False,
        capital_moves=capital_moves,
        prior=prior_strengths,
        peak_evidence=None if peak is None else np.tile(np.asarray(peak, dtype=np.float64), (n_runs, 1)),
        memory=None if memory is None else [memory] * n_runs,
    )
    picker = build_sampler(sampler)
    n_comparisons = np.full(n_runs, budget)
    stopped = np.zeros(n_runs, dtype=np.bool_)
    best = np.full(n_runs, -1)
    refuted = np.zeros((n_runs, n_policies), dtype=np.bool_)
    leaders = np.full((len(marks), n_runs), -1)
    alive = np.arange(n_runs)
    queue: list[tuple[IntArray, IntArray]] = []
    first = int(ledger.tally.n_comparisons[0]) + 1
    for t in range(first, max(first, budget) + 1):
        while len(queue) <= pending:
            pair = picker.pick(ledger.situation(), rng)
            ledger.tally.begin(*pair)
            queue.append(pair)
        i, j = queue.pop(0)
        now = mu if mu_at is None else mu_at(t)
        chance, draw = now[alive, i, j], rng.random(alive.size)
        half_ties = np.minimum(0.5 * ties, np.minimum(chance, 1.0 - chance))
        outcome = 0.5 * (draw < chance - half_ties) + 0.5 * (draw < chance + half_ties)
        ledger.tally.release(i, j)
        ledger.record(i, j, outcome, observe=t % min(observe_every, _MOST_UNSEEN, 1 + t // 20) == 0)

        established, none_best = ledger.settled()
        ended = established | none_best
        if t in marks or ended.any() or t >= budget:
            best[alive] = np.where(none_best, -1, ledger.best())
        if t in marks:
            leaders[list(marks).index(t)] = best
        if ended.any():
            n_comparisons[alive[ended]] = t
            stopped[alive[ended]] = True
            refuted[alive[ended]] = ledger.rule.refuted[ended]
            alive = alive[~ended]
            ledger.keep(~ended)
            picker.keep(~ended)
            queue = [(i[~ended], j[~ended]) for i, j in queue]
        if alive.size == 0:
            break
        if not go_on():
            n_comparisons[alive] = t
            best[alive] = ledger.best()
            break
    refuted[alive] = ledger.rule.refuted
    leaders[[k for k, mark in enumerate(marks) if mark > t]] = best
    return SimulatedRuns(n_comparisons, stopped, best, refuted, leaders, tuple(marks))

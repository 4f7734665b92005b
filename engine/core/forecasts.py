"""Forecasts of the comparisons that a decision takes, before the first one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import special

from .simulate import SimulatedRuns, simulate
from .spaces import BradleyTerry, Space
from .structured import prior_precision
from .types import Claim, FloatArray


@dataclass(frozen=True, slots=True)
class Forecast:
    """The numbers of comparisons that simulated experiments took.

    Attributes
    ----------
    expected
        Mean number of (further) comparisons, those out of budget counted at the budget.
    low, high
        Ends of the interval that holds four in five of them.
    decided
        Share that came to a decision within the budget.
    n_runs
        Number of simulated experiments: fewer than asked for where the processor time did not suffice for
        all.
    horizon
        Comparisons after which a simulated experiment was given up as undecided: the budget, or fewer where
        the processor time did not suffice for it.
    """

    expected: float
    low: float
    high: float
    decided: float
    n_runs: int
    horizon: int


@dataclass(frozen=True, slots=True)
class Simulations:
    """The simulated experiments of a forecast that are done: enough to go on later with the same arguments.

    Attributes
    ----------
    left
        Comparisons that each took, those out of budget counted at the budget.
    decided
        Whether each came to a decision.
    horizon
        As in `Forecast`.
    seconds
        Processor time spent on them.
    """

    left: Sequence[float] = ()
    decided: Sequence[bool] = ()
    horizon: int = 0
    seconds: float = 0.0


NONE_YET = Simulations()


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of the experiment to forecast, as for `Design`.

    Attributes
    ----------
    budget
        Comparisons after which a simulated experiment ends without a decision.
    pending
        How many comparisons are under way whenever one is judged.
    """

    space: Space
    delta: float = 0.05
    claim: Claim | str = Claim.BEST
    epsilon: float = 0.0
    capital_moves: bool = True
    sampler: str = "balanced"
    stopping: str = "certified"
    budget: int = 20_000
    pending: int = 0


def forecast(
    plan: Plan,
    *,
    log_odds: float = 0.4,
    strengths: FloatArray | None = None,
    n_runs: int = 100,
    seed: int = 0,
    start: Simulations = NONE_YET,
    seconds: float = np.inf,
    tick: Callable[[], None] = lambda: None,
    progress: Callable[[Simulations, int], None] = lambda done, n_runs: None,
) -> Forecast:
    """Forecast an experiment before its first comparison, by simulating it.

    Parameters
    ----------
    plan
        The experiment.
    log_odds
        Guess of how far apart policies are: standard deviation of the log-odds between two of them. 0.4 means
        that the better of two wins about 57% of the time.
    strengths
        Shape (K,): a guess of the strengths themselves, in log-odds, in place of random ones.
    n_runs
        Number of simulated experiments, each with strengths of its own unless they are given.
    start
        The part that an earlier call with the same arguments got done.
    seconds
        Processor time to spend at most. The first simulated experiments are cut short where even they would
        take longer; of the others as many are done as there is time for.
    tick
        Called after every step of every simulation. What it raises ends the forecast.
    progress
        Called with the simulated experiments that are done, and the number of all.
    """
    rng = np.random.default_rng(seed)
    K = plan.space.n_policies
    if strengths is not None:
        scores = np.repeat(np.asarray(strengths, dtype=np.float64)[None], n_runs, axis=0)
    elif isinstance(plan.space, BradleyTerry):
        root = np.linalg.cholesky(np.linalg.inv(prior_precision(plan.space, log_odds)))
        scores = rng.standard_normal((n_runs, plan.space.n_features)) @ root.T @ plan.space.features.T
    else:
        scores = rng.standard_normal((n_runs, K)) * (log_odds / np.sqrt(2.0))
    mu = special.expit(scores[:, :, None] - scores[:, None, :])
    return _simulate_in_parts(plan, mu, seed=seed, start=start, seconds=seconds, tick=tick, progress=progress)


def _simulate_in_parts(
    plan: Plan,
    mu: FloatArray,
    *,
    seed: int,
    start: Simulations,
    seconds: float,
    tick: Callable[[], None],
    progress: Callable[[Simulations, int], None],
) -> Forecast:
    n_runs = mu.shape[0]
    parts = _parts(n_runs)
    seeds = np.random.SeedSequence(seed).spawn(len(parts))
    done = start
    for part, part_seed in zip(parts, seeds, strict=True):
        n_done = len(done.left)
        if part.stop <= n_done:
            continue
        expected_seconds = 0.0 if n_done == 0 else done.seconds / n_done * (part.stop - part.start)
        if done.seconds + expected_seconds > seconds:
            break
        began = time.process_time()

        def go_on(limit: float = began + seconds - done.seconds) -> bool:
            tick()
            return time.process_time() < limit

        runs = _simulate_part(plan, mu[part], seed=part_seed, go_on=go_on)
        cut = bool(np.any(~runs.stopped & (runs.n_comparisons < plan.budget)))
        spent = done.seconds + time.process_time() - began
        if cut and n_done:
            # Its short runs alone would make experiments look shorter than they are.
            done = replace(done, seconds=spent)
            break
        done = Simulations(
            left=(*done.left, *runs.n_comparisons.tolist()),
            decided=(*done.decided, *runs.stopped.tolist()),
            horizon=int(runs.n_comparisons.max()) if cut else plan.budget,
            seconds=spent,
        )
        progress(done, n_runs)
        if cut:
            break
    left = np.array(done.left)
    low, high = np.quantile(left, [0.1, 0.9])
    return Forecast(
        expected=float(left.mean()),
        low=float(low),
        high=float(high),
        decided=float(np.mean(done.decided)),
        n_runs=left.size,
        horizon=done.horizon,
    )


def _parts(n_runs: int) -> list[slice]:
    """A few runs first, to see what they cost; then more side by side, which is cheaper for each."""
    ends = [0, 4, 12]
    while ends[-1] < n_runs:
        ends.append(ends[-1] + 16)
    return [slice(a, min(b, n_runs)) for a, b in pairwise(ends) if a < n_runs]


def _simulate_part(
    plan: Plan,
    mu: FloatArray,
    *,
    seed: np.random.SeedSequence,
    go_on: Callable[[], bool],
) -> SimulatedRuns:
    return simulate(
        mu,
        space=plan.space,
        sampler=plan.sampler,
        stopping=plan.stopping,
        delta=plan.delta,
        claim=plan.claim,
        epsilon=plan.epsilon,
        capital_moves=plan.capital_moves,
        budget=plan.budget,
        pending=plan.pending,
        observe_every=20,
        seed=seed,
        go_on=go_on,
    )

"""How many comparisons a decision will take, before the first one and during a run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special

from .estimation import PairData, fit
from .problem import BradleyTerry, Space
from .simulate import SimulatedRuns, simulate
from .structured import prior_precision
from .types import Claim, FloatArray, Tally

# Weight, in comparisons, of the Bradley-Terry fit against a pair's own win rate when runs are projected.
_FIT_WEIGHT = 20.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many comparisons simulated experiments took.

    Attributes
    ----------
    expected
        Mean number of (further) comparisons, those out of budget counted at the budget.
    low, high
        Ends of the interval that holds four in five of them.
    decided
        Share that came to a decision within the budget.
    n_runs
        Number of simulated experiments.
    """

    expected: float
    low: float
    high: float
    decided: float
    n_runs: int


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
    streams: bool = True
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
    workers: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
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
    workers
        Processes to share the work; 1 stays in this one.
    seed
        Seed of the simulation.
    progress
        Called with the number of simulated experiments done and the total.

    Raises
    ------
    ValueError
        If the plan's claim, sampler or stopping rule is unknown.
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
    return _simulate_in_parts(plan, mu, None, None, workers=workers, seed=seed, progress=progress)


def forecast_rest(
    plan: Plan,
    wins: FloatArray,
    peak_evidence: FloatArray,
    *,
    n_runs: int = 100,
    workers: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """Forecast the rest of an experiment from what it has found so far, by simulating continuations.

    Every simulated continuation draws its preference probabilities from their posterior, in which a pair's
    own outcomes count beside a Bradley-Terry fit to all.

    Parameters
    ----------
    plan
        The experiment.
    wins
        Shape (K, K): summed outcomes so far.
    peak_evidence
        Shape (K,): `Design.peak_evidence`, in nats.
    n_runs
        Number of simulated continuations.
    workers
        Processes to share the work; 1 stays in this one.
    seed
        Seed of the simulation.
    progress
        Called with the number of simulated continuations done and the total.

    Raises
    ------
    ValueError
        If the plan's claim, sampler or stopping rule is unknown, or `peak_evidence` does not fit its space.
    """
    rng = np.random.default_rng(seed)
    tally = Tally(wins[None])
    space = (
        plan.space if isinstance(plan.space, BradleyTerry) else BradleyTerry.one_hot(plan.space.n_policies)
    )
    precision = prior_precision(space, 1.0)
    data = PairData.of(space.features, tally)
    theta = fit(data, precision, np.zeros((1, space.n_features)))[0]
    hessian = data.hessian(theta[None])[0] + precision
    draws = theta + rng.standard_normal((n_runs, space.n_features)) @ np.linalg.inv(
        np.linalg.cholesky(hessian)
    )
    scores = draws @ space.features.T
    mu = special.expit(scores[:, :, None] - scores[:, None, :])
    if not isinstance(plan.space, BradleyTerry):
        rows, columns = np.triu_indices(wins.shape[0], 1)
        expected = mu[:, rows, columns] * _FIT_WEIGHT
        drawn = rng.beta(wins[rows, columns] + expected, wins[columns, rows] + _FIT_WEIGHT - expected)
        mu[:, rows, columns] = drawn
        mu[:, columns, rows] = 1.0 - drawn
    return _simulate_in_parts(plan, mu, wins, peak_evidence, workers=workers, seed=seed, progress=progress)


def _simulate_in_parts(
    plan: Plan,
    mu: FloatArray,
    wins: FloatArray | None,
    peak: FloatArray | None,
    *,
    workers: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> Forecast:
    n_runs = mu.shape[0]
    parts = np.array_split(mu, max(workers, min(10, n_runs // 10)) if progress or workers > 1 else 1)
    seeds = np.random.SeedSequence(seed).spawn(len(parts))
    task = partial(_simulate_part, plan, wins, peak)
    results: list[SimulatedRuns] = []
    done = 0
    pool = ProcessPoolExecutor(workers) if workers > 1 else None
    try:
        for part, runs in zip(parts, (pool.map if pool else map)(task, parts, seeds), strict=True):
            results.append(runs)
            done += part.shape[0]
            if progress:
                progress(done, n_runs)
    finally:
        if pool:
            pool.shutdown()
    so_far = 0.0 if wins is None else float(wins.sum())
    left = np.concatenate([runs.n_comparisons for runs in results]) - so_far
    low, high = np.quantile(left, [0.1, 0.9])
    decided = np.concatenate([runs.stopped for runs in results])
    return Forecast(float(left.mean()), float(low), float(high), float(decided.mean()), n_runs)


def _simulate_part(
    plan: Plan, wins: FloatArray | None, peak: FloatArray | None, mu: FloatArray, seed: np.random.SeedSequence
) -> SimulatedRuns:
    return simulate(
        mu,
        space=plan.space,
        sampler=plan.sampler,
        stopping=plan.stopping,
        delta=plan.delta,
        claim=plan.claim,
        epsilon=plan.epsilon,
        streams=plan.streams,
        budget=plan.budget,
        pending=plan.pending,
        observe_every=20,
        wins=wins,
        peak_evidence=peak,
        seed=seed,
    )

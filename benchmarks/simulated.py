"""Shared parts of the benchmarks of sampling rules: the paper's instances, simulated runs, their summary."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.instances import preference_matrix, structured_instance, unstructured_instances
from benchmarks.simulate import simulate
from engine.core.allocation import best_policy, lower_bound, pairwise_characteristic_time
from engine.core.maxmin import maxmin_allocation
from engine.core.paper_thresholds import heuristic_threshold
from engine.core.spaces import BradleyTerry, Space
from engine.core.types import BoolArray, FloatArray, IntArray

# U* between 500 and 700, as in the paper's structured experiment.
STRUCTURED_SEED = 39


@dataclass(frozen=True)
class Instance:
    """R runs' preference probabilities and answers.

    Attributes
    ----------
    mu
        Shape (R, K, K).
    right
        Shape (R, K): the policies that it is right to name.
    space
        The designs' assumption; None for no assumption.
    yardsticks
        Lengths of an experiment, in comparisons, to compare with.
    """

    mu: FloatArray
    right: BoolArray
    space: Space | None
    yardsticks: dict[str, float]


@dataclass(frozen=True)
class Job:
    """One sampler under one stopping rule."""

    sampler: str
    stopping: str
    instance: Instance
    delta: float
    cap: int
    marks: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Summary:
    """Means over the runs, the half-width of the 95% interval of the first, and processor time."""

    mean: float
    half_width: float
    stopped: float
    error_rate: float
    correct: float
    pcs: dict[int, float]
    seconds: float


def run(job: Job) -> Summary:
    """Simulate and summarise."""
    start = time.process_time()
    runs = simulate(
        job.instance.mu,
        space=job.instance.space,
        sampler=job.sampler,
        stopping=job.stopping,
        delta=job.delta,
        claim="best_if_any",
        budget=job.cap,
        marks=job.marks,
        observe_every=20,
        seed=job.seed,
    )
    counts = runs.n_comparisons
    right = _is_right(job.instance, runs.best)
    return Summary(
        mean=round(float(counts.mean()), 1),
        half_width=round(1.96 * float(counts.std(ddof=1)) / np.sqrt(counts.size), 1),
        stopped=round(float(runs.stopped.mean()), 4),
        error_rate=round(float(np.mean(runs.stopped & ~right)), 4),
        correct=round(float(right.mean()), 4),
        pcs={
            mark: round(float(_is_right(job.instance, leader).mean()), 4)
            for mark, leader in zip(runs.marks, runs.leaders, strict=True)
        },
        seconds=round(time.process_time() - start, 1),
    )


def _is_right(instance: Instance, named: IntArray) -> BoolArray:
    # -1, "no single best", is never right here.
    right: BoolArray = (named >= 0) & instance.right[np.arange(named.size), named]
    return right


def paper_instance(space: str, n_runs: int, *, delta: float, seed: int) -> Instance:
    """The paper's synthetic instance of a space, "unstructured" or "structured", for so many runs.

    The yardstick is the least that any design needs on average, the limit U* kl(δ, 1 - δ) of the paper's in a
    structured space.
    """
    if space == "unstructured":
        mu = unstructured_instances(n_runs, seed)
        characteristic = float(np.mean([pairwise_characteristic_time(matrix) for matrix in mu]))
        yardsticks = {"T*": characteristic, "yardstick": lower_bound(characteristic, delta)}
        return Instance(mu, _one_hot(best_policy(mu), mu.shape[1]), None, yardsticks)
    features, theta = structured_instance(32, 6, STRUCTURED_SEED)
    surrogate = 1.0 / maxmin_allocation(features, theta, tolerance=1e-6).separation
    mu = np.repeat(preference_matrix(features @ theta)[None], n_runs, axis=0)
    # The limit for the heuristic threshold: the t that solves t = U* threshold(t).
    limit = surrogate
    for _ in range(100):
        limit = surrogate * float(heuristic_threshold(delta, limit))
    yardsticks = {
        "U*": surrogate,
        "yardstick": lower_bound(surrogate, delta),
        "U*_threshold": limit,
        "instance_seed": STRUCTURED_SEED,
    }
    return Instance(mu, _one_hot(best_policy(mu), mu.shape[1]), BradleyTerry(features), yardsticks)


def _one_hot(best: IntArray, n_policies: int) -> BoolArray:
    hot: BoolArray = best[:, None] == np.arange(n_policies)
    return hot

"""Preference matrices and runs shared by the tests of the engine's core."""

import copy
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from engine.core import Design


def bradley_terry(strengths: np.ndarray) -> np.ndarray:
    """Preference matrix μ of policies with the given strengths."""
    return 1.0 / (1.0 + np.exp(-(strengths[:, None] - strengths)))


def every_path(
    design: Design, mu: np.ndarray, horizon: int, t: int = 0, probability: float = 1.0
) -> Iterator[tuple[int, float, Design]]:
    """After each of ``horizon`` comparisons, every history: its time from 0, its probability, the design."""
    if t == horizon:
        return
    i, j = design.ask()
    for outcome, rate in ((0.0, mu[j, i]), (1.0, mu[i, j])):
        # The copies share the past, their pseudo-random numbers included.
        after = copy.deepcopy(design)
        after.tell(i, j, outcome)
        yield t, probability * rate, after
        yield from every_path(after, mu, horizon, t + 1, probability * rate)


@pytest.fixture
def run_to_the_end() -> Callable[..., Design]:
    """Run a design against a preference matrix until it stops, keeping `pending` comparisons under way."""

    def run(design: Design, mu: np.ndarray, seed: int, pending: int = 0, limit: int = 50_000) -> Design:
        rng = np.random.default_rng(seed)
        queue: list[tuple[int, int]] = []
        while not design.stopped and design.n_comparisons < limit:
            while len(queue) <= pending:
                queue.append(design.ask())
            i, j = queue.pop(0)
            design.tell(i, j, float(rng.random() < mu[i, j]))
        return design

    return run

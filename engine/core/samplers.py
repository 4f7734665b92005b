"""Sampling rules by name."""

from __future__ import annotations

from collections.abc import Callable

from engine.core.baselines import RUCB, EpsGreedy, RandomPair, RoundRobin, ThompsonSampling
from engine.core.sampling import Balanced, Sampler
from engine.core.tracking import Tracking

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "balanced": Balanced,
    "tracking": Tracking,
    "round_robin": RoundRobin,
    "random": RandomPair,
    "eps_greedy": EpsGreedy,
    "thompson": ThompsonSampling,
    "rucb": RUCB,
}


def build_sampler(name: str) -> Sampler:
    """Sampling rule of that name, with its default settings.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}; got {name!r}")
    return SAMPLERS[name]()

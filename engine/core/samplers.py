"""Sampling rules by name: our own, and those that other packages register.

A package adds one by an entry point in the group "llm_po.samplers". Its name is the rule's, and its object is
called without arguments and returns a `Sampler`:

    [project.entry-points."llm_po.samplers"]
    mine = "my_package:MySampler"
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from .baselines import RUCB, EpsGreedy, RandomPair, RoundRobin, ThompsonSampling
from .sampling import Balanced, Sampler
from .tracking import Tracking

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "balanced": Balanced,
    "tracking": Tracking,
    "round_robin": RoundRobin,
    "random": RandomPair,
    "eps_greedy": EpsGreedy,
    "thompson": ThompsonSampling,
    "rucb": RUCB,
}


ENTRY_POINTS = "llm_po.samplers"


def build_sampler(name: str) -> Sampler:
    """Sampling rule of that name, with its default settings. Our own names come first.

    Parameters
    ----------
    name
        One of `SAMPLERS`, or of the entry points that other packages registered.

    Raises
    ------
    ValueError
        If there is none, or what is registered is no `Sampler`.
    """
    if name in SAMPLERS:
        return SAMPLERS[name]()
    others = entry_points(group=ENTRY_POINTS)
    if name not in others.names:
        raise ValueError(
            f"sampler must be one of {', '.join([*SAMPLERS, *sorted(others.names)])}; got {name!r}"
        )
    sampler = others[name].load()()
    if not isinstance(sampler, Sampler):
        raise ValueError(
            f"the sampler {name!r} of {others[name].value} lacks a method of the protocol `Sampler`"
        )
    return sampler

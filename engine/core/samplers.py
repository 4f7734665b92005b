"""Sampling rules by name: our own, and those that other packages register.

A package adds one by an entry point in the group "llm_po.samplers". Its name is the rule's, and its object is
called without arguments and returns a `Sampler`:

    [project.entry-points."llm_po.samplers"]
    mine = "my_package:MySampler"
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from .baselines import RUCB, EpsGreedy, RandomPair, RoundRobin, ThompsonSampling
from .paper_sampling import Tracking
from .sampling import Balanced, Picks, Sampler, Situation
from .types import BoolArray, FloatArray

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


def sampler_names() -> list[str]:
    """Our own names, and then those that other packages registered."""
    return [*SAMPLERS, *sorted(entry_points(group=ENTRY_POINTS).names - SAMPLERS.keys())]


def build_sampler(name: str) -> Sampler:
    """Sampling rule of that name, with its default settings. Our own names come first.

    Raises
    ------
    ValueError
        If there is none, or what is registered is no `Sampler`.
    """
    if name in SAMPLERS:
        return SAMPLERS[name]()
    others = entry_points(group=ENTRY_POINTS)
    if name not in others.names:
        raise ValueError(f"sampler must be one of {', '.join(sampler_names())}; got {name!r}")
    sampler = others[name].load()()
    if not isinstance(sampler, Sampler):
        raise ValueError(
            f"the sampler {name!r} of {others[name].value} lacks a method of the protocol `Sampler`"
        )
    return _Checked(sampler, f"the sampler {name!r} of {others[name].value}")


class _Checked:
    """A sampling rule of another package with its pairs checked: one of a policy with itself would count."""

    def __init__(self, sampler: Sampler, name: str) -> None:
        self._sampler = sampler
        self._name = name

    def pick(self, situation: Situation, rng: np.random.Generator) -> Picks:
        """The rule's pairs.

        Raises
        ------
        ValueError
            If they are not two policies, different from each other, for each run.
        """
        picks = self._sampler.pick(situation, rng)
        try:
            i, j = (np.asarray(each) for each in picks)
        except (TypeError, ValueError):
            i = j = np.empty(0, dtype=np.int64)
        tally = situation.tally
        whole = i.shape == j.shape == (tally.n_runs,) and {i.dtype.kind, j.dtype.kind} <= {"i", "u"}
        if not (whole and np.all((i != j) & (np.minimum(i, j) >= 0) & (np.maximum(i, j) < tally.n_policies))):
            raise ValueError(
                f"{self._name} picked {picks!r}; it has to return i and j, whole numbers of shape "
                f"({tally.n_runs},), two different policies from 0 to {tally.n_policies - 1} at each place"
            )
        return i.astype(np.int64), j.astype(np.int64)

    def propensities(self, situation: Situation) -> FloatArray | None:
        """As the rule has them."""
        return self._sampler.propensities(situation)

    def keep(self, runs: BoolArray) -> None:
        """Keep the runs that are True in `runs`, of shape (R,), and forget the others."""
        self._sampler.keep(runs)

    def memory(self) -> dict[str, Any]:
        """As the rule has it."""
        return self._sampler.memory()

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Have the rule go on from what `memory` gave."""
        self._sampler.recall(memory)

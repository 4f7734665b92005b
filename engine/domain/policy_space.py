"""The policies that factors make: their tuples of levels, their names, and the space that is assumed."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.core import Factorial, Unstructured
from engine.core.spaces import Space

Combination = tuple[str, ...]


def combinations(
    levels: Mapping[str, Sequence[str]], excluded: Sequence[Mapping[str, str]]
) -> list[Combination]:
    """Every tuple of level names, one per factor, that no exclusion matches; policy i is the i-th.

    An exclusion ``{factor: level, ...}`` leaves out all tuples that have these levels.

    Raises
    ------
    ValueError
        An exclusion names an unknown factor or level.
    """
    factors = list(levels)
    for exclusion in excluded:
        if not isinstance(exclusion, Mapping) or not exclusion:
            raise ValueError(f"An exclusion is written {{factor: level}}, not {exclusion!r}.")
        for factor, level in exclusion.items():
            if factor not in levels:
                raise ValueError(
                    f"An exclusion names the factor {factor!r}; there are {', '.join(map(repr, factors))}."
                )
            if level not in levels[factor]:
                raise ValueError(
                    f"An exclusion names the level {level!r} of {factor!r}; "
                    f"it has {', '.join(map(repr, levels[factor]))}."
                )
    left_out = [
        [(factors.index(factor), level) for factor, level in exclusion.items()] for exclusion in excluded
    ]
    return [
        combination
        for combination in itertools.product(*levels.values())
        if not any(
            all(combination[position] == level for position, level in exclusion) for exclusion in left_out
        )
    ]


def name_of(combination: Sequence[str]) -> str:
    """The names of a policy's levels as one text."""
    return " · ".join(combination)


def policy_space(kind: str, levels: Mapping[str, Sequence[str]], policies: Sequence[Combination]) -> Space:
    """The space that the engine assumes, in the order of ``policies``. ``kind``: an ``Experiment.Space``.

    Raises
    ------
    ValueError
        There are fewer than two policies, or they do not tell the levels apart.
    """
    if kind == "unstructured":
        return Unstructured(len(policies))
    kept = set(policies)
    return Factorial(levels, feasible=lambda combination: combination in kept)


def code_of(index: int) -> str:
    """The code of a policy by its index: P1 is the policy of index 0."""
    return f"P{index + 1}"


@dataclass(frozen=True)
class PolicyName:
    """The names of a policy.

    Attributes
    ----------
    short
        Its code, such as P3.
    levels
        The names of all its levels, in the order of their factors.
    name
        The names of its levels of the factors that vary, such as "Terse · Warm": no two policies share one.
    present
        False once it has retired.
    reason
        Why a writer proposed it; empty for others.
    """

    short: str
    levels: tuple[str, ...]
    name: str
    present: bool = True
    reason: str = ""

    @property
    def marked(self) -> str:
        """Its name, and whether it has retired, for lists of all policies."""
        return self.name if self.present else f"{self.name} (retired)"


def names_of(levels: Mapping[str, Sequence[str]], policies: Sequence[Combination]) -> list[PolicyName]:
    """The names of all policies, by index."""
    varies = [len(names) > 1 for names in levels.values()]
    told = [
        name_of([level for level, shown in zip(combination, varies, strict=True) if shown])
        for combination in policies
    ]
    # Two may read alike where the name of a level has a dot in it.
    often = Counter(told)
    return [
        PolicyName(code, combination, name if name and often[name] == 1 else f"{name} ({code})".strip())
        for code, combination, name in zip(map(code_of, range(len(policies))), policies, told, strict=True)
    ]

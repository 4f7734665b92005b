"""The policies as the judgments so far rank them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core import Design, Standing
from engine.domain.policy_space import PolicyName
from engine.models import Experiment
from engine.selectors import designs


@dataclass(frozen=True)
class Ranked:
    """One policy: its names, its standing as `engine.core` has it, and the number of its judged
    comparisons.
    """

    name: PolicyName
    standing: Standing
    comparisons: int


def ranking(experiment: Experiment, design: Design | None = None) -> list[Ranked]:
    """All policies, the leader first. Ready at once after an import: nothing is replayed for it.

    While the evidence is being recomputed, a policy counts as ruled out only by the present counts.

    ``design``: the present evidence, where the caller has it already.
    """
    names = designs.policy_names(experiment)
    design = designs.with_late(experiment, design or designs.known_design(experiment))
    comparisons = design.counts.sum(axis=1)
    return [Ranked(names[each.policy], each, round(comparisons[each.policy])) for each in design.ranking()]

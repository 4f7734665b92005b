"""What a file of another tool becomes, before anything is stored."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.domain.limits import LEVELS
from engine.domain.specs import ExperimentSpec, FactorSpec
from engine.importing.findings import Findings
from engine.importing.mapping import ShortNames
from engine.importing.promptfoo_models import Wanted


@dataclass(frozen=True)
class FoundFile:
    """A file of another tool as a description, with what was found in it.

    ``n_policies``: where there are fewer than two, people add a prompt or a model. ``systems``: the system
    texts under which the tasks were asked. ``samples``: its tasks may be drawn at random.
    """

    spec: ExperimentSpec
    findings: Findings
    n_policies: int
    connections: Sequence[Wanted] = ()
    systems: Sequence[str] = ()
    samples: bool = False

    @property
    def compares(self) -> bool:
        """True if it can be stored as it is: there are two policies, and each two share a task."""
        answered: dict[str, set[int]] = {}
        for each in self.spec.ready_made:
            answered.setdefault(each.policy, set()).add(each.task)
        if len(answered) > LEVELS.most:
            return False  # A factor has no more levels, and there are too many pairs to look at.
        return self.n_policies > 1 and all(a & b for a, b in itertools.combinations(answered.values(), 2))

    @property
    def to_begin(self) -> ExperimentSpec:
        """The tasks for new policies, with the system texts as levels of a prompt, and no responses."""
        if not self.spec.ready_made and not self.systems:
            return self.spec
        names = ShortNames()
        levels = {
            names.new(" ".join(text.split())[:60]): {"text": text} for text in self.systems[: LEVELS.most]
        }
        factors = [FactorSpec("System prompt", "prompt", levels)] if levels else []
        return replace(self.spec, factors=factors, settings={}, ready_made=())

    def told(self) -> dict[str, Any]:
        """What a page shows before anything is stored."""
        return {
            "counts": self.findings.counts(),
            "left_out": self.findings.left_out(),
            "notes": self.findings.notes,
            "factors": [(factor.name, [*factor.levels]) for factor in self.spec.factors],
            "connections": self.connections,
            "n_policies": self.n_policies,
            "n_responses": len(self.spec.ready_made),
            "compares": self.compares,
            "samples": self.samples,
            "systems": self.systems,
            "tasks": [task.prompt for task in self.spec.tasks[:3]],
        }

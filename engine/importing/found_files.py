"""What a file of another tool becomes, before anything is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.domain.specs import ExperimentSpec, ReadyMade
from engine.domain.wording import number
from engine.importing.findings import Findings
from engine.importing.promptfoo_models import Wanted


@dataclass(frozen=True)
class FoundFile:
    """A file of another tool as a description, with what was found in it.

    ``n_policies``: where there are fewer than two, people add a prompt or a model.
    """

    spec: ExperimentSpec
    findings: Findings
    n_policies: int
    connections: Sequence[Wanted] = ()

    def told(self) -> dict[str, Any]:
        """What a page shows before anything is stored."""
        return {
            "counts": self.findings.counts(),
            "left_out": self.findings.left_out(),
            "notes": self.findings.notes,
            "factors": [(factor.name, [*factor.levels]) for factor in self.spec.factors],
            "connections": self.connections,
            "n_policies": self.n_policies,
            "tasks": [task.prompt for task in self.spec.tasks[:3]],
        }


def note_gaps(findings: Findings, made: Sequence[ReadyMade]) -> None:
    """Note what is missing for a comparison of these responses."""
    by_task: dict[int, set[str]] = {}
    for each in made:
        by_task.setdefault(each.task, set()).add(each.policy)
    single = sum(len(names) == 1 for names in by_task.values())
    if single:
        findings.note(f"{number(single, 'task')} with answers of one policy alone, which compares nothing.")
    if len({each.policy for each in made}) == 1:
        findings.note("One policy: bring answers of a second prompt or model.")
    elif single == len(by_task):
        findings.note("No two policies share a task, so that nothing can be compared.")

"""The decision in the order of asking, and without each annotator, in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.core import StopReason
from engine.models import Experiment
from engine.selectors import counts, designs
from engine.selectors.designs import policy_names
from engine.selectors.sequences import examination_of


@dataclass(frozen=True)
class WithoutRow:
    """The finding without one annotator. ``differs``: another policy, or another kind of finding."""

    annotator: str
    judgments: int
    comparisons: int
    finding: str
    differs: bool


@dataclass(frozen=True)
class AsAsked:
    """The finding in the order of asking, from the comparisons before the first one that is open.

    ``judged``: the number of all judged comparisons. ``differs``: another policy leads.
    """

    comparisons: int
    judged: int
    finding: str
    differs: bool


@dataclass(frozen=True)
class Without:
    """The state of the replays: ``percent_done`` while under way, and what the last ones found."""

    percent_done: int | None
    rows: list[WithoutRow]
    at: datetime | None
    n_newer: int
    as_asked: AsAsked | None = None

    @property
    def n_differing(self) -> int:
        return sum(row.differs for row in self.rows)


def without_each_annotator(experiment: Experiment) -> Without:
    """The results so far, and the progress of the computation."""
    examination = examination_of(experiment)
    if examination is None:
        return Without(None, [], None, 0)
    percent_done = None
    if examination.replays_wanted_at is not None:
        percent_done = int(100 * examination.replays.get("step", 0) / examination.replays.get("total", 1))
    findings = examination.findings
    if not findings:
        return Without(percent_done, [], None, 0)
    names = [name.name for name in policy_names(experiment)]
    snapshot = designs.latest_snapshot(experiment)
    best = None if snapshot is None or snapshot.best is None else snapshot.best.index
    as_asked = findings["as_asked"]
    return Without(
        percent_done=percent_done,
        rows=[
            WithoutRow(
                annotator=row["annotator"],
                judgments=row["judgments"],
                comparisons=row["comparisons"],
                finding=_finding(row, names),
                differs=row["best"] != best,
            )
            for row in findings["rows"]
        ],
        at=datetime.fromisoformat(findings["at"]),
        n_newer=counts.standing_judgments(experiment.pk).count() - findings["n_judgments"],
        as_asked=AsAsked(
            comparisons=as_asked["comparisons"],
            judged=as_asked["judged"],
            finding=_finding(as_asked, names),
            differs=as_asked["comparisons"] > 0 and as_asked["best"] != best,
        )
        if as_asked["judged"]
        else None,
    )


def _finding(row: dict[str, Any], names: list[str]) -> str:
    if row["reason"] in {StopReason.CERTIFIED, StopReason.NO_SINGLE_BEST}:
        return str(row["text"])
    if row["best"] is None:
        return "No judgments would remain."
    return f"{names[row['best']]} leads; the claim does not hold."

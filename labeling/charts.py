"""What the dashboard draws. Every chart is a table first; the browser draws the picture from the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from engine.models import Experiment, Snapshot
from labeling.status import PolicyName


@dataclass(frozen=True)
class Race:
    """The evidence race: one row per snapshot, one column per policy, in natural logarithms."""

    headings: list[str]
    rows: list[tuple[int, list[float]]]
    threshold: float


def race(snapshots: Sequence[Snapshot], names: Sequence[PolicyName], delta: float) -> Race:
    """log E_k of every policy over the comparisons; log 1/δ rules a policy out."""
    return Race(
        headings=[name.short for name in names],
        rows=[(s.comparisons, [round(value, 3) for value in s.evidence]) for s in snapshots],
        threshold=round(log(1 / delta), 3),
    )


@dataclass(frozen=True)
class HeatCell:
    """How often the row's policy won against the column's. ``shade`` is 0 to 20, 10 being even."""

    comparisons: int
    win_percent: int | None
    shade: int | None


@dataclass(frozen=True)
class HeatRow:
    name: PolicyName
    cells: list[HeatCell | None]


def heat_map(wins: npt.NDArray[np.float64], names: Sequence[PolicyName]) -> list[HeatRow]:
    """Pairwise win rates with their counts; ``None`` on the diagonal."""
    counts = wins + wins.T
    return [
        HeatRow(
            name=name,
            cells=[None if i == j else _cell(wins[i, j], counts[i, j]) for j in range(len(names))],
        )
        for i, name in enumerate(names)
    ]


def _cell(wins: float, count: float) -> HeatCell:
    if count == 0:
        return HeatCell(comparisons=0, win_percent=None, shade=None)
    rate = float(wins / count)
    return HeatCell(comparisons=int(count), win_percent=round(100 * rate), shade=round(20 * rate))


@dataclass(frozen=True)
class PolicyRow:
    """One policy's line in the list of policies."""

    name: PolicyName
    evidence: float | None
    ruled_out: bool
    leads: bool


def policy_rows(experiment: Experiment, names: Sequence[PolicyName]) -> list[PolicyRow]:
    """Every policy with the evidence against it and whether it is ruled out."""
    snapshot = experiment.snapshots.order_by("-pk").select_related("best").first()
    if snapshot is None:
        return [PolicyRow(name=name, evidence=None, ruled_out=False, leads=False) for name in names]
    return [
        PolicyRow(
            name=name,
            evidence=snapshot.evidence[index],
            ruled_out=snapshot.peak_evidence[index] >= snapshot.threshold,
            leads=snapshot.best is not None and snapshot.best.index == index,
        )
        for index, name in enumerate(names)
    ]

"""The charts of the dashboard. Every chart is a table first; the browser draws the picture from the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from engine.core.maxmin import Solver
from engine.core.outlook import level_effects, optimal_shares, realised_shares
from engine.core.problem import Factorial, Space
from engine.models import Experiment, Snapshot
from labeling.dashboard.status import PolicyName

Matrix = npt.NDArray[np.float64]

# More lines than this look alike; the others are drawn thin and grey.
_LINES = 12
_RACE_CELLS = 4000
# Beyond this many policies the heat map's cells shrink.
_ROOMY = 12
_PAIRS_SHOWN = 12


def race_points(n_policies: int) -> int:
    """The number of snapshots in a picture: the more policies, the fewer."""
    return int(np.clip(_RACE_CELLS // n_policies, 40, 200))


@dataclass(frozen=True)
class RaceLine:
    """A policy in the race. ``quiet``: far behind, so its line is thin and grey."""

    name: str
    quiet: bool


@dataclass(frozen=True)
class Race:
    """The evidence race: one row per snapshot, one column per policy, in natural logarithms."""

    lines: list[RaceLine]
    rows: list[tuple[int, list[float]]]
    threshold: float

    @property
    def n_quiet(self) -> int:
        return sum(line.quiet for line in self.lines)


def race(snapshots: Sequence[Snapshot], names: Sequence[PolicyName], delta: float) -> Race:
    """log E_k of every policy over the comparisons; log 1/δ rules a policy out."""
    ahead = range(len(names))
    if snapshots:
        ahead = np.argsort(snapshots[-1].evidence, kind="stable")[:_LINES].tolist()
    loud = set(ahead) if len(names) > _LINES else set(range(len(names)))
    return Race(
        lines=[RaceLine(name.short, quiet=index not in loud) for index, name in enumerate(names)],
        rows=[(s.comparisons, [_no_minus_zero(round(value, 3)) for value in s.evidence]) for s in snapshots],
        threshold=round(log(1 / delta), 3),
    )


def _no_minus_zero(value: float) -> float:
    return value + 0.0


@dataclass(frozen=True)
class HeatCell:
    """The win rate of the row's policy against the column's. ``shade`` is 0 to 20, 10 means one half."""

    comparisons: int
    win_percent: int | None
    shade: int | None


@dataclass(frozen=True)
class HeatRow:
    name: PolicyName
    cells: list[HeatCell | None]


@dataclass(frozen=True)
class HeatMap:
    """Pairwise win rates with their counts; ``None`` on the diagonal. ``compact``: for many policies."""

    rows: list[HeatRow]
    compact: bool


def heat_map(wins: Matrix, names: Sequence[PolicyName], order: Sequence[int] | None = None) -> HeatMap:
    """The win rates of every pair, policies in ``order``."""
    counts = wins + wins.T
    order = range(len(names)) if order is None else order
    return HeatMap(
        rows=[
            HeatRow(
                name=names[i],
                cells=[None if i == j else _cell(wins[i, j], counts[i, j]) for j in order],
            )
            for i in order
        ],
        compact=len(names) > _ROOMY,
    )


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
    wins: bool


def policy_rows(
    experiment: Experiment, names: Sequence[PolicyName], snapshot: Snapshot | None
) -> list[PolicyRow]:
    """Every policy with the evidence against it and whether it is ruled out."""
    winner = None if experiment.winner is None else experiment.winner.index
    best = None if snapshot is None or snapshot.best is None else snapshot.best.index
    return [
        PolicyRow(
            name=name,
            evidence=None if snapshot is None else snapshot.evidence[index],
            ruled_out=snapshot is not None and snapshot.peak_evidence[index] >= snapshot.threshold,
            leads=index == best,
            wins=index == winner,
        )
        for index, name in enumerate(names)
    ]


def by_standing(snapshot: Snapshot | None, n_policies: int) -> list[int]:
    """Policy indices, those with the least evidence against them first."""
    if snapshot is None:
        return list(range(n_policies))
    return [int(k) for k in np.argsort(snapshot.evidence, kind="stable")]


@dataclass(frozen=True)
class Share:
    """The share of a policy or a pair of all comparisons, and its optimal share, in percent."""

    name: str
    comparisons: int
    realised: float
    optimal: float | None


@dataclass(frozen=True)
class Allocation:
    """Shares of the comparisons by policy (each counts for both, so they add up to 200%), and by pair.

    ``solver``: the solver of the optimal shares; ``None`` if they have a closed form, or if there are none.
    """

    policies: list[Share]
    pairs: list[Share]
    solver: Solver | None


def allocation(space: Space, wins: Matrix, names: Sequence[PolicyName]) -> Allocation:
    """Realised shares beside the optimal ones at the current estimates, of the pairs that matter most."""
    counts = wins + wins.T
    realised = realised_shares(wins)
    best = optimal_shares(space, wins)
    optimal = None if best is None else best.matrix

    def share(name: str, at: int | tuple[int, int]) -> Share:
        return Share(
            name=name,
            comparisons=int(counts[at].sum()),
            realised=round(100 * float(realised[at].sum()), 1),
            optimal=None if optimal is None else round(100 * float(optimal[at].sum()), 1),
        )

    weight = np.triu(realised if optimal is None else np.maximum(realised, optimal), 1)
    largest = np.argsort(-weight, axis=None, kind="stable")[:_PAIRS_SHOWN]
    pairs = [divmod(int(flat), len(names)) for flat in largest if weight.flat[flat] > 0]
    return Allocation(
        policies=[share(name.short, index) for index, name in enumerate(names)],
        pairs=[share(f"{names[i].short} – {names[j].short}", (i, j)) for i, j in pairs],
        solver=None if best is None else best.solver,
    )


@dataclass(frozen=True)
class EffectRow:
    """The win rate of one level against another, all else being equal, in percent with an interval."""

    factor: str
    better: str
    worse: str
    percent: int
    low: int
    high: int

    @property
    def settled(self) -> bool:
        """True if the interval excludes that the two levels are equal."""
        return self.low > 50

    @property
    def sentence(self) -> str:
        return f"{self.better} beats {self.worse} about {self.percent}% ({self.low}–{self.high}%)"


def effect_rows(space: Factorial | None, wins: Matrix, delta: float) -> list[EffectRow]:
    """Every level against its factor's first, the one that is ahead named first."""
    if space is None or not wins.any():
        return []
    rows = []
    for effect in level_effects(space, wins, delta):
        percents = [round(100 * value) for value in (effect.win_rate, effect.low, effect.high)]
        better, worse = effect.level, effect.reference
        if effect.win_rate < 0.5:
            better, worse = worse, better
            percents = [100 - percents[0], 100 - percents[2], 100 - percents[1]]
        rows.append(EffectRow(effect.factor, better, worse, *percents))
    return rows

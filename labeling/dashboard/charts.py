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
from engine.core.ranking import Place
from engine.domain.policy_space import PolicyName
from engine.domain.prices import Money
from engine.models import Snapshot
from engine.selectors.rankings import Ranked, Word
from engine.selectors.spending import PolicySpending
from labeling.formatting import percents

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


def race(
    snapshots: Sequence[Snapshot], names: Sequence[PolicyName], delta: float, order: Sequence[int]
) -> Race:
    """The chart of log E_k of every policy over the comparisons; at log 1/δ a policy is ruled out.

    ``order``: policy indices in the order of the ranking.
    """
    loud = set(order[:_LINES])
    return Race(
        lines=[RaceLine(name.name, quiet=index not in loud) for index, name in enumerate(names)],
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
class Bar:
    """An interval on a scale from 0 to 100%.

    Attributes
    ----------
    percents
        The estimate and both ends, which may coincide with it.
    settled
        True if the interval excludes one half.
    """

    percents: tuple[int, int, int]
    settled: bool


@dataclass(frozen=True)
class PolicyRow:
    """One policy's line in the ranking.

    Attributes
    ----------
    number
        Its number from 1, as in its code.
    bar
        Its win rate against the leader with its interval; ``None`` for the leader, and before the first
        comparison.
    word
        The word for its standing.
    tokens
        Written tokens of a response; ``None`` without one.
    cost
        The price of a thousand responses.
    """

    name: PolicyName
    number: int
    bar: Bar | None
    word: Word
    comparisons: int
    tokens: float | None
    cost: Money


def policy_rows(
    ranked: Sequence[Ranked], spending: Sequence[PolicySpending], *, judged: bool
) -> list[PolicyRow]:
    """Every policy in the order of the ranking. Before anything was ``judged`` nobody leads."""
    rows = []
    for each in ranked:
        standing, spent = each.standing, spending[each.standing.policy]
        leads = standing.place is Place.LEADS
        against = percents(standing.leader)
        rows.append(
            PolicyRow(
                name=each.name,
                number=standing.policy + 1,
                bar=Bar(against, settled=against[2] < 50) if judged and not leads else None,
                word=each.word,
                comparisons=each.comparisons,
                tokens=spent.tokens_each,
                cost=spent.cost_of_1000,
            )
        )
    return rows


@dataclass(frozen=True)
class Rival:
    """The comparisons of a policy with one rival, and the percentage that it won; ``None`` without any."""

    name: PolicyName
    number: int
    comparisons: int
    percent: int | None


def rivals(wins: Matrix, names: Sequence[PolicyName], policy: int) -> list[Rival]:
    """The rivals of a policy: first those that beat it most clearly, last those that it never met."""
    met = wins[policy] + wins[:, policy]
    found = [
        Rival(
            name=names[k],
            number=k + 1,
            comparisons=round(met[k]),
            percent=round(100 * wins[policy, k] / met[k]) if met[k] else None,
        )
        for k in range(len(names))
        if k != policy
    ]
    return sorted(found, key=lambda rival: (rival.percent is None, rival.percent, rival.number))


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
    """Realised and optimal shares, at the current estimates, of the pairs that matter most."""
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
        policies=[share(name.name, index) for index, name in enumerate(names)],
        pairs=[share(f"{names[i].name} – {names[j].name}", (i, j)) for i, j in pairs],
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
    def bar(self) -> Bar:
        return Bar((self.percent, self.low, self.high), self.settled)


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


# Sizes of the pictures of preference against cost and time, in units of SVG.
_WIDTH, _HEIGHT, _EDGE, _LEFT = 320, 200, 24, 40
# Keeps the lowest dot off the axis.
_FLOOR = 16


@dataclass(frozen=True)
class Dot:
    """A policy in such a picture. ``beaten``: another is no worse in anything, and better in something."""

    name: PolicyName
    number: int
    percent: int
    value: float
    beaten: bool
    x: float
    y: float


@dataclass(frozen=True)
class Tradeoff:
    """The preference for each policy against one thing that should be small.

    ``across``, ``up``: where the axes have numbers, and which.
    """

    title: str
    dots: list[Dot]
    across: list[tuple[float, str]]
    up: list[tuple[float, int]]


def tradeoffs(ranked: Sequence[Ranked], spending: Sequence[PolicySpending]) -> list[Tradeoff]:
    """Preference against the cost of a thousand responses, and against the seconds of one, as far as both are
    known of at least two policies; costs in two currencies are not compared. A dot is beaten by a policy that
    is no worse in all that is known.
    """
    currencies = {name for spent in spending for name in spent.cost}
    known: list[tuple[Ranked, dict[str, float]]] = []
    for each in ranked:
        spent = spending[each.standing.policy]
        small = {"Seconds of a response": spent.latency_seconds}
        if len(currencies) == 1:
            for currency, cost in spent.cost_of_1000.items():
                small[f"Cost of 1,000 responses ({currency})"] = cost
        known.append((each, {name: value for name, value in small.items() if value is not None}))
    found = []
    for title in sorted({name for _, values in known for name in values}):
        of_this = [(each, values) for each, values in known if title in values]
        if len(of_this) < 2 or not any(values[title] for _, values in of_this):
            continue
        largest = max(values[title] for _, values in of_this)
        rates = [each.standing.field.estimate for each, _ in of_this]
        low, spread = min(rates), max(max(rates) - min(rates), 1e-9)
        dots = [
            Dot(
                name=each.name,
                number=each.standing.policy + 1,
                percent=percents(each.standing.field)[0],
                value=values[title],
                beaten=any(_beats(other, (each, values)) for other in of_this),
                x=round(_across(values[title] / largest), 1),
                y=round(_HEIGHT - _EDGE - _FLOOR - (_HEIGHT - 2 * _EDGE - _FLOOR) * (rate - low) / spread, 1),
            )
            for (each, values), rate in zip(of_this, rates, strict=True)
        ]
        across = [
            (_across(share), f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}")
            for share in (0.0, 0.5, 1.0)
            for value in (share * largest,)
        ]
        up = [(dot.y, dot.percent) for dot in (min(dots, key=_height), max(dots, key=_height))]
        found.append(Tradeoff(title, dots, across, up[: len({dot.y for dot in dots})]))
    return found


def _across(share: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _EDGE) * share


def _height(dot: Dot) -> float:
    return -dot.y


def _beats(one: tuple[Ranked, dict[str, float]], other: tuple[Ranked, dict[str, float]]) -> bool:
    """True if one policy is no worse than the other in anything, and better in something."""
    (first, of_first), (second, of_second) = one, other
    both = of_first.keys() & of_second.keys()
    gains = [first.standing.field.estimate - second.standing.field.estimate]
    gains += [of_second[name] - of_first[name] for name in both]
    return min(gains) >= 0 and max(gains) > 0

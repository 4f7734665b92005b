"""The charts of the dashboard. Every chart is a table first; the browser draws the picture from the table."""

from collections.abc import Iterable, Sequence
from itertools import compress
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.core.effects import level_effects, optimal_shares, realised_shares
from engine.core.ranking import Place
from engine.core.spaces import Factorial, Space, Unstructured
from engine.domain.policy_space import PolicyName
from engine.models import Snapshot
from engine.selectors.rankings import Ranked
from engine.selectors.spending import PolicySpending
from labeling.formatting import percents

Matrix = npt.NDArray[np.float64]

# More lines than this look alike; the others are drawn thin and grey.
_LINES = 12
_RACE_CELLS = 4000
# Beyond this many policies the heat map's cells shrink.
_ROOMY = 12
_PAIRS_SHOWN = 12
_MIDDLE = 50
_SETTLED = ("not clearly better", "beaten", "ruled out")


def race_points(n_policies: int) -> int:
    """The number of snapshots in a picture: the more policies, the fewer."""
    return int(np.clip(_RACE_CELLS // n_policies, 40, 200))


def race(
    snapshots: Sequence[Snapshot], names: Sequence[PolicyName], delta: float, order: Sequence[int]
) -> dict[str, Any]:
    """The chart of log E_k of every policy over the comparisons; at log 1/δ a policy is ruled out.

    ``order``: policy indices in the order of the ranking. Who has retired or is far behind is quiet: thin
    and grey.
    """
    loud = {index for index in order[:_LINES] if names[index].present}
    return {
        "lines": [{"name": name.marked, "quiet": index not in loud} for index, name in enumerate(names)],
        "n_quiet": len(names) - len(loud),
        # A zero without a minus.
        "rows": [(s.comparisons, [round(value, 3) + 0.0 for value in s.evidence]) for s in snapshots],
        "threshold": round(log(1 / delta), 3),
    }


def heat_map(wins: Matrix, names: Sequence[PolicyName], order: Sequence[int] | None = None) -> dict[str, Any]:
    """The win rates of every pair with their counts, policies in ``order``; ``None`` on the diagonal."""
    counts = wins + wins.T
    order = range(len(names)) if order is None else order
    return {
        "rows": [
            {
                "name": names[i],
                "cells": [None if i == j else _cell(wins[i, j], counts[i, j]) for j in order],
            }
            for i in order
        ],
        "compact": len(names) > _ROOMY,
    }


def _cell(wins: float, count: float) -> dict[str, Any]:
    """The win rate of the row's policy against the column's. The shade is 0 to 20, 10 means one half."""
    if count == 0:
        return {"comparisons": 0, "win_percent": None, "shade": None}
    rate = float(wins / count)
    return {"comparisons": int(count), "win_percent": round(100 * rate), "shade": round(20 * rate)}


def policy_rows(
    ranked: Sequence[Ranked], spending: Sequence[PolicySpending], *, judged: bool, structured: bool
) -> list[dict[str, Any]]:
    """Every policy in the order of the ranking. Before anything was ``judged`` nobody leads. In a
    ``structured`` space others tell about a policy that was not compared itself.

    Its bar is its win rate against the leader in percent with the ends of the interval, and whether its
    standing is settled.
    """
    rows = []
    for each in ranked:
        standing, spent = each.standing, spending[each.standing.policy]
        leads = standing.place is Place.LEADS
        against = percents(standing.leader)
        rows.append(
            {
                "name": each.name,
                "number": standing.policy + 1,
                "bar": {"percents": against, "settled": each.word in _SETTLED}
                if judged and not leads and (each.comparisons or structured)
                else None,
                "word": each.word,
                "comparisons": each.comparisons,
                "tokens": spent.tokens_each,
                "cost": str(spent.cost_of_1000),
            }
        )
    return rows


def rivals(wins: Matrix, names: Sequence[PolicyName], policy: int) -> list[dict[str, Any]]:
    """The rivals of a policy: first those that beat it most clearly, then those that it never met, last those
    that have retired.
    """
    met = wins[policy] + wins[:, policy]
    found: list[dict[str, Any]] = [
        {
            "name": names[k],
            "number": k + 1,
            "comparisons": round(met[k]),
            "percent": round(100 * wins[policy, k] / met[k]) if met[k] else None,
        }
        for k in range(len(names))
        if k != policy
    ]
    return sorted(
        found,
        key=lambda rival: (
            not rival["name"].present, rival["percent"] is None, rival["percent"], rival["number"],
        ),
    )  # fmt: skip


def allocation(space: Space, wins: Matrix, names: Sequence[PolicyName]) -> dict[str, Any]:
    """Realised and optimal shares of the comparisons in percent, at the current estimates, by policy and by
    the pairs that matter most. Each counts for both policies, so theirs add up to 200%. The optimal shares
    are those among the policies that are present; none where some have retired from a structured space.
    """
    counts = wins + wins.T
    realised = realised_shares(wins)
    order = sorted(range(len(names)), key=lambda index: not names[index].present)
    here = [index for index in order if names[index].present]
    best = None
    if len(here) == len(names):
        best = optimal_shares(space, wins)
    elif isinstance(space, Unstructured):
        best = optimal_shares(Unstructured(len(here)), wins[np.ix_(here, here)])
    optimal = None
    if best is not None:
        optimal = np.zeros_like(wins)
        optimal[np.ix_(here, here)] = best.matrix

    def share(name: str, at: int | tuple[int, int]) -> dict[str, Any]:
        return {
            "name": name,
            "comparisons": int(counts[at].sum()),
            "realised": round(100 * float(realised[at].sum()), 1),
            "optimal": None if optimal is None else round(100 * float(optimal[at].sum()), 1),
        }

    weight = np.triu(realised if optimal is None else np.maximum(realised, optimal), 1)
    largest = np.argsort(-weight, axis=None, kind="stable")[:_PAIRS_SHOWN]
    pairs = [divmod(int(flat), len(names)) for flat in largest if weight.flat[flat] > 0]
    return {
        "policies": [share(names[index].marked, index) for index in order],
        "pairs": [share(f"{names[i].name} – {names[j].name}", (i, j)) for i, j in pairs],
        "solver": None if best is None else best.solver,
    }


def effect_rows(
    space: Factorial | None, wins: Matrix, delta: float, names: Sequence[PolicyName]
) -> list[dict[str, Any]]:
    """The win rate of every level against its factor's first, all else being equal, the one that is ahead
    named first, as far as both were compared. Last come levels that no policy has which is present.
    """
    if space is None or not wins.any():
        return []
    rows = []
    factors = list(space.levels)

    def levels_of(some: Iterable[PolicyName]) -> set[tuple[str, str]]:
        return {each for name in some for each in zip(factors, name.levels, strict=True)}

    compared = levels_of(compress(names, (wins + wins.T).sum(axis=1)))
    here = levels_of(name for name in names if name.present)
    for effect in level_effects(space, wins, delta):
        percents = [round(100 * value) for value in (effect.win_rate, effect.low, effect.high)]
        better, worse = effect.level, effect.reference
        if not compared.issuperset({(effect.factor, better), (effect.factor, worse)}):
            continue
        if effect.win_rate < 0.5:
            better, worse = worse, better
            percents = [100 - percents[0], 100 - percents[2], 100 - percents[1]]
        bar = {"percents": percents, "settled": percents[1] > 50}
        away = [each for each in (better, worse) if (effect.factor, each) not in here]
        rows.append({"factor": effect.factor, "better": better, "worse": worse, "bar": bar, "retired": away})
    return sorted(rows, key=lambda row: bool(row["retired"]))


def crossing(rows: Sequence[dict[str, Any]]) -> str:
    """The word for a policy whose standing is settled although its interval crosses the middle; empty without
    one.
    """
    settled = (row for row in rows if row["bar"] and row["bar"]["settled"])
    return next((row["word"] for row in settled if row["bar"]["percents"][2] > _MIDDLE), "")


# Sizes of the pictures of preference against cost and time, in units of SVG.
_WIDTH, _HEIGHT, _EDGE, _LEFT = 320, 200, 24, 40
# Keeps the lowest dot off the axis.
_FLOOR = 16


def tradeoffs(ranked: Sequence[Ranked], spending: Sequence[PolicySpending]) -> list[dict[str, Any]]:
    """Preference against the cost of a thousand responses, and against the seconds of one, as far as both are
    known of at least two policies; costs in two currencies are not compared. A dot is beaten by a policy that
    is present and no worse in all that is known. ``across``, ``up``: where the axes have numbers, and which.
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
    found: list[dict[str, Any]] = []
    floor = _HEIGHT - _EDGE - _FLOOR
    for title in sorted({name for _, values in known for name in values}):
        of_this = [(each, values) for each, values in known if title in values]
        if len(of_this) < 2 or not any(values[title] for _, values in of_this):
            continue
        largest = max(values[title] for _, values in of_this)
        rates = [each.standing.field.estimate for each, _ in of_this]
        low, spread = min(rates), max(max(rates) - min(rates), 1e-9)
        dots = [
            {
                "name": each.name,
                "place": ranked.index(each) + 1,
                "number": each.standing.policy + 1,
                "percent": percents(each.standing.field)[0],
                "value": values[title],
                "beaten": any(other[0].name.present and _beats(other, (each, values)) for other in of_this),
                "x": round(_across(values[title] / largest), 1),
                "y": round(floor - (floor - _EDGE) * (rate - low) / spread, 1),
            }
            for (each, values), rate in zip(of_this, rates, strict=True)
        ]
        across = [
            (_across(share), f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}")
            for share in (0.0, 0.5, 1.0)
            for value in (share * largest,)
        ]
        by_height = sorted(((dot["y"], dot["percent"]) for dot in dots), reverse=True)
        up = by_height[:: len(dots) - 1][: len({dot["y"] for dot in dots})]
        found.append({"title": title, "dots": dots, "across": across, "up": up})
    return found


def _across(share: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _EDGE) * share


def _beats(one: tuple[Ranked, dict[str, float]], other: tuple[Ranked, dict[str, float]]) -> bool:
    """True if one policy is no worse than the other in anything, and better in something."""
    (first, of_first), (second, of_second) = one, other
    both = of_first.keys() & of_second.keys()
    gains = [first.standing.field.estimate - second.standing.field.estimate]
    gains += [of_second[name] - of_first[name] for name in both]
    return min(gains) >= 0 and max(gains) > 0

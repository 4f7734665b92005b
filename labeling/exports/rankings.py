"""The ranking of an experiment's policies, as CSV and as a table for people."""

import csv
import io
from collections.abc import Sequence

from engine.core import Place, Rate
from engine.importing.formula_cells import defused
from engine.selectors.rankings import Ranked

COLUMNS = (
    "policy", "strength", "low", "high", "against_leader", "against_leader_low", "against_leader_high",
    "comparisons", "standing",
)  # fmt: skip
_DIGITS = 4


def ranking_csv(ranked: Sequence[Ranked]) -> str:
    """One line per policy, the leader first, below a heading; `docs/export.md` explains the columns."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in ranked:
        leads = each.standing.place is Place.LEADS
        writer.writerow(
            [
                defused(each.name.name),
                *_rounded(each.standing.field),
                *(("", "", "") if leads else _rounded(each.standing.leader)),
                each.comparisons,
                each.word,
            ]
        )
    return lines.getvalue()


def _rounded(rate: Rate) -> list[float]:
    return [round(value, _DIGITS) for value in (rate.estimate, rate.low, rate.high)]


def ranking_table(ranked: Sequence[Ranked]) -> str:
    """The ranking for a terminal: win rates as percentages, with their intervals."""
    width = max(len(each.name.name) for each in ranked)
    rows = [f"{'policy':<{width}}  win rate (interval)   comparisons  standing"]
    for each in ranked:
        rate = each.standing.field
        interval = f"({rate.low:.0%} to {rate.high:.0%})"
        rows.append(
            f"{each.name.name:<{width}}  {rate.estimate:>4.0%} {interval:<15}  {each.comparisons:>11,}  "
            f"{each.word}"
        )
    return "\n".join(rows)

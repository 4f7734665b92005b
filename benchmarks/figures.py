"""The pictures of `benchmarks.reproduce`: light, 600 pixels wide, in colours that colour-blind people tell
apart.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.simulated import Summary

Design = tuple[str, str]

NAMES = {
    "balanced": "LLM-PO, balanced (default)",
    "tracking": "LLM-PO, tracking (paper)",
    "thompson": "Thompson Sampling",
    "rucb": "RUCB",
    "eps_greedy": "EpsGreedy",
    "random": "RandomPair",
    "round_robin": "RoundRobin",
}
# Okabe and Ito's palette; line styles tell the curves apart without any colour.
STYLES = {
    "balanced": ("#0072B2", "-"),
    "tracking": ("#56B4E9", "--"),
    "thompson": ("#D55E00", "-"),
    "rucb": ("#CC79A7", "--"),
    "eps_greedy": ("#E69F00", "-."),
    "random": ("#009E73", ":"),
    "round_robin": ("#555555", (0, (5, 1, 1, 1, 1, 1))),
}
# Text stays text, a third of the size of drawn letters; a fixed salt makes the same file again.
SETTINGS: dict[Any, Any] = {
    "font.size": 9.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "llm-po",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
# Inches of a browser.
WIDTH = 600 / 96


@dataclass(frozen=True)
class Curves:
    """Results of every design in several runs of at most `cap` comparisons."""

    rows: dict[Design, Summary]
    n_runs: int
    cap: int


def draw_pcs(path: Path, panels: dict[str, Curves], *, level: float, logarithmic: bool = False) -> None:
    """Probability of naming the right policy against the comparisons made, with bands; a panel for each
    title.
    """
    with mpl.rc_context(SETTINGS):
        tall = -(-len(panels) // 2)
        figure = Figure(figsize=(WIDTH, 1.2 + 2.6 * tall), layout="constrained")
        grid = figure.subplots(tall, min(len(panels), 2), squeeze=False, sharey=True)
        for axes, (title, curves) in zip(grid.flat, panels.items(), strict=True):
            for sampler, (colour, line) in STYLES.items():
                row = curves.rows[sampler, "heuristic"]
                marks, (low, high) = list(row.pcs), share_interval(row, curves.n_runs, level)
                wide = 2.4 if sampler == "balanced" else 1.4
                axes.plot(marks, list(row.pcs.values()), color=colour, ls=line, lw=wide, label=NAMES[sampler])
                axes.fill_between(marks, low, high, color=colour, alpha=0.13, lw=0)
            axes.set(title=title, xlabel="comparisons", ylim=(0, 1.02))
            axes.grid(color="#dddddd", lw=0.6)
            if logarithmic:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter("{x:,.0f}")
        for axes in grid[:, 0]:
            axes.set_ylabel("probability of correct selection")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        _save(figure, path)


def draw_stopping(path: Path, curves: Curves, *, yardstick: float, formula: str) -> None:
    """Mean comparisons until the stop, with 95% intervals, the fewest on top;
    a dotted line at the yardstick.
    """
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes: Axes = figure.subplots()
        designs = sorted(curves.rows, key=lambda design: curves.rows[design].mean, reverse=True)
        for place, (sampler, stopping) in enumerate(designs):
            row = curves.rows[sampler, stopping]
            certified = stopping == "certified"
            axes.barh(
                place,
                row.mean,
                xerr=row.half_width,
                color=STYLES[sampler][0],
                alpha=0.8,
                hatch="//" if certified else None,
                edgecolor="white",
                capsize=3,
            )
            length = f"{row.mean:,.0f} ± {row.half_width:,.0f}"
            if row.stopped < 1:
                length = f"{length}, {row.stopped:.0%} stopped" if row.stopped else "none stopped"
            axes.annotate(
                length,
                (row.mean + row.half_width, place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
            )
        labels = [
            NAMES[sampler] + ("\ncertified stop" if stop == "certified" else "") for sampler, stop in designs
        ]
        axes.set_yticks(range(len(designs)), labels)
        axes.axvline(yardstick, color="#333333", ls=":", lw=1.2)
        axes.annotate(
            formula,
            (yardstick, len(designs) - 0.45),
            xytext=(4, 0),
            textcoords="offset points",
            color="#333333",
        )
        axes.set(xlabel="comparisons until the stop", xlim=(0, 1.7 * curves.cap))
        axes.set_xticks([curves.cap * third / 3 for third in range(4)])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        _save(figure, path)


def share_interval(row: Summary, n_runs: int, level: float) -> tuple[list[float], list[float]]:
    """Wilson's interval of each share of right answers: ends below and above."""
    intervals = [
        stats.binomtest(round(share * n_runs), n_runs).proportion_ci(level, method="wilson")
        for share in row.pcs.values()
    ]
    return [interval.low for interval in intervals], [interval.high for interval in intervals]


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})

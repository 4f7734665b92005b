"""The cards of the home page: how each experiment stands, at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from engine.models import Comparison, Experiment, Snapshot
from engine.selectors import designs
from engine.selectors.health import QueueHealth
from labeling.dashboard.figures import health_of
from labeling.dashboard.status import Status, status_of

_POINTS = 40
WIDTH, HEIGHT = 120, 28


@dataclass(frozen=True)
class Sparkline:
    """The rivals still open over the comparisons, as points of an SVG polyline in a box of WIDTH × HEIGHT."""

    points: str
    description: str
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class Card:
    """One experiment on the home page. ``pulse``: the pairs that are ready and the workers, in words."""

    experiment: Experiment
    status: Status
    comparisons: int
    sparkline: Sparkline | None
    pulse: str


def card(experiment: Experiment) -> Card:
    """Badge, sentence, sparkline, and how the queue does."""
    snapshots = designs.race(experiment, most=_POINTS)
    health = health_of(experiment)
    return Card(
        experiment=experiment,
        status=status_of(experiment, snapshot=snapshots[-1] if snapshots else None, health=health),
        comparisons=snapshots[-1].comparisons if snapshots else 0,
        sparkline=sparkline(snapshots),
        pulse=_pulse(experiment, health),
    )


def sparkline(snapshots: list[Snapshot]) -> Sparkline | None:
    """None before there are two points to draw a line through."""
    last = snapshots[-1].comparisons if snapshots else 0
    if last == 0 or len(snapshots) < 2:
        return None
    most = max(snapshot.open_rivals for snapshot in snapshots) or 1
    points = " ".join(
        f"{1 + (WIDTH - 2) * min(s.comparisons, last) / last:.1f},{2 + (HEIGHT - 4) * s.open_rivals / most:.1f}"
        for s in snapshots
    )
    first, latest = snapshots[0].open_rivals, snapshots[-1].open_rivals
    return Sparkline(points, f"Open rivals went from {first:,} to {latest:,} over {last:,} comparisons.")


def _pulse(experiment: Experiment, health: QueueHealth) -> str:
    if experiment.state != Experiment.State.RUNNING:
        return ""
    ready = health.comparisons.get(Comparison.State.READY, 0)
    planned = health.comparisons.get(Comparison.State.PLANNED, 0)
    workers = sum(worker.alive for worker in health.workers)
    alive = (
        "no generation worker" if not workers else f"{workers} generation worker{'s' if workers > 1 else ''}"
    )
    return f"{ready} ready, {planned} being written; {alive}"

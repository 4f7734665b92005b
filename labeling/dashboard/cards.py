"""The cards of the home page: how each experiment stands, at a glance."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.domain.wording import number
from engine.models import Comparison, Experiment
from engine.selectors import counts
from engine.selectors.pulses import Pulse, pulses
from engine.selectors.snapshots import RacePoint, races_of
from labeling.dashboard.status import statuses_of

_POINTS = 40
WIDTH, HEIGHT = 120, 28


def cards(experiments: Sequence[Experiment]) -> list[dict[str, Any]]:
    """The cards of these experiments, in their order. Many take as many queries as one."""
    running = [each for each in experiments if each.state == Experiment.State.RUNNING]
    healths = pulses(running)
    ahead = counts.ahead_in(running)
    races = races_of(experiments, most=_POINTS)
    statuses = statuses_of(experiments, healths=healths)
    return [
        {
            "experiment": experiment,
            "status": status,
            "sparkline": sparkline(races[experiment.pk]),
            "pulse": _pulse(healths[experiment.pk], ahead[experiment.pk]) if experiment.pk in healths else "",
        }
        for experiment, status in zip(experiments, statuses, strict=True)
    ]


def sparkline(points: Sequence[RacePoint]) -> dict[str, Any] | None:
    """The open rivals over the comparisons, as points of an SVG polyline; ``None`` before there are two
    points to draw it through.
    """
    last = points[-1].comparisons if points else 0
    if last == 0 or len(points) < 2:
        return None
    most = max(point.open_rivals for point in points) or 1
    line = " ".join(
        f"{1 + (WIDTH - 2) * min(point.comparisons, last) / last:.1f},"
        f"{2 + (HEIGHT - 4) * point.open_rivals / most:.1f}"
        for point in points
    )
    first, latest = points[0].open_rivals, points[-1].open_rivals
    said = f"Open rivals went from {first:,} to {latest:,} over {last:,} comparisons."
    return {"points": line, "description": said, "width": WIDTH, "height": HEIGHT}


def _pulse(health: Pulse, ahead: Mapping[str, int]) -> str:
    ready = ahead.get(Comparison.State.READY, 0)
    planned = ahead.get(Comparison.State.PLANNED, 0)
    workers = sum(worker.queue == "generation" and worker.alive for worker in health.seen)
    alive = number(workers, "generation worker") if workers else "no generation worker"
    waited_for = " and ".join(each.name for each in health.waits)
    doing = (
        f"waiting for {waited_for}" if waited_for else "being written" if health.writing else "to be written"
    )
    return f"{ready} ready, {planned} {doing}; {alive}"

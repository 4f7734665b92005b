"""The comparisons that an experiment still needs."""

from __future__ import annotations

from engine.core import Remaining
from engine.models import Experiment, Snapshot
from engine.selectors.snapshots import latest_snapshot


def remaining_of(experiment: Experiment, latest: Snapshot | None = None) -> Remaining | None:
    """The comparisons that remain; ``None`` if too little is known, or the experiment has none to come.

    A paused one needs as many as before its pause.

    Parameters
    ----------
    latest
        The latest snapshot, where the caller has it already.
    """
    if experiment.state not in {Experiment.State.RUNNING, Experiment.State.PAUSED}:
        return None
    latest = latest or latest_snapshot(experiment)
    if latest is None or latest.remaining is None:
        return None
    return Remaining(**latest.remaining).within(experiment.budget - latest.comparisons)

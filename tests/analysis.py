"""Slow work in tests."""

from collections.abc import Callable

from engine.services import analysis


def examine(*, experiment_id: int, worker: str = "", tick: Callable[[], None] = lambda: None) -> bool:
    """Do one piece of an experiment's work; returns whether more remains."""
    done = analysis.examine(experiment_id=experiment_id, worker=worker, tick=tick)
    return done and experiment_id in analysis.to_examine()

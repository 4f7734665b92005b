"""The lock of an experiment's row, which orders all changes of the experiment and of its members.

Lock order: experiments by number, then the account, then invitations. Two transactions that lock the same
rows in different orders can wait for each other for ever.
"""

from __future__ import annotations

from engine.models import Experiment


def locked_experiment(experiment_id: int) -> Experiment:
    """The experiment, which nobody else changes until the caller's transaction ends."""
    return Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)

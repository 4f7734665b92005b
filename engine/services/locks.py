"""The lock of an experiment's row, which orders all changes of the experiment and of its members.

Lock order: experiments by number, then the account, then invitations. Two transactions that lock the same
rows in different orders can wait for each other for ever.
"""

from __future__ import annotations

from engine.models import Experiment


def locked_experiment(experiment_id: int) -> Experiment:
    """The experiment, locked: nobody else changes it until the caller's transaction ends."""
    return Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)


def lock_experiments_of(user_id: int) -> None:
    """Lock every experiment in which this user has a role, by number, until the caller's transaction ends."""
    theirs = Experiment.objects.filter(
        pk__in=Experiment.objects.filter(memberships__user=user_id).values("pk")
    )
    list(theirs.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))

"""Locks of rows. That of an experiment orders all changes of the experiment and of its members.

Lock order: experiments, then accounts, then invitations; experiments, then assignments, then comparisons,
then responses; and rows of one table by number. Two transactions that lock the same rows in different orders
can wait for each other for ever.
"""

from typing import Any

from django.db.models import QuerySet

from engine.models import Experiment, User


def locked_experiment(experiment_id: int) -> Experiment:
    """The experiment, locked: nobody else changes it until the caller's transaction ends."""
    return Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)


def locked_account(user: User) -> User:
    """The account, locked and read again: it may have been deactivated in the meantime."""
    return User.objects.select_for_update(no_key=True).get(pk=user.pk)


def lock_experiments_of(user_id: int) -> None:
    """Lock every experiment in which this user has a role, by number, until the caller's transaction ends."""
    theirs = Experiment.objects.filter(
        pk__in=Experiment.objects.filter(memberships__user=user_id).values("pk")
    )
    lock_by_number(theirs, no_key=True)


def lock_by_number(rows: QuerySet[Any], *, no_key: bool) -> list[int]:
    """Lock rows of one table by number until the caller's transaction ends; returns the numbers.

    An UPDATE or DELETE of several rows takes their locks in any order: lock them first. ``no_key``: the rows
    are not deleted, so others may go on referring to them.
    """
    ordered = rows.order_by("pk").select_for_update(of=("self",), no_key=no_key)
    return list(ordered.values_list("pk", flat=True))

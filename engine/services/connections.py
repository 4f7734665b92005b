"""Connections: stands in for the part of another branch, which replaces it."""

from __future__ import annotations

from collections.abc import Collection

from engine.models import Experiment, Loan, User
from engine.selectors.connections import to_choose


def lend_chosen(*, experiment: Experiment, by: User, names: Collection[str]) -> None:
    """Lend those of one's own connections that a draft names: whoever names theirs, means to lend it."""
    for connection in to_choose(by, experiment).filter(name__in=names, owner=by, everybody=False):
        Loan.objects.get_or_create(connection=connection, experiment=experiment, defaults={"by": by})

"""The connections that an experiment may use."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet

from engine.models import Connection, Experiment, Loan, User


def usable_by(experiment: Experiment) -> QuerySet[Connection]:
    """The connections that policies, judge and guards of this experiment may use, by name."""
    lent = Loan.objects.filter(connection=OuterRef("pk"), experiment=experiment, by__is_active=True)
    return Connection.objects.filter(Q(everybody=True) | Exists(lent), retired_at__isnull=True)


def to_choose(user: User, experiment: Experiment | None) -> QuerySet[Connection]:
    """The connections that this person may name in a draft, by name; ``None``: it is not stored yet.

    Their own are among them: :func:`engine.services.connections.lend_chosen` lends those.
    """
    allowed = Q(everybody=True) | Q(owner=user)
    if experiment is not None:
        allowed |= Q(pk__in=usable_by(experiment).values("pk"))
    return Connection.objects.filter(allowed, retired_at__isnull=True)

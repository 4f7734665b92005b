"""The connections that an experiment may use."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from engine.models import Connection, Experiment


def usable_by(experiment: Experiment) -> QuerySet[Connection]:
    """The connections that policies, judge and guards of this experiment may use, by name."""
    allowed = Q(everybody=True) | Q(loans__experiment=experiment)
    return Connection.objects.filter(allowed, retired_at__isnull=True).distinct()

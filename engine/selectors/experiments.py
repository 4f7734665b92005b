"""Experiments by their names, numbers and states."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from engine.models import Comparison, Experiment, Membership, User


def every_experiment() -> QuerySet[Experiment]:
    """All experiments, by number."""
    return Experiment.objects.order_by("pk")


def numbered(number: int) -> Experiment | None:
    """The experiment of this number; ``None`` if there is none."""
    return Experiment.objects.filter(pk=number).first()


def as_stored(experiment: Experiment) -> Experiment:
    """The experiment as it is stored now, for code that read it a while ago.

    Raises
    ------
    Experiment.DoesNotExist
        The draft has been deleted.
    """
    return Experiment.objects.get(pk=experiment.pk)


def of_name(name: str, *, owner: str | None = None) -> QuerySet[Experiment]:
    """The experiments of this name, by number. ``owner``: only those of the owner with this user name."""
    owned = Q(memberships__role=Membership.Role.OWNER, memberships__user__username=owner)
    named = Experiment.objects.filter(Q() if owner is None else owned, name=name)
    return named.distinct().order_by("pk")


def made_by(maker: User | None, name: str) -> Experiment | None:
    """The experiment of this name that somebody made, or nobody (``None``); ``None`` if there is none."""
    return Experiment.objects.filter(maker=maker, name=name).first()


def running() -> list[int]:
    """The numbers of the experiments that run."""
    return list(Experiment.objects.filter(state=Experiment.State.RUNNING).values_list("pk", flat=True))


def has_had_a_pair(experiment: Experiment) -> bool:
    """True from the moment at which the first pair is ready to be shown."""
    unready = (Comparison.State.PLANNED, Comparison.State.DISCARDED)
    return experiment.comparisons.exclude(state__in=unready).exists()

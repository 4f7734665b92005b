"""Experiments by their names, numbers and states."""

import itertools

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from engine.models import (
    Comparison,
    Experiment,
    Judgment,
    Membership,
    Response,
    ShowingEvent,
    Snapshot,
    User,
)


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


def paused_and_behind() -> list[int]:
    """The keys of paused experiments whose evidence is stale, or lacks judgments, as of pairs that were on a
    screen. Evidence that has come to a decision ends with it and lacks none.
    """
    latest = Snapshot.objects.filter(experiment=OuterRef("pk")).order_by("-pk")
    new = ShowingEvent.objects.filter(experiment=OuterRef("pk"), number__isnull=True)
    paused = Experiment.objects.filter(state=Experiment.State.PAUSED).annotate(
        reason=Coalesce(Subquery(latest.values("reason")[:1]), Value("")),
    )
    behind = paused.filter(Q(evidence_stale=True) | Q(Exists(new), reason=""))
    return list(behind.order_by("pk").values_list("pk", flat=True))


def has_had_a_pair(experiment: Experiment) -> bool:
    """True from the moment at which the first pair is ready to be shown."""
    unready = (Comparison.State.PLANNED, Comparison.State.DISCARDED)
    return experiment.comparisons.exclude(state__in=unready).exists()


def contents_of(experiment: Experiment) -> list[tuple[str, int]]:
    """The parts that would go with the experiment, and their numbers."""
    judgments = Judgment.objects.filter(
        Q(comparison__experiment=experiment) | Q(assignment__experiment=experiment)
    )
    return [
        ("judgments", judgments.count()),
        ("people who judged", judgments.exclude(annotator=None).values("annotator").distinct().count()),
        ("comparisons", experiment.comparisons.count()),
        ("responses", Response.objects.filter(policy__experiment=experiment).count()),
        ("tasks", experiment.tasks.count()),
        ("policies", experiment.policies.count()),
        ("members", experiment.memberships.values("user").distinct().count()),
    ]


def free_name(maker: User, name: str) -> str:
    """A name for a copy that no other experiment of this maker has."""
    taken = set(Experiment.objects.filter(maker=maker).values_list("name", flat=True))
    endings = ("copy" if n == 1 else f"copy {n}" for n in itertools.count(1))
    names = (f"{name[:180]} ({ending})" for ending in endings)
    return next(each for each in names if each not in taken)

"""Who may do what, and what they have done."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from engine.models import (
    Check,
    Experiment,
    Judgment,
    Membership,
)
from engine.selectors.counts import standing_judgments


def annotator_count(experiment_id: int) -> int:
    return Membership.objects.filter(
        experiment_id=experiment_id, role=Membership.Role.ANNOTATOR, user__is_active=True
    ).count()


def experiments_to_label(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Experiment]:
    """Experiments in which this user is an annotator and that have left the drawing board."""
    return Experiment.objects.filter(
        judge=Experiment.Judge.HUMAN,
        memberships__user=user,
        memberships__role=Membership.Role.ANNOTATOR,
    ).exclude(state=Experiment.State.DRAFT)


def with_own_judgments(
    experiments: QuerySet[Experiment], user: AbstractBaseUser | AnonymousUser
) -> QuerySet[Experiment]:
    """The same, each with ``mine``: how many judgments of this user stand. Counts them all, so not for every click."""
    return experiments.annotate(
        mine=Count(
            "comparisons__judgments",
            filter=Q(comparisons__judgments__annotator=user, comparisons__judgments__void__isnull=True),
        )
    )


def experiments_to_watch(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Experiment]:
    """Experiments whose dashboard this user may see."""
    if getattr(user, "is_superuser", False):
        return Experiment.objects.all()
    roles = [Membership.Role.VIEWER, Membership.Role.EDITOR, Membership.Role.OWNER]
    return Experiment.objects.filter(memberships__user=user, memberships__role__in=roles).distinct()


def experiments_to_run(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Experiment]:
    """Experiments that this user may start, pause and stop."""
    if getattr(user, "is_superuser", False):
        return Experiment.objects.all()
    roles = [Membership.Role.EDITOR, Membership.Role.OWNER]
    return Experiment.objects.filter(memberships__user=user, memberships__role__in=roles).distinct()


def experiments_to_own(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Experiment]:
    """Experiments that are this user's to give away and to delete."""
    if getattr(user, "is_superuser", False):
        return Experiment.objects.all()
    return Experiment.objects.filter(memberships__user=user, memberships__role=Membership.Role.OWNER)


def own_judgments(experiment: Experiment, user: AbstractBaseUser | AnonymousUser) -> QuerySet[Judgment]:
    """This user's judgments that stand, newest first."""
    return (
        standing_judgments(experiment.pk)
        .filter(annotator=user)
        .select_related("comparison__task", "comparison__response_i", "comparison__response_j")
        .order_by("-pk")
    )


def judged_today(experiment_id: int, user: AbstractBaseUser | AnonymousUser) -> int:
    """This user's answers of today: judgments that stand, and checks, which must not stand out by not counting."""
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    judged = standing_judgments(experiment_id).filter(annotator=user, created_at__gte=midnight)
    checks = Check.objects.filter(
        experiment_id=experiment_id, annotator=user, judged_at__gte=midnight, passed__isnull=False
    ).exclude(kind=Check.Kind.PRACTICE)
    return judged.values("pk").union(checks.values("pk"), all=True).count()

"""Who may do what, and what they have done."""

from __future__ import annotations

from collections.abc import Collection

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, F, Q, QuerySet
from django.utils import timezone

from engine.models import (
    Check,
    Experiment,
    Invitation,
    Judgment,
    Membership,
    User,
)
from engine.selectors.counts import standing_judgments

_Role = Membership.Role
# The roles whose rights a role includes. Only annotators judge: owners do not, unless they are annotators too.
_INCLUDED = {
    _Role.ANNOTATOR: {_Role.ANNOTATOR},
    _Role.VIEWER: {_Role.VIEWER},
    _Role.EDITOR: {_Role.VIEWER, _Role.EDITOR},
    _Role.OWNER: {_Role.VIEWER, _Role.EDITOR, _Role.OWNER},
}


def held_roles(user: User, experiment_id: int) -> set[str]:
    """The roles whose rights this user has in an experiment now."""
    if not user.is_active:
        return set()
    if user.is_superuser:
        return set(_Role)
    held = Membership.objects.filter(user=user, experiment_id=experiment_id).values_list("role", flat=True)
    return {included for role in held for included in _INCLUDED[_Role(role)]}


def roles_to_give(user: User, experiment_id: int) -> set[str]:
    """The roles to which this user may invite others: no invitation gives more rights than its maker has."""
    held = held_roles(user, experiment_id)
    if _Role.OWNER in held:
        return set(_Role)
    return set(_Role) - {_Role.OWNER} if _Role.EDITOR in held else set()


def has_any_right(user: User) -> bool:
    """Whether this user may do anything at all: has a role somewhere, or may make experiments."""
    return user.is_active and (
        user.is_superuser or user.memberships.exists() or user.has_perm("engine.add_experiment")
    )


def with_a_role(user: User) -> QuerySet[Experiment]:
    """Experiments in which this user has a role; for superusers, all."""
    experiments = Experiment.objects.order_by("-pk")
    return experiments if user.is_superuser else experiments.filter(memberships__user=user).distinct()


def open_invitations(experiment: Experiment, roles: Collection[str]) -> QuerySet[Invitation]:
    """Invitations to these roles that still let people in, newest first."""
    return (
        experiment.invitations.filter(
            role__in=roles, ended_at__isnull=True, expires_at__gte=timezone.now(), uses__lt=F("most_uses")
        )
        .select_related("created_by")
        .order_by("-pk")
    )


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

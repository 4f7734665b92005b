"""Rights of people in experiments, and the ways into one: invitations and links to reports."""

from collections.abc import Collection

from django.db.models import BigAutoField, DateTimeField, Exists, F, OuterRef, Prefetch, QuerySet

from engine.models import (
    Browser,
    Experiment,
    GroupRole,
    Invitation,
    Judgment,
    Membership,
    Notification,
    User,
    clock,
)
from engine.selectors.answers import midnight, with_answers_since
from engine.selectors.prepared_reads import EXPERIMENT, Given, Prepared

_Role = Membership.Role
# The roles whose rights a role includes. Only annotators judge: an owner who begins to judge becomes one.
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


def is_member(user: User, experiment_id: int) -> bool:
    """True if this account has a role of its own in an experiment, open or closed."""
    return Membership.objects.filter(user=user, experiment_id=experiment_id).exists()


def roles_to_give(user: User, experiment_id: int) -> set[str]:
    """The roles to which this user may invite others: no invitation gives more rights than its maker has."""
    held = held_roles(user, experiment_id)
    if _Role.OWNER in held:
        return set(_Role)
    return {role for role in _Role if role != _Role.OWNER} if _Role.EDITOR in held else set()


def has_any_right(user: User) -> bool:
    """True if this user may do anything at all: has a role somewhere, or may make experiments."""
    return user.is_active and (
        user.is_superuser or user.memberships.exists() or user.has_perm("engine.add_experiment")
    )


def any_has_a_role(groups: Collection[str]) -> bool:
    """True if one of these groups of the single sign-on has a role in an experiment."""
    return GroupRole.objects.filter(group__in=groups).exists()


def open_invitations(experiment: Experiment, roles: Collection[str]) -> QuerySet[Invitation]:
    """Invitations to these roles that still let people in, newest first."""
    return (
        experiment.invitations.filter(
            role__in=roles, ended_at__isnull=True, expires_at__gte=clock.now(), uses__lt=F("most_uses")
        )
        .select_related("created_by")
        .prefetch_related(Prefetch("notifications", Notification.objects.order_by("-pk")))
        .order_by("-pk")
    )


def accounts_of_one_browser(experiment: Experiment) -> list[list[User]]:
    """The experiment's members and annotators who have logged in in one browser, several at a time.

    One list for each such group of accounts, which are sorted by name. It may be one person with several
    accounts, or several people at one computer. Two browsers of one person are not recognised.
    """
    judged = Judgment.objects.filter(comparison__experiment=experiment, annotator=OuterRef("user"))
    member = Membership.objects.filter(experiment=experiment, user=OuterRef("user"))
    groups: dict[str, list[User]] = {}
    used = Browser.objects.filter(Exists(member) | Exists(judged)).select_related("user")
    for browser in used.order_by("user__username"):
        groups.setdefault(browser.hash, []).append(browser.user)
    several = {tuple(user.pk for user in group): group for group in groups.values() if len(group) > 1}
    return [several[keys] for keys in sorted(several)]


def annotators(experiment_id: int) -> QuerySet[Membership]:
    """The memberships of the people who may judge."""
    return Membership.objects.filter(
        experiment_id=experiment_id, role=Membership.Role.ANNOTATOR, user__is_active=True
    )


_USER, _SINCE = Given("user", BigAutoField()), Given("since", DateTimeField())
_TO_LABEL_COUNTED = Prepared(
    lambda: with_answers_since(Experiment.objects.judged_by(_USER).filter(pk=EXPERIMENT), _USER, _SINCE)
)


def experiment_to_label(user: User, experiment_id: int) -> Experiment | None:
    """The experiment, if this user judges it, with the number of their answers today.

    :func:`engine.selectors.answers.counted_today` reads that number, which each click shows, off the
    experiment. The more they are, the longer it takes.
    """
    found = _TO_LABEL_COUNTED(user=user.pk, experiment=experiment_id, since=midnight())
    return found[0] if found else None

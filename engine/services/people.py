"""Members and their roles.

Joining, inviting (:mod:`engine.services.invitations`) and removing each take the experiment's lock
(:mod:`engine.services.locks`), so that none of them overlaps with another.
"""

from contextlib import suppress

from django.db import transaction

from engine.domain.errors import MembershipError
from engine.models import AuditEntry, Experiment, GroupRole, Membership, RoleLoss, User
from engine.selectors import people
from engine.services import assignments, connection_loans, notifications, reports
from engine.services.accounts import end_sessions
from engine.services.audit import record
from engine.services.invitations import end_links, open_links_of
from engine.services.locks import locked_account, locked_experiment
from engine.services.tokens import end_all_tokens, end_tokens_without_rights


@transaction.atomic
def add_member(
    *,
    experiment: Experiment,
    user: User,
    role: str,
    by: User | None,
    origin: str = Membership.Origin.ADMINISTRATOR,
) -> Membership:
    """Give somebody a role without an invitation, as an administrator does, or a command (``None``).

    Raises
    ------
    MembershipError
        The person has that role already.
    """
    locked_experiment(experiment.pk)
    if Membership.objects.filter(experiment=experiment, user=user, role=role).exists():
        raise MembershipError(f"{user} is {role} already.")
    record(
        experiment=experiment,
        by=by,
        about=user,
        action=AuditEntry.Action.ADD,
        details={"role": role},
    )
    if role == Membership.Role.OWNER:
        connection_loans.end_loans_of_others(experiment_id=experiment.pk, owner=user, by=by)
    return Membership.objects.create(
        experiment=experiment, user=user, role=role, invited_by=by, origin=origin
    )


@transaction.atomic
def add_group(*, experiment: Experiment, group: str, role: str, by: User) -> None:
    """Give everybody in a group of the single sign-on a role, from their next login on.

    Raises
    ------
    MembershipError
        The group has that role already.
    """
    locked_experiment(experiment.pk)
    _, made = GroupRole.objects.get_or_create(experiment=experiment, group=group, role=role)
    if not made:
        raise MembershipError(f"The group “{group}” is {role} already.")
    details = {"group": group, "role": role}
    record(experiment=experiment, by=by, action=AuditEntry.Action.GROUP_ADDED, details=details)


@transaction.atomic
def remove_group(*, group_role: GroupRole, by: User) -> None:
    """Take a role away from a group; whom it let in leaves at their next login."""
    details = {"group": group_role.group, "role": group_role.role}
    record(experiment=group_role.experiment, by=by, action=AuditEntry.Action.GROUP_REMOVED, details=details)
    group_role.delete()


@transaction.atomic
def follow_groups(*, user: User, groups: list[str]) -> None:
    """Give somebody who logs in the roles of their groups, and take those away whose group they left.

    Of several roles in one experiment it is the one with most rights. Who has a role there by other means
    keeps that one alone.
    """
    given = GroupRole.objects.filter(group__in=groups)
    roles = sorted(given.values_list("experiment", "role"), key=lambda each: GroupRole.ROLES.index(each[1]))
    wanted, held = dict(roles), set()
    for member in user.memberships.all():
        if member.origin == Membership.Origin.GROUP and wanted.get(member.experiment_id) != member.role:
            remove_member(membership_id=member.pk, by=None)
        else:
            held.add(member.experiment_id)
    for experiment in Experiment.objects.filter(pk__in=set(wanted) - held).order_by("pk"):
        # Another login of theirs may have come first.
        with suppress(MembershipError):
            add_member(
                experiment=experiment,
                user=user,
                role=wanted[experiment.pk],
                by=None,
                origin=Membership.Origin.GROUP,
            )


@transaction.atomic
def begin_to_judge(*, experiment_id: int, by: User) -> None:
    """Make an owner an annotator too, so that all rules for people with two roles apply to them.

    Raises
    ------
    MembershipError
        The person is no owner.
    """
    locked_experiment(experiment_id)
    held = Membership.objects.filter(experiment_id=experiment_id, user=by)
    roles = set(held.values_list("role", flat=True))
    if Membership.Role.OWNER not in roles:
        raise MembershipError("Only annotators and owners judge. Ask an owner for the role annotator.")
    if Membership.Role.ANNOTATOR in roles:
        return
    member = Membership.objects.create(
        experiment_id=experiment_id,
        user=by,
        role=Membership.Role.ANNOTATOR,
        origin=Membership.Origin.OWNER,
    )
    record(
        experiment=member.experiment,
        by=by,
        about=by,
        action=AuditEntry.Action.ADD,
        details={"role": member.role},
    )


@transaction.atomic
def change_role(*, membership_id: int, by: User, role: str) -> int:
    """Give a member another role; returns how many open invitations ended with the old one.

    Raises
    ------
    MembershipError
        It is the last owner's, or the person has that role already.
    """
    member = _locked_member(membership_id)
    if role == member.role:
        return 0
    if Membership.objects.filter(experiment=member.experiment, user=member.user, role=role).exists():
        raise MembershipError(f"{member.user} is {role} already; remove the other role instead.")
    _keep_an_owner(member)
    before, member.role = member.role, role
    if member.origin == Membership.Origin.GROUP:
        member.origin, member.invited_by = Membership.Origin.ADMINISTRATOR, by
    member.save(update_fields=["role", "origin", "invited_by"])
    if before == Membership.Role.ANNOTATOR:
        assignments.leave(annotator=member.user, experiment_id=member.experiment_id)
    record(
        experiment=member.experiment,
        by=by,
        about=member.user,
        action=AuditEntry.Action.ROLE,
        details={"before": before, "after": role},
    )
    if role == Membership.Role.OWNER:
        connection_loans.end_loans_of_others(experiment_id=member.experiment_id, owner=member.user, by=by)
    return _settle_loss(member, before, by=by)


@transaction.atomic
def remove_member(*, membership_id: int, by: User | None) -> int:
    """Take a role away from somebody; their judgments stay.

    Returns how many open invitations ended with it.

    Raises
    ------
    MembershipError
        It is the last owner's.
    """
    member = _locked_member(membership_id)
    _keep_an_owner(member)
    member.delete()
    if member.role == Membership.Role.ANNOTATOR:
        assignments.leave(annotator=member.user, experiment_id=member.experiment_id)
    record(
        experiment=member.experiment,
        by=by,
        about=member.user,
        action=AuditEntry.Action.REMOVE,
        details={"role": member.role},
    )
    return _settle_loss(member, member.role, by=by)


@transaction.atomic
def settle_account(*, user: User) -> None:
    """End the tokens and links of an account that was deactivated or is no longer a superuser's.

    A deactivation ends the sessions too: if the account is opened again, its owner has to log in anew.
    """
    if not user.is_active:
        end_sessions(user=user)
    user = locked_account(user)
    for experiment_id in sorted(set(open_links_of(user).values_list("experiment_id", flat=True))):
        end_links(user, experiment_id, by=None)
    end_all_tokens(user=user, by=None, because="The account lost its rights.")
    connection_loans.end_loans_without_rights(user=user, by=None)
    reports.end_links_without_rights(user=user, by=None)
    notifications.end_subscriptions_without_rights(user=user, by=None)


def _locked_member(membership_id: int) -> Membership:
    member = Membership.objects.select_related("experiment", "user").get(pk=membership_id)
    # Two owners who remove each other at once must not leave an experiment without any.
    locked_experiment(member.experiment_id)
    locked_account(member.user)
    if not Membership.objects.filter(pk=membership_id).exists():
        raise MembershipError(f"{member.user} was removed already.")
    member.refresh_from_db(fields=["role"])
    return member


def _keep_an_owner(member: Membership) -> None:
    if member.role != Membership.Role.OWNER:
        return
    owners = Membership.objects.filter(experiment=member.experiment, role=Membership.Role.OWNER)
    if not owners.exclude(pk=member.pk).exists():
        raise MembershipError(f"{member.user} is the only owner; make somebody else an owner first.")


def _settle_loss(member: Membership, lost: str, *, by: User | None) -> int:
    """End what depended on a lost role; a role that the new one includes is not lost."""
    user, experiment = member.user, member.experiment
    # Superusers have the rights of all roles. Yet one who judged must not look at the pairs and come back.
    if lost != Membership.Role.ANNOTATOR and lost in people.held_roles(user, experiment.pk):
        return 0
    RoleLoss.objects.create(experiment=experiment, user=user, role=lost)
    ended = end_links(user, experiment.pk, by=by)
    end_tokens_without_rights(user=user, by=by)
    connection_loans.end_loans_without_rights(user=user, by=by)
    reports.end_links_without_rights(user=user, by=by)
    notifications.end_subscriptions_without_rights(user=user, by=by)
    return ended

"""Members and their roles; invitations, the only way in for people without an account.

Joining, inviting and removing each take the experiment's lock (:mod:`engine.services.locks`), so that none of
them overlaps with another.
"""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils.translation import gettext as _

from engine.domain.credentials import hashed
from engine.domain.errors import InvitationError, MembershipError
from engine.models import (
    AuditEntry,
    Check,
    Experiment,
    Invitation,
    InvitationUse,
    Lease,
    Membership,
    RoleLoss,
    User,
    clock,
)
from engine.selectors import people
from engine.services import notifications, reports, serving
from engine.services.accounts import end_sessions
from engine.services.audit import record
from engine.services.locks import locked_experiment
from engine.services.tokens import end_all_tokens, end_tokens_without_rights

# ---------------------------------------------------------------- invitations


@transaction.atomic
def create_invitation(
    *, experiment: Experiment, by: User, role: str, most_uses: int, valid_days: int
) -> tuple[Invitation, str]:
    """Make a link that lets up to ``most_uses`` people in; also returns its secret, which is not stored.

    Raises
    ------
    InvitationError
        The role's links may not let in so many people, or not for so long.
    MembershipError
        ``by`` may not give this role.
    """
    secret = secrets.token_urlsafe(32)
    made = make_invitation(
        experiment=experiment, by=by, role=role, most_uses=most_uses, valid_days=valid_days, secret=secret
    )
    return made, secret


def make_invitation(
    *,
    experiment: Experiment,
    by: User,
    role: str,
    most_uses: int,
    valid_days: int,
    secret: str,
    **mailed: str,
) -> Invitation:
    """Make an invitation whose link has this secret; locks the experiment until the transaction ends.

    ``mailed``: the address and the key of one that is sent by e-mail. Raises like :func:`create_invitation`.
    """
    limit = Invitation.LIMITS[Membership.Role(role)]
    if not (1 <= most_uses <= limit.uses and 1 <= valid_days <= limit.days):
        raise InvitationError(
            f"A link for the role {role} lets in at most {limit.uses} and lasts at most {limit.days} days."
        )
    locked_experiment(experiment.pk)
    by = _locked_account(by)
    if role not in people.roles_to_give(by, experiment.pk):
        raise MembershipError(f"You may not invite anybody as {role}.")
    now = clock.now()
    invitation = Invitation.objects.create(
        hash=hashed(secret),
        hint=secret[:6],
        experiment=experiment,
        role=role,
        most_uses=most_uses,
        created_at=now,
        expires_at=now + timedelta(days=valid_days),
        created_by=by,
        **mailed,
    )
    record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.INVITE,
        details={"role": role, "most_uses": most_uses, "until": f"{invitation.expires_at:%Y-%m-%d}"},
    )
    return invitation


@transaction.atomic
def end_invitation(*, invitation_id: int, by: User | None) -> Invitation:
    """Make a link useless. Ending it twice is ending it once."""
    invitation = Invitation.objects.select_for_update(no_key=True, of=("self",)).get(pk=invitation_id)
    if invitation.ended_at is None:
        _end(invitation, by=by)
    return invitation


def find_invitation(*, secret: str) -> Invitation | None:
    """The invitation behind a link, whether it is still valid or not."""
    return Invitation.objects.filter(hash=hashed(secret)).first()


def open_invitation(*, invitation_id: int | None, user: User | None = None) -> Invitation:
    """An invitation that still lets people in, or this ``user``.

    Raises
    ------
    InvitationError
        It has ended, has expired or is used up, or the user lost a role after it was made.
    """
    invitation = _invitation(invitation_id)
    if invitation is None:
        raise InvitationError(
            _("There is no such invitation. Check that the link is complete, and open it again.")
        )
    # The second half also ends what was changed past the services, such as by hand in the database.
    if invitation.ended_at is not None or invitation.role not in people.roles_to_give(
        invitation.created_by, invitation.experiment_id
    ):
        raise InvitationError(_("This invitation has ended. Ask for a new one."))
    if invitation.expires_at < clock.now():
        raise InvitationError(_("This invitation has expired. Ask for a new one."))
    if invitation.uses >= invitation.most_uses:
        raise InvitationError(_("This invitation has been used up. Ask for a new one."))
    if user is not None and _lost_a_role_since(invitation, user):
        raise InvitationError(
            _("A role in this experiment was taken from you after this link was made. Ask for a new one.")
        )
    return invitation


def _invitation(invitation_id: int | None) -> Invitation | None:
    if invitation_id is None:
        return None
    return Invitation.objects.select_related("experiment", "created_by").filter(pk=invitation_id).first()


def membership_from(*, invitation_id: int | None, user: User) -> Membership | None:
    """The membership that this invitation leads to, if the user has it already."""
    invitation = _invitation(invitation_id)
    if invitation is None:
        return None
    return Membership.objects.filter(
        experiment_id=invitation.experiment_id, user=user, role=invitation.role
    ).first()


@transaction.atomic
def accept_invitation(*, invitation_id: int | None, user: User) -> Membership:
    """Make the user a member. Accepting the same invitation twice uses it once.

    Raises
    ------
    InvitationError
        See :func:`open_invitation`.
    """
    # Serializes this with removals, and with a second person who wants the last use.
    Experiment.objects.select_for_update(no_key=True).filter(invitations=invitation_id).first()
    Invitation.objects.select_for_update(no_key=True).filter(pk__in=[invitation_id]).first()
    if (member := membership_from(invitation_id=invitation_id, user=user)) is not None:
        return member
    invitation = open_invitation(invitation_id=invitation_id, user=user)
    invitation.uses += 1
    invitation.save(update_fields=["uses"])
    InvitationUse.objects.get_or_create(invitation=invitation, user=user)
    record(
        experiment=invitation.experiment,
        by=user,
        about=invitation.created_by,
        action=AuditEntry.Action.JOIN,
        details={"role": invitation.role},
    )
    return Membership.objects.create(
        experiment=invitation.experiment,
        user=user,
        role=invitation.role,
        origin=Membership.Origin.INVITATION,
        invited_by=invitation.created_by,
    )


def _lost_a_role_since(invitation: Invitation, user: User) -> bool:
    return RoleLoss.objects.filter(
        experiment_id=invitation.experiment_id, user=user, at__gte=invitation.created_at
    ).exists()


# ---------------------------------------------------------------- members


@transaction.atomic
def add_member(*, experiment: Experiment, user: User, role: str, by: User) -> Membership:
    """Give somebody a role without an invitation, as an administrator does.

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
    return Membership.objects.create(experiment=experiment, user=user, role=role, invited_by=by)


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
    member.save(update_fields=["role"])
    _return_pairs(member, before)
    record(
        experiment=member.experiment,
        by=by,
        about=member.user,
        action=AuditEntry.Action.ROLE,
        details={"before": before, "after": role},
    )
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
    _return_pairs(member, member.role)
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

    A deactivation ends the sessions too: if the account is opened again, its owner has to sign in anew.
    """
    if not user.is_active:
        end_sessions(user=user)
    user = _locked_account(user)
    for experiment_id in sorted(set(_open_links_of(user).values_list("experiment_id", flat=True))):
        _end_links(user, experiment_id, by=None)
    end_all_tokens(user=user, by=None, because="The account lost its rights.")
    reports.end_links_without_rights(user=user, by=None)
    notifications.end_subscriptions_without_rights(user=user, by=None)


def _locked_account(user: User) -> User:
    """The account, locked and read again: it may have been deactivated in the meantime."""
    return User.objects.select_for_update(no_key=True).get(pk=user.pk)


def _locked_member(membership_id: int) -> Membership:
    member = Membership.objects.select_related("experiment", "user").get(pk=membership_id)
    # Two owners who remove each other at once must not leave an experiment without any.
    locked_experiment(member.experiment_id)
    _locked_account(member.user)
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


def _return_pairs(member: Membership, role: str) -> None:
    """Return the pairs of a person who is no longer an annotator."""
    if role != Membership.Role.ANNOTATOR:
        return
    leases = Lease.objects.filter(comparison__experiment=member.experiment, state=Lease.State.ACTIVE)
    checks = Check.objects.filter(experiment=member.experiment, choice="", reserved=True)
    held = [
        token
        for pairs in (leases, checks)
        for token in pairs.filter(annotator=member.user).values_list("token", flat=True)
    ]
    if held:
        serving.hand_back(annotator=member.user, tokens=held)


def _settle_loss(member: Membership, lost: str, *, by: User | None) -> int:
    """End what depended on a lost role; a role that the new one includes is not lost."""
    user, experiment = member.user, member.experiment
    # Superusers have the rights of all roles. Yet one who judged must not look at the pairs and come back.
    if lost != Membership.Role.ANNOTATOR and lost in people.held_roles(user, experiment.pk):
        return 0
    RoleLoss.objects.create(experiment=experiment, user=user, role=lost)
    ended = _end_links(user, experiment.pk, by=by)
    end_tokens_without_rights(user=user, by=by)
    reports.end_links_without_rights(user=user, by=by)
    notifications.end_subscriptions_without_rights(user=user, by=by)
    return ended


def _open_links_of(user: User) -> QuerySet[Invitation]:
    """Open links that this user knows: those they made, and those by which they joined."""
    return Invitation.objects.filter(
        Q(created_by=user) | Q(pk__in=user.invitation_uses.values("invitation")),
        ended_at__isnull=True,
        expires_at__gt=clock.now(),
        uses__lt=F("most_uses"),
    )


def _end_links(user: User, experiment_id: int, *, by: User | None) -> int:
    """End links that the user could no longer make, and those by which they got a role that they lost.

    Without the second kind, the person could join again with a new account.
    """
    held = people.held_roles(user, experiment_id)
    may_give = people.roles_to_give(user, experiment_id)
    links = _open_links_of(user).filter(experiment_id=experiment_id).order_by("pk")
    ended = 0
    for link in links.select_for_update(no_key=True, of=("self",)):
        made = link.created_by_id == user.pk
        if link.role not in (may_give if made else held):
            _end(link, by=by, about=user, because=f"{AuditEntry.PERSON} had {'made' if made else 'used'} it.")
            ended += 1
    return ended


def _end(invitation: Invitation, *, by: User | None, about: User | None = None, because: str = "") -> None:
    invitation.ended_at = clock.now()
    invitation.save(update_fields=["ended_at"])
    record(
        experiment=invitation.experiment,
        by=by,
        about=about,
        action=AuditEntry.Action.END_INVITATION,
        details={
            "role": invitation.role,
            "uses": invitation.uses,
            "most_uses": invitation.most_uses,
            "because": because,
        },
    )

"""Members and their roles; invitations, the only way in for people without an account."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from engine.errors import InvitationError, MembershipError
from engine.models import AuditEntry, Experiment, Invitation, Lease, Membership, User
from engine.services import judging
from engine.services.audit import record


@transaction.atomic
def create_invitation(
    *, experiment: Experiment, by: User, role: str, most_uses: int, valid_days: int
) -> Invitation:
    """A link that makes up to ``most_uses`` people members of an experiment."""
    invitation = Invitation.objects.create(
        experiment=experiment,
        role=role,
        most_uses=most_uses,
        expires_at=timezone.now() + timedelta(days=valid_days),
        created_by=by,
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
    """Let an invitation expire now. Ending it twice is ending it once."""
    invitation = Invitation.objects.select_for_update(no_key=True, of=("self",)).get(pk=invitation_id)
    now = timezone.now()
    if invitation.expires_at > now:
        invitation.expires_at = now
        invitation.save(update_fields=["expires_at"])
        record(
            experiment=invitation.experiment,
            by=by,
            action=AuditEntry.Action.END_INVITATION,
            details={"role": invitation.role, "uses": invitation.uses, "most_uses": invitation.most_uses},
        )
    return invitation


def open_invitation(*, token: uuid.UUID) -> Invitation:
    """The invitation behind a link.

    Raises
    ------
    InvitationError
        It does not exist, has expired or is used up.
    """
    invitation = Invitation.objects.select_related("experiment").filter(token=token).first()
    if invitation is None:
        raise InvitationError(_("There is no such invitation. Check that the link is complete."))
    if invitation.expires_at < timezone.now():
        raise InvitationError(_("This invitation has expired. Ask whoever sent it for a new one."))
    if invitation.uses >= invitation.most_uses:
        raise InvitationError(_("This invitation has been used up. Ask whoever sent it for a new one."))
    return invitation


def membership_from(*, token: uuid.UUID, user: User) -> Membership | None:
    """The membership that this link leads to, where the user has it already."""
    invitation = Invitation.objects.filter(token=token).first()
    if invitation is None:
        return None
    return Membership.objects.filter(
        experiment_id=invitation.experiment_id, user=user, role=invitation.role
    ).first()


@transaction.atomic
def accept_invitation(*, token: uuid.UUID, user: User) -> Membership:
    """Make the user a member. Following the same link twice uses it once.

    Raises
    ------
    InvitationError
        See :func:`open_invitation`.
    """
    # Whoever comes for the last use waits here for who was first.
    Invitation.objects.select_for_update(no_key=True).filter(token=token).first()
    if (member := membership_from(token=token, user=user)) is not None:
        return member
    invitation = open_invitation(token=token)
    invitation.uses += 1
    invitation.save(update_fields=["uses"])
    record(
        experiment=invitation.experiment,
        by=user,
        action=AuditEntry.Action.JOIN,
        details={"role": invitation.role},
    )
    return Membership.objects.create(experiment=invitation.experiment, user=user, role=invitation.role)


@transaction.atomic
def change_role(*, membership_id: int, by: User, role: str) -> Membership:
    """Give a member another role.

    Raises
    ------
    MembershipError
        It is the last owner's, or the person has that role already.
    """
    member = _locked_member(membership_id)
    if role == member.role:
        return member
    if Membership.objects.filter(experiment=member.experiment, user=member.user, role=role).exists():
        raise MembershipError(f"{member.user} is {role} already; remove the other role instead.")
    _keep_an_owner(member)
    before, member.role = member.role, role
    member.save(update_fields=["role"])
    _return_leases(member, before)
    record(
        experiment=member.experiment,
        by=by,
        about=member.user,
        action=AuditEntry.Action.ROLE,
        details={"before": before, "after": role},
    )
    return member


@transaction.atomic
def remove_member(*, membership_id: int, by: User | None) -> None:
    """Take a role away from somebody. What they judged stays.

    Raises
    ------
    MembershipError
        It is the last owner's.
    """
    member = _locked_member(membership_id)
    _keep_an_owner(member)
    member.delete()
    _return_leases(member, member.role)
    record(
        experiment=member.experiment,
        by=by,
        about=member.user,
        action=AuditEntry.Action.REMOVE,
        details={"role": member.role},
    )


def _locked_member(membership_id: int) -> Membership:
    member = Membership.objects.select_related("experiment", "user").get(pk=membership_id)
    # Two owners who remove each other at once must not leave an experiment without any.
    Experiment.objects.select_for_update(no_key=True).get(pk=member.experiment_id)
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


def _return_leases(member: Membership, role: str) -> None:
    """Whoever no longer annotates must not keep pairs from those who do."""
    if role != Membership.Role.ANNOTATOR:
        return
    held = Lease.objects.filter(
        comparison__experiment=member.experiment, annotator=member.user, state=Lease.State.ACTIVE
    )
    if tokens := list(held.values_list("token", flat=True)):
        judging.return_leases(annotator=member.user, tokens=tokens)

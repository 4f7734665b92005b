"""Invitations: the only way in for people without an account."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from engine.errors import InvitationError
from engine.models import Experiment, Invitation, Membership


def create_invitation(
    *, experiment: Experiment, by: User, role: str, most_uses: int, valid_days: int
) -> Invitation:
    """A link that makes up to ``most_uses`` people members of an experiment."""
    return Invitation.objects.create(
        experiment=experiment,
        role=role,
        most_uses=most_uses,
        expires_at=timezone.now() + timedelta(days=valid_days),
        created_by=by,
    )


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
    return Membership.objects.create(experiment=invitation.experiment, user=user, role=invitation.role)

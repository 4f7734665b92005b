"""Invitations: links by which people become members, the only way in for those without an account."""

import secrets
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils.translation import gettext as _

from engine.domain.credentials import hashed
from engine.domain.errors import InvitationError, MembershipError
from engine.models import (
    AuditEntry,
    Experiment,
    Invitation,
    InvitationUse,
    Membership,
    RoleLoss,
    User,
    clock,
)
from engine.selectors import people
from engine.services.audit import record
from engine.services.connection_loans import end_loans_of_others
from engine.services.descriptions import faults_in
from engine.services.locks import locked_account, locked_experiment
from engine.services.undos_and_skips import limit_answers


class GuestSettings(TypedDict, total=False):
    """Settings of a link for guests; see `engine.models.Invitation`."""

    guests: bool
    most_answers: int | None
    id_parameter: str
    completion: str
    screen_out: str


# How long a link lasts unless its maker says otherwise.
USUAL_DAYS = 7


@transaction.atomic
def create_invitation(
    *,
    experiment: Experiment,
    by: User,
    role: str,
    most_uses: int,
    valid_days: int,
    **guests: Unpack[GuestSettings],
) -> tuple[Invitation, str]:
    """Make a link that lets up to ``most_uses`` people in; also returns its secret, which is not stored.

    ``guests``: of a link for people without an account.

    Raises
    ------
    InvitationError
        The role's links may not let in so many people, or not for so long.
    MembershipError
        ``by`` may not give this role.
    """
    secret = secrets.token_urlsafe(32)
    made = make_invitation(
        experiment=experiment,
        by=by,
        role=role,
        most_uses=most_uses,
        valid_days=valid_days,
        secret=secret,
        **guests,
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
    **more: Any,
) -> Invitation:
    """Make an invitation whose link has this secret; locks the experiment until the transaction ends.

    ``more``: address and key, if it is sent by e-mail, or those for guests. Raises as
    :func:`create_invitation` does.
    """
    if more.get("guests") and role != Membership.Role.ANNOTATOR:
        raise InvitationError("Guests are annotators: another role needs an account.")
    limit = Invitation.LIMITS[Membership.Role(role)]
    if not (1 <= most_uses <= limit.uses and 1 <= valid_days <= limit.days):
        raise InvitationError(
            f"A link for the role {role} lets in at most {limit.uses} and lasts at most {limit.days} days."
        )
    locked_experiment(experiment.pk)
    by = locked_account(by)
    if role not in people.roles_to_give(by, experiment.pk):
        raise MembershipError(f"You may not invite anybody as {role}.")
    now = clock.now()
    invitation = Invitation(
        hash=hashed(secret),
        hint=secret[:6],
        experiment=experiment,
        role=role,
        most_uses=most_uses,
        created_at=now,
        expires_at=now + timedelta(days=valid_days),
        created_by=by,
        **more,
    )
    try:
        invitation.clean_fields(exclude={"experiment", "created_by"})
    except ValidationError as error:
        raise InvitationError(faults_in(error)) from error
    invitation.save()
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
    """An invitation that is open, to everybody or to ``user``.

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
    # Roles are checked again, because somebody may have changed them in the database by hand.
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
    if invitation.guests and invitation.most_answers is not None:
        limit_answers(experiment_id=invitation.experiment_id, annotator=user, most=invitation.most_answers)
    record(
        experiment=invitation.experiment,
        by=user,
        about=invitation.created_by,
        action=AuditEntry.Action.JOIN,
        details={"role": invitation.role},
    )
    if invitation.role == Membership.Role.OWNER:
        end_loans_of_others(experiment_id=invitation.experiment_id, owner=user, by=None)
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


def open_links_of(user: User) -> QuerySet[Invitation]:
    """Open links that this user knows: those they made, and those by which they joined."""
    return Invitation.objects.filter(
        Q(created_by=user) | Q(pk__in=user.invitation_uses.values("invitation")),
        ended_at__isnull=True,
        expires_at__gt=clock.now(),
        uses__lt=F("most_uses"),
    )


def end_links(user: User, experiment_id: int, *, by: User | None) -> int:
    """End links that the user could no longer make, and those by which they got a role that they lost.

    Without the second kind, the person could join again with a new account.
    """
    held = people.held_roles(user, experiment_id)
    may_give = people.roles_to_give(user, experiment_id)
    links = open_links_of(user).filter(experiment_id=experiment_id).order_by("pk")
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

"""Members of an experiment and invitations, as on the page “People”.

That page asks for the password before it changes a member, or makes a link for an owner. A token cannot give
one: here nobody becomes an owner, and an owner is neither changed nor removed.
"""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.shortcuts import get_object_or_404
from django.urls import reverse
from ninja import Router, Status

from engine.domain.errors import SpecError
from engine.models import Experiment, Invitation, Membership
from engine.selectors import blinding
from engine.selectors.accounts import account
from engine.selectors.people import open_invitations, roles_to_give
from engine.services import invitation_mails, invitations, people
from engine.tasks import deliver, wake
from labeling import access
from labeling.api.auth import MANAGE, READ
from labeling.api.experiments import PROBLEMS, WRITE_PROBLEMS, Id
from labeling.api.schemas import (
    InvitationIn,
    InvitationOut,
    MailedIn,
    MemberIn,
    MemberOut,
    NewInvitationOut,
    RoleIn,
)
from labeling.requests import AuthenticatedRequest

router = Router()

_OWNERS = (
    "A token does not make, change or remove owners. Use the page “People”, which asks for your password."
)


@router.get("/{experiment_id}/members", auth=READ, response={200: list[MemberOut]} | PROBLEMS)
def list_members(request: AuthenticatedRequest, experiment_id: Id) -> list[dict[str, Any]]:
    """List the members, for editors and owners. A person with two roles is there twice."""
    experiment = access.to_run(request, experiment_id)
    unblinded = blinding.unblinded_annotators(experiment)
    members = experiment.memberships.select_related("user").order_by("user__username", "role")
    return [_told(member, unblinded) for member in members]


@router.post("/{experiment_id}/members", auth=MANAGE, response={201: MemberOut} | WRITE_PROBLEMS)
def add_member(request: AuthenticatedRequest, experiment_id: Id, payload: MemberIn) -> Status[dict[str, Any]]:
    """Give an account a role, for administrators. Others invite: nobody learns here which accounts exist."""
    experiment = access.to_own(request, experiment_id)
    if not request.user.is_superuser:
        raise PermissionDenied("Only administrators add people by user name. Make an invitation instead.")
    _refuse_owners(payload.role)
    user = account(payload.username)
    if user is None or not user.is_active:
        raise SpecError("username: There is no active account of this name. Make an invitation instead.")
    member = people.add_member(experiment=experiment, user=user, role=payload.role, by=request.user)
    return Status(201, _told(member, blinding.unblinded_annotators(experiment)))


@router.patch(
    "/{experiment_id}/members/{membership_id}", auth=MANAGE, response={200: MemberOut} | WRITE_PROBLEMS
)
def change_role(
    request: AuthenticatedRequest, experiment_id: Id, membership_id: Id, payload: RoleIn
) -> dict[str, Any]:
    """Give a member another role, for owners. What rested on the old role ends: pairs, links and tokens."""
    experiment, member = _member(request, experiment_id, membership_id)
    _refuse_owners(member.role, payload.role)
    people.change_role(membership_id=member.pk, by=request.user, role=payload.role)
    member.refresh_from_db()
    return _told(member, blinding.unblinded_annotators(experiment))


@router.delete("/{experiment_id}/members/{membership_id}", auth=MANAGE, response={204: None} | WRITE_PROBLEMS)
def remove_member(request: AuthenticatedRequest, experiment_id: Id, membership_id: Id) -> Status[None]:
    """Take a role away from somebody, for owners. Their judgments stay."""
    _, member = _member(request, experiment_id, membership_id)
    _refuse_owners(member.role)
    people.remove_member(membership_id=member.pk, by=request.user)
    return Status(204, None)


@router.get("/{experiment_id}/invitations", auth=READ, response={200: list[InvitationOut]} | PROBLEMS)
def list_invitations(request: AuthenticatedRequest, experiment_id: Id) -> list[dict[str, Any]]:
    """List the open invitations to roles that you may give, newest first. Their links are not stored."""
    experiment = access.to_run(request, experiment_id)
    roles = roles_to_give(request.user, experiment.pk)
    return [_link(each) for each in open_invitations(experiment, roles)]


@router.post("/{experiment_id}/invitations", auth=MANAGE, response={201: NewInvitationOut} | WRITE_PROBLEMS)
def invite(request: AuthenticatedRequest, experiment_id: Id, payload: InvitationIn) -> Status[dict[str, Any]]:
    """Make an invitation link. It is in this answer and nowhere else."""
    experiment = access.to_run(request, experiment_id)
    _refuse_owners(payload.role)
    invitation, secret = invitations.create_invitation(
        experiment=experiment, by=request.user, **payload.model_dump()
    )
    link = request.build_absolute_uri(reverse("join", args=[secret]))
    return Status(201, _link(invitation) | {"link": link})


@router.post(
    "/{experiment_id}/invitations/mailed",
    auth=MANAGE,
    response={201: list[InvitationOut]} | WRITE_PROBLEMS,
)
def invite_by_mail(
    request: AuthenticatedRequest, experiment_id: Id, payload: MailedIn
) -> Status[list[dict[str, Any]]]:
    """Send each address its own link by e-mail, which works once. The answer does not hold the links."""
    experiment = access.to_run(request, experiment_id)
    _refuse_owners(payload.role)
    sent = invitation_mails.invite_by_mail(
        experiment=experiment,
        by=request.user,
        role=payload.role,
        addresses=payload.addresses,
        valid_days=payload.valid_days,
    )
    wake(deliver)
    return Status(201, [_link(each) for each in sent])


@router.post(
    "/{experiment_id}/invitations/{invitation_id}/resend",
    auth=MANAGE,
    response={200: InvitationOut} | WRITE_PROBLEMS,
)
def resend_invitation(request: AuthenticatedRequest, experiment_id: Id, invitation_id: Id) -> dict[str, Any]:
    """Send an invitation's link to its address again. The link and its end stay as they are."""
    invitation = access.invitation_to_give(request, experiment_id, invitation_id)
    invitation_mails.resend(invitation_id=invitation.pk, by=request.user)
    wake(deliver)
    return _link(invitation)


@router.delete(
    "/{experiment_id}/invitations/{invitation_id}", auth=MANAGE, response={204: None} | WRITE_PROBLEMS
)
def end_invitation(request: AuthenticatedRequest, experiment_id: Id, invitation_id: Id) -> Status[None]:
    """End this link."""
    invitation = access.invitation_to_give(request, experiment_id, invitation_id)
    invitations.end_invitation(invitation_id=invitation.pk, by=request.user)
    return Status(204, None)


def _member(
    request: AuthenticatedRequest, experiment_id: int, membership_id: int
) -> tuple[Experiment, Membership]:
    experiment = access.to_own(request, experiment_id)
    return experiment, get_object_or_404(experiment.memberships.select_related("user"), pk=membership_id)


def _refuse_owners(*roles: str) -> None:
    if Membership.Role.OWNER in roles:
        raise PermissionDenied(_OWNERS)


def _told(member: Membership, unblinded: set[int]) -> dict[str, Any]:
    return {
        "id": member.pk,
        "username": member.user.get_username(),
        "role": member.role,
        "active": member.user.is_active,
        "origin": member.origin,
        "joined_at": member.joined_at,
        "annotates_and_sees_policies": member.user_id in unblinded,
    }


def _link(invitation: Invitation) -> dict[str, Any]:
    names = ("id", "role", "email", "hint", "guests", "uses", "most_uses", "created_at", "expires_at")
    return {name: getattr(invitation, name) for name in names}

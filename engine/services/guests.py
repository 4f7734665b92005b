"""People who judge by a link without an account of their own."""

from __future__ import annotations

import re
import secrets

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from engine.domain.errors import InvitationError, NameTakenError
from engine.models import Invitation, InvitationUse, Membership, User
from engine.selectors.accounts import account
from engine.services.accounts import make_account
from engine.services.invitations import accept_invitation, open_invitation

# So that everybody sees what they are.
_PREFIX = "guest-"
_LONGEST_NAME, _MOST_OF_A_NAME = 40, 1000


def known_guest(*, invitation_id: int, outside_id: str) -> User | None:
    """The guest who came by this link with this identifier before, and may still judge."""
    uses = InvitationUse.objects.filter(invitation=invitation_id, outside_id=outside_id).exclude(
        outside_id=""
    )
    use = uses.select_related("user", "invitation").first()
    if use is None or not use.user.is_active:
        return None
    member = Membership.objects.filter(experiment=use.invitation.experiment_id, user=use.user)
    return use.user if member.exists() else None


def open_guest_link(*, invitation_id: int, outside_id: str) -> Invitation:
    """A link for guests by which somebody with this identifier elsewhere, or without one, may come.

    Raises
    ------
    InvitationError
        The link is not open, lets no guests in or needs an identifier, or the guest was here already.
    """
    invitation = open_invitation(invitation_id=invitation_id)
    if not invitation.guests:
        raise InvitationError(_("This link needs an account."))
    if invitation.id_parameter and not outside_id:
        raise InvitationError(
            _("Your link lacks %(name)s. Open it from the page on which you found this task.")
            % {"name": invitation.id_parameter}
        )
    if _uses(invitation_id, outside_id).exists():
        raise InvitationError(_("You took part already, and cannot go on."))
    return invitation


@transaction.atomic
def admit_guest(*, invitation_id: int, nickname: str, outside_id: str = "") -> tuple[User, Membership]:
    """Make a guest, who becomes an annotator. Raises as :func:`open_guest_link` does."""
    open_guest_link(invitation_id=invitation_id, outside_id=outside_id)
    user = _account("" if outside_id else nickname)
    return user, accept_invitation(invitation_id=invitation_id, user=user, outside_id=outside_id)


def _uses(invitation_id: int, outside_id: str) -> QuerySet[InvitationUse]:
    uses = InvitationUse.objects.exclude(outside_id="")
    return uses.filter(invitation=invitation_id, outside_id=outside_id)


def _account(nickname: str) -> User:
    """An account that nobody can log in to, with the nickname or a random one."""
    wanted = re.sub(r"[^\w.@+-]+", "-", nickname.strip()).strip("-")[:_LONGEST_NAME] or secrets.token_hex(4)
    for number in range(1, _MOST_OF_A_NAME):
        name = f"{_PREFIX}{wanted}" if number == 1 else f"{_PREFIX}{wanted}-{number}"
        if account(name) is not None:
            continue
        try:
            user = make_account(username=name, password=secrets.token_urlsafe(32))
        except NameTakenError:
            continue
        user.set_unusable_password()
        user.save(update_fields=["password"])
        return user
    raise InvitationError(_("Too many people have that name. Choose another one."))

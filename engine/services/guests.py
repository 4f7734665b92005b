"""People who judge by a link without an account of their own."""

import re
import secrets
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from engine.domain.errors import InvitationError, NameTakenError
from engine.models import Experiment, Invitation, InvitationUse, Membership, User
from engine.selectors.accounts import account
from engine.services.accounts import make_account
from engine.services.invitations import accept_invitation, membership_from, open_invitation

# The parameters of a link, each with its values.
Parameters = Mapping[str, Sequence[str]]

# What MTurk's links hold until somebody accepts the task.
_PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
_IDENTIFIER = re.compile(r"\w[\w.@-]{0,99}")
# So that everybody sees what they are.
_PREFIX = "guest-"
_LONGEST_NAME, _MOST_OF_A_NAME = 40, 1000
# Whose parameters are kept: anybody who has the link may open it again and again, with others each time.
_MOST_VISITS = 100


def identifier_in(invitation: Invitation, parameters: Parameters) -> str:
    """The identifier elsewhere that a link for guests holds; empty where the invitation asks for none.

    Raises
    ------
    InvitationError
        It is missing, there twice or none: the message says what to do.
    """
    names = [name.strip() for name in invitation.id_parameter.split(",") if name.strip()]
    if not names:
        return ""
    if any(_PREVIEW in values for values in parameters.values()):
        raise InvitationError(_("This is a preview. Accept the task, and open it then."))
    name = next((name for name in names if name in parameters), names[0])
    values = parameters.get(name, ())
    if len(values) != 1 or not _IDENTIFIER.fullmatch(values[0].strip()):
        raise InvitationError(
            _("Your link does not say in %(name)s who you are. Open it from where you found this task.")
            % {"name": name}
        )
    return values[0].strip()


@transaction.atomic
def known_guest(*, invitation_id: int, outside_id: str, parameters: Parameters) -> User | None:
    """The guest who came by this link with this identifier before, and may still judge.

    Notes with which parameters they come now.
    """
    uses = _uses(invitation_id, outside_id).select_related("user", "invitation")
    use = uses.select_for_update(no_key=True, of=("self",)).first()
    if use is None or not _is_guest_alone(use):
        return None
    if parameters not in use.parameters and len(use.parameters) < _MOST_VISITS:
        use.parameters.append(dict(parameters))
        use.save(update_fields=["parameters"])
    return use.user


def open_guest_link(*, invitation_id: int, outside_id: str) -> Invitation:
    """A link for guests by which somebody with this identifier elsewhere, or without one, may come.

    Raises
    ------
    InvitationError
        The link is not open or lets no guests in, or the guest was here already.
    """
    invitation = open_invitation(invitation_id=invitation_id)
    if not invitation.guests:
        raise InvitationError(_("This link needs an account."))
    if _uses(invitation_id, outside_id).exists():
        raise InvitationError(_("You took part already, and cannot go on."))
    return invitation


@transaction.atomic
def admit_guest(
    *, invitation_id: int, nickname: str, outside_id: str = "", parameters: Parameters = MappingProxyType({})
) -> tuple[User, Membership]:
    """Make a guest, who becomes an annotator. Raises as :func:`open_guest_link` does.

    Of two requests of one person at once the second finds the guest of the first.
    """
    Experiment.objects.select_for_update(no_key=True).filter(invitations=invitation_id).first()
    known = known_guest(invitation_id=invitation_id, outside_id=outside_id, parameters=parameters)
    if known and (member := membership_from(invitation_id=invitation_id, user=known)):
        return known, member
    open_guest_link(invitation_id=invitation_id, outside_id=outside_id)
    user = _account("" if outside_id else nickname)
    member = accept_invitation(invitation_id=invitation_id, user=user)
    uses = InvitationUse.objects.filter(invitation=invitation_id, user=user)
    uses.update(outside_id=outside_id, parameters=[dict(parameters)] if outside_id else [])
    return user, member


def _is_guest_alone(use: InvitationUse) -> bool:
    """True of somebody who judges here and may do nothing else: others know an identifier, too."""
    user = use.user
    roles = Membership.objects.filter(user=user).values_list("experiment", "role")
    return (
        user.is_active
        and not (user.is_staff or user.is_superuser or user.has_usable_password())
        and [*roles] == [(use.invitation.experiment_id, Membership.Role.ANNOTATOR)]
    )


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

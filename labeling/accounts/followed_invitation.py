"""The invitation that a visitor follows: its number, in their session, from opening the link until its use or
refusal.

Only a visitor who follows an invitation can get an account.
"""

from django.http import HttpRequest
from django.urls import reverse

from engine.domain.texts import storable
from engine.models import Membership

_KEY, _PARAMETERS = "following-invitation", "following-with"
_MOST_PARAMETERS, _LONGEST = 20, 200


def follow(request: HttpRequest, invitation_id: int) -> None:
    """Remember the invitation, and the parameters of its link."""
    request.session[_KEY] = invitation_id
    given = [*request.GET.lists()][:_MOST_PARAMETERS]
    request.session[_PARAMETERS] = {
        storable(name): [storable(each[:_LONGEST]) for each in values] for name, values in given
    }


def parameters_of(request: HttpRequest) -> dict[str, list[str]]:
    """The parameters of the link that is followed, each with its values."""
    found: dict[str, list[str]] = request.session.get(_PARAMETERS, {})
    return found


def followed(request: HttpRequest) -> int | None:
    invitation_id: int | None = request.session.get(_KEY)
    return invitation_id


def stop_following(request: HttpRequest) -> None:
    """Forget it: the next person at this browser needs the link again."""
    request.session.pop(_KEY, None)
    request.session.pop(_PARAMETERS, None)


def first_page(membership: Membership) -> str:
    """The address of the first page for somebody who has just joined."""
    page = "welcome" if membership.role == Membership.Role.ANNOTATOR else "dashboard"
    return reverse(page, args=[membership.experiment_id])

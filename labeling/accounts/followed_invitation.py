"""The invitation that a visitor follows: its number, in their session, from opening the link until its use or
refusal.

Only a visitor who follows an invitation can get an account.
"""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse

from engine.models import Membership

_KEY, _ID = "following-invitation", "following-as"
_LONGEST_ID = 100


def follow(request: HttpRequest, invitation_id: int, outside_id: str = "") -> None:
    """``outside_id``: the identifier elsewhere that the link holds."""
    request.session[_KEY], request.session[_ID] = invitation_id, outside_id[:_LONGEST_ID]


def outside_id_in(request: HttpRequest) -> str:
    found: str = request.session.get(_ID, "")
    return found


def followed(request: HttpRequest) -> int | None:
    invitation_id: int | None = request.session.get(_KEY)
    return invitation_id


def stop_following(request: HttpRequest) -> None:
    """Forget it: the next person at this browser needs the link again."""
    request.session.pop(_KEY, None)
    request.session.pop(_ID, None)


def first_page(membership: Membership) -> str:
    """The address of the first page for somebody who has just joined."""
    page = "welcome" if membership.role == Membership.Role.ANNOTATOR else "dashboard"
    return reverse(page, args=[membership.experiment_id])

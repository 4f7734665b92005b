"""The invitation that a visitor follows: its number, in their session, from opening the link until its use or
refusal.

Only a visitor who follows an invitation can get an account.
"""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse

from engine.models import Membership

_KEY = "following-invitation"


def follow(request: HttpRequest, invitation_id: int) -> None:
    request.session[_KEY] = invitation_id


def followed(request: HttpRequest) -> int | None:
    invitation_id: int | None = request.session.get(_KEY)
    return invitation_id


def stop_following(request: HttpRequest) -> None:
    """Forget it: the next person at this browser needs the link again."""
    request.session.pop(_KEY, None)


def first_page(membership: Membership) -> str:
    """The address of the first page for somebody who has just joined."""
    page = "welcome" if membership.role == Membership.Role.ANNOTATOR else "dashboard"
    return reverse(page, args=[membership.experiment_id])

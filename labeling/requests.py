"""Requests as the middleware leaves them, for the type checker: nothing is ever made of these classes."""

from __future__ import annotations

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from engine.models import Token, User


class HtmxRequest(HttpRequest):
    """Any request of a page. `htmx` is true where the page's script sent it and takes a part of a page."""

    htmx: HtmxDetails


class AuthenticatedRequest(HtmxRequest):
    """A request of somebody who has signed in or sent a token: what a view behind ``login_required`` gets."""

    user: User


class TokenRequest(AuthenticatedRequest):
    """A request of the API, once its token has been found good."""

    auth: Token

"""Requests: their types as the middleware leaves them, and the methods and parameters that views accept.

The classes are for the type checker alone: nothing is ever an instance of them.
"""

from collections.abc import Collection

from django.http import HttpRequest
from django.views.decorators.http import require_http_methods
from django_htmx.middleware import HtmxDetails

from engine.models import Token, User

read_or_write = require_http_methods(["GET", "HEAD", "POST"])


class HtmxRequest(HttpRequest):
    """Any request of a page. `htmx` is true where the page's script sent it and takes a part of a page."""

    htmx: HtmxDetails


class AuthenticatedRequest(HtmxRequest):
    """A request with a login or a token, as views get it that do not say `login_not_required`."""

    user: User


class TokenRequest(AuthenticatedRequest):
    """A request of the API, once its token has been found good."""

    auth: Token


def unknown_parameters(request: HttpRequest, known: Collection[str]) -> str:
    """Words about parameters in the address that a download does not know; empty if it knows them all.

    A file shows nobody that a filter was dropped, so they are refused.
    """
    unknown = sorted(set(request.GET) - set(known))
    if not unknown:
        return ""
    there = f"There are: {', '.join(known)}." if known else "There are none for this file."
    return f"Unknown parameter{'s' if len(unknown) > 1 else ''}: {', '.join(unknown)}. {there}"

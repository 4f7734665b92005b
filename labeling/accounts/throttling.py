"""Limits on attempts to log in and to join, and the cookie by which a browser is known.

Wrong passwords have three counts, each over the last quarter of an hour. They are of a name at one address,
of an address under all names, and of a name from everywhere. The last would let a stranger lock somebody out,
so two are exempt from it. One is a browser that has logged in under the name before: it has a signed cookie,
and a count of its own. The other is an address from which the name is logged in. docs/operations.md explains
this to people who run the site.

Failed logins at a provider, and attempts to join, are counted for the address and for the browser. All
browsers without the cookie at one address count as one.
"""

from typing import TypedDict

from allauth.core.internal import ratelimit
from allauth.core.internal.ratelimit import RateLimitUsage
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import get_random_string, salted_hmac

_COOKIE = "known_browser"
_SALT = "labeling.accounts.known-browser"
_COOKIE_SECONDS = 365 * 24 * 3600
# A shared computer knows several people; more would make the cookie grow without end.
_NAMES_PER_BROWSER = 8


def count_attempt(request: HttpRequest, name: str) -> list[RateLimitUsage] | None:
    """Count one more attempt under this name, or return ``None`` where there were too many.

    The usages are for :func:`take_back`, when the password turns out to be right.
    """
    name = name.lower()
    known = _known(request)
    if _digest(name) in known["names"]:
        return _consume(request, [("login_failed", f"browser {known['browser']} {name}")])
    # allauth counts the network of an IPv6 address: a household or an office has a whole one.
    counts = [("login_failed", f"{ratelimit.get_ip(request)} {name}"), ("login_failed_address", None)]
    address = request.META["REMOTE_ADDR"]
    if not UserSession.objects.filter(user__username__iexact=name, ip=address).exists():
        counts.append(("login_failed_name", name))
    return _consume(request, counts)


def take_back(usages: list[RateLimitUsage]) -> None:
    """Uncount a right password. The wrong ones before it stay counted."""
    for usage in usages:
        usage.rollback()


def count_by_browser(request: HttpRequest, action: str) -> RateLimitUsage | None:
    """Count one more attempt of this kind, or return ``None`` where there were too many."""
    key = _known(request)["browser"] or f"none at {ratelimit.get_ip(request)}"
    return ratelimit.consume(request, app="allauth.account", action=action, key=key, limit_get=True)


def remember_browser(request: HttpRequest, response: HttpResponse, name: str | None = None) -> str:
    """Mark this browser, as one in which the name has logged in if there is one; returns its number."""
    known = _known(request)
    known["browser"] = known["browser"] or get_random_string(32)
    if name:
        digest = _digest(name.lower())
        known["names"] = [each for each in known["names"] if each != digest][1 - _NAMES_PER_BROWSER :]
        known["names"].append(digest)
    response.set_cookie(
        _COOKIE,
        signing.dumps(known, salt=_SALT),
        max_age=_COOKIE_SECONDS,
        path=settings.SESSION_COOKIE_PATH,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )
    return known["browser"]


def _consume(request: HttpRequest, counts: list[tuple[str, str | None]]) -> list[RateLimitUsage] | None:
    usages: list[RateLimitUsage] = []
    for action, key in counts:
        usage = ratelimit.consume(request, app="allauth.account", action=action, key=key)
        if usage is None:
            take_back(usages)
            return None
        usages.append(usage)
    return usages


class _Known(TypedDict):
    """The cookie: the browser's random number, and digests of the names that have logged in there."""

    browser: str
    names: list[str]


def _known(request: HttpRequest) -> _Known:
    try:
        known: _Known = signing.loads(request.COOKIES.get(_COOKIE, ""), salt=_SALT, max_age=_COOKIE_SECONDS)
    except signing.BadSignature:
        return {"browser": "", "names": []}
    return known


def _digest(name: str) -> str:
    return salted_hmac(_SALT, name, algorithm="sha256").hexdigest()[:24]

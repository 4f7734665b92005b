"""The client's address of a request. Only this module decides it, before any other code uses it."""

import logging
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse

logger = logging.getLogger(__name__)

_UNTRUSTED_PROXY = "proxy-not-trusted"
_REMEMBERED_SECONDS = 7 * 24 * 3600


class ClientAddress:
    """Middleware that puts the client's own address into ``REMOTE_ADDR``.

    Only proxies listed in ``TRUSTED_PROXIES`` are believed. ``X-Forwarded-For`` is read from its right end,
    where the nearest proxy writes, up to the first address that is no proxy of ours. The client's own text
    lies further left. From anybody else the forwarding headers are dropped, so that nothing after this can
    believe them.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # A server behind a Unix socket sees no address; only this machine can be at its other end. One that
        # listens on IPv6 as well sees IPv4 clients at addresses of one network (::ffff:192.0.2.1).
        seen = request.META.get("REMOTE_ADDR") or "127.0.0.1"
        peer = request.META["REMOTE_ADDR"] = str(_parse(seen) or seen)
        forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "")
        if settings.TRUSTED_PROXIES is None:
            if forwarded:
                _warn_of(peer)
        elif _is_trusted(peer):
            request.META["REMOTE_ADDR"] = _client(peer, forwarded)
        else:
            for header in ("FOR", "PROTO", "HOST"):
                request.META.pop(f"HTTP_X_FORWARDED_{header}", None)
        return self._get_response(request)


def untrusted_proxy() -> str | None:
    """The address of a suspected proxy, while ``TRUSTED_PROXIES`` is not set."""
    return cache.get(_UNTRUSTED_PROXY) if settings.TRUSTED_PROXIES is None else None


def _client(peer: str, forwarded: str) -> str:
    client = peer
    for written in reversed(forwarded.split(",")):
        parsed = _parse(written)
        if parsed is None:
            break
        client = str(parsed)
        if not _is_trusted(client):
            break
    return client


def _parse(written: str) -> IPv4Address | IPv6Address | None:
    """An address as proxies write it: some add the port, and put an IPv6 address into brackets."""
    written = written.strip()
    if written.startswith("["):
        written = written[1:].partition("]")[0]
    elif written.count(":") == 1:
        written = written.partition(":")[0]
    try:
        parsed = ip_address(written)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed


def _is_trusted(address: str) -> bool:
    parsed = _parse(address)
    return parsed is not None and any(parsed in network for network in settings.TRUSTED_PROXIES or ())


def _warn_of(peer: str) -> None:
    if cache.add(_UNTRUSTED_PROXY, peer, _REMEMBERED_SECONDS):
        logger.warning(
            "A request from %s has X-Forwarded-For, and TRUSTED_PROXIES is not set. Behind a proxy "
            "all clients share one address, and wrong passwords of one close the login to all. "
            "Set TRUSTED_PROXIES=%s if that is your proxy, or TRUSTED_PROXIES=none if you have none.",
            peer,
            peer,
        )

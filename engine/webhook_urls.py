"""Where a webhook may go: never to a machine of our own network, which its sender cannot reach but we can."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def check_url(url: str) -> None:
    """Look at the URL itself, without asking anybody where it leads.

    Raises
    ------
    ValueError
        Says what is wrong with it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"This is not a URL: {error}.") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError("Give a URL that starts with https:// or http:// and names a host.")
    if parts.username is not None or parts.password is not None:
        raise ValueError("Leave the name and the password out of the URL; calls are signed instead.")
    allowed = settings.WEBHOOK_HOSTS
    if allowed and parts.hostname not in allowed:
        raise ValueError(f"Webhooks may go to {', '.join(allowed)} only (WEBHOOK_HOSTS).")
    try:
        literal = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return
    _check_address(literal)


def resolve(host: str, port: int) -> str:
    """The address to connect to. All that the name stands for must be public, else whoever owns it could choose.

    Raises
    ------
    ValueError
        One of them is not public.
    OSError
        The name leads nowhere.
    """
    found = [info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        _check_address(ipaddress.ip_address(str(address).partition("%")[0]))
    return str(found[0])


def _check_address(address: Address) -> None:
    if settings.ALLOW_PRIVATE_WEBHOOKS:
        return
    plain = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    if not plain.is_global or plain.is_multicast:
        raise ValueError(
            f"{address} is not a public address. Webhooks to private ones need ALLOW_PRIVATE_WEBHOOKS=true."
        )

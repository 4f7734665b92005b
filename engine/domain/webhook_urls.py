"""Checks of webhook addresses: nobody may use us to reach machines of our own network."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The blocks of IANA's special-purpose registries, multicast and reserved space: nobody's public server is in
# one of them. A table of our own, since what `ipaddress` calls global differs between releases of Python.
_SPECIAL_IPV4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
        ),
    )
)
# The only part of IPv6 that is given out for global unicast, less the special blocks inside it. Teredo (in
# 2001::/23) and 6to4 (2002::/16) carry an IPv4 address and are refused: nobody serves webhooks there.
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL_IPV6 = tuple(
    map(
        ipaddress.IPv6Network,
        ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)
# On a network without IPv4, names that have IPv4 addresses only are found under this prefix (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def check_url(url: str) -> None:
    """Check the URL itself, without looking its host up.

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
        raise ValueError("Remove the name and the password from the URL; calls are signed instead.")
    allowed = settings.WEBHOOK_HOSTS
    if allowed and parts.hostname not in map(str.lower, allowed):
        raise ValueError(f"Webhooks may go to {', '.join(allowed)} only (WEBHOOK_HOSTS).")
    try:
        literal = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return
    _check_address(literal)


def resolve(host: str, port: int) -> str:
    """The address to connect to. All addresses of the name must be public, as its owner chooses among them.

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
    if not settings.ALLOW_PRIVATE_WEBHOOKS and not is_public(address):
        raise ValueError(
            f"{address} is not a public address. To allow private addresses, set ALLOW_PRIVATE_WEBHOOKS=true."
        )


def is_public(address: Address) -> bool:
    """True if this is global unicast, where it carries an IPv4 address that one too."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _SPECIAL_IPV4)
    return address in _GLOBAL_IPV6 and not any(address in block for block in _SPECIAL_IPV6)

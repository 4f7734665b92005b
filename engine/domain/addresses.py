"""Checks of addresses that people enter: nobody may use us to reach machines of our own network."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The blocks of IANA's special-purpose registries, multicast and reserved space, and the address at which
# Azure's machines reach their host: nobody's public server is there. A table of our own, since what
# `ipaddress` calls global differs between releases of Python.
_SPECIAL_IPV4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",
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


@dataclass(frozen=True, slots=True)
class Rules:
    """The operator's permissions for one kind of address.

    Attributes
    ----------
    hosts, private
        The names of the settings with the only hosts allowed, and with the permission of private addresses.
    """

    thing: str
    hosts: str
    private: str
    credentials: str

    @property
    def allows_private(self) -> bool:
        """True if the operator allows private addresses."""
        return bool(getattr(settings, self.private))


WEBHOOKS = Rules("Webhooks", "WEBHOOK_HOSTS", "ALLOW_PRIVATE_WEBHOOKS", "calls are signed instead")
CONNECTIONS = Rules(
    "Connections", "CONNECTION_HOSTS", "ALLOW_PRIVATE_CONNECTIONS", "the key has a field of its own"
)
_USUAL_PORTS = {"http": 80, "https": 443}


def check_url(url: str, rules: Rules = WEBHOOKS, *, has_key: bool = False) -> SplitResult:
    """Check the URL itself, without looking its host up, and return its parts. A key does not travel in the
    open.

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
    if parts.scheme not in _USUAL_PORTS or not parts.hostname or port == 0:
        raise ValueError("Give a URL that starts with https:// or http:// and names a host.")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"Remove the name and the password from the URL; {rules.credentials}.")
    if has_key and parts.scheme != "https" and not rules.allows_private:
        raise ValueError(f"A key is sent to https:// only. To allow http://, set {rules.private}=true.")
    allowed = [each.lower() for each in getattr(settings, rules.hosts)]
    if allowed and not {parts.hostname, f"{parts.hostname}:{port}"} & set(allowed):
        raise ValueError(f"{rules.thing} may go to {', '.join(allowed)} only ({rules.hosts}).")
    try:
        literal = str(ipaddress.ip_address(parts.hostname))
    except ValueError:
        return parts
    _check_public([literal], f"{literal} is not a public address.", rules)
    return parts


def check_connection(url: str, *, has_key: bool) -> SplitResult:
    """Check the address of a connection, and return its parts.

    Raises
    ------
    ValueError
        Says what is wrong with it.
    """
    parts = check_url(url, CONNECTIONS, has_key=has_key)
    if "?" in url or "#" in url:
        raise ValueError("Remove the query from the URL; further fields of a request go into its body.")
    if not url.isascii() or any(not " " < each < "\x7f" for each in url):
        raise ValueError("Write the URL without spaces and with ASCII letters alone.")
    if CONNECTIONS.allows_private:
        return parts
    named = f"{parts.hostname}:{parts.port}" in map(str.lower, settings.CONNECTION_HOSTS)
    if parts.port not in {None, _USUAL_PORTS[parts.scheme]} and not named:
        raise ValueError(
            f"Port {parts.port} is not allowed. Add {parts.hostname}:{parts.port} to CONNECTION_HOSTS, or "
            "set ALLOW_PRIVATE_CONNECTIONS=true."
        )
    return parts


def resolve(host: str, port: int, rules: Rules = WEBHOOKS) -> list[str]:
    """The addresses of a name. All of them must be public, as its owner chooses among them.

    Raises
    ------
    ValueError
        One of them is not public.
    OSError
        The name leads nowhere.
    """
    found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    # Not to which address: that would tell everybody about our own network.
    _check_public(found, f"{host} leads to an address that is not public.", rules)
    return found


def _check_public(found: Iterable[str], fault: str, rules: Rules) -> None:
    if rules.allows_private:
        return
    if not all(is_public(ipaddress.ip_address(each.partition("%")[0])) for each in found):
        raise ValueError(f"{fault} To allow private addresses, set {rules.private}=true.")


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

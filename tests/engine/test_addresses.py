"""Addresses that webhooks may and may not go to, by the special-purpose registries of IANA (RFC 6890)."""

import ipaddress

import pytest

from engine.domain.addresses import check_url, is_public

# One address at least of each block in the registries of IPv4 and IPv6, the first and last where that is
# telling.
SPECIAL = {
    "0.0.0.0": "this network",  # noqa: S104 - refused, not bound
    "0.255.255.255": "this network",
    "10.0.0.1": "private use",
    "100.64.0.1": "shared address space",
    "100.127.255.255": "shared address space",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "the host of a machine at Azure",
    "169.254.169.254": "link local",
    "172.16.0.1": "private use",
    "172.31.255.255": "private use",
    "192.0.0.1": "IETF protocol assignments",
    "192.0.0.8": "IPv4 dummy address",
    "192.0.0.9": "port control protocol anycast",
    "192.0.0.170": "NAT64 discovery",
    "192.0.2.1": "documentation",
    "192.31.196.1": "AS112",
    "192.52.193.1": "AMT",
    "192.88.99.1": "deprecated 6to4 relay",
    "192.168.1.1": "private use",
    "192.175.48.1": "AS112",
    "198.18.0.1": "benchmarking",
    "198.19.255.255": "benchmarking",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.1": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "limited broadcast",
    "::": "unspecified",
    "::1": "loopback",
    "::127.0.0.1": "IPv4-compatible",
    "::8.8.8.8": "IPv4-compatible, of a public address",
    "::ffff:10.0.0.1": "IPv4-mapped",
    "::ffff:169.254.169.254": "IPv4-mapped",
    "::ffff:0:127.0.0.1": "IPv4-translated",
    "64:ff9b::127.0.0.1": "NAT64 of loopback",
    "64:ff9b::10.0.0.1": "NAT64 of private use",
    "64:ff9b::a9fe:a9fe": "NAT64 of link local",
    "64:ff9b:1::1": "local-use NAT64",
    "64:ff9b:1::8.8.8.8": "local-use NAT64",
    "100::1": "discard only",
    "100:0:0:1::1": "dummy prefix",
    "2001::1": "Teredo",
    "2001:0:7f00:1::": "Teredo of loopback",
    "2001:1::1": "port control protocol anycast",
    "2001:2::1": "benchmarking",
    "2001:3::1": "AMT",
    "2001:4:112::1": "AS112",
    "2001:10::1": "deprecated ORCHID",
    "2001:20::1": "ORCHIDv2",
    "2001:30::1": "drone remote identification",
    "2001:db8::1": "documentation",
    "2002:7f00:1::1": "6to4 of loopback",
    "2002:808:808::1": "6to4 of a public address",
    "2620:4f:8000::1": "AS112",
    "3fff::1": "documentation",
    "3fff:fff:ffff::1": "documentation",
    "4000::1": "not given out",
    "5f00::1": "segment routing",
    "fc00::1": "unique local",
    "fd12:3456::1": "unique local",
    "fe80::1": "link local",
    "fec0::1": "deprecated site local",
    "feff::1": "deprecated site local",
    "ff02::1": "multicast",
    "ffff::1": "multicast",
}
PUBLIC = [
    "1.1.1.1",
    "9.255.255.255",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.1",
    "172.32.0.1",
    "192.0.1.1",
    "223.255.255.255",
    "::ffff:93.184.216.34",
    "64:ff9b::93.184.216.34",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:2800:220:1::1",
    "2a00:1450:4001::1",
    "3ffe::1",
]


@pytest.mark.parametrize("address", SPECIAL, ids=lambda address: f"{address} {SPECIAL[address]}")
def test_special_addresses_are_refused(address):
    """NAT64, IPv4-compatible, fec0::/10, 5f00::/16 and 3fff::/20 used to pass."""
    assert not is_public(ipaddress.ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ValueError, match="not a public address"):
        check_url(f"https://{host}/hook")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address):
    assert is_public(ipaddress.ip_address(address))
    check_url(f"https://[{address}]/hook" if ":" in address else f"https://{address}/hook")

"""The rule: a request goes to the public internet, or to what the worker's operator allowed; whatever a job says.

A name is resolved once, and the addresses that passed the check are the ones to connect to: a name server that
answers differently the next time is not asked again.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from pgsched.errors import InputError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], list[str]]
MOST_ADDRESSES = 8
# Not public, whatever the Python version's table says: this network; shared, and protocol assignments (clouds keep
# their metadata there); a cloud's host agent; site-local; local translation.
NOT_PUBLIC = tuple(map(ip_network, (
    "0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "168.63.129.16/32", "fec0::/10", "64:ff9b:1::/48",
    "3fff::/20", "5f00::/16",  # documentation and segment routing, which older Pythons do not know
)))  # fmt: skip
TRANSLATED = IPv6Network("64:ff9b::/96")
ENTRY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?))(?::([0-9]{1,5}))?")


class Forbidden(Exception):
    """The request would go where this worker may not send one. The text says where, and is for the run's error."""


@dataclass(frozen=True, slots=True)
class AllowList:
    """Where requests may go although it is not public: networks and host names, each with a port or with any."""

    networks: tuple[tuple[Network, int | None], ...] = ()
    hosts: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def read(cls, entries: Iterable[str]) -> AllowList:
        """From `host`, `host:port`, an address or a CIDR network. Raises InputError."""
        networks: list[tuple[Network, int | None]] = []
        hosts: set[tuple[str, int | None]] = set()
        for entry in entries:
            network, host, port = _entry(entry)
            if network is not None:
                networks.append((network, port))
            else:
                hosts.add((host, port))
        return cls(tuple(networks), frozenset(hosts))

    def allows(self, host: str, port: int, address: Address) -> bool:
        """May a request for `host` go to this address?"""
        if not self.hosts.isdisjoint({(host.lower().rstrip("."), port), (host.lower().rstrip("."), None)}):
            return True
        meant = meant_by(address)
        return any(only in (None, port) and (address in network or meant in network) for network, only in self.networks)


def _entry(text: str) -> tuple[Network | None, str, int | None]:
    wrong = InputError(f"http-allow: {text[:100]!r} is not a host, host:port, address or CIDR network", "http-allow")
    try:
        return ip_network(text), "", None
    except ValueError:
        found = ENTRY.fullmatch(text.lower().rstrip("."))
    if found is None:
        raise wrong
    port = None if found[3] is None else int(found[3])
    if port is not None and not 1 <= port <= 65535:
        raise wrong
    try:
        return ip_network(found[1] or found[2]), "", port
    except ValueError:
        if found[2] is None or re.fullmatch(r"[0-9.]+", found[2]):
            raise wrong from None
    return None, found[2], port


def meant_by(address: Address) -> Address:
    """The IPv4 address inside of an IPv6 one, where that is only another way to write it or to get there."""
    if isinstance(address, IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if inside is None and address in TRANSLATED:
            inside = IPv4Address(int(address) & 0xFFFF_FFFF)
        return inside or address
    return address


def is_public(address: Address) -> bool:
    """May anybody's job send requests to it? Not to loopback, private, link-local, multicast or reserved addresses."""
    meant = meant_by(address)
    special = meant.is_multicast or meant.is_reserved or any(meant in network for network in NOT_PUBLIC)
    return meant.is_global and not special


def resolved(host: str, port: int) -> list[str]:
    """The addresses of a name, in the order to try them. Raises OSError. Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def permitted(host: str, port: int, addresses: Iterable[str], allow: AllowList) -> list[str]:
    """Those of the addresses that a request may go to. Raises Forbidden when there is none, which does not say
    what the name leads to: whoever made the run reads that, and need not know the network that the worker is in."""
    passed = [text for text in addresses if _may(host, port, ip_address(text), allow)]
    if not passed:
        raise Forbidden(f"{host} is not a public address, and this worker has no --http-allow for it")
    return passed[:MOST_ADDRESSES]


def _may(host: str, port: int, address: Address, allow: AllowList) -> bool:
    return is_public(address) or allow.allows(host, port, address)

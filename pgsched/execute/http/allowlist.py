"""The addresses that HTTP runs may send requests to: public ones, and those that the worker's operator allows.

Invariant: a request goes only to an address that this module permits, regardless of what the job says.

A name is resolved once, and the connection uses the addresses that passed the check. A name server that would answer
differently the next time is not asked again.
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
# Not public, even where the table of this Python version says so. In order: "this network"; shared address space and
# protocol assignments (clouds keep their metadata services there); a cloud's host agent; site-local; local NAT64.
NOT_PUBLIC = tuple(map(ip_network, (
    "0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "168.63.129.16/32", "fec0::/10", "64:ff9b:1::/48",
    "3fff::/20", "5f00::/16",  # documentation and segment routing, which older Pythons do not know
)))  # fmt: skip
TRANSLATED = IPv6Network("64:ff9b::/96")
ENTRY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?))(?::([0-9]{1,5}))?")


class Forbidden(Exception):
    """The worker may not send the request there. The text names the host and becomes the run's error."""


@dataclass(frozen=True, slots=True)
class AllowList:
    """The non-public destinations that are allowed: networks and host names, each with one port or with any."""

    networks: tuple[tuple[Network, int | None], ...] = ()
    hosts: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def read(cls, entries: Iterable[str]) -> AllowList:
        """Read entries of the form `host`, `host:port`, an address or a CIDR network. Raises InputError."""
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
        """Check whether a request for `host` and `port` may go to this address."""
        if not self.hosts.isdisjoint({(host.lower().rstrip("."), port), (host.lower().rstrip("."), None)}):
            return True
        meant = get_embedded_ipv4(address)
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


def get_embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds or leads to, otherwise the address itself."""
    if isinstance(address, IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if inside is None and address in TRANSLATED:
            inside = IPv4Address(int(address) & 0xFFFF_FFFF)
        return inside or address
    return address


def is_public(address: Address) -> bool:
    """Check whether any job may send requests to this address.

    Loopback, private, link-local, multicast and reserved addresses are not public.
    """
    meant = get_embedded_ipv4(address)
    special = meant.is_multicast or meant.is_reserved or any(meant in network for network in NOT_PUBLIC)
    return meant.is_global and not special


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a name, in the order to try them.

    The call blocks. Raises OSError.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def filter_permitted(host: str, port: int, addresses: Iterable[str], allow: AllowList) -> list[str]:
    """Return the addresses that a request may go to, at most `MOST_ADDRESSES`.

    Raises Forbidden where no address is permitted. Its text does not name the addresses: the producer reads the text,
    and must not learn about the worker's network.
    """
    permitted_addresses = [text for text in addresses if _is_permitted(host, port, ip_address(text), allow)]
    if not permitted_addresses:
        raise Forbidden(f"{host} is not a public address, and this worker has no --http-allow for it")
    return permitted_addresses[:MOST_ADDRESSES]


def _is_permitted(host: str, port: int, address: Address, allow: AllowList) -> bool:
    return is_public(address) or allow.allows(host, port, address)

"""Limits on guessing of secrets: how many guesses each address has in a minute.

Invariant: a guess is counted before it is checked, so that parallel guesses have the same limit as guesses in turn.
While an address is over its limit, even the right secret is not checked. A right token that cannot be guessed is never
counted: see Settings.is_right_and_strong.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from threading import Lock

WITHIN_S = 60.0
MAX_LOGIN_GUESSES, MAX_TOKEN_GUESSES = 10, 60  # guesses of one address within WITHIN_S
MOST_ADDRESSES = 10_000


class Guesses:
    """The wrong guesses of the last minute, by address. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._at: OrderedDict[str, deque[float]] = OrderedDict()

    def begin(self, address: str) -> bool:
        """Count one more guess; return whether it may be checked."""
        with self._lock:
            now, at = time.monotonic(), self._at.setdefault(address, deque())
            self._at.move_to_end(address)
            while len(self._at) > MOST_ADDRESSES:
                self._at.popitem(last=False)
            while at and at[0] < now - WITHIN_S:
                at.popleft()
            if len(at) >= self._most:
                return False
            at.append(now)
            return True

    def right(self, address: str) -> None:
        """Take the last guess of an address back, because the secret was right."""
        with self._lock:
            if at := self._at.get(address):
                at.pop()


def address_of(client: tuple[str, int] | None) -> str:
    """Return the address that guesses are counted under.

    This is an IPv4 address, or the /64 network of an IPv6 address, which one host has to itself.
    """
    host = client[0] if client else ""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped or ipaddress.ip_network((found, 64), strict=False))
    return host

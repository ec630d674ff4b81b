"""Kazoo's Barrier and DoubleBarrier, on those of pgsched.

Unlike Kazoo's, a double barrier says so when it could not be entered or left, and its members survive a reconnect.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from pgsched.recipes.barrier import Barrier as SharedBarrier
from pgsched.recipes.double_barrier import DoubleBarrier as SharedDoubleBarrier
from pgsched.recipes.kazoo.paths import name_of
from pgsched.recipes.kazoo.retry import KazooRetry
from pgsched.recipes.sessions.session import left_s, now

if TYPE_CHECKING:
    from pgsched.recipes.kazoo.client import KazooClient


class Barrier:
    """A barrier: it stands while its node exists, and all who wait at it stand still."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self.client = client
        self.path = path
        self._name = name_of(path)

    def create(self) -> None:
        """Set it; do nothing where it is set."""
        self.client.retry(self.client.perform, lambda: self._shared().set())

    def remove(self) -> bool:
        """Remove it: all who wait go on. Return False where it was not set."""
        removed: bool = self.client.retry(self.client.perform, lambda: self._shared().remove())
        return removed

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is removed, for up to `timeout` seconds; return whether it is.

        It waits on over an outage. Raises RetryFailedError where that is not over in time.
        """
        until = None if timeout is None else now() + timeout
        again = self.client.retry if timeout is None else KazooRetry(max_tries=None, deadline=timeout)

        def wait() -> None:
            self._shared().wait(left_s(until))

        try:
            again(self.client.perform, wait)
        except TimeoutError:
            return False
        return True

    def _shared(self) -> SharedBarrier:
        parts = self.client.parts
        return SharedBarrier(parts.watches, parts.store, self._name)


class DoubleBarrier:
    """A double barrier: `num_clients` members begin together, and end together.

    `identifier`: what others read of this member; left out: its host and process.
    """

    def __init__(self, client: KazooClient, path: str, num_clients: int, identifier: Any = None) -> None:
        self.client = client
        self.path = path
        self.num_clients = num_clients
        self._name = name_of(path)
        self._identifier = str(identifier or own_identifier())
        self._inside: SharedDoubleBarrier | None = None

    @property
    def participating(self) -> bool:
        """Whether it is inside: it has entered, and its session lives."""
        return self._inside is not None and not self._inside.lost

    def enter(self) -> None:
        """Wait until all members have entered.

        Raises BadArgumentsError where others wait for another number of members, and ConnectionClosedError where the
        client is stopped meanwhile.
        """

        def enter() -> SharedDoubleBarrier:
            parts = self.client.parts
            return SharedDoubleBarrier(
                parts.keeper, parts.watches, self._name, self.num_clients, ttl=parts.ttl_s, note=self._identifier
            ).enter()

        self._inside = self.client.retry(self.client.perform, enter)

    def leave(self) -> None:
        """Wait until all members have left; do nothing where it has not entered.

        Raises SessionExpiredError where the others took it for gone before.
        """
        inside, self._inside = self._inside, None
        if inside is not None:
            self.client.perform(inside.leave)


def own_identifier() -> str:
    """Return the host and the number of this process."""
    return f"{socket.getfqdn()}-{os.getpid()}"

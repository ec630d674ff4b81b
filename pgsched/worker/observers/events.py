"""The events that a worker reports about its claims and attempts, as a protocol for observers.

Invariant: an observer changes nothing about how an attempt runs. A worker without observers uses NO_EVENTS; the cost
for each attempt is one look at `wants_times`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pgsched.core.model import Claim, Settlement
from pgsched.db.connection.connect import Connection
from pgsched.worker.attempts.attempt import EndReason


class WorkerEvents(Protocol):
    """The methods that a worker calls, on its event loop except `beat`."""

    @property
    def wants_times(self) -> bool:
        """Whether `attempt_ended` is to be called for the next attempt."""
        ...

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Take the claims that one statement returned."""
        ...

    def attempt_ended(self, claim: Claim, started: float, now: float) -> None:
        """Take an attempt that ran from `started` to `now`, in monotonic seconds."""
        ...

    def ending(self, claim: Claim, why: EndReason) -> None:
        """Note that an attempt is stopped from outside, and why."""
        ...

    def settled(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        """Take a batch of written outcomes; `verdicts`: the result for each."""
        ...

    def beat(self, conn: Connection[Any]) -> None:
        """Note that the database has answered a heartbeat. Called in the heartbeat's thread; `conn` may be used."""
        ...

    async def watch(self) -> None:
        """Run beside the attempts until cancelled, or return at once."""
        ...


class NoEvents:
    """Events without an observer: every method does nothing."""

    wants_times = False

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Do nothing."""
        ...

    def attempt_ended(self, claim: Claim, started: float, now: float) -> None:
        """Do nothing."""
        ...

    def ending(self, claim: Claim, why: EndReason) -> None:
        """Do nothing."""
        ...

    def settled(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        """Do nothing."""
        ...

    def beat(self, conn: Connection[Any]) -> None:
        """Do nothing."""
        ...

    async def watch(self) -> None:
        """Do nothing."""
        ...


NO_EVENTS = NoEvents()

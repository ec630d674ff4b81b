"""What others may learn of a worker's claims and attempts. Whoever listens changes nothing about how an attempt runs.

A worker to which nobody listens has NO_EVENTS, and an attempt pays one look at `wants_times` for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pgsched.core.model import Claim, Settlement
from pgsched.db.connection.connect import Connection
from pgsched.worker.attempts.attempt import Ended


class WorkerEvents(Protocol):
    """Called on the worker's event loop, but for `beat`."""

    @property
    def wants_times(self) -> bool:
        """Is `attempt_ended` to be called for the next attempt?"""
        ...

    def claimed(self, claims: Sequence[Claim]) -> None:
        """A claim was answered with these."""
        ...

    def attempt_ended(self, claim: Claim, started: float, now: float) -> None:
        """An attempt that began at monotonic `started` has ended `now`."""
        ...

    def ending(self, claim: Claim, why: Ended) -> None:
        """An attempt is told to stop, for this reason."""
        ...

    def settled(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        """A batch of outcomes has been written; `verdicts`: what became of each."""
        ...

    def beat(self, conn: Connection[Any]) -> None:
        """The database has answered a heartbeat. Called in the heartbeat's thread; `conn` may be used."""
        ...

    async def watch(self) -> None:
        """Runs beside the attempts until it is cancelled, or ends at once."""
        ...


class NoEvents:
    """Nobody listens."""

    wants_times = False

    def claimed(self, claims: Sequence[Claim]) -> None: ...

    def attempt_ended(self, claim: Claim, started: float, now: float) -> None: ...

    def ending(self, claim: Claim, why: Ended) -> None: ...

    def settled(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None: ...

    def beat(self, conn: Connection[Any]) -> None: ...

    async def watch(self) -> None: ...


NO_EVENTS = NoEvents()

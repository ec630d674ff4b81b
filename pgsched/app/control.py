"""The rule: a handler steers its own attempt through its Run, and through nothing else of the worker.

Whoever runs handlers gives each Run an Own: the state of what the handler does about its attempt, and the way to the
worker that waits for it. A Run made by hand (in a test) has one that leads nowhere.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from pgsched.errors import PgschedError, TaskError


class Control(Protocol):
    """The worker's side of one attempt. Thread-safe."""

    deadline: float | None

    @property
    def stopping(self) -> bool:
        """Has the attempt been told to stop?"""
        ...

    def extend(self, seconds: float) -> None:
        """The attempt times out so much later."""
        ...

    def settling(self, done: bool | None) -> None:
        """The handler is about to commit its own settlement (None), has done so (True), or could not (False)."""
        ...


class Own:
    """What a handler does about its own attempt."""

    __slots__ = ("conn", "control", "dsn", "inside", "result", "settled")

    def __init__(self, control: Control | None = None, dsn: str | None = None) -> None:
        self.control = control
        self.dsn = dsn
        self.inside = False
        self.settled = False
        self.conn: Any = None  # of the open transaction
        self.result: Any = None

    @property
    def deadline(self) -> float | None:
        """When the attempt times out, in monotonic seconds of this host; None: never."""
        return None if self.control is None else self.control.deadline

    def seconds_left(self) -> float | None:
        """Seconds until the attempt times out, at least 0; None: it never does."""
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def extend(self, seconds: float) -> float | None:
        """Let the attempt time out so much later; returns the seconds left."""
        if not 0 < seconds <= MOST_S:
            raise ValueError(f"extend: expected more than 0 seconds and at most {MOST_S:,}, got {seconds!r}")
        if self.control is not None and self.control.deadline is not None:
            if self.control.stopping:
                raise PgschedError("extend: the attempt has been told to stop already; look at run.cancelled")
            self.control.extend(seconds)
        return self.seconds_left()

    def begin(self) -> None:
        """A transaction that settles the run begins."""
        if self.settled:
            raise TaskError("transaction: it has settled the run already; write everything in one transaction")
        if self.inside:
            raise TaskError("transaction: one is open already; only one can settle the run")
        self.inside, self.result = True, None  # one that was rolled back leaves no result

    def settling(self, done: bool | None) -> None:
        """The settlement is about to be committed (None), is committed (True), or not (False)."""
        if done is not None:
            self.inside, self.settled = False, done
        if self.control is not None:
            self.control.settling(done)


MOST_S = 86_400 * 3650

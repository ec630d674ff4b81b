"""What a handler can do about its own attempt, and the worker's side of it.

Invariant: a handler controls its own attempt through its Run, and nothing else of the worker. An executor gives each
Run an Own: the attempt's state, and a Control of the worker that waits for it. A Run that a test makes has no Control.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Protocol

from pgsched.errors import PgschedError, TaskError

# Whether the code that runs now is part of an attempt. The worker sets it once in the context of all its attempts, a
# child process in its own. A task that a handler starts has it too, and so has a thread that runs in a copy of the
# handler's context, such as that of asyncio.to_thread.
IN_HANDLER: ContextVar[bool] = ContextVar("pgsched_in_handler", default=False)


def refuse_waiting(what: str) -> None:
    """Raise PgschedError inside a handler: a handler that waits for a run may wait for its own place."""
    if IN_HANDLER.get():
        raise PgschedError(
            f"{what}: a handler cannot wait for another run: it would keep a place that this run may need."
            " Enqueue what comes next with task.options(after=[run])"
        )


class Control(Protocol):
    """The worker's side of one attempt. Thread-safe.

    `deadline`: when the attempt times out, as `time.monotonic()`; None: never.
    """

    deadline: float | None

    @property
    def stopping(self) -> bool:
        """Tell whether the attempt has been asked to stop."""
        ...

    def extend(self, seconds: float) -> None:
        """Let the attempt time out this many seconds later."""
        ...

    def settling(self, done: bool | None) -> None:
        """Report the handler's own settlement: about to be committed (None), committed (True), or failed (False)."""
        ...


class AttemptState:
    """The state of what a handler does about its own attempt.

    `in_transaction`: a transaction that settles the run is open.
    `settled`: the handler has settled the run itself.
    `conn`: the connection of the open transaction.
    `result`: the result that the transaction will record.
    """

    __slots__ = ("conn", "control", "dsn", "in_transaction", "result", "settled")

    def __init__(self, control: Control | None = None, dsn: str | None = None) -> None:
        self.control = control
        self.dsn = dsn
        self.in_transaction = False
        self.settled = False
        self.conn: Any = None
        self.result: Any = None

    @property
    def deadline(self) -> float | None:
        """Return when the attempt times out, as `time.monotonic()` of this host; None: never."""
        return None if self.control is None else self.control.deadline

    def seconds_left(self) -> float | None:
        """Return the seconds until the attempt times out, at least 0; None: never."""
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def extend(self, seconds: float | timedelta) -> float | None:
        """Let the attempt time out this many seconds, or a timedelta, later; return the seconds left.

        Raises ValueError unless `seconds` is above 0 and at most ten years, PgschedError if the attempt is already
        stopping.
        """
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if not 0 < seconds <= MOST_S:
            raise ValueError(f"extend: expected more than 0 seconds and at most {MOST_S:,}, got {seconds!r}")
        if self.control is not None and self.control.deadline is not None:
            if self.control.stopping:
                raise PgschedError("extend: the attempt has been told to stop already; look at run.cancelled")
            self.control.extend(seconds)
        return self.seconds_left()

    def begin(self) -> None:
        """Begin a transaction that settles the run. Raises TaskError if one is open or has settled the run."""
        if self.settled:
            raise TaskError("transaction: it has settled the run already; write everything in one transaction")
        if self.in_transaction:
            raise TaskError("transaction: one is open already; only one can settle the run")
        self.in_transaction, self.result = True, None  # forget the result of a transaction that was rolled back

    def settling(self, done: bool | None) -> None:
        """Record that the settlement is about to be committed (None), is committed (True), or is not (False)."""
        if done is not None:
            self.in_transaction, self.settled = False, done
        if self.control is not None:
            self.control.settling(done)


MOST_S = 86_400 * 3650

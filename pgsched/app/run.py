"""The handler's view of its attempt: a parameter annotated `Run` gets it."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pgsched.app.control import AttemptState
from pgsched.app.transaction import Transaction
from pgsched.core import payload
from pgsched.core.schedule.slot_text import Interval, SlotTerms, local_slot
from pgsched.core.text import format_log_line
from pgsched.db.connection.connect import aconnect, connect
from pgsched.db.queries.runs import dependencies, handler_transaction
from pgsched.db.queries.runs.dependencies import Parent
from pgsched.errors import TaskError
from pgsched.threads import LazyEvent


# Not frozen: a frozen dataclass takes three times as long to make.
@dataclass(slots=True, unsafe_hash=True)
class Run:
    """One attempt of a run, as its handler sees it. Read the attributes; do not assign to them.

    `id`: the run's id.
    `job_id`: the id of its job; None for an ad-hoc run.
    `scheduled_at`: the job's slot; None for an ad-hoc run.
    `attempt`: 1 for the first attempt.
    `token`: names this attempt's claim.
    `interval`: from the slot before to this one; None for an ad-hoc run.
    `slot_local`: the slot in the job's time zone; None for an ad-hoc run.
    `cancelled`: set when the attempt is to stop. An async handler is cancelled too. A plain one has to look: with
      `run.cancelled.is_set()` or, instead of sleeping, `run.cancelled.wait(seconds)`.
    `task`, `queue`, `max_attempts`: of the run.
    """

    id: int
    job_id: int | None
    scheduled_at: datetime | None
    attempt: int
    token: UUID
    cancelled: threading.Event = field(default_factory=LazyEvent, repr=False, compare=False)
    task: str = ""
    queue: str = "default"
    max_attempts: int = 1
    own: AttemptState = field(default_factory=AttemptState, repr=False, compare=False)
    # A Record of execute.output, whose `write` and `progress` take the attempt's output; or None.
    record: Any = field(default=None, repr=False, compare=False)
    slot_terms: SlotTerms | None = field(default=None, repr=False, compare=False)

    def log(self, text: str, **fields: Any) -> None:
        """Add a line to the run's output, followed by `name=value` for each field. `pgsched run logs` shows it."""
        if self.record is not None:
            self.record.write("log", format_log_line(text, fields))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report how far the attempt is: `done` of `total`, and a note.

        Reports are written about once a second, however often you call this. Raises TypeError or ValueError if `done`
        or `total` is not a finite number from 0 on.
        """
        check_progress(done, total)
        if self.record is not None:
            self.record.progress(done, total, note)

    @property
    def interval(self) -> Interval | None:
        """Return the time from the slot before this one to this one: `start, end = run.interval`.

        A run that stands for several slots has the interval of all of them. None for an ad-hoc run, and for a run that
        a person started beside the schedule.
        """
        start = None if self.slot_terms is None else self.slot_terms.interval_start
        return None if start is None or self.scheduled_at is None else Interval(start, self.scheduled_at)

    @property
    def slot_local(self) -> datetime | None:
        """Return `scheduled_at` in the job's time zone, or None for an ad-hoc run.

        Raises ScheduleError where this worker's tz database does not know the zone.
        """
        if self.scheduled_at is None:
            return None
        return local_slot(self.scheduled_at, None if self.slot_terms is None else self.slot_terms.zone)

    @property
    def deadline(self) -> float | None:
        """Return when the attempt times out, as `time.monotonic()` of this host; None without a timeout."""
        return self.own.deadline

    def seconds_left(self) -> float | None:
        """Return the seconds until the attempt times out, at least 0; None without a timeout."""
        return self.own.seconds_left()

    def extend(self, seconds: float | timedelta) -> float | None:
        """Let this attempt time out `seconds`, or a timedelta, later; return the seconds left, None without a timeout.

        The lease needs no call: the worker renews it. Raises ValueError unless `seconds` is above 0 and at most ten
        years, PgschedError if the attempt has been asked to stop.
        """
        return self.own.extend(seconds)

    def assert_claim(self, conn: Any) -> Any:
        """Make your transaction fail with ClaimLost unless this attempt owns the run.

        The attempt then keeps the run until your transaction ends. `conn`: a psycopg connection, an SQLAlchemy
        Connection or Session, or a connection of Django or its alias. For the async form of these, `await` the call.
        Raises InputError if `conn` would commit at once, because then no transaction keeps the claim.
        """
        return handler_transaction.assert_claim(conn, self.id, self.token)

    def transaction(self, conn: Any = None) -> Transaction:
        """Commit what you write and the success of the run together, or neither: `with run.transaction() as conn:`.

        With `async with`, the connection is an AsyncConnection. Without `conn`, a psycopg connection to the scheduler's
        database is opened. A connection of your own has to be outside of any transaction; it may be Django's, or an
        alias: then the ORM writes in that transaction.

        Raises ClaimLost, and nothing is written, if the attempt no longer owns the run. Raises TaskError for a second
        transaction. After the block the run is settled: what the handler returns is not kept (see `set_result`), and
        what it raises is only logged.
        """
        return Transaction(self.own, self.id, self.token, conn)

    def parents(self) -> list[Parent]:
        """Return the runs that this run waited for, the oldest first, with their results.

        This is one query, on a connection of its own. The parents are kept until this run has ended. Raises TaskError
        outside of a worker.
        """
        with connect(self._dsn("parents"), purpose="handler") as conn:
            return dependencies.parents(conn, self.id)

    async def parents_async(self) -> list[Parent]:
        """Return the same as `parents`, without blocking the event loop."""
        async with await aconnect(self._dsn("parents_async"), purpose="handler") as conn:
            return await dependencies.parents_async(conn, self.id)

    def results(self) -> list[Any]:
        """Return the results of the parents that succeeded, the oldest first."""
        return [parent.result for parent in self.parents() if parent.state == "succeeded"]

    async def results_async(self) -> list[Any]:
        """Return the same as `results`, without blocking the event loop."""
        return [parent.result for parent in await self.parents_async() if parent.state == "succeeded"]

    def _dsn(self, what: str) -> str:
        if self.own.dsn is None:
            raise TaskError(f"{what}: only a run that a worker made has parents")
        return self.own.dsn

    def set_result(self, value: Any) -> None:
        """Set the run's result inside of `run.transaction()`: any JSON value.

        Raises TaskError outside of the transaction, or if the value cannot be JSON.
        """
        if not self.own.in_transaction:
            raise TaskError("set_result: only inside of run.transaction(); elsewhere return the value")
        try:
            payload.encode(value)
        except ValueError as error:
            raise TaskError(f"set_result: {type(value).__name__} {error}") from None
        self.own.result = value


def check_progress(done: Any, total: Any) -> None:
    """Raise TypeError or ValueError unless `done`, and `total` where there is one, are finite numbers from 0 on."""
    try:
        is_right = 0 <= done < math.inf and (total is None or 0 <= total < math.inf)
    except TypeError:
        raise TypeError(f"progress: expected numbers, got {done!r} and {total!r}; a text is note=") from None
    if not is_right:
        raise ValueError(f"progress: expected finite numbers from 0 on, got {done!r} and {total!r}")

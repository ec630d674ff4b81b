"""What a handler may know and do about the attempt it is part of: a parameter annotated `Run` gets it."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pgsched.app.control import Own
from pgsched.app.transaction import Transaction
from pgsched.core import payload
from pgsched.core.text import log_line
from pgsched.db.connection.connect import aconnect, connect
from pgsched.db.queries.runs import dependencies, handler_transaction
from pgsched.db.queries.runs.dependencies import Parent
from pgsched.errors import TaskError
from pgsched.threads import Signal

INFINITE = math.inf


@dataclass(slots=True, unsafe_hash=True)
class Run:
    """One attempt, to be read and never assigned to (that is not enforced: a frozen one takes three times as long to
    make). `scheduled_at` is the job's slot, None for an ad-hoc run.

    `cancelled` is set when the attempt is to stop. An async handler is cancelled as well; a sync one has to look, with
    `run.cancelled.is_set()` or, instead of sleeping, `run.cancelled.wait(seconds)`.
    """

    id: int
    job_id: int | None
    scheduled_at: datetime | None
    attempt: int
    token: UUID
    cancelled: threading.Event = field(default_factory=Signal, repr=False, compare=False)
    task: str = ""
    queue: str = "default"
    max_attempts: int = 1
    own: Own = field(default_factory=Own, repr=False, compare=False)
    # takes what the attempt says, by `write` and `progress`: a Record of execute.output, or None
    record: Any = field(default=None, repr=False, compare=False)

    def log(self, text: str, **fields: Any) -> None:
        """Add a line to the run's output, with `name=value` after it for each field. Shown by `pgsched run logs`."""
        if self.record is not None:
            self.record.write("log", log_line(text, fields))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far it is: `done` of `total`, and a word about it. Written about once a second, however often it is
        called. Raises TypeError or ValueError where `done` or `total` is no number from 0 on."""
        if not (0 <= done < INFINITE and (total is None or 0 <= total < INFINITE)):
            raise ValueError(f"progress: expected finite numbers from 0 on, got {done!r} and {total!r}")
        if self.record is not None:
            self.record.progress(done, total, note)

    @property
    def deadline(self) -> float | None:
        """When the attempt times out, as `time.monotonic()` of this host; None without a timeout."""
        return self.own.deadline

    def seconds_left(self) -> float | None:
        """Seconds until the attempt times out (at least 0); None without a timeout."""
        return self.own.seconds_left()

    def extend(self, seconds: float) -> float | None:
        """Let this attempt time out so many seconds later; returns the seconds left, None without a timeout.

        The lease needs no such call: the worker renews it. ValueError for a number that is not above 0; PgschedError
        when the attempt has been told to stop already.
        """
        return self.own.extend(seconds)

    def assert_claim(self, conn: Any) -> Any:
        """Make the caller's transaction fail with ClaimLost unless this attempt still owns the run, and keep it owned
        until that transaction ends.

        `conn`: a psycopg connection, an SQLAlchemy Connection or Session, or the async form of one of them: then
        `await run.assert_claim(conn)`. InputError if no transaction is or would be open.
        """
        return handler_transaction.assert_claim(conn, self.id, self.token)

    def transaction(self, conn: Any = None) -> Transaction:
        """`with run.transaction() as conn:` (or `async with`): what is written on `conn` and the success of the run are
        committed together, or neither.

        Without `conn` a psycopg connection to the scheduler's database is opened for it. One of the caller's has to be
        outside of any transaction; for `async with` it is an AsyncConnection. ClaimLost, and nothing is written, if
        the attempt does not own the run any more. After the block the run is settled: what the handler returns is not
        kept (see `set_result`), and what it raises is only logged.
        """
        return Transaction(self.own, self.id, self.token, conn)

    def parents(self) -> list[Parent]:
        """The runs that this one waited for, the oldest first, with their results: one query, on a connection of its
        own. They are kept as long as this run has not ended. TaskError outside of a worker."""
        with connect(self._dsn("parents"), purpose="handler") as conn:
            return dependencies.parents(conn, self.id)

    async def parents_async(self) -> list[Parent]:
        """The asyncio form of `parents`."""
        async with await aconnect(self._dsn("parents_async"), purpose="handler") as conn:
            return await dependencies.parents_async(conn, self.id)

    def results(self) -> list[Any]:
        """What those runs have returned, the oldest first, without those that did not succeed."""
        return [parent.result for parent in self.parents() if parent.state == "succeeded"]

    async def results_async(self) -> list[Any]:
        """The asyncio form of `results`."""
        return [parent.result for parent in await self.parents_async() if parent.state == "succeeded"]

    def _dsn(self, what: str) -> str:
        if self.own.dsn is None:
            raise TaskError(f"{what}: only a run that a worker made has parents")
        return self.own.dsn

    def set_result(self, value: Any) -> None:
        """The run's result, inside of `run.transaction()`: any JSON value. TaskError if it is none, or outside."""
        if not self.own.inside:
            raise TaskError("set_result: only inside of run.transaction(); elsewhere return the value")
        try:
            payload.encode(value)
        except ValueError as error:
            raise TaskError(f"set_result: {type(value).__name__} {error}") from None
        self.own.result = value

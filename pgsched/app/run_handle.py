"""The handle of a run: read it, wait for it, and change it, from the program that enqueued it or from any other.

Invariant: a handle holds no connection and nothing that could become old; it is the run's id. Each method asks the
database. A method without `connection` uses the app's own connection, outside of your transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from math import isnan
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from pgsched.app import arguments
from pgsched.app.control import refuse_waiting
from pgsched.core.lifecycle import ENDED_STATES
from pgsched.core.model import EnqueueResult, RunId, State
from pgsched.core.run_info import LogLine, RunInfo, RunOutcome
from pgsched.errors import CHANGED, InputError, RunFailed, RunGone, TaskError

if TYPE_CHECKING:
    from pgsched.app.base import AppBase
    from pgsched.app.task import Task
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn

R = TypeVar("R", covariant=True)  # noqa: PLC0105  one name for it in all signatures
T = TypeVar("T")
Timeout = float | timedelta | None
WAIT_S = 30.0
LONGEST_S = 10 * 365 * 86400.0


class RunUseCases(Protocol):
    """What a handle can do, as functions of a connection and a run's id: the module pgsched.client.use_cases."""

    def read_info(self, conn: Any, run_id: int, /) -> RunInfo:
        """Return all that is known about the run."""

    def find_ended(self, conn: Any, ids: Sequence[int], /) -> dict[int, str | None]:
        """Return the states of those of these runs that have ended; None for a run that does not exist."""
        ...

    def find_outcome(self, conn: Any, run_id: int, /) -> RunOutcome | None:
        """Return how the run has ended, or its state so far."""

    def read_log(self, conn: Any, run_id: int, attempt: int | None, stream: str | None, /) -> list[LogLine]:
        """Return what the run has printed and logged."""

    def cancel(self, conn: Any, run_id: int, why: str | None, /) -> State:
        """Cancel the run, or ask its worker to stop it."""

    def retry(self, conn: Any, run_id: int, now: bool, /) -> State:
        """Revive the run."""

    def update(self, conn: Any, run_id: int, priority: int | None, at: datetime | None, queue: str | None, /) -> State:
        """Change the run before it starts."""

    def explain_waiting(self, conn: Any, run_id: int, /) -> str:
        """Return why the run has not ended."""


class RunHandle(RunId, Generic[R]):
    """A run, as `task.enqueue` and `app.run(id)` return it. It is an int: the run's id.

    `how`, `created`: what the enqueue did (see `RunId`).

    Each method has a form with `_async` for asyncio. `connection`: ask or act in your own transaction, on a psycopg
    connection, or on a SQLAlchemy connection or session of any PostgreSQL driver. Methods raise NotFound where there is
    no such run, and DatabaseUnreachable.
    """

    _app: AppBase

    def __new__(cls, run_id: int, app: AppBase, how: EnqueueResult = "created") -> RunHandle[R]:
        """Make the handle of a run."""
        handle = super().__new__(cls, run_id, how)
        handle._app = app
        return handle

    def __reduce__(self) -> tuple[Any, ...]:
        return RunId, (int(self), self.how)  # another process has another app: app.run(id) makes a handle there

    # ---- read

    def state(self, *, connection: SyncConn | None = None) -> State:
        """Return the run's state."""
        return self.info(connection=connection).state

    async def state_async(self, *, connection: AsyncConn | None = None) -> State:
        """Return the run's state."""
        return (await self.info_async(connection=connection)).state

    def info(self, *, connection: SyncConn | None = None) -> RunInfo:
        """Return all that is known about the run: state, times, progress, attempts and more."""
        return self._app.database.call(connection, lambda conn: self._app.use_cases.read_info(conn, self))

    async def info_async(self, *, connection: AsyncConn | None = None) -> RunInfo:
        """Return all that is known about the run."""
        return await self._app.database.call_async(connection, lambda conn: self._app.use_cases.read_info(conn, self))

    def logs(
        self, *, attempt: int | None = None, stream: str | None = None, connection: SyncConn | None = None
    ) -> list[LogLine]:
        """Return what the run has printed and logged so far, the oldest first.

        `attempt`: only of this attempt. `stream`: only `stdout`, `stderr` or `log`. What a handler prints is kept if
        its task has `capture=True`.
        """
        return self._app.database.call(
            connection, lambda conn: self._app.use_cases.read_log(conn, self, attempt, stream)
        )

    async def logs_async(
        self, *, attempt: int | None = None, stream: str | None = None, connection: AsyncConn | None = None
    ) -> list[LogLine]:
        """Return what the run has printed and logged so far, the oldest first."""
        return await self._app.database.call_async(
            connection, lambda conn: self._app.use_cases.read_log(conn, self, attempt, stream)
        )

    # ---- wait

    def wait(self, timeout: Timeout = WAIT_S) -> State:
        """Wait until the run has ended; return its state.

        `timeout`: seconds or a timedelta; None waits without limit. Raises TimeoutError, RunGone where there is no such
        run, and PgschedError inside a handler.
        """
        refuse_waiting("wait")
        states = self._app.waiter.wait([self], seconds_of(timeout))
        if not states:
            return self._app.database.call(None, self._look_at_last)
        return self._ended(states[self])

    async def wait_async(self, timeout: Timeout = WAIT_S) -> State:
        """Wait until the run has ended, without blocking the event loop; return its state."""
        refuse_waiting("wait_async")
        states = await self._app.waiter.wait_async([self], seconds_of(timeout))
        if not states:
            return await self._app.database.call_async(None, self._look_at_last)
        return self._ended(states[self])

    @overload
    def result(self: RunHandle[Coroutine[Any, Any, T]], timeout: Timeout = WAIT_S) -> T: ...
    @overload
    def result(self: RunHandle[R], timeout: Timeout = WAIT_S) -> R: ...
    def result(self, timeout: Timeout = WAIT_S) -> Any:
        """Wait until the run has ended; return what its handler returned, as the type of its return annotation.

        A run that is retried before its result was read is awaited again, within the time limit.
        Raises RunFailed where it did not succeed, TaskError where what it returned does not fit the annotation, and
        what `wait` raises.
        """
        left = limit(timeout)
        while True:
            self.wait(left())
            outcome = self._app.database.call(None, lambda conn: self._app.use_cases.find_outcome(conn, self))
            if not goes_on(outcome):
                return self._value(outcome)

    @overload
    async def result_async(self: RunHandle[Coroutine[Any, Any, T]], timeout: Timeout = WAIT_S) -> T: ...
    @overload
    async def result_async(self: RunHandle[R], timeout: Timeout = WAIT_S) -> R: ...
    async def result_async(self, timeout: Timeout = WAIT_S) -> Any:
        """Wait like `result`, without blocking the event loop; return what the handler returned."""
        left = limit(timeout)
        while True:
            await self.wait_async(left())
            outcome = await self._app.database.call_async(
                None, lambda conn: self._app.use_cases.find_outcome(conn, self)
            )
            if not goes_on(outcome):
                return self._value(outcome)

    # ---- change

    def cancel(self, why: str | None = None, *, connection: SyncConn | None = None) -> State:
        """Cancel the run, or ask its worker to stop it; return its state after that.

        The state is `running` while the worker stops it. A run that has ended stays as it is.
        """
        return self._app.database.call(
            connection, lambda conn: self._app.use_cases.cancel(conn, self, why), maybe=CHANGED
        )

    async def cancel_async(self, why: str | None = None, *, connection: AsyncConn | None = None) -> State:
        """Cancel the run, or ask its worker to stop it; return its state after that."""
        return await self._app.database.call_async(
            connection, lambda conn: self._app.use_cases.cancel(conn, self, why), maybe=CHANGED
        )

    def retry(self, *, now: bool = False, connection: SyncConn | None = None) -> State:
        """Revive the run after it has ended without success; return its state after that.

        `now`: start it even if runs that it waited for did not succeed. Raises InputError for a run in another state.
        """
        return self._app.database.call(
            connection, lambda conn: self._app.use_cases.retry(conn, self, now), maybe=CHANGED
        )

    async def retry_async(self, *, now: bool = False, connection: AsyncConn | None = None) -> State:
        """Revive the run after it has ended without success; return its state after that."""
        return await self._app.database.call_async(
            connection, lambda conn: self._app.use_cases.retry(conn, self, now), maybe=CHANGED
        )

    def update(
        self,
        *,
        priority: int | None = None,
        at: datetime | None = None,
        queue: str | None = None,
        connection: SyncConn | None = None,
    ) -> State:
        """Change the run before it starts; return its state after that. What is None stays as it is.

        `priority`: 0 to 9, lower goes first. `at`: when it is due, with a time zone. Raises InputError for a wrong
        value, and for a run that runs or has ended.
        """
        return self._app.database.call(
            connection, lambda conn: self._app.use_cases.update(conn, self, priority, at, queue), maybe=CHANGED
        )

    async def update_async(
        self,
        *,
        priority: int | None = None,
        at: datetime | None = None,
        queue: str | None = None,
        connection: AsyncConn | None = None,
    ) -> State:
        """Change the run before it starts; return its state after that."""
        return await self._app.database.call_async(
            connection, lambda conn: self._app.use_cases.update(conn, self, priority, at, queue), maybe=CHANGED
        )

    def _ended(self, state: str | None) -> State:
        if state is None:
            raise RunGone(f"there is no run {int(self)} here: pruned, never committed, or not for this login to see")
        return State(state)

    def _look_at_last(self, conn: Any) -> State:
        """Return the state of a run that has ended at the end of a wait. Raises TimeoutError for one that goes on."""
        outcome = self._app.use_cases.find_outcome(conn, self)
        state = self._ended(None if outcome is None else outcome.state)
        if state not in ENDED_STATES:
            why = self._app.use_cases.explain_waiting(conn, self)
            raise TimeoutError(f"run {int(self)} has not ended in time: {why}")
        return state

    def _value(self, outcome: RunOutcome | None) -> Any:
        """Return the handler's value from an outcome. Raises RunFailed or RunGone."""
        state = self._ended(None if outcome is None else outcome.state)
        assert outcome is not None
        if state is not State.SUCCEEDED:
            error, reason = outcome.error, outcome.reason  # an attempt before a cancel may have failed
            why = (error or reason) if state is State.DEAD else (reason or error)
            raise RunFailed(int(self), state, why, outcome.traceback if why == outcome.error else None)
        task = self._app.tasks.get(outcome.task or "")
        return outcome.result if task is None else decode_result(task, outcome.result)


def seconds_of(timeout: Timeout) -> float | None:
    """Return a time limit in seconds; None if there is none. Raises InputError."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or isnan(seconds):
        raise InputError(f"timeout: expected seconds, a timedelta or None, got {timeout!r}", "timeout")
    return float(min(max(0, seconds), LONGEST_S))


def limit(timeout: Timeout) -> Callable[[], float | None]:
    """Return a function that returns how many seconds of a time limit are left. Raises InputError."""
    seconds, began = seconds_of(timeout), time.monotonic()
    return lambda: None if seconds is None else began + seconds - time.monotonic()


def goes_on(outcome: RunOutcome | None) -> bool:
    """Check whether a run has not ended."""
    return outcome is not None and State(outcome.state) not in ENDED_STATES


def decode_result(task: Task[..., Any], result: Any) -> Any:
    """Return a result, given as JSON, as the type of the task's return annotation; of a batched task, as it is.

    Raises TaskError if it does not fit: another release of the task may have returned another type.
    """
    codec = None if task.gathering is not None else arguments.find_result_codec(task.function)
    try:
        return result if codec is None else codec.decode(result, "result")
    except ValueError as error:
        raise TaskError(f"task {task.name}: {error}") from None

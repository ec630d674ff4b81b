"""The rule: names in rows never import code; only handlers that this process registered are run.

Async handlers run on the worker's loop, sync ones in a thread, and either in a child process where `run_in` says so.
Outside of one, a handler that does not stop when it is told to cannot be killed: it is left behind and counted for as
long as it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pgsched.app.app_location import Homed
from pgsched.app.control import Control, Own
from pgsched.app.hooks import Hooks, caught, in_thread
from pgsched.app.run import Run
from pgsched.app.signals import Kinds
from pgsched.core.model import Claim, Key, Kind, Outcome, Result, Unreadable
from pgsched.db.connection.handler_pool import idle
from pgsched.db.queries.runs import handler_transaction
from pgsched.errors import Crashed, TaskError, TimedOut
from pgsched.execute.base import ITSELF, Places, Stopped, kill_after_s
from pgsched.execute.outcomes import failed, never_fits, refused, succeeded
from pgsched.execute.output.record import Journal, Record
from pgsched.execute.output.streams import Streams, capturing
from pgsched.execute.process_pool.pool import Pool
from pgsched.execute.python.batches import Batches
from pgsched.execute.python.handler import Call, Handler, InlineHandler
from pgsched.threads import Signal, Threads

Misfit = Callable[[str, str], Awaitable[Outcome]]  # of this task, for this reason
TASK = Kind.TASK.value  # a member costs more to compare with than a text
LAST_WORDS_S = 5.0
LAST_STATEMENT_S = 2.0


class PythonExecutor:
    """Runs the handlers of one app."""

    def __init__(
        self,
        tasks: Mapping[str, Handler],
        concurrency: int,
        app: Homed | None = None,
        journal: Journal | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """`app` is where child processes find the same tasks; without it only the loop and threads can be used."""
        self._tasks = tasks
        self._pool = Pool(concurrency, app)
        self._threads: Threads[Any] = Threads(concurrency)
        self.batches = Batches(tasks, self._threads, self._abandon, self._tell)
        self._hooks = hooks or Hooks()
        self._telling: set[asyncio.Task[None]] = set()
        self._journal = journal or Journal()
        self._streams = Streams()
        self._control_of: Callable[[Key], Control | None] = lambda key: None
        self._dsn: str | None = None
        self._misfit: Misfit = never_fits
        self.abandoned = 0

    def execute(self, claim: Claim) -> Coroutine[Any, Any, Outcome]:
        handler = self._tasks.get(claim.task)
        if handler is None:
            return unknown(claim)
        if handler.gathering is not None:
            return self.batches.execute(claim, handler, handler.gathering, run_of(claim, None, self._own(claim)))
        if handler.takes_run or handler.capture or self._hooks.per_run:
            return self._recorded(claim, handler, self._journal.record(claim))
        return self._attempt(claim, handler, None)

    @property
    def gathered(self) -> frozenset[str]:
        """The tasks of which one call serves many attempts."""
        return self.batches.gathered

    def call_in(self, places: Places) -> None:
        """Have such calls take places of this worker."""
        self.batches.places = places

    def inline_handler(self, claim: Claim) -> InlineHandler | None:
        """The handler that makes this attempt, if it needs nothing but its arguments and the Run, and they fit."""
        handler = self._tasks.get(claim.task) if claim.kind == TASK else None
        if handler is None or self._hooks.per_run:
            return None
        names, args = handler.inline_names, claim.args
        fits = names is not None and type(args) is dict and handler.required <= args.keys() <= names
        return handler if fits else None

    def run_for(self, claim: Claim, control: Control) -> Run:
        """The Run of an attempt that is made without `execute`."""
        return run_of(claim, self._journal.record(claim), Own(control, self._dsn))

    async def _recorded(self, claim: Claim, handler: Handler, record: Record) -> Outcome:
        try:
            if handler.capture and handler.place.run_in != "process":
                self._streams.install()
                with capturing(record):
                    outcome = await self._attempt(claim, handler, record)
            else:
                outcome = await self._attempt(claim, handler, record)
        except asyncio.CancelledError as error:
            raise stopped(error, record) from None
        finally:
            record.close()
        return end_record(outcome, record)

    async def _attempt(self, claim: Claim, handler: Handler, record: Record | None) -> Outcome:
        if isinstance(claim.args, Unreadable):
            return refused(f"args: {claim.args.reason}")
        apart, own = handler.place.run_in == "process", None
        if handler.takes_run or self._hooks.per_run:
            own = self._own(claim)
        run = None if own is None or apart else run_of(claim, record, own)
        try:
            call = handler.prepare(claim.args, run)
        except TaskError as error:
            return await self._misfit(claim.task, str(error))
        if apart:
            return await self._pool.execute(claim, handler.place.memory_mb, record, own)
        if run is not None and self._hooks.per_run:
            return await self._hooked(handler, call, run, grace_of(claim, handler))
        if not handler.is_async:
            try:
                job = self._threads.submit(lambda: called(call, handler.no_retry))
            except RuntimeError as error:  # no thread is to be had: that is no death of any process
                return refused(f"{error}", retry=True)
            outcome: Outcome = await self.watch(job, run, grace_of(claim, handler))
            return outcome
        return await on_loop(handler, call if run is None else lambda: _telling(call(), run))

    def code_of(self, task: str) -> types.CodeType | None:
        """The code of a task's function, as a stack shows it; None if there is none."""
        handler = self._tasks.get(task)
        code = None if handler is None else getattr(inspect.unwrap(handler.function), "__code__", None)
        return code if isinstance(code, types.CodeType) else None

    async def _hooked(self, handler: Handler, call: Call, run: Run, grace_s: float) -> Outcome:
        """The attempt with the app's middleware around it; who wants to know is told of its failure."""
        hooks = self._hooks
        inner = call if handler.is_async else partial(self._plainly, hooks.call_of_plain(run, call), run, grace_s)
        failure: BaseException
        try:
            work = cast(Coroutine[Any, Any, Any], hooks.call_of_all(run, inner)())
            return succeeded(await _telling(work, run))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            failure = error
        except BaseException as error:
            failure = error
        await self._tell(run, failure)
        return failed(failure, handler.no_retry)

    async def _plainly(self, call: Call, run: Run, grace_s: float) -> Any:
        value, error = await self.watch(self._threads.submit(lambda: caught(call)), run, grace_s)
        if error is not None:
            raise error
        return value

    async def _tell(self, run: Run, error: BaseException) -> None:
        """Tell who wants to know that an attempt failed."""
        await self._hooks.tell(run, error, self._aside)

    async def _aside(self, call: Call) -> Any:
        return await in_thread(self._threads, call)

    def ended_badly(self, claim: Claim, outcome: Outcome) -> None:
        """An attempt timed out or took its process down: tell who wants to know, as no exception of it can."""
        if self._hooks.on_error:
            error = (TimedOut if outcome.result is Result.TIMED_OUT else Crashed)(outcome.error or "")
            told = self._hooks.tell(run_of(claim, None, Own()), error, self._aside)
            task = asyncio.get_running_loop().create_task(told)
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    def _own(self, claim: Claim) -> Own:
        return Own(self._control_of(claim.key), self._dsn)

    def attach(self, control_of: Callable[[Key], Control | None], dsn: str, misfit: Misfit = never_fits) -> None:
        """Belong to a worker: what handlers may ask of it about their attempts, the scheduler's database, and what
        becomes of a run whose arguments do not fit."""
        self._control_of, self._dsn, self._misfit = control_of, dsn, misfit

    async def close(self) -> None:
        if self._telling:
            await asyncio.wait(self._telling, timeout=LAST_WORDS_S)
        self._threads.close()
        self._streams.remove()
        await self._pool.close()
        if self._dsn is not None:
            await idle(self._dsn).close()

    async def watch(self, work: asyncio.Future[Any], run: Run | None, grace_s: float) -> Any:
        """Wait for a call in a thread. One that is to stop is given so many seconds for it, and then left behind."""
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if run is not None:
                run.cancelled.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({work}, timeout=grace_s)
                if run is not None and run.own.conn is not None and not work.done():
                    await handler_transaction.interrupt(run.own.conn)
                    await asyncio.wait({work}, timeout=LAST_STATEMENT_S)
            if not work.done():
                self._abandon(work)
            raise

    def _abandon(self, work: asyncio.Future[Any]) -> None:
        self.abandoned += 1

        def ended(_: object) -> None:
            self.abandoned -= 1

        work.add_done_callback(ended)


async def on_loop(handler: Handler, call: Callable[[], Awaitable[Any]]) -> Outcome:
    """The outcome of a call of an async handler."""
    # SystemExit and KeyboardInterrupt must not leave this coroutine: a task that raises them ends the whole loop.
    try:
        return succeeded(await call())
    except BaseException as error:
        return raised(error, handler, from_outside=True)


async def unknown(claim: Claim) -> Outcome:
    """The outcome of an attempt at a task that is not registered here."""
    return refused(f"task: this worker knows no task named {claim.task[:100]!r}", retry=True)


def grace_of(claim: Claim, handler: Handler) -> float:
    """How many seconds to wait for a handler that is to stop: only one that was given the Run can see `cancelled`."""
    return kill_after_s(claim) if handler.takes_run else 0.0


def run_of(claim: Claim, record: Record | None, own: Own) -> Run:
    """What a handler is told of its attempt."""
    return Run(claim.id, claim.job_id, claim.scheduled_at, claim.attempt, claim.token, Signal(),
               claim.task, claim.queue, claim.max_attempts, own, record)  # fmt: skip


async def _telling(work: Coroutine[Any, Any, Any], run: Run) -> Any:
    """`await work`, but that the Run says that it is cancelled before the handler is told."""
    try:
        waiting = work.send(None)
    except StopIteration as end:
        return end.value
    return await going_on(work, waiting, run)


@types.coroutine
def going_on(work: Coroutine[Any, Any, Any], waiting: Any, run: Run | None = None) -> Generator[Any, Any, Any]:
    """`await work`, which has come to the point where it waits for this."""
    step: Callable[[Any], Any]
    value: Any
    while True:
        try:
            step, value = work.send, (yield waiting)
        except BaseException as error:
            if run is not None and isinstance(error, asyncio.CancelledError) and is_cancelled():
                run.cancelled.set()
            here = error.__traceback__  # this line, which is none of the handler's
            step, value = work.throw, error.with_traceback(here.tb_next if here is not None else None)
        try:
            waiting = step(value)
        except StopIteration as end:
            return end.value


def raised(
    error: BaseException, handler: InlineHandler, record: Record | None = None, *, from_outside: bool
) -> Outcome:
    """The outcome of a call that raised this. Raises it, if that is how its task was cancelled `from_outside`; with
    what the attempt has said."""
    if isinstance(error, asyncio.CancelledError) and is_cancelled():
        if from_outside:
            raise error if record is None else stopped(error, record)
        return Outcome(Result.FAILED, error=ITSELF)
    return failed(error, handler.no_retry)


def stopped(error: asyncio.CancelledError, record: Record) -> asyncio.CancelledError:
    """How an attempt was cancelled, with what it has said."""
    record.close()
    return Stopped(record.output.text()) if record.said else error


def end_record(outcome: Outcome, record: Record) -> Outcome:
    """Take no more of what an attempt says that has ended: its outcome, with what it has said."""
    record.close()
    return replace(outcome, log_tail=record.output.text()) if record.said else outcome


def is_cancelled() -> bool:
    """Has this very task been cancelled, rather than a handler raised CancelledError by itself?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def called(call: Call, no_retry: Kinds) -> Outcome:
    """The outcome of a call of a plain function."""
    try:
        return succeeded(call())
    except BaseException as error:
        return failed(error, no_retry)

"""The executor of kind `task`: runs the Python handlers that an app has registered.

Invariant: a task's name in a row never imports code; only handlers that this process registered are run.

Async handlers run on the worker's event loop and plain ones in a thread. Either kind runs in a child process where
`run_in` says so.

Outside of a child process a handler that does not stop cannot be killed. It is abandoned, and counted in `abandoned`
until it ends.
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

from pgsched.app.app_location import LocatedApp
from pgsched.app.control import AttemptState, Control
from pgsched.app.hooks import Hooks, call_catching, in_thread
from pgsched.app.rules.retrying import RetryRule
from pgsched.app.run import Run
from pgsched.core.model import Claim, Key, Kind, Outcome, Result, Unreadable
from pgsched.core.schedule.slot_text import SlotTerms
from pgsched.db.connection.handler_pool import idle
from pgsched.db.queries.runs import handler_transaction
from pgsched.errors import Crashed, TaskError, TimedOut
from pgsched.execute.base import CANCELLED_ITSELF, AttemptCancelled, Places, get_kill_after_s
from pgsched.execute.outcomes import outcome_of_error, outcome_of_value, refusal_outcome, refuse_misfit
from pgsched.execute.output.record import Journal, Record
from pgsched.execute.output.streams import Streams, capturing
from pgsched.execute.process_pool.pool import Pool
from pgsched.execute.python.batches import Batches
from pgsched.execute.python.handler import Call, Handler, InlineHandler
from pgsched.threads import LazyEvent, Threads

Misfit = Callable[[str, str], Awaitable[Outcome]]  # called with the task's name and the reason
TASK = Kind.TASK.value  # comparing with a plain string is faster than with the enum's member
LAST_WORDS_S = 5.0
LAST_STATEMENT_S = 2.0


class PythonExecutor:
    """The executor of the handlers of one app."""

    def __init__(
        self,
        tasks: Mapping[str, Handler],
        concurrency: int,
        app: LocatedApp | None = None,
        journal: Journal | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """Prepare the executor.

        `app`: where child processes find the same tasks. Without it only the event loop and threads can be used.
        """
        self._tasks = tasks
        self._pool = Pool(concurrency, app)
        self._threads: Threads[Any] = Threads(concurrency)
        self.batches = Batches(tasks, self._threads, self._abandon, self._tell)
        self._hooks = hooks or Hooks()
        self._error_tasks: set[asyncio.Task[None]] = set()
        self._journal = journal or Journal()
        self._streams = Streams()
        self._control_of: Callable[[Key], Control | None] = lambda key: None
        self._dsn: str | None = None
        self._misfit: Misfit = refuse_misfit
        self.abandoned = 0

    def execute(self, claim: Claim) -> Coroutine[Any, Any, Outcome]:
        """Return the coroutine that makes one attempt in the way its handler needs."""
        handler = self._tasks.get(claim.task)
        if handler is None:
            return refuse_unknown_task(claim)
        if handler.gathering is not None:
            return self.batches.execute(claim, handler, handler.gathering, run_of(claim, None, self._own(claim)))
        if handler.takes_run or handler.capture or self._hooks.per_run:
            return self._recorded(claim, handler, self._journal.record(claim))
        return self._attempt(claim, handler, None)

    @property
    def batched_tasks(self) -> frozenset[str]:
        """The names of the tasks whose handler serves many attempts in one call."""
        return self.batches.batched_tasks

    def call_in(self, places: Places) -> None:
        """Make the calls of batched handlers take their places from this worker."""
        self.batches.places = places

    def inline_handler(self, claim: Claim) -> InlineHandler | None:
        """Return the handler if it can make this attempt inline, else None.

        The handler must need only its arguments and the Run, and the arguments must fit.
        """
        handler = self._tasks.get(claim.task) if claim.kind == TASK else None
        if handler is None or self._hooks.per_run:
            return None
        names, args = handler.inline_names, claim.args
        fits = names is not None and type(args) is dict and handler.required <= args.keys() <= names
        return handler if fits else None

    def run_for(self, claim: Claim, control: Control) -> Run:
        """Return the Run of an attempt that is made inline, without `execute`."""
        return run_of(claim, self._journal.record(claim), AttemptState(control, self._dsn))

    async def _recorded(self, claim: Claim, handler: Handler, record: Record) -> Outcome:
        try:
            if handler.capture and handler.place.run_in != "process":
                self._streams.install()
                with capturing(record):
                    outcome = await self._attempt(claim, handler, record)
            else:
                outcome = await self._attempt(claim, handler, record)
        except asyncio.CancelledError as error:
            raise cancellation_with_output(error, record) from None
        finally:
            record.close()
        return end_record(outcome, record)

    async def _attempt(self, claim: Claim, handler: Handler, record: Record | None) -> Outcome:
        if isinstance(claim.args, Unreadable):
            return refusal_outcome(f"args: {claim.args.reason}")
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
            return await self._hooked(handler, call, run, thread_grace_s(claim, handler))
        if not handler.is_async:
            try:
                job = self._threads.submit(lambda: call_plain(call, handler.retry_rule, claim.attempt))
            except RuntimeError as error:  # no thread can be started: a failure, not a crash
                return refusal_outcome(f"{error}", retry=True)
            outcome: Outcome = await self.watch(job, run, thread_grace_s(claim, handler))
            return outcome
        awaited = call if run is None else lambda: _await_and_flag_cancellation(call(), run)
        return await run_on_loop(handler, claim.attempt, awaited)

    def code_of(self, task: str) -> types.CodeType | None:
        """Return the code object of a task's function, as a stack shows it, or None."""
        handler = self._tasks.get(task)
        code = None if handler is None else getattr(inspect.unwrap(handler.function), "__code__", None)
        return code if isinstance(code, types.CodeType) else None

    async def _hooked(self, handler: Handler, call: Call, run: Run, grace_s: float) -> Outcome:
        """Make the attempt with the app's middleware around it; call the on_error hooks if it fails."""
        hooks = self._hooks
        inner = call if handler.is_async else partial(self._plainly, hooks.call_of_plain(run, call), run, grace_s)
        failure: BaseException
        try:
            work = cast(Coroutine[Any, Any, Any], hooks.call_of_all(run, inner)())
            return outcome_of_value(await _await_and_flag_cancellation(work, run))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            failure = error
        except BaseException as error:
            failure = error
        await self._tell(run, failure)
        return outcome_of_error(failure, handler.retry_rule, run.attempt)

    async def _plainly(self, call: Call, run: Run, grace_s: float) -> Any:
        value, error = await self.watch(self._threads.submit(lambda: call_catching(call)), run, grace_s)
        if error is not None:
            raise error
        return value

    async def _tell(self, run: Run, error: BaseException) -> None:
        """Call the on_error hooks for an attempt that failed."""
        await self._hooks.tell(run, error, self._call_in_thread)

    async def _call_in_thread(self, call: Call) -> Any:
        return await in_thread(self._threads, call)

    def ended_badly(self, claim: Claim, outcome: Outcome) -> None:
        """Call the on_error hooks for an attempt that timed out or crashed: no exception reports either."""
        if self._hooks.on_error:
            error = (TimedOut if outcome.result is Result.TIMED_OUT else Crashed)(outcome.error or "")
            hook_calls = self._hooks.tell(run_of(claim, None, AttemptState()), error, self._call_in_thread)
            task = asyncio.get_running_loop().create_task(hook_calls)
            self._error_tasks.add(task)
            task.add_done_callback(self._error_tasks.discard)

    def _own(self, claim: Claim) -> AttemptState:
        return AttemptState(self._control_of(claim.key), self._dsn)

    def attach(self, control_of: Callable[[Key], Control | None], dsn: str, misfit: Misfit = refuse_misfit) -> None:
        """Connect this executor to its worker.

        - `control_of`: finds what a handler may ask of the worker about its attempt.
        - `dsn`: the scheduler's database.
        - `misfit`: decides the outcome of a run whose arguments do not fit.
        """
        self._control_of, self._dsn, self._misfit = control_of, dsn, misfit

    async def close(self) -> None:
        """Wait for running on_error hooks, then end threads, capture, child processes and idle connections."""
        if self._error_tasks:
            await asyncio.wait(self._error_tasks, timeout=LAST_WORDS_S)
        self._threads.close()
        self._streams.remove()
        await self._pool.close()
        if self._dsn is not None:
            await idle(self._dsn).close()

    async def watch(self, work: asyncio.Future[Any], run: Run | None, grace_s: float) -> Any:
        """Wait for a call in a thread; when cancelled, give it `grace_s` seconds to stop, then abandon it."""
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


async def run_on_loop(handler: Handler, attempt: int, call: Callable[[], Awaitable[Any]]) -> Outcome:
    """Return the outcome of a call of an async handler."""
    # SystemExit and KeyboardInterrupt must not leave this coroutine: a task that raises them ends the event loop.
    try:
        return outcome_of_value(await call())
    except BaseException as error:
        return outcome_of_raise(error, handler, attempt, from_outside=True)


async def refuse_unknown_task(claim: Claim) -> Outcome:
    """Return the outcome of an attempt at a task that this process has not registered."""
    return refusal_outcome(f"task: this worker knows no task named {claim.task[:100]!r}", retry=True)


def thread_grace_s(claim: Claim, handler: Handler) -> float:
    """Return how many seconds to wait for a plain handler that is to stop.

    It is 0 for a handler without the Run, because the handler cannot see `run.cancelled`.
    """
    return get_kill_after_s(claim) if handler.takes_run else 0.0


def run_of(claim: Claim, record: Record | None, own: AttemptState) -> Run:
    """Return the Run that a handler is given for this attempt."""
    return Run(claim.id, claim.job_id, claim.scheduled_at, claim.attempt, claim.token, LazyEvent(),
               claim.task, claim.queue, claim.max_attempts, own, record,
               None if claim.job_id is None else SlotTerms(claim.interval_start, claim.slot_zone))  # fmt: skip


async def _await_and_flag_cancellation(work: Coroutine[Any, Any, Any], run: Run) -> Any:
    """Await `work`, and set `run.cancelled` before a cancellation reaches the handler."""
    try:
        waiting = work.send(None)
    except StopIteration as end:
        return end.value
    return await continue_awaiting(work, waiting, run)


@types.coroutine
def continue_awaiting(work: Coroutine[Any, Any, Any], waiting: Any, run: Run | None = None) -> Generator[Any, Any, Any]:
    """Await `work`, which has already run up to its first wait; `waiting` is what it yielded there."""
    step: Callable[[Any], Any]
    value: Any
    while True:
        try:
            step, value = work.send, (yield waiting)
        except BaseException as error:
            if run is not None and isinstance(error, asyncio.CancelledError) and is_cancelled():
                run.cancelled.set()
            here = error.__traceback__  # the frame of this function, which is not the handler's
            step, value = work.throw, error.with_traceback(here.tb_next if here is not None else None)
        try:
            waiting = step(value)
        except StopIteration as end:
            return end.value


def outcome_of_raise(
    error: BaseException, handler: InlineHandler, attempt: int, record: Record | None = None, *, from_outside: bool
) -> Outcome:
    """Return the outcome of a call that raised this error.

    `attempt`: the attempt's number.
    `from_outside`: a cancellation of the current task came from the worker. It is raised again, with the output so far.
    """
    if isinstance(error, asyncio.CancelledError) and is_cancelled():
        if from_outside:
            raise error if record is None else cancellation_with_output(error, record)
        return Outcome(Result.FAILED, error=CANCELLED_ITSELF)
    return outcome_of_error(error, handler.retry_rule, attempt)


def cancellation_with_output(error: asyncio.CancelledError, record: Record) -> asyncio.CancelledError:
    """Close the record, and return the cancellation together with the attempt's output."""
    record.close()
    return AttemptCancelled(record.output.text()) if record.has_output else error


def end_record(outcome: Outcome, record: Record) -> Outcome:
    """Close the record of an ended attempt, and return the outcome with the attempt's output."""
    record.close()
    return replace(outcome, log_tail=record.output.text()) if record.has_output else outcome


def is_cancelled() -> bool:
    """Check whether the current task was cancelled, as opposed to a handler that raised CancelledError itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def call_plain(call: Call, rule: RetryRule, attempt: int) -> Outcome:
    """Return the outcome of a call of a plain function."""
    try:
        return outcome_of_value(call())
    except BaseException as error:
        return outcome_of_error(error, rule, attempt)

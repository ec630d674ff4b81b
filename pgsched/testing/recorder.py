"""The recorder: it takes the place of an app's database in a test.

Invariant: a recorded run holds the arguments of `enqueue`, checked and carried as JSON as always. The recorder keeps
unique and idempotency keys as the database does. It runs a handler in the test's process, once, and raises in the test
what the handler raises.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn
from uuid import uuid4

from pgsched.app.declarations import JobDeclaration
from pgsched.app.options import INHERITED, OPTIONS
from pgsched.app.run import Run
from pgsched.app.signals import Discard, Retry, Snooze, consists_of, effective_error, format_error, wait_of
from pgsched.client.application import App
from pgsched.core import payload
from pgsched.core.model import EnqueueResult, FirstResult, RunId
from pgsched.core.schedule.cron import parse
from pgsched.errors import InputError
from pgsched.testing.clock import Clock
from pgsched.testing.found import Enqueued
from pgsched.testing.keys import Keys
from pgsched.testing.waits import Waits

Call = Callable[[], Any]
COLUMNS = ("queue", "priority", "tags", "max_attempts", "unique_key", "idempotency_key", "concurrency_key")


@contextmanager
def record(app: App, now: datetime | None = None) -> Iterator[Recorder]:
    """Record what the app enqueues in the block, and send nothing to a database; yield the recorder.

    `now`: the time at which the recorder's clock starts; by default the current time.
    """
    with _replace_database(app, Recorder(app, Clock(now))) as recorder:
        yield recorder


@contextmanager
def inline(app: App, now: datetime | None = None) -> Iterator[Recorder]:
    """Run what the app enqueues in the block, at once and whatever its delay; yield the recorder.

    `enqueue` raises what the handler raises. `now`: the time at which the recorder's clock starts.
    """
    with _replace_database(app, Recorder(app, Clock(now), inline=True)) as recorder:
        yield recorder


@contextmanager
def _replace_database(app: App, recorder: Recorder) -> Iterator[Recorder]:
    before: Any = app.database
    app.database = recorder  # type: ignore[assignment]
    try:
        yield recorder
    finally:
        app.database = before


class Recorder:
    """The runs of a test: `runs` holds them, oldest first, and `clock` is their time."""

    def __init__(self, app: App, clock: Clock, *, inline: bool = False) -> None:
        self.app = app
        self.clock = clock
        self.runs: list[Enqueued] = []
        self._inline = inline
        self._anchor_at = clock.now()
        self._keys = Keys(clock)
        self._waits: dict[int, Waits] = {}
        self._lock = threading.Lock()
        clock.listeners.append(self._enqueue_passed_slots)

    # ---- called by tests

    def travel(self, by: float | timedelta | None = None, *, to: datetime | None = None) -> datetime:
        """Move the clock like `Clock.travel`; each slot of the app's jobs that passes makes a run."""
        return self.clock.travel(by, to=to)

    def drain(self, queue: str | None = None, *, scheduled: bool = False) -> list[Enqueued]:
        """Run what is due, and what that enqueues, until nothing is due; return the runs in the order they ran.

        `queue`: run only this queue. `scheduled`: also run what is due later. Raises what a handler raises.
        """
        done: list[Enqueued] = []
        while (run := self._next(queue, scheduled)) is not None:
            self._run(run)
            done.append(run)
        return done

    async def drain_async(self, queue: str | None = None, *, scheduled: bool = False) -> list[Enqueued]:
        """Do the same as `drain`, without blocking the event loop."""
        done: list[Enqueued] = []
        while (run := self._next(queue, scheduled)) is not None:
            await self._run_async(run)
            done.append(run)
        return done

    # ---- called by the app, in place of its database

    def enqueue(self, conn: Any, values: dict[str, Any]) -> RunId:
        """Record a run, and run it at once if the recorder is inline; return its id."""
        run, how = self._put(values)
        if self._inline and how == "created":
            self._run(run)
        return RunId(run.id, how)

    async def enqueue_async(self, conn: Any, values: dict[str, Any]) -> RunId:
        """Do the same as `enqueue`, without blocking the event loop."""
        run, how = self._put(values)
        if self._inline and how == "created":
            await self._run_async(run)
        return RunId(run.id, how)

    def enqueue_many(self, conn: Any, args: Iterable[str], values: dict[str, Any]) -> int:
        """Record a run for each text of arguments; return how many."""
        return len([self.enqueue(conn, {**values, "args": text}) for text in list(args)])

    async def enqueue_many_async(self, conn: Any, args: Iterable[str], values: dict[str, Any]) -> int:
        """Do the same as `enqueue_many`, without blocking the event loop."""
        return len([await self.enqueue_async(conn, {**values, "args": text}) for text in list(args)])

    def first_result(self, key: str) -> FirstResult | None:
        """Return the outcome of the run that an idempotency key stands for, or None."""
        run = self._keys.first(key)
        return None if run is None else FirstResult(run.id, run.state, run.result, run.error, run.finished_at)

    async def first_result_async(self, key: str) -> FirstResult | None:
        """Return the same as `first_result`."""
        return self.first_result(key)

    def send(self, *_: Any) -> NoReturn:
        """Raise InputError: graphs, batches and progress need a database."""
        raise InputError("graphs and batches need a database: drain one in this test (docs/how-to/testing.md)")

    async def send_async(self, *_: Any) -> NoReturn:
        """Raise InputError like `send`."""
        self.send()

    def close(self) -> None:
        """Do nothing: there is no connection to close."""
        pass

    async def close_async(self) -> None:
        """Do nothing: there is no connection to close."""
        pass

    # ---- making runs

    def _put(self, values: dict[str, Any], slot: datetime | None = None) -> tuple[Enqueued, EnqueueResult]:
        with self._lock:
            now = self.clock.now()
            due = values["at"] or now + (values["delay"] or timedelta(0))
            met = self._keys.met(values, due)
            if met is not None:
                return met
            given = {name: values[name] for name in COLUMNS if values[name] is not None}
            run = Enqueued(len(self.runs) + 1, values["task"], json.loads(values["args"]), due, slot=slot, **given)
            self.runs.append(run)
            self._waits[run.id] = Waits(values["after"], values["after_any"], values["on_failure"])
            self._keys.keep(values, due, run)
            return run, "created"

    def _enqueue_passed_slots(self, before: datetime, now: datetime) -> None:
        slots = [(slot, job) for job in self.app.jobs for slot in slots_of(job, self._anchor_at, before, now)]
        for slot, job in sorted(slots, key=lambda each: each[0]):
            options = {name: job.policies[name] for name in INHERITED if name in job.policies}
            values = {**dict.fromkeys(OPTIONS), **options, "at": slot}
            self._put({**values, "task": job.task, "args": payload.encode(job.args)}, slot)
        if self._inline:
            self.drain()

    def _next(self, queue: str | None, scheduled: bool) -> Enqueued | None:
        now = self.clock.now()
        self._cancel_in_vain()
        states = {run.id: run.state for run in self.runs}
        waiting = [
            run
            for run in self.runs
            if run.state == "queued" and (scheduled or run.at <= now) and queue in (None, run.queue)
            and self._waits[run.id].are_met(states)
        ]  # fmt: skip
        return min(
            waiting, key=lambda run: (run.at if run.at > now else now, run.priority, run.at, run.id), default=None
        )

    def _cancel_in_vain(self) -> None:
        """Cancel runs whose parents ended without success, then the runs that wait for these: they come later."""
        states: dict[int, str] = {}
        for run in self.runs:
            if run.state == "queued" and self._waits[run.id].are_in_vain(states):
                run.state, run.finished_at = "cancelled", self.clock.now()
            states[run.id] = run.state

    # ---- running runs

    def _run(self, run: Enqueued) -> None:
        call, is_async = self._begin(run)
        try:
            self._succeeded(run, in_a_loop(call) if is_async else call())
        except BaseException as error:
            self._failed(run, error)

    async def _run_async(self, run: Enqueued) -> None:
        call, is_async = self._begin(run)
        try:
            self._succeeded(run, await call() if is_async else await asyncio.to_thread(call))
        except BaseException as error:
            self._failed(run, error)

    def _begin(self, run: Enqueued) -> tuple[Call, bool]:
        """Return the handler's call with the app's middleware around it, and whether to await it."""
        task, hooks = self.app.tasks[run.task], self.app.hooks
        run.state, run.attempt = "running", run.attempt + 1
        attempt = Run(
            run.id,
            None if run.slot is None else 1,
            run.slot,
            run.attempt,
            uuid4(),
            task=run.task,
            queue=run.queue,
            max_attempts=run.max_attempts,
        )
        call = task.prepare(run.args, attempt)
        if not task.is_async:
            call = hooks.call_of_plain(attempt, call)
        if not hooks.around_all:
            return call, task.is_async
        inner = call if task.is_async else partial(asyncio.to_thread, call)
        return hooks.call_of_all(attempt, inner), True

    def _succeeded(self, run: Enqueued, result: Any) -> None:
        run.result = json.loads(payload.encode(result))
        run.state, run.finished_at = "succeeded", self.clock.now()

    def _failed(self, run: Enqueued, error: BaseException) -> None:
        """Act on Snooze, Retry and Discard as a worker does; raise any other error in the test."""
        run.error, meant = format_error(error), effective_error(error)
        if isinstance(meant, Snooze) or (isinstance(meant, Retry) and run.attempt < run.max_attempts):
            run.attempt -= isinstance(meant, Snooze)
            run.state, run.at = "queued", self.clock.now() + (wait_of(meant) or timedelta(0))
            return
        run.state, run.finished_at = "dead", self.clock.now()
        if not (isinstance(meant, Retry) or consists_of(error, (Discard,))):
            raise error


def in_a_loop(call: Call) -> Any:
    """Run a coroutine and return its result; in a thread of its own if an event loop already runs in this one."""

    async def main() -> Any:
        return await call()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, main()).result()


def slots_of(job: JobDeclaration, anchor_at: datetime, before: datetime, now: datetime) -> list[datetime]:
    """Return a job's slots in the time that has passed; none for `@after`, which counts from the end of a run."""
    schedule = parse(job.schedule, job.timezone, anchor_at)
    return [] if schedule.fixed_delay is not None else list(schedule.between(before, now))

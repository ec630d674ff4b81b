"""An app that has the same handlers in all three places: on the event loop, in a thread and in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import multiprocessing
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched import App, Discard, Retry, Run, Snooze, TaskError

app = App("contract")
PLACES = ("loop", "thread", "process")


class NoSuchCustomer(ValueError):
    pass


def everywhere(name: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a handler in every place.

    The function itself becomes `name.thread` and `name.process`. An async function that calls it becomes `name.loop`
    and `name.process_async`.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        async def as_async(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        as_async.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        as_async.__annotations__ = function.__annotations__
        app.task(name=f"{name}.thread", **options)(function)
        app.task(name=f"{name}.process", run_in="process", **options)(function)
        app.task(name=f"{name}.loop", **options)(as_async)
        app.task(name=f"{name}.process_async", run_in="process", **options)(as_async)
        return function

    return register


@everywhere("snoozes")
def snoozes() -> None:
    raise Snooze(after=90, message="the market is closed")


class Busy(Retry):
    """A Retry without a time to wait: its constructor does not call that of its base class."""

    def __init__(self) -> None:
        pass


class Closed(Snooze):
    """A Snooze that sets `after` itself, unchecked: its constructor does not call that of its base class."""

    def __init__(self, after: Any) -> None:
        self.after = after


WAITS: dict[str, Callable[[], BaseException]] = {
    "nothing": Busy,
    "seconds": lambda: Closed(90),
    "nonsense": lambda: Closed("soon"),
}


@everywhere("says_in_its_own_way")
def says_in_its_own_way(what: str) -> None:
    raise WAITS[what]()


@everywhere("again_at_once")
def again_at_once() -> None:
    raise Retry(after=0)


RAISED: dict[str, Callable[[], BaseException]] = {
    "its own": lambda: NoSuchCustomer("7"),
    "another": lambda: OSError("disk"),
    "a group of its own": lambda: ExceptionGroup("several", [NoSuchCustomer("7"), NoSuchCustomer("8")]),
    "a mixed group": lambda: ExceptionGroup("several", [NoSuchCustomer("7"), OSError("disk")]),
    "a group of discards": lambda: ExceptionGroup("several", [Discard()]),
    "a retry": lambda: Retry(after=timedelta(seconds=5)),
}


@everywhere("picky", no_retry=ValueError)
def picky(which: str) -> None:
    raise RAISED[which]()


@everywhere("pickier", no_retry=(ValueError, Exception))
def pickier(which: str) -> None:
    raise RAISED[which]()


@everywhere("computed", retry_on=OSError, backoff=lambda attempt, error: 30 * attempt)
def computed(which: str) -> None:
    raise RAISED[which]()


TABLES = "CREATE TABLE public.written (run_id bigint, what text)"


def write(conn: psycopg.Connection[Any], run: Run, what: str) -> None:
    conn.execute("INSERT INTO public.written VALUES (%s, %s)", [run.id, what])


def is_written(dsn: str, what: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return conn.execute("SELECT FROM public.written WHERE what = %s", [what]).rowcount > 0


def wait_for(run: Run, what: str) -> bool:
    """Wait until a test has written this text; return False if the attempt must stop before, or after 60 seconds."""
    end = time.monotonic() + 60
    while not is_written(str(run.own.dsn), what):
        if run.cancelled.wait(0.05) or time.monotonic() > end:
            return False
    return True


@everywhere("transacts")
def transacts(run: Run, end: str = "well") -> str:
    with run.transaction() as conn:
        write(conn, run, "inside")
        run.set_result({"of": "the block"})
        if end == "raises inside":
            raise RuntimeError("no")
        if end == "waits inside":
            wait_for(run, "go")
        if end == "rolls back":
            raise psycopg.Rollback
    if end == "raises after":
        raise RuntimeError("too late")
    if end == "goes on":
        with psycopg.connect(str(run.own.dsn), autocommit=True) as mine:
            write(mine, run, "stopped" if not wait_for(run, "go") else "went on")
    return "returned"


@everywhere("forks")
def forks() -> int:
    """Fork a process with multiprocessing, terminate it, and return its exit code."""
    ours, theirs = os.pipe()
    made = multiprocessing.get_context("fork").Process(target=lambda: (os.write(theirs, b"x"), time.sleep(600)))
    made.start()
    os.read(ours, 1)
    made.terminate()
    made.join(10)
    code = made.exitcode
    made.kill()
    os.close(ours)
    os.close(theirs)
    return 0 if code is None else code


@app.task(name="transacts_async.loop")
async def transacts_async(run: Run, end: str = "well") -> None:
    async with run.transaction() as conn:
        await conn.execute("INSERT INTO public.written VALUES (%s, 'inside')", [run.id])
        run.set_result({"of": "the block"})
        if end == "raises inside":
            raise RuntimeError("no")


app.task(name="transacts_async.process", run_in="process")(transacts_async.function)


@everywhere("twice")
def twice(run: Run) -> None:
    with run.transaction(), pytest.raises(TaskError, match="one is open already"), run.transaction():
        pass
    with pytest.raises(TaskError, match="it has settled the run already"), run.transaction():
        pass


@everywhere("extends")
def extends(run: Run, seconds: float) -> list[float | None]:
    """Extend the timeout, and run longer than the original one; return the seconds left before and after."""
    before = run.seconds_left()
    after = run.extend(seconds)
    assert run.deadline is None or run.deadline > time.monotonic()
    end = time.monotonic() + (before or 0) + 0.5
    while time.monotonic() < end:
        if run.cancelled.wait(0.05):
            raise RuntimeError("it was stopped")
    return [before, after]


@app.task(name="blocks.loop")
async def blocks(run: Run) -> str:
    """Block the event loop until a test writes `go`."""
    return "let go" if wait_for(run, "go") else "stopped"


@app.task(name="blocks_below.loop")
async def blocks_below(run: Run) -> str:
    """Block the event loop in an asyncio task of the handler's own, until a test writes `go`."""

    async def below() -> str:
        return "let go" if wait_for(run, "go") else "stopped"

    return await asyncio.create_task(below())


@app.task(name="holds.thread")
def holds_the_interpreter(seconds: int) -> None:
    ctypes.PyDLL(None).sleep(seconds)


@app.task(name="spins.thread")
def spins(run: Run) -> None:
    """Run pure Python without a pause until the attempt must stop."""
    n = 0
    while not run.cancelled.is_set():
        n += 1


@app.task(name="stuck.thread")
def stuck() -> None:
    """Sleep for ever: a thread cannot be stopped from outside."""
    while True:
        time.sleep(3600)


@app.task(name="stays.loop")
async def stays(run: Run) -> None:
    """Ignore each cancellation, and never end."""
    with psycopg.connect(str(run.own.dsn), autocommit=True) as conn:
        write(conn, run, "started")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@app.task(name="stays_below.loop")
async def stays_below(run: Run) -> None:
    """Stop when cancelled, but leave a thread of the event loop's pool that sleeps on."""
    with psycopg.connect(str(run.own.dsn), autocommit=True) as conn:
        write(conn, run, "started")
    await asyncio.to_thread(time.sleep, 3600)


@app.task(name="dies.process", run_in="process")
def dies() -> None:
    os._exit(7)


@everywhere("waits")
def waits(run: Run) -> int:
    """Snooze until a test has written `go`; return the number of the attempt."""
    if not is_written(str(run.own.dsn), "go"):
        raise Snooze(0.1)
    return run.attempt


@everywhere("obeys")
def obeys(run: Run) -> None:
    """End as soon as the attempt must stop."""
    with psycopg.connect(str(run.own.dsn), autocommit=True) as conn:
        write(conn, run, "started")
    if not run.cancelled.wait(60):
        raise RuntimeError("nobody told me")


@app.task(name="sleeps_in_sql.thread")
def sleeps_in_sql(run: Run) -> None:
    with run.transaction() as conn:
        write(conn, run, "inside")
        conn.execute("SELECT pg_sleep(3600)")

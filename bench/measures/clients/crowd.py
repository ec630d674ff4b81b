"""`crowd`: sixteen clients enqueue runs one by one at the same time; what notifications cost them.

Commits that notify wait for each other on a lock of the whole server.

Invariant: each row of the table has a base that does the same, except that its trigger does not notify. Some rows use
sixteen connections of the caller. The others use the App's own connection, as most programs do: four processes of four
coroutines, with one connection per event loop. A round measures all rows; ratios are within a round.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.adapter import call, wait_for, workers
from bench.contestants import PGSCHED
from bench.report import Result, log_step, median, number
from bench.server import Server, scalar

AT_ONCE, PROCESSES = 16, 4
AWAKE, ASLEEP = "nobody is asleep", "a worker is asleep all the time"
SILENT, WORKER = "one `pgsched worker`, the trigger never notifies", "one `pgsched worker`, as it is"
OWN_SILENT, OWN = f"{SILENT}; the App's own connections", f"{WORKER}; the App's own connections"
BASES = {AWAKE: AWAKE, ASLEEP: AWAKE, SILENT: SILENT, WORKER: SILENT, OWN_SILENT: OWN_SILENT, OWN: OWN_SILENT}
START_S, LAST_WORDS_S = 10.0, 0.5


@dataclass(frozen=True)
class Crowd:
    """Enqueues per second, and the share of them that notified."""

    per_s: float
    notified: float


def crowd(server: Server, seconds: float, rounds: int) -> Result:
    """Measure each situation in each round."""
    columns = ["", "enqueued/s, 16 at once", "of the same without notifying", "that notified"]
    result = Result("crowd", f"{AT_ONCE} enqueue one by one for {seconds:g} s", columns)
    found: dict[str, list[Crowd]] = {name: [] for name in BASES}
    for number_of in range(rounds):
        for name, got in found.items():
            got.append(measure(server, name, seconds))
            log_step(f"crowd, round {number_of + 1}, {name}: {got[-1].per_s:,.0f}/s")
    for name, got in found.items():
        ratios = [one.per_s / base.per_s for one, base in zip(got, found[BASES[name]], strict=True)]
        result.rows.append(
            [
                name,
                number(median([one.per_s for one in got])),
                number(median(ratios) * 100, 0, " %"),
                number(median([one.notified for one in got]) * 100, 1, " %"),
            ]
        )
        result.data[name] = [one.per_s for one in got]
    return result


def measure(server: Server, name: str, seconds: float) -> Crowd:
    """Measure one situation in an empty database."""
    with server.database("crowd") as dsn:
        call(PGSCHED, "setup", dsn)
        with psycopg.connect(dsn, autocommit=True) as look, waiting(name, dsn, seconds) as ready:
            ready()
            look.execute("LISTEN pgsched_runs")
            made = enqueue_all(dsn, seconds, name in (OWN, OWN_SILENT))
            told = sum(1 for _ in look.notifies(timeout=LAST_WORDS_S))
            stored = scalar(look, "SELECT count(*) FROM pgsched.runs")
    if stored != made:
        raise AssertionError(f"crowd: {made} runs were enqueued, {stored} are in the database")
    return Crowd(made / seconds, told / made)


@contextmanager
def waiting(name: str, dsn: str, seconds: float) -> Iterator[Callable[[], object]]:
    """Set up the situation; yield a function that makes sure that it holds."""
    if name not in (AWAKE, ASLEEP):
        if name in (SILENT, OWN_SILENT):
            with psycopg.connect(dsn, autocommit=True) as conn:
                silence(conn)
        with workers(PGSCHED, dsn, 1, n=10_000_000) as started, psycopg.connect(dsn, autocommit=True) as conn:
            registered = "SELECT count(*) FROM pgsched.workers"
            yield lambda: wait_for(lambda: scalar(conn, registered) == 1, started, 60, "the worker", every_s=0.2)
        return
    asleep_s = seconds + 60 if name == ASLEEP else 0
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield lambda: conn.execute("SELECT setval('pgsched.asleep_until', CASE WHEN %(s)s = 0 THEN 0 ELSE"
                                   " (date_part('epoch', clock_timestamp()) + %(s)s)::bigint * 1000 END)",
                                   {"s": asleep_s})  # fmt: skip


def silence(conn: psycopg.Connection) -> None:
    """Replace the insert trigger by one that does not notify workers."""
    text = str(scalar(conn, "SELECT pg_get_functiondef('pgsched.runs_before_insert'::regproc)"))
    told = "told := pgsched.tell_workers(NEW.queue)"
    if text.count(told) != 1:
        raise AssertionError("crowd: the trigger's notification is not where it was")
    conn.execute(text.replace(told, "NULL").encode())


def enqueue_all(dsn: str, seconds: float, own: bool) -> int:
    """Return how many runs were enqueued in all; `own`: on the connections of the App."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(PROCESSES) as pool:
        begin = time.time() + START_S
        jobs = [(dsn, begin, begin + seconds, AT_ONCE // PROCESSES, own)] * PROCESSES
        return sum(pool.starmap(enqueue_some, jobs))


def enqueue_some(dsn: str, begin: float, until: float, at_once: int, own: bool) -> int:
    """Enqueue one process's share, between two times of the machine's clock."""
    return asyncio.run(several(dsn, begin, until, at_once, own))


async def several(dsn: str, begin: float, until: float, at_once: int, own: bool) -> int:
    from bench.peers.pgsched_app import app

    app.dsn = dsn
    connection = apps_own if own else callers
    try:
        return sum(await asyncio.gather(*[one_by_one(connection(dsn), begin, until) for _ in range(at_once)]))
    finally:
        await app.close_async()


@asynccontextmanager
async def callers(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Yield a connection to pass with each enqueue."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        yield conn


@asynccontextmanager
async def apps_own(_: str) -> AsyncIterator[None]:
    """Open the App's own connection; yield None, because no connection is passed."""
    from bench.peers.pgsched_app import app

    await app.first_result_async("nobody has this key")
    yield None


async def one_by_one(connection: AbstractAsyncContextManager[Any], begin: float, until: float) -> int:
    from bench.peers.pgsched_app import noop

    made = 0
    async with connection as conn:
        if time.time() > begin:
            raise AssertionError("crowd: the machine is too busy to start the enqueuers in time")
        await asyncio.sleep(begin - time.time())
        while time.time() < until:
            await noop.enqueue_async(connection=conn)
            made += 1
    return made

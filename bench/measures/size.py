"""`size`: what a run takes on disk and in WAL, and how many connections a worker has.

Invariant: the figures are of runs that a real worker has run, after a vacuum. Each row has a fresh database. Runs are
enqueued one by one, as by a program that serves requests; a slot is that of a job.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psycopg

from bench.report import Result, log_step, logs_from, number
from bench.server import Server, scalar
from pgsched import App, Run
from pgsched.db.schema.migrate import upgrade
from pgsched.leader.ticker import tick
from pgsched.testing import drain

LINE = "x" * 999
TABLES = ("runs", "attempts", "run_logs")
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgsched%%' AND datname = %s"
app = App("size")


@app.task(name="nothing")
def nothing(order: int) -> None: ...


@app.task(name="fails", max_attempts=2)
def fails(order: int) -> None:
    raise ValueError(f"order {order} has no customer")


@app.task(name="prints")
def prints(run: Run, order: int) -> None:
    run.log(LINE)


@dataclass(frozen=True)
class Taken:
    """Bytes per run: of each table with its indexes, and of WAL from the enqueue to the end."""

    runs: float
    attempts: float
    run_logs: float
    wal: float


def enqueued(task: str) -> Callable[[psycopg.Connection, int], None]:
    def make(conn: psycopg.Connection, n: int) -> None:
        for order in range(n):
            app.tasks[task].enqueue(order=order)

    return make


JOBS = """
INSERT INTO pgsched.jobs (name, task, args)
SELECT 'job ' || i, 'nothing', jsonb_build_object('order', i) FROM generate_series(1, %s) i
"""


def slots(conn: psycopg.Connection, n: int) -> None:
    """Make the slots of the jobs that exist already."""
    while True:
        with conn.transaction():
            if not tick(conn, 5000).jobs:
                return


def measure(server: Server, name: str, n: int, make: Callable[[psycopg.Connection, int], None]) -> Taken:
    """Make and run `n` runs, and return their sizes."""
    with server.database(name.replace(",", "").replace(" ", "_")) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        upgrade(dsn)
        if make is slots:
            conn.execute(JOBS, [n])
        before = [size(conn, table) for table in TABLES]
        start = scalar(conn, "SELECT pg_current_wal_insert_lsn()")
        with environment(dsn):
            make(conn, n)
            app.close()
            drain(app, scheduled=True, concurrency=16, timeout=600)
        wal = scalar(conn, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::float8", [start])
        conn.execute("VACUUM pgsched.runs, pgsched.attempts, pgsched.run_logs")
        runs, attempts, run_logs = [(size(conn, table) - was) / n for table, was in zip(TABLES, before, strict=True)]
        return Taken(runs, attempts, run_logs, float(str(wal)) / n)


def size(conn: psycopg.Connection, table: str) -> int:
    return int(str(scalar(conn, "SELECT pg_total_relation_size(('pgsched.' || %s)::regclass)", [table])))


def connections(server: Server) -> int:
    """Return the number of connections of one `pgsched worker` that also leads."""
    with server.database("idle") as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        upgrade(dsn)
        command = [sys.executable, "-m", "pgsched", "worker", "--dsn", dsn, "--app", "bench.measures.size:app"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
            seen = [0]
            while len(seen) < 50 and not settled(seen):  # wait until all its connections are open
                time.sleep(0.2)
                seen.append(int(str(scalar(conn, CONNECTIONS, [conn.info.dbname]))))
            worker.terminate()
    return max(seen)


def settled(seen: list[int]) -> bool:
    """Check whether the number has been the same for three seconds."""
    return seen[-1] > 0 and len(seen) > 15 and len(set(seen[-15:])) == 1


def sizes(server: Server, n: int) -> Result:
    """Measure `n` runs of each kind."""
    scenes = {"a run": enqueued("nothing"), "a slot of a job": slots,
              "a run that failed twice": enqueued("fails"),
              "a run that printed 1,000 bytes": enqueued("prints")}  # fmt: skip
    result = Result("size", f"Bytes of each of {n:,} runs", ["bytes of each", "run", "attempts", "output", "WAL"])
    with logs_from(logging.CRITICAL):  # do not log 20,000 failures
        for name, make in scenes.items():
            taken = measure(server, name, n, make)
            result.rows.append([name, *[number(value) for value in asdict(taken).values()]])
            result.data[name] = asdict(taken)
            log_step(f"size: {taken}")
    result.data["connections"] = connections(server)
    result.notes.append(f"connections of a worker that leads: {result.data['connections']}")
    return result


@contextmanager
def environment(dsn: str) -> Iterator[None]:
    """Point the app of this process to this database."""
    before = os.environ.get("PGSCHED_DSN")
    os.environ["PGSCHED_DSN"] = dsn
    try:
        yield
    finally:
        app.close()
        os.environ.pop("PGSCHED_DSN")
        if before is not None:
            os.environ["PGSCHED_DSN"] = before

"""The rule: what a run takes on disk and in WAL is measured on runs that a real worker has run, after a vacuum.

Run it: `python -m bench.size` (or `--n 20000`, `--dsn DSN`). Each line has a fresh database. Runs are enqueued one by
one, as a program does that serves requests; a slot is that of a job.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import structlog

from bench.server import Server, scalar
from bench.server import server as serve
from pgsched import App, Run
from pgsched.db.migrate import upgrade
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
    """Bytes of each run: of the table with its indexes, and of WAL from the enqueue to the end."""

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
    """Those of so many jobs, which are there already."""
    while True:
        with conn.transaction():
            if not tick(conn, 5000).jobs:
                return


def measure(server: Server, name: str, n: int, make: Callable[[psycopg.Connection, int], None]) -> Taken:
    """So many runs, made and run."""
    with server.database(name.replace(",", "").replace(" ", "_")) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        upgrade(dsn)
        os.environ["PGSCHED_DSN"] = dsn
        if make is slots:
            conn.execute(JOBS, [n])
        before = [size(conn, table) for table in TABLES]
        start = scalar(conn, "SELECT pg_current_wal_insert_lsn()")
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
    """Of one `pgsched worker` that also leads."""
    with server.database("idle") as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        upgrade(dsn)
        command = [sys.executable, "-m", "pgsched", "worker", "--dsn", dsn, "--app", "bench.size:app"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
            found = 0
            for _ in range(50):  # until all that it needs is open
                time.sleep(0.2)
                found = max(found, int(str(scalar(conn, CONNECTIONS, [conn.info.dbname]))))
            worker.terminate()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--dsn")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))  # 20,000 failures are no news
    scenes = {"a run": enqueued("nothing"), "a slot of a job": slots,
              "a run that failed twice": enqueued("fails"),
              "a run that printed 1,000 bytes": enqueued("prints")}  # fmt: skip
    print("| bytes of each | run | attempts | output | WAL |\n|---|---|---|---|---|")
    with serve(given.dsn) as server:
        for name, make in scenes.items():
            taken = measure(server, name, given.n, make)
            print(f"| {name} | {taken.runs:,.0f} | {taken.attempts:,.0f} | {taken.run_logs:,.0f} | {taken.wal:,.0f} |")
        print(f"\nconnections of a worker that leads: {connections(server)}")


if __name__ == "__main__":
    main()

"""The rule: what the leader's tick costs is measured through the leader itself, and counted in the database.

Run it: `python -m bench.tick [--quick] [--dsn DSN]`. "Ceiling" is the least that PostgreSQL needs for the same rows:
an INSERT ... SELECT and an UPDATE of jobs for each 5,000, without asking what is due or when the next slot is.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.server import Server, server
from pgsched.config import LeaderSettings
from pgsched.db.migrate import upgrade
from pgsched.leader.election import Leader

BATCH = 5000
# what is due at one minute is a few texts and zones, and many jobs
HOURLY = ("{} * * * *", "{} */1 * * *", "{} 0-23 * * *", "0 {} * * * *")
MINUTE = "SELECT date_trunc('minute', now() + make_interval(secs => %s)) + interval '1 minute'"
SINCE = "SELECT extract(epoch FROM clock_timestamp() - %s)::float8"
ZONES = ("UTC", "Europe/Berlin", "America/New_York")
JOBS = """INSERT INTO pgsched.jobs (name, task, schedule, timezone, overlap, misfire_after)
    SELECT 'job-' || n, 'bench.noop', (%(schedules)s::text[])[1 + n %% cardinality(%(schedules)s::text[])],
        (%(zones)s::text[])[1 + n %% cardinality(%(zones)s::text[])], %(overlap)s, '1 hour'
    FROM generate_series(1, %(n)s) n"""
INSERT = """INSERT INTO pgsched.runs (job_id, scheduled_at, queue, priority, kind, task, args, origin, owner,
        max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, tags)
    SELECT id, %(slot)s, queue, priority, kind, task, args, 'schedule', owner, max_attempts, timeout,
        nullif(kill_after, '10 seconds'), nullif(backoff, 'exponential'), nullif(backoff_base, '5 seconds'),
        nullif(backoff_max, '1 hour'), nullif(backoff_jitter, 0.2), tags
    FROM pgsched.jobs WHERE id BETWEEN %(first)s AND %(last)s
    ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING"""
UPDATE = """UPDATE pgsched.jobs SET decided_until = %(slot)s, next_run_at = %(slot)s + interval '1 minute',
    run_count = run_count + 1 FROM (SELECT set_config('pgsched.ticks', 'on', true)) ticks
    WHERE id BETWEEN %(first)s AND %(last)s"""
# A million jobs by the front door would take minutes: written as the triggers would have left them.
SPARSE = """INSERT INTO pgsched.jobs (name, task, schedule, anchor_at, decided_until, next_run_at)
    SELECT 'job-' || n, 'bench.noop', '0 4 1 1 *', now(), now(), date_trunc('year', now()) + interval '1 year 4 hours'
    FROM generate_series(1, %(n)s) n"""


@dataclass(frozen=True)
class Figure:
    """One figure as it is told."""

    name: str
    value: float
    unit: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name:44} {self.value:12,.2f} {self.unit:10} {self.note}"


@contextmanager
def database(on: Server, name: str) -> Iterator[tuple[str, psycopg.Connection]]:
    """A fresh, migrated database."""
    with on.database(name) as dsn:
        upgrade(dsn)
        with psycopg.connect(dsn, autocommit=True) as conn:
            yield dsn, conn


@contextmanager
def leader(dsn: str) -> Iterator[Leader]:
    """A leader at work in this process."""
    found = Leader(dsn, LeaderSettings(), "bench")
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    wait(lambda: found.term is not None, 30)
    try:
        yield found
    finally:
        found.stop()
        thread.join(30)


def wait(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until it is true. Raises TimeoutError."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {timeout_s:g} s")
        time.sleep(0.02)


def one(conn: psycopg.Connection, query: str, values: Any = None) -> Any:
    """The only value of a row."""
    row = conn.execute(query.encode(), values).fetchone()
    assert row is not None
    return row[0]


def due(conn: psycopg.Connection) -> bool:
    """Is any job due?"""
    late = "next_run_at <= clock_timestamp()"
    return bool(one(conn, f"SELECT EXISTS (SELECT FROM pgsched.jobs WHERE NOT paused AND {late})"))


def check(conn: psycopg.Connection, expected: int | None = None) -> int:
    """One row for each slot, no two for one; how many."""
    query = b"SELECT count(*), count(DISTINCT (job_id, scheduled_at)) FROM pgsched.runs"
    rows, slots = conn.execute(query).fetchone() or (0, 0)
    if rows != slots or expected not in (None, rows):
        raise AssertionError(f"{rows} rows, {slots} slots, {expected} expected")
    return int(rows)


def same_second(on: Server, n: int) -> Iterator[Figure]:
    """So many jobs due at one full minute: seconds from the slot until the last run can be claimed; and the ceiling."""
    with database(on, "tick") as (dsn, conn):
        slot = one(conn, MINUTE, [20 + n / 600])
        texts = [text.format(slot.minute) for text in HOURLY]
        conn.execute(JOBS, {"schedules": texts, "zones": list(ZONES), "overlap": "skip", "n": n})
        conn.execute("VACUUM ANALYZE pgsched.jobs")
        with leader(dsn):
            wait(lambda: not due(conn), 300)
            time.sleep(max(0.0, -one(conn, SINCE, [slot])))
            wait(lambda: one(conn, SINCE, [slot]) > 0 and not due(conn), 120)
            took = float(one(conn, SINCE, [slot]))
        check(conn, n)
        yield Figure(f"{n:,} jobs due in one second: all enqueued", took, "s", f"{n / took:,.0f} slots/s")
        yield ceiling(conn, n)


def ceiling(conn: psycopg.Connection, n: int) -> Figure:
    """The same rows by bare statements."""
    conn.execute("TRUNCATE pgsched.runs")
    conn.execute("VACUUM ANALYZE pgsched.jobs")
    conn.execute("CHECKPOINT")
    slot, first = one(conn, "SELECT date_trunc('minute', now())"), one(conn, "SELECT min(id) FROM pgsched.jobs")
    began = time.perf_counter()
    for start in range(first, first + n, BATCH):
        values = {"slot": slot, "first": start, "last": start + BATCH - 1}
        with conn.transaction():
            conn.execute(INSERT, values)
            conn.execute(UPDATE, values)
    took = time.perf_counter() - began
    check(conn, n)
    return Figure(f"{n:,} rows: the ceiling", took, "s", f"{n / took:,.0f} slots/s")


def sustained(on: Server, jobs: int, seconds: float) -> Iterator[Figure]:
    """More slots than the leader can decide, for so long."""
    for name, schedule in (("every second, by cron", "* * * * * *"), ("every second, @every", "@every 1s")):
        with database(on, "tick") as (dsn, conn):
            given = {"schedules": [schedule], "zones": list(ZONES), "overlap": "allow", "n": jobs}
            conn.execute(JOBS, given)
            conn.execute("VACUUM ANALYZE pgsched.jobs")
            with leader(dsn):
                wait(lambda: bool(one(conn, "SELECT EXISTS (SELECT FROM pgsched.runs)")), 60)
                before, began = one(conn, "SELECT count(*) FROM pgsched.runs"), time.perf_counter()
                used = time.process_time()
                time.sleep(seconds)
                made, took = one(conn, "SELECT count(*) FROM pgsched.runs") - before, time.perf_counter() - began
                used = time.process_time() - used
            check(conn)
            yield Figure(
                f"{jobs:,} jobs {name}", made / took, "slots/s", f"leader {used / made * 1e6:.1f} us CPU a slot"
            )


def idle(on: Server, jobs: int, seconds: float) -> Iterator[Figure]:
    """What a leader costs that has nothing to decide, beside so many jobs."""
    for n in (0, jobs):
        with database(on, "tick") as (dsn, conn):
            with conn.transaction():
                conn.execute("SET LOCAL session_replication_role = replica")
                conn.execute(SPARSE, {"n": n})
            conn.execute("VACUUM ANALYZE pgsched.jobs")
            with leader(dsn):
                time.sleep(3)
                pid = one(conn, "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                          " AND application_name LIKE 'pgsched leader%%'", [])  # fmt: skip
                used, server_used = time.process_time(), backend_cpu_s(pid)
                time.sleep(seconds)
                used, server_used = time.process_time() - used, backend_cpu_s(pid) - server_used
            yield Figure(f"idle leader, {n:,} jobs: its CPU", used / seconds * 100, "% of a core")
            yield Figure(f"idle leader, {n:,} jobs: its session's CPU", server_used / seconds * 100, "% of a core")


def backend_cpu_s(pid: int) -> float:
    """Seconds of CPU that a process of this machine has used; 0 where /proc does not say."""
    file = Path(f"/proc/{pid}/schedstat")
    return int(file.read_text().split()[0]) / 1e9 if file.exists() else 0.0


def measure(on: Server, *, quick: bool = False) -> Iterator[Figure]:
    """All of it."""
    for n in (2000,) if quick else (10_000, 100_000):
        yield from same_second(on, n)
    yield from sustained(on, 5000 if quick else 40_000, 3 if quick else 20)
    yield from idle(on, 10_000 if quick else 1_000_000, 3 if quick else 20)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.tick", description=__doc__)
    parser.add_argument("--dsn", help="measure on this server instead of a private one")
    parser.add_argument("--quick", action="store_true", help="a small run that shows that everything works")
    given = parser.parse_args()
    with server(given.dsn) as on:
        for figure in measure(on, quick=given.quick):
            print(figure, flush=True)


if __name__ == "__main__":
    main()

"""`tick`: many jobs due at once, more slots than can be decided, and what an idle leader costs.

Invariant: the cost of the leader's tick is measured through the leader itself, and counted in the database. The
"ceiling" is the least that PostgreSQL needs for the same rows: an INSERT ... SELECT and an UPDATE of jobs for each
5,000. It does not look for what is due, compute the next slot, or check a row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime

import psycopg

from bench.machine import cpu_s
from bench.report import Result, log_step, median
from bench.server import Server, scalar
from pgsched.config import LeaderSettings
from pgsched.db.schema.migrate import upgrade
from pgsched.leader.election import Leader

BATCH = 5000
REST_S = 1.0
FIRST = 10_000_000  # ids of the jobs, beyond the ids that the rows of a history use
# The jobs of one second are many, with few schedules and zones.
HOURLY = ("{} {} * * * *", "{} {} */1 * * *", "{} {} 0-23 * * *", "{} {} * * */1 *")
SLOT = "SELECT date_trunc('second', now() + make_interval(secs => %s))"
SINCE = "SELECT extract(epoch FROM clock_timestamp() - %s)::float8"
ZONES = ("UTC", "Europe/Berlin", "America/New_York")
ENQUEUED = """SELECT count(*) FILTER (WHERE state = 'queued'), count(*) FROM pgsched.runs
    WHERE job_id IN (SELECT id FROM pgsched.jobs) AND scheduled_at >= %s"""
GONE = "DELETE FROM pgsched.runs WHERE job_id IN (SELECT id FROM pgsched.jobs) AND scheduled_at >= %s"
LEADING = """SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'pgsched leader%'"""
JOBS = """INSERT INTO pgsched.jobs (id, name, task, schedule, timezone, overlap, misfire_after)
    SELECT %(first)s + n, 'job-' || n, 'bench.noop',
        (%(schedules)s::text[])[1 + n %% cardinality(%(schedules)s::text[])],
        (%(zones)s::text[])[1 + n %% cardinality(%(zones)s::text[])], %(overlap)s, '1 hour'
    FROM generate_series(1, %(n)s) n"""
INSERT = """INSERT INTO pgsched.runs (job_id, scheduled_at, queue, priority, kind, task, args, origin, owner,
        max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, tags, checked)
    SELECT id, %(slot)s, queue, priority, kind, task, args, 'schedule', owner, max_attempts, timeout,
        nullif(kill_after, '10 seconds'), nullif(backoff, 'exponential'), nullif(backoff_base, '5 seconds'),
        nullif(backoff_max, '1 hour'), nullif(backoff_jitter, 0.2), tags, true
    FROM pgsched.jobs WHERE id BETWEEN %(first)s AND %(last)s"""
UPDATE = """UPDATE pgsched.jobs SET decided_until = %(slot)s, next_run_at = %(slot)s + interval '1 minute',
    run_count = run_count + 1 FROM (SELECT set_config('pgsched.ticks', 'on', true)) ticks
    WHERE id BETWEEN %(first)s AND %(last)s"""
# Inserting a million jobs with triggers would take minutes. So they are written as the triggers would leave them.
SPARSE = """INSERT INTO pgsched.jobs (name, task, schedule, anchor_at, decided_until, next_run_at)
    SELECT 'job-' || n, 'bench.noop', '0 4 1 1 *', now(), now(), date_trunc('year', now()) + interval '1 year 4 hours'
    FROM generate_series(1, %(n)s) n"""


@dataclass(frozen=True)
class Due:
    """Jobs due at one second; medians of the rounds.

    `seconds`: from the slot until the last run can be claimed.
    `ceiling_s`: the same by bare statements.
    """

    jobs: int
    seconds: float
    ceiling_s: float
    rounds: list[tuple[float, float]]


@dataclass(frozen=True)
class Sustained:
    """More slots than the leader can decide: how many it decides per second, and its CPU time for each."""

    jobs: int
    schedule: str
    slots_per_s: float
    leader_us: float


@dataclass(frozen=True)
class Idle:
    """A leader with nothing to decide beside this many jobs.

    `leader`, `session`: shares of a core that the leader and its session use.
    `first_s`: CPU seconds of both until the leader was at rest: a new leader looks at each job once.
    """

    jobs: int
    leader: float
    session: float
    first_s: float


def tick(on: Server, due: Sequence[int], sustained: tuple[int, float], idle: tuple[int, float], rounds: int) -> Result:
    """Measure `due` (numbers of jobs) in rounds, then `sustained` and `idle` (number of jobs, seconds)."""
    result = Result("tick", "The leader's tick", ["", "figure", "unit", "note"])
    data = result.data = {"jobs": [], "sustained": [], "idle": []}
    for n in due:
        tell(result, at_once(got := same_second(on, n, rounds)))
        data["jobs"].append(asdict(got))
    for schedule in ("* * * * * *", "@every 1s"):
        tell(result, all_the_time(load := overload(on, schedule, *sustained)))
        data["sustained"].append(asdict(load))
    for n in (0, idle[0]):
        tell(result, at_rest(rest := idling(on, n, idle[1])))
        data["idle"].append(asdict(rest))
    return result


def tell(result: Result, rows: list[list[str]]) -> None:
    """Add rows to the table, and print them at once."""
    result.rows += rows
    for row in rows:
        log_step(f"tick: {' '.join(row)}")


def at_once(got: Due) -> list[list[str]]:
    whole, ceiling = ([one[which] for one in got.rounds] for which in (0, 1))
    return [
        [f"{got.jobs:,} jobs due in one second: all enqueued", f"{got.seconds:.2f}", "s", per_s(got.jobs, whole)],
        [f"{got.jobs:,} rows: the ceiling", f"{got.ceiling_s:.2f}", "s", per_s(got.jobs, ceiling)],
    ]


def per_s(n: int, rounds: Sequence[float]) -> str:
    return f"{n / median(rounds):,.0f} slots/s; rounds {' '.join(f'{seconds:.2f}' for seconds in rounds)}"


def all_the_time(got: Sustained) -> list[list[str]]:
    note = f"leader {got.leader_us:.1f} us CPU a slot"
    if got.slots_per_s > 0.97 * got.jobs:
        note += "; all that there were"
    return [[f"{got.jobs:,} jobs with `{got.schedule}`", f"{got.slots_per_s:,.0f}", "slots/s", note]]


def at_rest(got: Idle) -> list[list[str]]:
    of = (("its CPU", got.leader), ("its session's CPU", got.session))
    once = "until it had looked at each job once"
    return [
        [f"new leader, {got.jobs:,} jobs: its CPU and its session's", f"{got.first_s:.2f}", "s", once],
        *([f"idle leader, {got.jobs:,} jobs: {what}", f"{share * 100:.2f}", "% of a core", ""] for what, share in of),
    ]


@contextmanager
def database(on: Server, name: str) -> Iterator[tuple[str, psycopg.Connection]]:
    """Yield a fresh, migrated database."""
    with on.database(name) as dsn:
        upgrade(dsn)
        with psycopg.connect(dsn, autocommit=True) as conn:
            yield dsn, conn


@contextmanager
def leader(dsn: str) -> Iterator[Leader]:
    """Run a leader in this process."""
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
    """Wait until the condition is true. Raises TimeoutError."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {timeout_s:g} s")
        time.sleep(0.02)


def due(conn: psycopg.Connection) -> bool:
    """Check whether any job is due."""
    late = "next_run_at <= (SELECT clock_timestamp())"  # a subquery: evaluated once, not for each job
    return bool(scalar(conn, f"SELECT EXISTS (SELECT FROM pgsched.jobs WHERE NOT paused AND {late})"))


def check(conn: psycopg.Connection, expected: int | None = None, start: object = "-infinity") -> int:
    """Check that all slots of the jobs since `start` are runs that can be claimed; return how many.

    Raises AssertionError if they are not. A slot cannot have two runs, because of the unique key of runs.
    """
    queued, rows = conn.execute(ENQUEUED, [start]).fetchone() or (0, 0)
    if rows != queued or expected not in (None, rows):
        raise AssertionError(f"tick: {rows} slots, {queued} of them queued, {expected} expected")
    return int(rows)


def same_second(on: Server, n: int, rounds: int) -> Due:
    """Measure jobs of one second, in a fresh database for each round, and by bare statements."""
    took: list[tuple[float, float]] = []
    for _ in range(rounds):
        with database(on, "tick") as (dsn, conn):
            took.append((enqueued(dsn, conn, n)[1], ceiling(conn, n)))
    return Due(n, median([whole for whole, _ in took]), median([bare for _, bare in took]), took)


def enqueued(dsn: str, conn: psycopg.Connection, n: int) -> tuple[datetime, float]:
    """Make `n` jobs of one full second, in a database without other jobs.

    Return that slot, and the seconds from it until all runs were enqueued.
    """
    slot = scalar(conn, SLOT, [8 + n / 1000])
    assert isinstance(slot, datetime)
    texts = [text.format(slot.second, slot.minute) for text in HOURLY]
    conn.execute(JOBS, {"first": FIRST, "schedules": texts, "zones": list(ZONES), "overlap": "skip", "n": n})
    conn.execute("VACUUM ANALYZE pgsched.jobs")
    with leader(dsn):
        wait(lambda: not due(conn), 300)
        if (ahead := -since(conn, slot)) < 0:
            raise AssertionError(f"tick: {n:,} jobs were not planned in time")
        time.sleep(ahead)
        wait(lambda: since(conn, slot) > 0 and not due(conn), 120)
        took = since(conn, slot)
    check(conn, n, slot)
    return slot, took


def since(conn: psycopg.Connection, slot: datetime) -> float:
    """Return the seconds from the slot until now, by the server's clock."""
    return float(str(scalar(conn, SINCE, [slot])))


def enqueued_beside(dsn: str, conn: psycopg.Connection, n: int) -> float:
    """Return the seconds in a database that already has runs; remove jobs and runs afterwards."""
    slot, took = enqueued(dsn, conn, n)
    conn.execute(GONE, [slot])
    conn.execute("DELETE FROM pgsched.jobs")
    return took


def ceiling(conn: psycopg.Connection, n: int) -> float:
    """Return the seconds for the same rows by bare statements."""
    conn.execute("TRUNCATE pgsched.runs")
    conn.execute("VACUUM ANALYZE pgsched.jobs")
    conn.execute("CHECKPOINT")
    slot = scalar(conn, "SELECT date_trunc('minute', now())")
    began = time.perf_counter()
    for start in range(FIRST + 1, FIRST + 1 + n, BATCH):
        values = {"slot": slot, "first": start, "last": start + BATCH - 1}
        with conn.transaction():
            conn.execute(INSERT, values)
            conn.execute(UPDATE, values)
    took = time.perf_counter() - began
    check(conn, n)
    return took


def overload(on: Server, schedule: str, jobs: int, seconds: float) -> Sustained:
    """Measure this many jobs every second, for `seconds`."""
    with database(on, "tick") as (dsn, conn):
        given = {"first": FIRST, "schedules": [schedule], "zones": list(ZONES), "overlap": "allow", "n": jobs}
        conn.execute(JOBS, given)
        conn.execute("VACUUM ANALYZE pgsched.jobs")
        with leader(dsn):
            wait(lambda: bool(scalar(conn, "SELECT EXISTS (SELECT FROM pgsched.runs)")), 60)
            before, began, used = count(conn), time.perf_counter(), time.process_time()
            time.sleep(seconds)
            wait(lambda: count(conn) > before, 60)
            made, took = count(conn) - before, time.perf_counter() - began
            used = time.process_time() - used
        check(conn)
    return Sustained(jobs, schedule, made / took, used / made * 1e6)


def count(conn: psycopg.Connection) -> int:
    """Count all runs."""
    return int(str(scalar(conn, "SELECT count(*) FROM pgsched.runs")))


def idling(on: Server, jobs: int, seconds: float) -> Idle:
    """Measure a leader that has nothing to decide, for `seconds`."""
    with database(on, "tick") as (dsn, conn):
        with conn.transaction():
            conn.execute("SET LOCAL session_replication_role = replica")
            conn.execute(SPARSE, {"n": jobs})
        conn.execute("VACUUM ANALYZE pgsched.jobs")
        with leader(dsn):
            pid = int(str(scalar(conn, LEADING)))
            first_s = until_at_rest(lambda: time.process_time() + cpu_s(pid))
            used, server_used = time.process_time(), cpu_s(pid)
            time.sleep(seconds)
            own, session = time.process_time() - used, cpu_s(pid) - server_used
            return Idle(jobs, own / seconds, session / seconds, first_s)


def until_at_rest(used_s: Callable[[], float]) -> float:
    """Wait until a second passes with hardly any CPU time used; return what was used until then.

    Raises TimeoutError after 120 s.
    """
    first, until = used_s(), time.monotonic() + 120
    time.sleep(2 * REST_S)
    before = used_s()
    while time.monotonic() < until:
        time.sleep(REST_S)
        now = used_s()
        if now - before < REST_S / 20:
            return now - first
        before = now
    raise TimeoutError("a leader with nothing to decide does not come to rest")

"""`piled-up`: how late slots are while a large number of rows of one kind has piled up.

Invariant: twenty jobs have a slot each second. A leader (with what the kind needs beside it) has WARM_S seconds to
start; from then on each slot counts. Lateness is from the slot to the row. Each kind is alone in a fresh database, and
"nothing" is the same without any rows. At full size this takes about a quarter of an hour:

    python -m bench piled-up
    python -m bench piled-up --quick        (a hundredth: shows that it runs; the figures mean nothing)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

import psycopg

from bench.adapter import call, workers
from bench.contestants import PGSCHED
from bench.measures.tick import leader
from bench.report import Result, log_step, number
from bench.server import Server
from pgsched.app.declarations import JobDeclaration
from pgsched.db.queries.jobs.registration import register
from pgsched.db.queries.runs.workers import Registration

WARM_S = 4.0
BOUND_MS = 250.0
JOBS = """
INSERT INTO pgsched.jobs (name, schedule, task, overlap)
SELECT 'second-' || n, '* * * * * *', 'nobody.knows', 'skip' FROM generate_series(1, %s) n
"""
LATE = """
SELECT count(*), coalesce(1000 * avg(late), 0)::float8,
    coalesce(1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY late), 0)::float8,
    coalesce(1000 * max(late), 0)::float8
FROM (SELECT extract(epoch FROM created_at - scheduled_at)::float8 AS late FROM pgsched.runs
      WHERE job_id IS NOT NULL AND scheduled_at > %s AND scheduled_at <= clock_timestamp() - interval '1 second') l
"""
STOPPED = """
INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, seen_at, stopping_at,
    stopped_at)
SELECT 'h:' || n, 'h', n %% 30000, '1', 8, '{task}', '{a.b,c.d}', '30 s', at, at, at
FROM generate_series(1, %(n)s) n, LATERAL (SELECT clock_timestamp() - n * interval '1 s' AS at) a
"""
RETRYING = """
INSERT INTO pgsched.runs (task, state, attempt, started_at, available_at, expires_at, max_attempts)
SELECT 'nobody.knows', 'scheduled', 1, now() - interval '1 hour', now() + interval '1 hour',
    now() - interval '10 minutes' - n * interval '1 ms', 20 FROM generate_series(1, %(n)s) n
"""
KEYED = """
INSERT INTO pgsched.runs (task, concurrency_key)
SELECT 'noop', 'tenant:' || n %% %(keys)s FROM generate_series(1, %(n)s) n
"""
PARENTS = "INSERT INTO pgsched.runs (task) SELECT 'noop' FROM generate_series(1, %(n)s)"
CHILD = "SELECT pgsched.enqueue('noop', after => (SELECT array_agg(id) FROM pgsched.runs WHERE task = 'noop'))"
DEAD = """
INSERT INTO pgsched.jobs (name, schedule, task, paused)
SELECT 'dead-' || n, '@yearly', 'nobody.knows', true FROM generate_series(1, 1000) n
"""
MOVED = """
UPDATE pgsched.jobs SET paused = false, next_run_at = clock_timestamp() - interval '1 hour' WHERE name LIKE 'dead-%'
"""
Prepare = Callable[[ExitStack, psycopg.Connection, str, int], None]


@dataclass(frozen=True)
class Late:
    """Milliseconds from slots to their rows."""

    what: str
    size: int
    slots: int
    mean_ms: float
    p99_ms: float
    max_ms: float


def piled_up(server: Server, share: float, seconds: float) -> Result:
    """Measure all kinds, each at `share` of its full size, for `seconds`."""
    result = Result("piled-up", "Slots while much has piled up (ms late)", ["", "size", "slots", "mean", "p99", "max"])
    result.notes.append(f"the bound is {BOUND_MS:.0f} ms")
    result.data = {"kinds": []}
    for what, (full, prepare) in KINDS.items():
        size = max(1, int(full * share)) if full else 0
        got = measure(server, what, size, prepare, seconds)
        result.data["kinds"].append(asdict(got))
        cells = [number(got.mean_ms, 1), number(got.p99_ms, 1), number(got.max_ms, 1)]
        result.rows.append([what, f"{size:,}", f"{got.slots:,}", *cells])
        log_step(f"piled-up: {what} ({size:,}): {got.mean_ms:.1f} ms late, {got.max_ms:.1f} at most")
    return result


def measure(server: Server, what: str, size: int, prepare: Prepare, seconds: float) -> Late:
    """Measure one kind."""
    with server.database("piled_up") as dsn, ExitStack() as ends:
        call(PGSCHED, "setup", dsn)
        conn = ends.enter_context(psycopg.connect(dsn, autocommit=True))
        conn.execute(JOBS, [300 if what == "pinned xmin" else 20])
        before = BEFORE.get(what)
        if before is not None:
            before(conn, size)
            conn.execute("VACUUM ANALYZE")
        ends.enter_context(leader(dsn))
        time.sleep(WARM_S)
        begin = conn.execute("SELECT clock_timestamp()").fetchone()
        assert begin is not None
        prepare(ends, conn, dsn, size)
        time.sleep(seconds + 1)
        row = conn.execute(LATE, [begin[0]]).fetchone()
        assert row is not None and row[0] > 0, f"piled-up: {what}: no slot was decided"
        return Late(what, size, *row)


def nothing(*_: object) -> None:
    """Do nothing: the rows exist already, or none are needed."""


def fan_in(ends: ExitStack, conn: psycopg.Connection, dsn: str, size: int) -> None:
    """Start a worker that runs the parents of one run."""
    conn.execute(CHILD)
    ends.enter_context(workers(PGSCHED, dsn, 1, n=size + 1))


def limited(ends: ExitStack, conn: psycopg.Connection, dsn: str, size: int) -> None:
    """Start a worker that runs what the limits admit."""
    ends.enter_context(workers(PGSCHED, dsn, 1, n=2 * size))


def keyed(conn: psycopg.Connection, size: int) -> None:
    """Insert two runs for each of `size` limited keys."""
    conn.execute("INSERT INTO pgsched.limits (name, concurrency) VALUES ('tenant', 1)")
    conn.execute(KEYED, {"keys": size, "n": 2 * size})


def pinned(ends: ExitStack, conn: psycopg.Connection, dsn: str, size: int) -> None:
    """Hold a snapshot, and make the dead entries of `size` slots at once.

    While the snapshot is held, the 300 jobs leave 300 dead entries each second.
    """
    old = ends.enter_context(psycopg.connect(dsn))
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute("SELECT count(*) FROM pgsched.jobs")
    with conn.transaction():
        conn.execute(DEAD)
        conn.execute("SET LOCAL session_replication_role = replica")
        for _ in range(max(1, size // 1000)):  # each version of a row adds an entry to the index of due jobs
            conn.execute(MOVED)
        conn.execute("UPDATE pgsched.jobs SET paused = true WHERE name LIKE 'dead-%'")


@contextmanager
def starting(dsn: str, size: int) -> Iterator[None]:
    """Let three processes of an unchanged release start again and again."""
    jobs = [
        JobDeclaration(f"declared-{n}", "nobody.knows", "* * * * * *", policies={"overlap": "skip"})
        for n in range(size)
    ]
    registration = Registration("h:1", "1", "shop", 8, None, ["task"], ["t"], 30.0, jobs=jobs)
    ended = threading.Event()

    def wave() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not ended.is_set():
                register(conn, registration)

    with psycopg.connect(dsn, autocommit=True) as conn:
        register(conn, registration)
    threads = [threading.Thread(target=wave, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)


def declared(ends: ExitStack, conn: psycopg.Connection, dsn: str, size: int) -> None:
    """Let three workers start again and again."""
    ends.enter_context(starting(dsn, size))


KINDS: dict[str, tuple[int, Prepare]] = {
    "nothing": (0, nothing),
    "fan-in": (100_000, fan_in),
    "old worker rows": (600_000, nothing),
    "retrying runs": (300_000, nothing),
    "limited keys": (100_000, limited),
    "pinned xmin": (200_000, pinned),
    "declared jobs": (400, declared),
}
BEFORE: dict[str, Callable[[psycopg.Connection, int], object]] = {
    "fan-in": lambda conn, size: conn.execute(PARENTS, {"n": size}),
    "old worker rows": lambda conn, size: conn.execute(STOPPED, {"n": size}),
    "retrying runs": lambda conn, size: conn.execute(RETRYING, {"n": size}),
    "limited keys": keyed,
}

"""`history`: does it matter how many runs are kept? Claims, the status command and the ticker, with and without them.

The rule: the same questions with no history and with more and more of it, in one database that grows. Half of the kept
runs are slots of the jobs that fire here, one in 1,000 is dead; they are written as they would lie after their ends,
without triggers.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import psycopg

from bench.adapter import ROOT, call
from bench.contestants import PGSCHED
from bench.drain import Drained, drained
from bench.every_second import Slots
from bench.every_second import measure as fire
from bench.report import Result, median, number, progress, quantile
from bench.server import Server, scalar

CHUNK = 1_000_000
JOBS = 500
FILL = """
INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, created_at, started_at, finished_at, attempt, state, task,
                          args, origin, token)
SELECT CASE WHEN i %% 2 = 0 THEN 1 + i / 2 %% 1500 END,
       CASE WHEN i %% 2 = 0 THEN timestamptz '2020-01-01 00:00Z' + make_interval(secs => i / 3000) END,
       at, at, at, at, 1, CASE WHEN i %% 1000 = 0 THEN 'dead' ELSE 'succeeded' END, 'noop',
       jsonb_build_object('i', i), CASE WHEN i %% 2 = 0 THEN 'schedule' ELSE 'enqueue' END, gen_random_uuid()
FROM (SELECT i, now() - interval '6 days' * (i::float8 / %(total)s) AS at
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS i) AS kept
"""
CLAIMS = """
SELECT sum(total_exec_time) * 1000 / nullif(sum(rows), 0) FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
WHERE query LIKE '%SKIP LOCKED%' AND query LIKE '%UPDATE pgsched.runs%' AND rows > 0
"""
TOP = """
SELECT total_exec_time * 1000 / %s, left(query, 100) FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
WHERE query !~ '^(VACUUM|CHECKPOINT|SELECT count|SELECT EXISTS)' ORDER BY 1 DESC  -- but for the driver's own
"""


@dataclass(frozen=True)
class Kept:
    """What it costs with so many rows of history."""

    rows: int
    claim_us: float
    every_us: float
    drain: float
    status_ms: float
    start_ms: float
    slot_p50_ms: float
    slot_p99_ms: float
    missed: int
    dearest: list[str]


def history(server: Server, steps: Sequence[int], n: int, seconds: int) -> Result:
    """With each number of kept rows in turn, from none."""
    columns = ["rows of history", "claim, per run", "all statements, per run", "drain runs/s", "`pgsched status`",
               "of that, starting", f"{JOBS} jobs a second: slot p50", "p99", "missed"]  # fmt: skip
    result = Result("history", "Scaling with the runs that are kept", columns)
    every: list[Kept] = []
    with server.database("history") as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(PGSCHED, "setup", dsn)
        look.execute("CREATE EXTENSION pg_stat_statements")
        have = 0
        for step in sorted({0, *steps}):
            fill(look, have, step, max(steps))
            have = step
            every.append(measure(look, dsn, step, n, seconds))
            progress(f"history: {every[-1]}")
    result.rows = [row(one) for one in every]
    result.data = {"steps": [asdict(one) for one in every]}
    return result


def fill(look: psycopg.Connection, have: int, want: int, total: int) -> None:
    """Write the missing rows."""
    began = time.monotonic()
    look.execute("SET session_replication_role = replica")
    for first in range(have, want, CHUNK):
        last = min(first + CHUNK, want) - 1
        look.execute(FILL, {"first": first, "last": last, "total": max(1, total)})
        progress(f"history: {last + 1:,} rows ({time.monotonic() - began:.0f} s)")
    look.execute("RESET session_replication_role")


def measure(look: psycopg.Connection, dsn: str, rows: int, n: int, seconds: int) -> Kept:
    """Everything that is asked at one number of rows."""
    call(PGSCHED, "bulk", dsn, n=n)
    look.execute("SELECT pg_stat_statements_reset()")
    got = drained_beside(look, dsn, n, rows)
    claim_us = float(str(scalar(look, CLAIMS) or "nan"))
    cost = [(float(us), " ".join(str(text).split())) for us, text in look.execute(TOP, [n])]
    slots: Slots = fire(dsn, JOBS, seconds)
    status = [took("status", "--dsn", dsn) for _ in range(5)]
    return Kept(
        rows,
        claim_us,
        sum(us for us, _ in cost),
        got.rate,
        median(status),
        median([took("--version") for _ in range(5)]),
        quantile(slots.late_ms, 0.5),
        quantile(slots.late_ms, 0.99),
        slots.missed,
        [f"{us:.1f} us {text}" for us, text in cost[:4]],
    )


def drained_beside(look: psycopg.Connection, dsn: str, n: int, rows: int) -> Drained:
    """Drain n runs; what is finished already is not this one's to count."""
    finished = "SELECT count(*) - {} FROM pgsched.runs WHERE state = 'succeeded' AND attempt = 1"
    before = int(str(scalar(look, finished.format(0))))
    return drained(look, replace(PGSCHED, finished=finished.format(before)), dsn, n, 1)


def row(one: Kept) -> list[str]:
    """One line of the table."""
    times = [one.status_ms, one.start_ms, one.slot_p50_ms, one.slot_p99_ms]
    status, start, p50, p99 = [number(value, 0, " ms") for value in times]
    return [
        number(one.rows),
        number(one.claim_us, 1, " us"),
        number(one.drain),
        status,
        start,
        p50,
        p99,
        str(one.missed),
    ]


def took(*arguments: str) -> float:
    """Milliseconds that the command line needs."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "pgsched", *arguments], check=True, cwd=ROOT, capture_output=True)
    return (time.perf_counter() - began) * 1000

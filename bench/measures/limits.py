"""`limits`: what admission costs runs with limits, and runs without any.

Invariant: drains without limits and drains with limits elsewhere alternate in one run, and so does which comes first.
So other work of the machine affects both. Each is done as in `drain`. A hand-over lasts from the settlement of one run
to the claim of the next, both in the database's time. Every run must have been run once.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass

import psycopg

from bench.adapter import call, wait_for, workers
from bench.contestants import PGSCHED
from bench.measures.drain import drained, exactly_once
from bench.report import Result, log_step, number
from bench.server import Server, scalar
from pgsched.db.connection.connect import BY_INDEX, connect
from pgsched.leader import admission

ADD = """
INSERT INTO pgsched.runs (task, queue, concurrency_key, args)
SELECT 'noop', %s, %s, jsonb_build_object('i', i) FROM generate_series(0, %s - 1) i
"""
ELSEWHERE = """
INSERT INTO pgsched.queues (name, concurrency_limit, fair, max_depth)
SELECT 'elsewhere ' || n, 5, n % 2 = 0, 1000 FROM generate_series(1, 10) n
"""
OPEN = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"
HAND_OVER = """
SELECT 1000 * extract(epoch FROM started_at - lag(finished_at) OVER (ORDER BY started_at))::float8
FROM pgsched.runs WHERE concurrency_key = 'chain' ORDER BY started_at OFFSET 5
"""


@dataclass(frozen=True)
class Figures:
    """Runs per second, and milliseconds."""

    unlimited: float
    with_limits_elsewhere: float
    ratio: float
    limited_queue: float
    keyed: float
    hand_over_p50_ms: float
    hand_over_p95_ms: float
    pass_ms: float


def limits(server: Server, n: int, rounds: int, chain: int) -> Result:
    """Measure everything with one worker process with default settings, which is also the leader."""
    plain: list[float] = []
    beside: list[float] = []
    for turn in range(rounds):
        for found, settings in ((plain, None), (beside, ELSEWHERE))[:: 1 if turn % 2 == 0 else -1]:
            found.append(rate(server, n, "default", settings))
        log_step(f"limits: unlimited {plain[-1]:,.0f}/s, with limits elsewhere {beside[-1]:,.0f}/s")
    narrow = rate(server, n, "narrow", "INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('narrow', 2000)")
    keyed = rate(server, n, "keyed", key="k")
    p50, p95 = handed_over(server, chain)
    got = Figures(
        statistics.median(plain),
        statistics.median(beside),
        statistics.median(b / p for p, b in zip(plain, beside, strict=True)),
        narrow,
        keyed,
        p50,
        p95,
        one_pass(server),
    )
    return table(got, n)


def table(got: Figures, n: int) -> Result:
    """Return the table of all figures."""
    result = Result("limits", f"Limits: {n:,} runs, one worker", ["", "figure", "unit"])
    units = ["runs/s", "runs/s", "ratio", "runs/s", "runs/s", "ms", "ms", "ms"]
    for (name, value), unit in zip(asdict(got).items(), units, strict=True):
        result.rows.append([name.replace("_", " "), number(value, 3 if unit == "ratio" else 1), unit])
    result.data = asdict(got)
    return result


def rate(server: Server, n: int, queue: str, settings: str | None = None, key: str | None = None) -> float:
    """Return the runs per second of one queue that was filled before the worker starts."""
    with server.database("limits") as dsn, psycopg.connect(dsn, autocommit=True) as there:
        call(PGSCHED, "setup", dsn)
        if settings is not None:
            there.execute(settings.encode())
        there.execute(ADD.encode(), [queue, key, n])
        return drained(there, PGSCHED, dsn, n, 1).rate


def handed_over(server: Server, n: int) -> tuple[float, float]:
    """Return p50 and p95 of the time from the end of one run to the start of the next, for a key with limit 1."""
    with server.database("limits") as dsn:
        call(PGSCHED, "setup", dsn)
        with psycopg.connect(dsn, autocommit=True) as there:
            there.execute("INSERT INTO pgsched.limits (name, concurrency, ordered) VALUES ('chain', 1, true)")
            there.execute(ADD.encode(), ["default", "chain", n])
            with workers(PGSCHED, dsn, 1, n=n) as started:
                wait_for(lambda: scalar(there, OPEN) == 0, started, 600, "the chain to end", every_s=0.2)
                exactly_once(there, PGSCHED, [started[0].dump()], n)
            took = sorted(row[0] for row in there.execute(HAND_OVER.encode()).fetchall())
            return statistics.median(took), took[int(len(took) * 0.95)]


def one_pass(server: Server) -> float:
    """Return the median time of the leader's pass over 1,000 keys of 100 runs each, in ms; each key admits one run."""
    with server.database("limits") as dsn:
        call(PGSCHED, "setup", dsn)
        with connect(dsn, purpose="bench", settings=BY_INDEX) as conn:
            conn.execute("INSERT INTO pgsched.limits (name, concurrency) VALUES ('c', 1)")
            conn.execute(
                "INSERT INTO pgsched.runs (task, concurrency_key)"
                " SELECT 'noop', 'c:' || n % 1000 FROM generate_series(1, 100000) n"
            )
            standing, took = admission.AdmissionState(share=1.0), []
            for _ in range(9):
                began = time.monotonic()
                with conn.transaction():
                    assert admission.admit_limited_runs(conn, standing) == 1000
                took.append(1000 * (time.monotonic() - began))
                conn.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE state = 'queued'")
            return statistics.median(took)

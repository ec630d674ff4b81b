"""The database that `console` measures: weeks of ended runs of 300 jobs, a year of figures, and a queue in use.

Invariant: rows are stored in the order in which they ended, as they would be after such a time. Triggers are off only
while the database is filled.
"""

from __future__ import annotations

import time

import psycopg

from bench.report import log_step
from bench.server import scalar

JOBS, WEEKS = 300, 6
CHUNK = 500_000
YEAR_H, SMALL, SMALL_H = 365 * 24, 100_000, 72
OPEN = 20_000
WITH_JOBS = """
INSERT INTO pgsched.jobs (name, schedule, task, queue, timezone, alert_after_failures, max_lateness)
SELECT 'job-' || lpad(n::text, 3, '0'), CASE WHEN n %% 3 = 0 THEN '30 2 * * *' ELSE '*/5 * * * *' END,
    'task.' || n %% 40, 'queue-' || n %% 8, CASE WHEN n %% 2 = 0 THEN 'Europe/Berlin' ELSE 'UTC' END,
    CASE WHEN n %% 5 = 0 THEN 3 END, CASE WHEN n %% 5 = 1 THEN interval '10 min' END
FROM generate_series(1, %s) n
"""
# Three of five runs are slots of a job. Of 1,000 runs 5 are dead, 5 skipped, 2 missed, 10 retried.
RUNS = """
WITH made AS (
    INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, created_at, started_at, finished_at, attempt, state,
        queue, task, args, origin, token, worker_id, error, reason, tags)
    SELECT job, CASE WHEN job IS NOT NULL THEN at END, at, at, CASE WHEN ran THEN at + wait END,
        at + CASE WHEN ran THEN wait + took ELSE '0' END, CASE WHEN NOT ran THEN 0 WHEN kind < 15 THEN 3 ELSE 1 END,
        CASE WHEN kind < 5 THEN 'dead' WHEN kind < 15 THEN 'succeeded' WHEN kind < 20 THEN 'skipped'
             WHEN kind < 22 THEN 'missed' ELSE 'succeeded' END,
        'queue-' || coalesce(job, i) %% 8, 'task.' || CASE WHEN job IS NULL THEN i %% 10 ELSE job %% 40 END,
        jsonb_build_object('i', i),
        CASE WHEN job IS NULL THEN 'enqueue' ELSE 'schedule' END, gen_random_uuid(), 1,
        CASE WHEN kind < 5 THEN 'ConnectionError: db-' || i %% 7 || ' refused' END,
        CASE WHEN kind BETWEEN 15 AND 19 THEN 'overlap: the run before it was running still'
             WHEN kind BETWEEN 20 AND 21 THEN 'misfire: nobody was there' END,
        CASE WHEN i %% 50 = 0 THEN ARRAY['month'] END
    FROM (
        SELECT i, CASE WHEN i %% 5 < 3 THEN 1 + (i / 5 * 3 + i %% 5) %% %(jobs)s END AS job,
            now() - %(weeks)s * interval '7 days' * (1 - i::float8 / %(total)s) AS at, (i * 7919) %% 1000 AS kind,
            (i * 7919) %% 1000 NOT BETWEEN 15 AND 21 AS ran, interval '1 ms' * (5 + i %% 400) AS wait,
            interval '1 ms' * (20 + (i * 31) %% 20000) AS took
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS i
    ) kept
    RETURNING id, token, attempt, state, started_at, finished_at, error
)
INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, finished_at, worker, error, traceback)
SELECT id, gen_random_uuid(), n, 'failed', started_at, finished_at, 'bench:1', coalesce(error, 'OSError: lost'),
    repeat('  File "x.py", line 17, in f' || chr(10), 12)
FROM made, generate_series(1, CASE WHEN state = 'dead' THEN 3 ELSE 2 END) n WHERE attempt = 3
"""
# The figures that are kept longer than the rows, as many as there would be: minutes of three days, hours of a year.
# Nine of ten jobs have hours of only six weeks, so that filling takes minutes.
FIGURES = """
INSERT INTO pgsched.rollups (width, from_at, job_id, queue, task, state, runs, started, retried, duration_s, wait_s,
    late_s, late, late_max_s, last_at, durations, waits, lates)
SELECT width, at, job, queue, task, state, 200, CASE WHEN state IN ('skipped', 'missed') THEN 0 ELSE 200 END, 2, 900,
    20, 20, 120, 0.4, at + interval '59 s', bins, bins, bins
FROM (
    SELECT 'minute', m.at, 0, 'queue-' || o.n %% 8, 'task.' || o.n, 'succeeded' FROM minutes m, others o
    UNION ALL SELECT 'hour', h.at, 0, 'queue-' || o.n %% 8, 'task.' || o.n, 'succeeded' FROM hours h, others o
    UNION ALL SELECT 'minute of all', m.at, 0, '', '', s.state FROM minutes m, states s
    UNION ALL SELECT 'hour of all', h.at, 0, '', '', s.state FROM hours h, states s
    UNION ALL SELECT 'hour', h.at, j.id, j.queue, j.task, 'succeeded' FROM hours h, pgsched.jobs j
              WHERE j.id %% 10 = 1 OR h.at > now() - interval '42 days'
) w(width, at, job, queue, task, state)
CROSS JOIN (SELECT array_fill(0::bigint, ARRAY[5]) || array_fill(20::bigint, ARRAY[10])
                || array_fill(0::bigint, ARRAY[11]) AS bins) b
"""
SERIES = """
WITH minutes AS (SELECT date_trunc('minute', now()) - n * interval '1 minute' AS at
                 FROM generate_series(1, least(%(hours)s * 6, 4320)) n),
    hours AS (SELECT date_trunc('hour', now()) - n * interval '1 hour' AS at FROM generate_series(1, %(hours)s) n),
    states AS (SELECT * FROM (VALUES ('succeeded'), ('dead'), ('skipped'), ('missed')) s(state)),
    others AS (SELECT n FROM generate_series(0, 9) n)
"""
LIVE = """
INSERT INTO pgsched.runs (available_at, created_at, state, queue, task, priority, concurrency_key, started_at,
    lease_until, token, worker_id, attempt)
SELECT now() - i * interval '1 ms', now() - i * interval '1 ms',
    CASE WHEN i <= 64 THEN 'running' WHEN i %% 10 = 0 THEN 'waiting' WHEN i %% 10 = 1 THEN 'scheduled'
         ELSE 'queued' END,
    'queue-' || i %% 8, 'task.' || i %% 40, i %% 10, CASE WHEN i %% 10 = 0 THEN 'customer:' || i %% 100 END,
    CASE WHEN i <= 64 THEN now() END, CASE WHEN i <= 64 THEN now() + interval '1 day' END,
    CASE WHEN i <= 64 THEN gen_random_uuid() END, CASE WHEN i <= 64 THEN 1 END, CASE WHEN i <= 64 THEN 1 ELSE 0 END
FROM generate_series(1, %(n)s) i
"""
MORE = (
    "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, running)"
    " SELECT 'bench-' || n || ':1', 'bench-' || n, 1, '0', 16, '{task}', ARRAY(SELECT 'task.' || t FROM"
    " generate_series(0, 39) t), '1 day', 8 FROM generate_series(1, 8) n",
    "INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) SELECT r.id, 1, n, 'stdout',"
    " 'line ' || n || chr(10) FROM (SELECT id FROM pgsched.runs WHERE state = 'dead' ORDER BY id DESC LIMIT 200) r,"
    " generate_series(0, 300) n",
    "INSERT INTO pgsched.alerts (job_id, job, kind, opened_at, closed_at, details, recovery) SELECT j.id, j.name,"
    " 'failures', now() - n * interval '1 h', CASE WHEN n > 1 THEN now() - n * interval '50 min' END, '3 failed',"
    " CASE WHEN n > 1 THEN 'a run succeeded' END FROM pgsched.jobs j, generate_series(1, 40) n WHERE j.id % 10 = 0",
    "INSERT INTO pgsched.audit (at, action, what, name, change) SELECT now() - n * interval '10 min', 'changed', 'job',"
    " 'job-' || lpad((1 + n % 300)::text, 3, '0'), jsonb_build_object('timeout', jsonb_build_array('1 min', '2 min'))"
    " FROM generate_series(1, 20000) n",
    "INSERT INTO pgsched.queues (name, concurrency_limit) SELECT 'queue-' || n, 50 FROM generate_series(0, 3) n",
    "INSERT INTO pgsched.limits (name, concurrency) VALUES ('customer', 2)",
)


def fill(there: psycopg.Connection, rows: int) -> None:
    """Write all rows."""
    began = time.monotonic()
    there.execute(WITH_JOBS, [JOBS])
    there.execute("SET session_replication_role = replica")
    for first in range(0, rows, CHUNK):
        last = min(first + CHUNK, rows) - 1
        there.execute(RUNS, {"first": first, "last": last, "total": rows, "jobs": JOBS, "weeks": WEEKS})
        log_step(f"console: {last + 1:,} runs ({time.monotonic() - began:.0f} s)")
    there.execute(SERIES + FIGURES, {"hours": YEAR_H if rows >= SMALL else SMALL_H})
    there.execute("UPDATE pgsched.rollup_mark SET counted_until = now()")
    log_step(f"console: the figures of a year ({time.monotonic() - began:.0f} s)")
    there.execute(LIVE, {"n": OPEN})
    for text in MORE:
        there.execute(text.encode())
    there.execute("RESET session_replication_role")
    for table in ("runs", "attempts", "rollups", "jobs", "alerts", "audit"):
        there.execute(f"VACUUM ANALYZE pgsched.{table}".encode())
    there.execute("CHECKPOINT")
    log_step(f"console: filled in {time.monotonic() - began:.0f} s, {scalar(there, SIZE)}")


SIZE = "SELECT pg_size_pretty(pg_database_size(current_database()))"

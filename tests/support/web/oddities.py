"""A database as odd as its checks allow, and odder: rows that no client of pgsched would write."""

from __future__ import annotations

import psycopg

from tests.support.web.console import one

NAMES = (
    *(
        "a/b",
        "ä ö",
        "50 %",
        "?x=1&y=2#z",
        "x" * 200,
        "<b>&amp;\"'",
        "#",
        "日本語",
        "\u05d0\u05d1 rtl",
        "🙂",
        "with  two",
    ),
    *("%2F", "a\\b"),
    "night\u200bly\u202e\ufeff\u00ad\u200dx",
)
STATES = ("waiting", "scheduled", "queued", "running", "succeeded", "dead", "missed", "skipped", "cancelled")
DEEP = "[" * 3000 + "]" * 3000
VALUES = (
    *("null", "0", '"text"', "[]", '[1, [2, {"a": null}]]', "1e400", "1e5000", DEEP),
    *('{"done": 3, "attempt": 0}', '{"done": "x", "total": {}}', '{"\\u001b[31m": "\\u202e"}'),
)
JOB = """
INSERT INTO pgsched.jobs (name, task, schedule, timezone, description, tags, queue)
VALUES (%(name)s, left(%(name)s, 100), (ARRAY['0 2 * * *', '@every 7s', NULL])[1 + %(n)s %% 3],
    (ARRAY['UTC', 'Pacific/Chatham'])[1 + %(n)s %% 2], repeat(%(name)s, 3), ARRAY[left(%(name)s, 50)], 'q ' || %(n)s)
"""
RUN = """
INSERT INTO pgsched.runs (task, kind, state, args, result, progress, job_id, scheduled_at, available_at, created_at,
    started_at, finished_at, attempt, error, reason, covers_count, covers_from, covers_until, owner, token, lease_until,
    origin)
SELECT 't', 'task', %(state)s, %(value)s::jsonb, %(value)s::jsonb, %(value)s::jsonb, job, slot, due, now(),
    CASE WHEN %(n)s > 2 THEN now() END, CASE WHEN %(n)s > 3 THEN now() END, %(m)s, 'e', 'r', 3,
    now() - interval '9 days', now(), 'me', gen_random_uuid(), now(), 'schedule'
FROM (SELECT (ARRAY[NULL, (SELECT min(id) FROM pgsched.jobs), 999999])[1 + %(m)s %% 3] AS job,
             CASE WHEN %(m)s %% 3 > 0 THEN now() - (%(n)s * 20 + %(m)s) * interval '1 h' END AS slot,
             CASE WHEN %(n)s > 2 THEN now()
                  WHEN %(n)s = 0 THEN (ARRAY[now(), '8999-06-01', '2026-01-01 00:00Z'])[1 + %(m)s %% 3]
                  ELSE (ARRAY[now(), '8990-06-01', '2026-01-01 00:00Z'])[1 + %(m)s %% 3] END AS due) x
"""
MORE = """
UPDATE pgsched.jobs SET after_jobs = ARRAY[(SELECT min(id) FROM pgsched.jobs)] WHERE name = '#';
UPDATE pgsched.jobs SET paused = true, paused_reason = 'x' WHERE name = '50 %';
UPDATE pgsched.jobs SET args = '{"a": [1, {"b": null}]}' WHERE name = '🙂';
INSERT INTO pgsched.job_calendars (job_id, from_date, until_date)
    SELECT id, current_date, current_date + 40 FROM pgsched.jobs WHERE name = 'a/b';
INSERT INTO pgsched.pauses (what, name, reason, resume_at)
    VALUES ('all', '', 'evil', now() + interval '1 day'), ('queue', 'q 1', NULL, NULL), ('task', 't', '<b>', NULL);
INSERT INTO pgsched.queues (name, concurrency_limit, rate, rate_period, max_depth, ageing)
    VALUES ('q/1?', 0, 3, '7 s', 1, '90 s');
INSERT INTO pgsched.limits (name, concurrency, weight) VALUES ('k&', 1, 3);
INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)
    VALUES ('w:1', 'w', 1, '0', 1, '{task}', '{t}', '1 min'), ('old', 'h', 2, '0', 3, '{}', '{}', '1 s');
UPDATE pgsched.workers SET seen_at = now() - interval '3 min' WHERE name = 'old';
INSERT INTO pgsched.alerts (job_id, job, kind, details, run_id)
    VALUES (999999, 'gone/job', 'failures', 'd', 7), (0, NULL, 'no_leader', 'd', NULL);
DELETE FROM pgsched.jobs WHERE name = '%2F';
"""


def build(db: psycopg.Connection) -> None:
    """Write all odd rows; `db` is in autocommit mode."""
    for n, name in enumerate(NAMES):
        db.execute(JOB.encode(), {"n": n, "name": name})
        db.execute(
            "SELECT pgsched.lock_acquire(%s, gen_random_uuid(), '1 hour', note => %s)", [name, f"{name}\x1b[31m"]
        )
    db.execute("SELECT pgsched.backfill('a/b', now() - interval '3 days', now() - interval '1 day')")
    db.execute("SET session_replication_role = replica")
    for n, state in enumerate(STATES):
        for m, value in enumerate(VALUES):
            db.execute(RUN.encode(), {"n": n, "m": m, "state": state, "value": value})
    db.execute("RESET session_replication_role")
    db.execute(MORE.encode())
    parent, child = (one(db, "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id") for _ in range(2))
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", [child, parent])
    db.execute("SET session_replication_role = replica")
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, 999999)", [child])
    db.execute("RESET session_replication_role")
    odd = "\x1b[31m\u202e\r\n\x07"
    db.execute(
        "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, finished_at, error, traceback, log_tail)"
        " VALUES (%s, gen_random_uuid(), 1, 'failed', now(), %s, %s, %s)",
        [parent, odd, odd, odd],
    )
    db.execute(
        "INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk)"
        " SELECT %s, 1, n, 'stderr', repeat('x', 9000) FROM generate_series(1, 250) n",
        [parent],
    )

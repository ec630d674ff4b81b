"""A database that has rows of every kind, for fuzzed statements to meet."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.support.fuzz.answers import INTERNAL, documented, told

ROWS = """
INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('every', 't', '* * * * *');
INSERT INTO pgsched.jobs (name, task) VALUES ('once', 't');
INSERT INTO pgsched.jobs (name, task, schedule, overlap, concurrency_key, concurrency_limit)
    VALUES ('held', 't', '@every 1h', 'buffer_all', 'limited:{args.x}', 1);
INSERT INTO pgsched.jobs (name, task, schedule, after_jobs) VALUES ('after', 't', '0 3 * * *', '{1}');
INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('limited', 1);
INSERT INTO pgsched.queues (name, max_depth) VALUES ('full', 1);
INSERT INTO pgsched.limits (name, concurrency, rate, rate_period) VALUES ('limited', 1, 1, '1 second');
INSERT INTO pgsched.runs (task, state, token, lease_until, started_at)
    VALUES ('t', 'running', '00000000-0000-0000-0000-000000000001', now() + interval '1 hour', now());
INSERT INTO pgsched.runs (task, state, finished_at) SELECT 't', s, now()
    FROM unnest('{succeeded,dead,cancelled,skipped,missed}'::text[]) s;
INSERT INTO pgsched.runs (task, available_at) VALUES ('t', now() + interval '1 day');
INSERT INTO pgsched.runs (task, unique_key) VALUES ('t', 'taken');
INSERT INTO pgsched.runs (task, queue) VALUES ('t', 'full');
INSERT INTO pgsched.runs (task, queue, concurrency_key) VALUES ('t', 'limited', 'limited:1');
INSERT INTO pgsched.runs (job_id, scheduled_at, task, origin, state, finished_at, covers_from, covers_until,
        covers_count)
    VALUES (1, '2026-01-01Z', 't', 'schedule', 'missed', now(), '2026-01-01Z', '2026-01-02Z', 24);
SELECT pgsched.enqueue('t', idempotency_key => 'kept');
SELECT pgsched.enqueue('t', after => '{1,2}');
SELECT pgsched.trigger('every');
SELECT pgsched.backfill('every', '2026-01-01Z', '2026-01-02Z');
INSERT INTO pgsched.pauses (what, name) VALUES ('task', 'paused');
INSERT INTO pgsched.job_calendars (job_id, from_date, until_date) VALUES (1, '2026-12-24', '2026-12-26');
INSERT INTO pgsched.calendars (name) VALUES ('furnished');
INSERT INTO pgsched.calendar_times (calendar, from_date, until_date, weekdays, from_time, until_time)
    VALUES ('furnished', '2026-12-24', '2026-12-26', NULL, NULL, NULL),
        ('furnished', NULL, NULL, '{0,6}', '08:00', '24:00');
"""


def furnish(db: psycopg.Connection[Any]) -> None:
    """Insert the rows, and limit each statement of the session to 20 seconds."""
    db.execute(ROWS.encode())
    db.execute("SET statement_timeout = '20s'")


def answer(
    db: psycopg.Connection[Any], statement: str, values: list[str | None], internal: bool = False, raw: bool = True
) -> str | None:
    """Run a statement and roll it back; return the SQLSTATE of its error, None if there is none.

    Fail if the SQLSTATE is not documented or, unless `raw`, if the message does not name what was wrong.
    """
    with db.transaction(force_rollback=True):
        try:
            with db.transaction():
                db.execute(statement.encode(), values)
            db.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            known = documented(error, raw) or (internal and error.sqlstate in INTERNAL) or unread(db, error)
            assert known, f"{told(error)}\n{statement}\n{values}"
            return error.sqlstate
    return None


def unread(db: psycopg.Connection[Any], error: psycopg.Error) -> bool:
    """Return whether the server could not read an interval: before 17, infinite and some large ones are unknown."""
    of_interval = "interval" in (error.diag.message_primary or "")
    return db.info.server_version < 170_000 and of_interval and error.sqlstate in ("22007", "22008", "22015")

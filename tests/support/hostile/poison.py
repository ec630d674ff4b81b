"""Rows whose JSON columns hold values that PostgreSQL accepts and Python cannot read.

Triggers refuse such values today. The rows are as an older release let them in, or as a superuser writes them.
"""

from __future__ import annotations

from typing import Any

import psycopg

from tests.support.logins import one

POISONS = {
    "a long number": '{"n": 1e5000}',
    "many levels": '{"n": ' + "[" * 3000 + "]" * 3000 + "}",
}
# Pairs of a table and its JSON column.
COLUMNS = {
    ("archived_runs", "run"),
    ("audit", "change"),
    ("items", "value"),
    ("jobs", "args"),
    ("kept_keys", "result"),
    ("runs", "args"),
    ("runs", "options"),
    ("runs", "progress"),
    ("runs", "result"),
    ("store", "value"),
    ("store_changes", "value"),
    ("tasks", "options"),
    ("tasks", "schema"),
    ("workers", "lost_runs"),
}
# JSON columns that cannot hold such values: triggers and checks allow only a few keys and intervals, or only the leader
# writes them, and writes instants.
CHECKED = {"keep", "shifts"}
MAKE = """
INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('poisoned', 't', '@every 1h') ON CONFLICT DO NOTHING;
SELECT pgsched.enqueue('t', idempotency_key => gen_random_uuid()::text);
INSERT INTO pgsched.runs (task) VALUES ('t');
INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)
    SELECT 'w', 'h', 1, '0', 1, '{task}', '{t}', '1 min' WHERE NOT EXISTS (SELECT FROM pgsched.workers);
INSERT INTO pgsched.tasks (task, app, release, owner) VALUES ('t', 'a', '1', current_user) ON CONFLICT DO NOTHING;
INSERT INTO pgsched.archived_runs (run_id, queue, task, state, finished_at, run)
    VALUES (7, 'default', 't', 'succeeded', now(), '{}') ON CONFLICT DO NOTHING;
SELECT pgsched.kv_put('poisoned', '1'), pgsched.kv_put('poisoned/a', '1');
SELECT pgsched.item_put('poisoned', '1'), pgsched.item_put('poisoned', '2');
SELECT pgsched.lock_acquire('poisoned', gen_random_uuid(), kind => 'election');
"""
EVERY = """
SELECT c.relname::text, a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'pgsched'::regnamespace AND c.relkind IN ('r', 'p')
    AND a.atttypid IN ('json'::regtype, 'jsonb'::regtype) AND a.attnum > 0 AND NOT a.attisdropped
"""


def poisonable(db: psycopg.Connection[Any]) -> set[tuple[str, str]]:
    """Return every JSON column that may hold any value."""
    return {(table, column) for table, column in db.execute(EVERY).fetchall() if column not in CHECKED}


def poison(db: psycopg.Connection[Any], value: str) -> dict[str, int]:
    """Write this value into each of COLUMNS; return the ids of a succeeded run and of a child that waits for it."""
    db.execute(MAKE.encode())
    run, child = db.execute("SELECT id FROM pgsched.runs ORDER BY id DESC LIMIT 2").fetchall()[::-1]
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", [child[0], run[0]])
    db.execute("SET session_replication_role = replica")
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', phase = 3, started_at = now(), finished_at = now(),"
               " attempt = 1 WHERE id = %s", [run[0]])  # fmt: skip
    for table, column in sorted(COLUMNS):
        db.execute(f"UPDATE pgsched.{table} SET {column} = %s".encode(), [value])
        assert one(db, f"SELECT count(*) FROM pgsched.{table}") > 0
    db.execute("RESET session_replication_role")
    return {"run": run[0], "child": child[0]}

"""The audit is complete: it notes every column and every function by which an operator can change something.

Invariant: the grants are read from the catalog, so a new grant is tested as well. A new column is written with a value
of its type. A new function fails the test until it is listed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support.logins import Logins, one

COLUMNS = """
SELECT c.relname::text, a.attname::text, format_type(a.atttypid, NULL)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'pgsched'::regnamespace AND c.relkind IN ('r', 'p')
    AND has_column_privilege(c.oid, a.attnum, %s) ORDER BY 1, a.attnum
"""
TABLES = """
SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'pgsched'::regnamespace AND c.relkind IN ('r', 'p')
    AND has_table_privilege(c.oid, %s) ORDER BY 1
"""
FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'pgsched'::regnamespace AND p.prokind = 'f'
    AND p.prosecdef AND p.provolatile = 'v' AND has_function_privilege(p.oid, 'EXECUTE') ORDER BY 1
"""
# New work changes nothing that exists; the owner of the run says which role made it.
WORK = {"runs", "dependencies"}
ROWS = """
INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 't', '@every 1h'), ('other', 't', '@every 1h');
INSERT INTO pgsched.job_calendars (job_id, from_date, until_date)
    SELECT id, '2030-01-01', '2030-01-02' FROM pgsched.jobs WHERE name = 'j';
INSERT INTO pgsched.calendars (name) VALUES ('c'), ('unused');
INSERT INTO pgsched.calendar_times (calendar, from_date, until_date, weekdays, from_time, until_time)
    VALUES ('c', '2030-01-01', '2030-01-02', '{1}', '10:00', '11:00');
INSERT INTO pgsched.runs (task, tags) VALUES ('t', '{a}');
INSERT INTO pgsched.queues (name, concurrency_limit, rate, rate_period) VALUES ('q', 3, 3, '7 s');
INSERT INTO pgsched.limits (name, concurrency, rate, rate_period) VALUES ('l', 3, 3, '7 s');
INSERT INTO pgsched.pauses (what, name) VALUES ('task', 'p');
INSERT INTO pgsched.alerts (job_id, job, kind, details) VALUES (1, 'j', 'failures', 'd');
INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)
    VALUES ('w', 'h', 1, '0', 1, '{task}', '{t}', '1 min');
INSERT INTO pgsched.kept_keys (scope, key, run_id, task, expires_at)
    VALUES ('idempotency', 'k', 1, 't', now() + interval '1 day');
INSERT INTO pgsched.tasks (task, app, release, owner) VALUES ('t', 'a', '1', current_user);
INSERT INTO pgsched.calendars (name) VALUES ('another');
INSERT INTO pgsched.file_owners (name) VALUES ('f'), ('another'), ('unused');
INSERT INTO pgsched.file_entries (owner, what, name) VALUES ('f', 'limit', 'another');
"""
WHERE = {
    "jobs": "WHERE name = 'j'",
    "pauses": "WHERE name = 'p'",
    "calendars": "WHERE name = 'unused'",
    "file_owners": "WHERE name = 'f'",
}  # for tables with several rows
# Values that differ from those in ROWS: by column here, by type in TYPES.
VALUES = {
    "kind": "'command'",
    "timezone": "'Europe/Berlin'",
    "schedule": "'@every 2h'",
    "run_at": "'2030-01-01Z', schedule = NULL",
    "starts_at": "'2027-01-01Z'",
    "ends_at": "'2030-01-01Z'",
    "overlap": "'allow'",
    "jobs.mode": "'shadow'",
    "calendars.name": "'renamed'",
    "alert_to": "ARRAY['another']",
    "max_buffer": "7",
    "catch_up": "'all'",
    "backoff": "'linear'",
    "concurrency_key": "'c'",
    "concurrency_limit": "7",
    "after_jobs": "ARRAY[2]::bigint[]",
    "after_match": "'latest'",
    "ping_url": "'https://example.com'",
    "resume_from": "'pause', paused = true",
    "jobs.paused_by": "'another', paused = true",
    "jobs.paused_reason": "'another', paused = true",
    "keep": '\'{"any": "9 days"}\'',
    "priority": "7",
    "owner": "current_user",
    "file_entries.owner": "'another'",
    "file_entries.run_at": "'2030-01-01Z'",
    "decides": "'{mode}'",
    "what": "'queue'",
    "on_full": "'shed_oldest'",
    "rate_burst": "9",
    "fair": "true",
    "ageing": "'9 s'",
    "weight": "9",
    "args": "'{\"a\": 1}'",
    "success_codes": "ARRAY[3]",
    "retry_codes": "ARRAY[4]",
    "dead_codes": "ARRAY[5]",
    "queue": "'q'",
    "backoff_jitter": "0.25",
    "jitter": "'1 s'",
    "from_date": "'2029-12-31'",
    "until_date": "'2030-02-01'",
    "from_time": "'09:00'",
    "until_time": "'12:00'",
    "calendar": "'c'",
    "on_excluded": "'previous'",
    "mode": "'shadow'",
    "catch_up_window": "'2 hours'",
    "expect_every": "'2 hours'",
    "misfire_after": "'2 hours'",
    "tags": "ARRAY['x']",
    "resume_at": "'2030-01-01Z'",
    "keep_minutes": "'9 days'",
    "keep_hours": "'9 days'",
    "max_runs": "9",
    "paused": "true",
    "delete_after_run": "true, schedule = NULL, run_at = '2030-01-01Z'",
    "applied_at": "NULL",
}
TYPES = {
    "text": "'another'", "integer": "7", "smallint": "7", "boolean": "true", "interval": "'2 hours'", "bigint": "7",
    "timestamp with time zone": "'2027-01-01Z'", "double precision": "0.25", "jsonb": """'{"a": 1}'""", "name": "'x'",
}  # fmt: skip
# Columns that the database itself writes with a change, or that hold the state of a limit: of no use in the audit.
NOT_CHANGES = {
    ("pauses", "paused_at"),
    ("limits", "applied_at"),
    ("queues", "applied_at"),
    ("pauses", "waits_for"),
    ("queues", "limited"),
    ("file_owners", "applied_at"),
}
INSERTS = {
    "jobs": "(name, task) VALUES ('new', 't')",
    "job_calendars": "(job_id, from_date, until_date) VALUES (2, '2030-01-01', '2030-01-02')",
    "calendars": "(name) VALUES ('new')",
    "calendar_times": "(calendar, from_date) VALUES ('c', '2031-01-01')",
    "queues": "(name, concurrency_limit) VALUES ('new', 1)",
    "limits": "(name, concurrency) VALUES ('new', 1)",
    "pauses": "(what, name) VALUES ('task', 'new')",
    "alerts": "(job_id, kind, details) VALUES (0, 'test', 'd')",
    "file_owners": "(name) VALUES ('new')",
    "file_entries": "(owner, what, name) VALUES ('f', 'queue', 'q')",
}
# for tables with several rows
DELETED = {"jobs": "WHERE id = 1", "calendars": "WHERE name = 'c'", "file_owners": "WHERE name = 'unused'"}
# The arguments for each function that changes something.
CALLS = {
    "cancel": "(1, 'why')",
    "update_run": "(5, 7)",
    "retry": "(3)",
    "retry_now": "(3)",
    "retry_tree": "(3)",
    "cancel_backfill": "(1, 'why')",
    "trigger": "('j')",
    "reset_mark": "('other')",
    "backfill": "('j', '2026-01-01Z', '2026-01-02Z')",
    "backfill_in_order": "(ARRAY['j'], '2026-01-01Z', '2026-01-02Z')",
    "meet_run": "(1, 'replace', 't', '{\"env\": 1}', now())",
    "set_tags": "(1, '{x}')",
    "delete_job": "('j')",
    "include_dates": "('j', '2030-01-01', '2030-01-02')",
    "delete_calendar": "('unused')",
    "remove_calendar_times": "('c', '{1}')",
    "lock_break": "('l')",
    "grant_names": "('l', 'pgsched_viewer')",
    "revoke_names": "('n', 'pgsched_viewer')",
    "restored": "()",
}
FOR_CALLS = """
INSERT INTO pgsched.runs (id, task, state, started_at, finished_at) OVERRIDING SYSTEM VALUE
    VALUES (3, 't', 'dead', now(), now());
INSERT INTO pgsched.runs (id, task) OVERRIDING SYSTEM VALUE VALUES (5, 't');
INSERT INTO pgsched.name_grants VALUES ('n', 'pgsched_viewer');
SELECT pgsched.lock_acquire('l', gen_random_uuid());
UPDATE pgsched.jobs SET decided_until = now() + interval '1 day' WHERE name = 'other';
INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at)
    SELECT id, name, schedule, timezone, anchor_at, '2026-01-01Z', '2026-01-02Z' FROM pgsched.jobs WHERE name = 'j';
"""
# Functions with the rights of their owner that still change nothing for a person: keys, places, traces and locks of
# new work, notifications, what programs coordinate with. Without those rights, a function changes only what its caller
# may: the columns above.
OTHERS = {
    *(
        "take_key",
        "take_queued_key",
        "bind_key",
        "run_of_key",
        "entry_state",
        "hold_run",
        "assert_claim",
        "carry_trace",
    ),
    *("tell_once", "workers_asleep", "await_runs", "forget_slots"),
    *("session_open", "session_renew", "session_end", "session_leases", "lock_acquire", "lock_release", "assert_lock"),
    *("lock_line", "lock_list", "lock_renew"),
    *("item_put", "item_put_many", "item_get", "item_consume", "item_consume_many", "item_give_back", "item_extend"),
    *("item_leave", "item_counts"),
    *("kv_put", "kv_delete", "kv_add", "kv_get", "kv_list", "kv_changes"),  # values of programs
    *("barrier_enter", "barrier_leave", "barrier_withdraw"),
    *("node_create", "node_delete", "node_prune", "node_read", "node_roots", "node_set"),
}


@pytest.fixture
def ops(logins: Logins, db: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    db.execute(ROWS.encode())
    yield logins.connect("ops")


def noted(ops: psycopg.Connection[Any], statement: str) -> str:
    """Make a change and roll it back; return the number of its rows in the audit, or the error."""
    try:
        with ops.transaction(force_rollback=True):
            before = one(ops, "SELECT count(*) FROM pgsched.audit")
            if ops.execute(statement.encode()).rowcount == 0:
                return "no row"
            return f"{one(ops, 'SELECT count(*) FROM pgsched.audit') - before} rows"
    except psycopg.Error as error:
        return str(error).partition("\n")[0]


def test_every_column_that_an_operator_may_write_is_in_the_audit(ops: psycopg.Connection[Any]) -> None:
    wrong = {}
    granted = ops.execute(COLUMNS, ["UPDATE"]).fetchall()
    assert len(granted) > 70
    for table, column, kind in granted:
        value = VALUES.get(f"{table}.{column}") or VALUES.get(column) or TYPES.get(kind, "NULL")
        where = WHERE.get(table, "")
        said = noted(ops, f"UPDATE pgsched.{table} SET {column} = {value} {where}")
        if said != "1 rows" and (table, column) not in NOT_CHANGES:
            wrong[f"{table}.{column} = {value}"] = said
    assert wrong == {}


def test_every_insert_and_delete_of_an_operator_is_in_the_audit(ops: psycopg.Connection[Any]) -> None:
    tables = {table for table, _, _ in ops.execute(COLUMNS, ["INSERT"]).fetchall()} - WORK
    assert tables == INSERTS.keys()
    found = {f"INSERT {table}": noted(ops, f"INSERT INTO pgsched.{table} {INSERTS[table]}") for table in tables}
    for (table,) in ops.execute(TABLES, ["DELETE"]).fetchall():
        found[f"DELETE {table}"] = noted(ops, f"DELETE FROM pgsched.{table} {DELETED.get(table, '')}")
    assert {what: said for what, said in found.items() if said != "1 rows"} == {}
    assert "DELETE kept_keys" in found


def test_every_function_that_changes_something_is_in_the_audit(
    ops: psycopg.Connection[Any], db: psycopg.Connection[Any]
) -> None:
    db.execute(FOR_CALLS.encode())
    names = {row[0].removeprefix("pgsched.").partition("(")[0] for row in ops.execute(FUNCTIONS).fetchall()}
    assert names >= CALLS.keys()
    found = {name: noted(ops, f"SELECT pgsched.{name}{CALLS[name]}") for name in CALLS}
    assert {name: said for name, said in found.items() if said != "1 rows"} == {}
    assert names - CALLS.keys() - OTHERS == set(), "new ones: do they change something that a person should answer for?"


def test_only_the_leader_can_change_alerts_without_a_row_in_the_audit(
    ops: psycopg.Connection[Any], logins: Logins, db: psycopg.Connection[Any]
) -> None:
    close = "UPDATE pgsched.alerts SET closed_at = clock_timestamp()"
    assert noted(ops, f"WITH said AS (SELECT set_config('pgsched.watches', 'on', true)) {close} FROM said") == "1 rows"
    leader = logins.connect("leader")
    before = one(db, "SELECT count(*) FROM pgsched.audit")
    leader.execute(f"WITH said AS (SELECT set_config('pgsched.watches', 'on', true)) {close} FROM said".encode())
    assert one(db, "SELECT count(*) FROM pgsched.audit") == before

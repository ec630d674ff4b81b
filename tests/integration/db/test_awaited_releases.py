"""The health check finds tasks whose newest release no live worker has.

Every health check asks for them, so the statement must read few rows, however many workers have stopped.
"""

from __future__ import annotations

import json
from typing import Any

import psycopg

from pgsched.db.statements import sql

STOPPED = """INSERT INTO pgsched.workers (name, hostname, pid, version, app, concurrency, kinds, tasks, releases, lease,
        started_at, seen_at, stopped_at)
    SELECT 'w', 'h', 1, '1', 'shop', 1, '{task}', '{t,u}', '{old,gone}', '30 s', at, at, at
    FROM (SELECT clock_timestamp() - make_interval(secs => n) FROM generate_series(100, 3099) n) v(at)"""


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(found for part in plan.get("Plans", ()) for found in nodes(part))]


def test_at_most_1000_stopped_workers_are_read(db: psycopg.Connection) -> None:
    db.execute(STOPPED)
    db.execute("INSERT INTO pgsched.tasks (task, app, release, options, owner, first_seen_at)"
               " SELECT t, 'shop', r, '{}', current_user, clock_timestamp() - interval '5 s'"
               " FROM (VALUES ('t', 'new'), ('u', 'gone')) v(t, r)")  # fmt: skip
    db.execute("ANALYZE pgsched.workers; SET enable_seqscan = off")
    asked = {"tasks": ["t", "u", "unknown"]}
    found = {task: round(gone_s) for task, gone_s in db.execute(sql("health_releases_gone"), asked).fetchall()}
    assert set(found) == {"t", "u"}
    assert found["t"] < 60, "nobody is known that had it: since it was registered"
    assert 100 <= found["u"] < 160, "since the last one was seen"
    row = db.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + sql("health_releases_gone"), asked).fetchone()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    read = [node["Actual Rows"] for node in nodes(plan[0]["Plan"]) if node.get("Relation Name") == "workers"]
    assert read, "it looks for who had it"
    assert max(read) <= 1000

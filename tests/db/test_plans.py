"""With a million finished runs no hot statement reads or sorts the table, whatever the statistics say.

Each statement is planned on the kind of session that sends it, by the generic plan that a prepared statement ends in,
once without any statistics and once with those of a quiet moment, when nothing was queued or running.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgsched.db.connect import BY_INDEX, BY_KEY
from pgsched.db.direct import numbering
from pgsched.db.statements import sql

BIG = {"runs", "attempts", "jobs"}
RUNS = 1_000_000
JOBS = 20_000
WORKER = [
    "claim", "claim_start", "claim_again", "claimable_queues", "heartbeat", "cancel_asked", "settle",
    "settle_succeeded", "settle_missing",
]  # fmt: skip
LEADER = [
    "admit_scheduled", "admit_waiting", "expire", "leader_look", "reap", "tick_due", "tick_open", "tick_crossed",
    "tick_insert", "tick_advance", "tick_replace", "leader_term", "leader_fence", "prune_pick",
    "claim_ahead", "claim_started",
]  # fmt: skip
# They look runs up by number: an index of open runs would be read from end to end for each of them.
BY_PRIMARY_KEY = {"claim_ahead", "claim_started"}
LEADING = BY_INDEX | {"plan_cache_mode": "force_generic_plan"}


def fill(db: psycopg.Connection[Any]) -> None:
    """Finished runs and jobs that are not due, put in past all triggers; never analyzed."""
    with db.transaction():
        db.execute("ALTER TABLE pgsched.runs SET (autovacuum_enabled = off)")
        db.execute("ALTER TABLE pgsched.jobs SET (autovacuum_enabled = off)")
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "INSERT INTO pgsched.jobs (name, task, schedule, next_run_at, decided_until)"
            " SELECT 'j' || n, 't', '0 0 1 1 *', '2999-01-01', now() FROM generate_series(1, %s) n",
            [JOBS],
        )
        db.execute(
            "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, finished_at)"
            " SELECT CASE WHEN n %% 2 = 0 THEN n %% %s + 1 END,"
            "     CASE WHEN n %% 2 = 0 THEN '2020-01-01Z'::timestamptz + n * interval '1 second' END,"
            "     't', 'succeeded', now() FROM generate_series(1, %s) n",
            [JOBS, RUNS],
        )


def nodes(plan: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """(kind of node, the table that it reads or sorts) of a plan; rows that were looked up by key are a batch."""
    children = plan.get("Plans", [])
    name = plan.get("Relation Name") or plan.get("CTE Name") or ""
    if plan["Node Type"] == "Sort":
        name = next((c.get("Relation Name") or "" for c in children if c.get("Index Name") != "runs_pkey"), "")
    yield plan["Node Type"], name
    for child in children:
        yield from nodes(child, plan["Node Type"])


def bad_nodes(db: psycopg.Connection[Any], name: str) -> list[tuple[str, str, str]]:
    """What the statement's generic plan does to a big table that it must not."""
    numbered, found = numbering(sql(name))
    db.execute(b"PREPARE planned AS " + numbered)
    try:
        nulls = f"({', '.join(['NULL'] * len(found))})" if found else ""
        row = db.execute(f"EXPLAIN (FORMAT JSON) EXECUTE planned{nulls}".encode()).fetchone()
    finally:
        db.execute("DEALLOCATE planned")
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    told = {(name, kind, table) for kind, table in nodes(plan[0]["Plan"])}
    indexes = {index for index in indexes_of(plan[0]["Plan"]) if name in BY_PRIMARY_KEY and index != "runs_pkey"}
    return sorted({node for node in told if is_bad(*node[1:])} | {(name, "Index Scan", index) for index in indexes})


def indexes_of(plan: dict[str, Any]) -> Iterator[str]:
    """The indexes of `runs` that a plan reads."""
    if plan.get("Relation Name") == "runs" and "Index Name" in plan:
        yield plan["Index Name"]
    for child in plan.get("Plans", []):
        yield from indexes_of(child)


def is_bad(kind: str, table: str) -> bool:
    """A scan of a big table, a hash of it, or a sort of what comes from it rather than from one batch (a CTE)."""
    return table in BIG and kind in ("Seq Scan", "Bitmap Heap Scan", "Sort")


def bad_plans(db: psycopg.Connection[Any]) -> list[tuple[str, str, str]]:
    bad = []
    for settings, names in ((BY_KEY, WORKER), (LEADING, LEADER)):
        with db.transaction():
            for setting, value in settings.items():
                db.execute(f"SET LOCAL {setting} = {value}".encode())
            for name in names:
                bad += bad_nodes(db, name)
    return bad


@pytest.mark.slow
def test_the_hot_statements_go_by_their_indexes(db: psycopg.Connection[Any]) -> None:
    fill(db)
    assert bad_plans(db) == [], "without statistics"
    db.execute("ANALYZE pgsched.runs, pgsched.jobs")
    assert bad_plans(db) == [], "with the statistics of a quiet moment"


def test_a_statement_that_reads_the_whole_table_is_seen(db: psycopg.Connection[Any]) -> None:
    with db.transaction():
        for way in ("indexscan", "indexonlyscan", "bitmapscan"):
            db.execute(f"SET LOCAL enable_{way} = off".encode())
        assert ("settle_missing", "Seq Scan", "runs") in bad_nodes(db, "settle_missing")

"""With a million finished runs, no hot statement reads or sorts a whole table, whatever the statistics are.

Each statement is planned with the settings of the sessions that send it. The plan is the generic plan, which a prepared
statement gets in the end. Each statement is planned twice: without statistics, and with those of a quiet moment, when
nothing was queued or running.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import BY_INDEX, BY_KEY
from pgsched.db.statements import sql
from pgsched.db.statements import statements as all_statements
from tests.support.databases import Databases
from tests.support.db.plans import (
    ASKED,
    BIG,
    FEW,
    LEADER,
    WORKER,
    Plan,
    allowed,
    bounds,
    indexes,
    is_accounted,
    misdeeds,
    nodes,
    numbering,
    relying,
)

pytestmark = pytest.mark.long  # to make a million runs takes long

RUNS = 1_000_000
JOBS = 20_000
LEADING = BY_INDEX | {"plan_cache_mode": "force_generic_plan"}
SESSIONS = ((BY_KEY, WORKER), (LEADING, LEADER))
NEEDED = [
    "runs_claim", "runs_scheduled", "runs_waiting", "runs_waiting_of_job", "runs_ready", "runs_of_key", "runs_expiring",
    "runs_held", "runs_open_of_job", "runs_slot", "runs_finished", "runs_backfill", "jobs_due",
    "runs_ended_parents", "jobs_done_once", "jobs_watched", "jobs_declared", "dependencies_parent",
    "dependencies_backward", "kept_keys_expires_at", "rollups_of_job", "kept_keys_met", "jobs_in_error", "jobs_keep",
    "jobs_calendar",
]  # fmt: skip
CLAIMS = ["claim", "claim_start", "claim_many", "claim_unconfirmed", "limit_queues", "limit_take_back"]
WORSE = [
    ("runs_claim", "(available_at) WHERE phase = 2", [*CLAIMS, "claimable_queues"]),
    ("runs_claim", "(queue) WHERE phase = 2", ["claim", "claim_start", "claim_many"]),
    ("runs_claim", "(priority, queue, available_at, id) WHERE phase = 2", ["claim_start", "claimable_queues"]),
    ("runs_waiting_of_job", "(job_id) WHERE phase = 0 AND ready_at IS NULL", ["admit_waiting"]),
    ("runs_scheduled", "(id) WHERE phase = 1", ["admit_scheduled"]),
    ("runs_ready", "(queue) WHERE ready_at IS NOT NULL AND phase = 0", ["limit_candidates", "limit_groups"]),
    ("runs_of_key", "(concurrency_key) WHERE concurrency_key IS NOT NULL AND phase < 3", ["limit_candidates"]),
    ("jobs_due", "(id) WHERE NOT paused AND next_run_at IS NOT NULL", ["tick_due"]),
]
READERS = [  # of a job with a history
    "SELECT * FROM pgsched.preview('j11')",
    "SELECT pgsched.explain('j11')",
    "SELECT pgsched.explain('j11', '2020-01-03Z')",
    "SELECT pgsched.explain('j11', '2019-01-01Z')",
    "SELECT * FROM pgsched.recent_runs()",
    "SELECT * FROM pgsched.recent_runs('j11', 1000)",
    "SELECT * FROM pgsched.job_status('j11')",
    "SELECT * FROM pgsched.job_status()",
    "SELECT * FROM pgsched.slots('j11', '2020-01-01Z')",
    "SELECT * FROM pgsched.slots('j11', '2020-01-01Z', '2020-01-02Z', 3)",
]
EACH_ONE = [  # what people and clients in other languages send, with the statements of its triggers and functions
    "SELECT pgsched.enqueue('t', '{}')",
    "SELECT pgsched.enqueue('t', '{}', unique_key => 'k')",
    "SELECT pgsched.enqueue('t', '{}', idempotency_key => 'k')",
    "SELECT pgsched.enqueue('t', '{}', after => ARRAY[500000])",
    "INSERT INTO pgsched.runs (task) VALUES ('t')",
    "UPDATE pgsched.runs SET priority = 3, queue = 'q', args = '{}' WHERE id = 500000",
    "UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE id = 500000",
    "DELETE FROM pgsched.runs WHERE id = 500000",
    "INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('n', '@every 5s', 't')",
    "UPDATE pgsched.jobs SET schedule = '@every 6s', paused = true WHERE name = 'n'",
    "DELETE FROM pgsched.jobs WHERE name = 'n'",
    *READERS,
]
EMPTY = ("dependencies_backward",)  # the index is nearly always empty (migrations/1000_initial/90_indexes.sql)
SCAN = {"Node Type": "Index Scan", "Relation Name": "runs", "Index Name": "runs_claim", "Index Cond": "(queue = $1)"}


def fill(db: psycopg.Connection[Any]) -> None:
    """Insert finished runs and jobs that are not due, without triggers; the tables are never analyzed."""
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


@pytest.fixture(scope="module")
def filled(databases: Databases) -> Iterator[psycopg.Connection[Any]]:
    with databases.one() as dsn, psycopg.connect(dsn, autocommit=True) as db:
        fill(db)
        yield db


@pytest.fixture(scope="module")
def analyzed(filled: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Return the same database, from now on with statistics."""
    filled.execute("ANALYZE pgsched.runs, pgsched.jobs")
    return filled


def plan_of(db: psycopg.Connection[Any], name: str) -> Plan:
    """Return the statement's generic plan."""
    numbered, found = numbering(sql(name))
    db.execute(b"PREPARE planned AS " + numbered)
    try:
        nulls = f"({', '.join(['NULL'] * len(found))})" if found else ""
        row = db.execute(f"EXPLAIN (FORMAT JSON) EXECUTE planned{nulls}".encode()).fetchone()
    finally:
        db.execute("DEALLOCATE planned")
    assert row is not None
    plan: Plan = row[0][0]["Plan"]
    return plan


def leading_columns(db: psycopg.Connection[Any]) -> dict[str, str]:
    return dict(
        db.execute(
            "SELECT c.relname, pg_get_indexdef(c.oid, 1, true) FROM pg_class c"
            " WHERE c.relkind = 'i' AND c.relnamespace = 'pgsched'::regnamespace"
        ).fetchall()
    )


def bad_plans(db: psycopg.Connection[Any], only: Collection[str] | None = None) -> dict[str, set[str]]:
    """Return, by statement, what its plan must not do: misdeeds, and indexes that it may not use."""
    bad, leading = {}, leading_columns(db)
    for settings, statements in SESSIONS:
        with db.transaction(force_rollback=True):
            for setting, value in settings.items():
                db.execute(f"SET LOCAL {setting} = {value}".encode())
            for name in sorted(statements if only is None else only & statements.keys()):
                plan = plan_of(db, name)
                found = indexes(plan, leading)
                bad[name] = misdeeds(plan, leading) | (found - allowed(name, found))
    return {name: found for name, found in bad.items() if found}


# Tests without statistics come first: once a test has made statistics, all later tests have them.


def test_the_hot_statements_use_their_indexes_without_statistics(filled: psycopg.Connection[Any]) -> None:
    assert not has_statistics(filled)
    assert bad_plans(filled) == {}


def test_triggers_and_functions_read_no_big_table_without_statistics(filled: psycopg.Connection[Any]) -> None:
    assert not has_statistics(filled)
    assert nested(filled) == {}


def test_the_hot_statements_use_their_indexes_after_a_quiet_moment(analyzed: psycopg.Connection[Any]) -> None:
    assert bad_plans(analyzed) == {}


@contextmanager
def executed(db: psycopg.Connection[Any]) -> Iterator[list[str]]:
    """Collect the plan, as JSON, of each statement in the block, also of those in triggers and functions."""
    plans: list[str] = []

    def told(notice: psycopg.errors.Diagnostic) -> None:
        _, begin, plan = (notice.message_primary or "").partition("plan:\n")
        if begin:
            plans.append(plan)

    try:
        db.execute("LOAD 'auto_explain'")
    except psycopg.errors.UndefinedFile as missing:
        pytest.skip(f"this server comes without it: {missing}")
    db.add_notice_handler(told)
    try:
        with db.transaction(force_rollback=True):
            for setting, value in (("min_duration", "0"), ("nested_statements", "on"), ("format", "json")):
                db.execute(f"SET LOCAL auto_explain.log_{setting} = {value}".encode())
            db.execute("SET LOCAL client_min_messages = log")
            yield plans
    finally:
        db.remove_notice_handler(told)


def astray(plan: Plan, leading: Mapping[str, str]) -> set[str]:
    """Return what a plan must not do to big tables: misdeeds, and indexes that are read whole.

    Bitmap scans are allowed, because the sessions that send these statements lack pgsched's settings.
    """
    found = {one for one in misdeeds(plan, leading) if not one.startswith("Bitmap")}
    for scan in nodes(plan):
        index = scan.get("Index Name", "")
        big = index.startswith(tuple(f"{table}_" for table in BIG)) and index not in EMPTY
        if big and not bounds(scan, leading):
            found.add(f"all of {index}")
    return found


def nested(db: psycopg.Connection[Any]) -> dict[str, set[str]]:
    """Return, by statement of EACH_ONE, what its plans must not do."""
    bad: dict[str, set[str]] = {statement: set() for statement in EACH_ONE}
    leading = leading_columns(db)
    for mode in ("force_custom_plan", "force_generic_plan"):
        with executed(db) as plans:
            db.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
            for statement in EACH_ONE:
                plans.clear()
                db.execute(statement.encode())
                assert plans, "nothing was told of it"
                bad[statement].update(*(astray(json.loads(plan)["Plan"], leading) for plan in plans))
    return {statement: found for statement, found in bad.items() if found}


def has_statistics(db: psycopg.Connection[Any]) -> bool:
    found = "SELECT EXISTS (SELECT FROM pg_stats WHERE schemaname = 'pgsched' AND tablename IN ('runs', 'jobs'))"
    return db.execute(found).fetchone() == (True,)


def test_triggers_and_functions_read_no_big_table_after_a_quiet_moment(analyzed: psycopg.Connection[Any]) -> None:
    assert nested(analyzed) == {}


def test_a_trigger_that_reads_a_whole_table_is_detected(analyzed: psycopg.Connection[Any]) -> None:
    with analyzed.transaction(force_rollback=True):
        analyzed.execute("""
            CREATE FUNCTION pgsched.counts() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM count(*) FROM pgsched.runs WHERE task = NEW.task; RETURN NEW; END';
            CREATE TRIGGER counts BEFORE INSERT ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION pgsched.counts()
        """)
        assert nested(analyzed).keys() == {one for one in EACH_ONE if "enqueue" in one or "INTO pgsched.runs" in one}


@pytest.mark.parametrize("index", NEEDED)
def test_a_missing_index_is_detected(analyzed: psycopg.Connection[Any], index: str) -> None:
    with analyzed.transaction(force_rollback=True):
        analyzed.execute("SET LOCAL lock_timeout = '5s'")
        analyzed.execute(f"DROP INDEX pgsched.{index}".encode())
        assert bad_plans(analyzed, relying(index)).keys() == relying(index) != set()


@pytest.mark.parametrize(("index", "columns", "names"), WORSE)
def test_a_worse_index_is_detected(
    analyzed: psycopg.Connection[Any], index: str, columns: str, names: list[str]
) -> None:
    table = index.partition("_")[0]
    with analyzed.transaction(force_rollback=True):
        analyzed.execute("SET LOCAL lock_timeout = '5s'")
        analyzed.execute(f"DROP INDEX pgsched.{index}".encode())
        analyzed.execute(f"CREATE INDEX {index} ON pgsched.{table} {columns}".encode())
        assert bad_plans(analyzed, set(names)).keys() == set(names)


@pytest.mark.parametrize("kind", ["Result", "Nested Loop", "Subquery Scan", "LockRows", "Aggregate"])
@pytest.mark.parametrize("gathering", ["Sort", "Incremental Sort", "Hash"])
def test_a_sort_of_the_table_is_detected_through_any_node_between(kind: str, gathering: str) -> None:
    between = {"Node Type": kind, "Strategy": "Sorted", "Plans": [{"Node Type": "CTE Scan"}, SCAN]}
    plan = {"Node Type": "Limit", "Plans": [{"Node Type": gathering, "Plans": [between]}]}
    assert misdeeds(plan, {"runs_claim": "queue"}) == {f"{gathering}: runs"}


@pytest.mark.parametrize(
    "below",
    [
        {"Node Type": "Limit"},
        {"Node Type": "Aggregate", "Strategy": "Plain"},
        {"Node Type": "Nested Loop", "Parent Relationship": "SubPlan"},
    ],
)
def test_a_sort_of_a_batch_is_allowed(below: Plan) -> None:
    plan = {"Node Type": "Sort", "Plans": [below | {"Plans": [SCAN]}]}
    assert misdeeds(plan, {"runs_claim": "queue"}) == set()


def test_every_statement_has_its_plan_looked_at_or_a_reason_why_not() -> None:
    assert [name for name in sorted(all_statements()) if not is_accounted(name)] == []


def test_a_new_statement_is_not_accounted_for_by_its_beginning() -> None:
    beginnings = {name.partition("_")[0] for name in ASKED.split()}
    assert not any(is_accounted(f"{beginning}_new") for beginning in beginnings)


def test_each_list_names_statements_that_exist_once() -> None:
    listed = [*WORKER, *LEADER, *FEW.split(), *ASKED.split()]
    assert sorted(set(listed) - set(all_statements())) == []
    assert sorted(name for name in set(listed) if listed.count(name) > 1) == []


def test_a_statement_that_reads_the_whole_table_is_detected(db: psycopg.Connection[Any]) -> None:
    with db.transaction():
        for way in ("indexscan", "indexonlyscan", "bitmapscan"):
            db.execute(f"SET LOCAL enable_{way} = off".encode())
        assert "Seq Scan: runs" in misdeeds(plan_of(db, "settle_missing"), leading_columns(db))

"""A round of the leader reads no more when old rows have piled up. Rows and pages are counted; no time is measured."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import BY_INDEX
from pgsched.db.queries.leader import leadership, retention, ticks
from pgsched.db.queries.leader.leadership import EVER, Instants
from pgsched.db.statements import sql
from pgsched.leader.timing import floors
from tests.support.db.clocks import moved
from tests.support.db.leading import lead
from tests.support.db.plans import nodes
from tests.support.db.setting import Open, add_jobs, cut, slots
from tests.support.fleet import one

STOPPED = (
    "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, seen_at, stopped_at)"
    " SELECT 'h:' || n, 'h', 1, '1', 8, '{task}', '{t}', '30 s', at, at FROM generate_series(1, %s) n,"
    " LATERAL (SELECT clock_timestamp() - make_interval(secs => %s + 0.001 * n) AS at) a"
)


@pytest.fixture
def leading(connect: Open) -> psycopg.Connection:
    """Return a session with the planner settings of a leader's session."""
    return connect(options=" ".join(f"-c {name}={value}" for name, value in BY_INDEX.items()))


def read(conn: psycopg.Connection, name: str, table: str, **values: Any) -> float:
    """Return how many rows of a table a statement reads, including those that a filter removes."""
    found = explained(conn, name, values)
    scans = [node for node in nodes(found) if node.get("Relation Name") == table]
    rows = [scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) for scan in scans]
    return sum(count * scan["Actual Loops"] for count, scan in zip(rows, scans, strict=True))


def pages(conn: psycopg.Connection, name: str, index: str, **values: Any) -> int:
    """Return how many pages a statement reads through an index."""
    scans = [node for node in nodes(explained(conn, name, values)) if node.get("Index Name") == index]
    return sum(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] for scan in scans)


def explained(conn: psycopg.Connection, name: str, values: dict[str, Any]) -> dict[str, Any]:
    with conn.transaction(force_rollback=True):
        ((found,),) = conn.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql(name), values).fetchall()
    return dict(found[0]["Plan"])


def looked(since: Instants = EVER, searched_s: float = 0.0) -> dict[str, Any]:
    """Return the parameters of the statement leader_look."""
    begins = {"jobs_s": since.job_s, "scheduled_s": since.scheduled_s, "expires_s": since.expires_s}
    begins |= {"held_s": since.held_s, "aside": "{}"}
    return {"term": 1, "searched_s": searched_s, "count": False, "lead_s": 0.01, **begins}


# ---- stopped workers


def test_a_round_reads_no_workers_that_stopped_long_ago(db: psycopg.Connection, leading: psycopg.Connection) -> None:
    db.execute(STOPPED, [5000, 3600])
    db.execute(STOPPED, [7, 31])
    db.execute("ANALYZE pgsched.workers")
    look = looked(searched_s=time.time() - 2)
    assert leadership.find_due_work(leading, 1, searched_s=look["searched_s"]).silent
    db.execute("DELETE FROM pgsched.workers WHERE stopped_at > clock_timestamp() - interval '1 minute'")
    assert read(leading, "leader_look", "workers", **look) < 10
    db.execute("DROP INDEX pgsched.workers_stopped")
    assert read(leading, "leader_look", "workers", **look) >= 5000, "which is what the index is for"


def test_rows_of_stopped_workers_are_deleted_after_an_hour_in_batches(db: psycopg.Connection) -> None:
    db.execute(STOPPED, [250, 3600])
    db.execute(STOPPED, [3, 3000])
    left = []
    for _ in range(3):
        told = retention.delete_other_rows(db, 86400.0, 100)
        left.append((told, one(db, "SELECT count(*) FROM pgsched.workers")))
    assert left == [(100, 153), (100, 53), (50, 3)]


def test_rows_of_stopped_workers_outlive_withdraw_after(db: psycopg.Connection) -> None:
    db.execute(STOPPED, [3, 7000])
    loop = lead(db, prune_every_s=0.0, withdraw_after_s=86400.0)
    loop.run_once()
    assert one(db, "SELECT count(*) FROM pgsched.workers") == 3
    loop.term.settings = replace(loop.term.settings, withdraw_after_s=600.0)
    loop.run_once()
    assert one(db, "SELECT count(*) FROM pgsched.workers") == 0


# ---- started runs whose start deadline has passed


def retrying(db: psycopg.Connection, count: int) -> None:
    """Add runs that have started in time and are to be tried again in an hour."""
    db.execute(
        "INSERT INTO pgsched.runs (task, state, attempt, started_at, available_at, expires_at)"
        " SELECT 't', 'scheduled', 1, now() - interval '2 hours', now() + interval '1 hour',"
        " now() - interval '1 hour' - n * interval '1 ms' FROM generate_series(1, %s) n",
        [count],
    )


@pytest.mark.parametrize("guarded", [True, False])
def test_the_deadline_of_a_started_run_is_read_once(
    guarded: bool, db: psycopg.Connection, leading: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "runs_expire", "r.id = late.id AND late.started", "false")
    retrying(db, 2000)
    assert read(leading, "leader_look", "runs", **looked()) < 20, "where the first one is found"
    assert [ticks.admit(db, 1500), ticks.admit(db, 1500)] == [0, 0]
    assert leadership.find_due_work(db, 1).runs is not guarded, "met again in every round"
    if guarded:
        columns = db.execute("SELECT DISTINCT state, expires_at, reason, finished_at FROM pgsched.runs").fetchall()
        assert columns == [("scheduled", None, None, None)]


# ---- an old snapshot that keeps dead index entries


@pytest.fixture
def pinned(db: psycopg.Connection, connect: Open) -> psycopg.Connection:
    """Decide 500 slots of each of 20 jobs under an old snapshot; return its session.

    Each slot has left a dead entry in the index.
    """
    add_jobs(db, 20, 1)
    old = connect()
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.execute("SELECT 1 FROM pgsched.jobs")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "DO $$ BEGIN FOR n IN 1..500 LOOP UPDATE pgsched.jobs"
            " SET next_run_at = clock_timestamp() - interval '1 hour' + n * interval '2 s'; END LOOP; END $$"
        )
        db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp() + interval '1 hour'")
    return old


@pytest.mark.long
def test_a_pinned_snapshot_does_not_make_each_round_longer(
    pinned: psycopg.Connection, db: psycopg.Connection, leading: psycopg.Connection
) -> None:
    known = floors.Floors()
    before = leadership.find_due_work(leading, 1)
    known.raise_to(before.firsts, before.now_s)
    assert pages(leading, "leader_look", "jobs_due", **looked()) > 100, "all that is dead is read"
    assert pages(leading, "leader_look", "jobs_due", **looked(known.instants)) < 10
    due = {"n": 100, "lead_s": 0.01, "aside": "{}"}
    assert pages(leading, "tick_due", "jobs_due", since_s=0.0, **due) > 100
    assert pages(leading, "tick_due", "jobs_due", since_s=known.instants.job_s, **due) < 40


def test_a_job_that_becomes_visible_below_the_floor_is_found(db: psycopg.Connection) -> None:
    """A job becomes visible below the floor when its transaction took long."""
    loop = lead(db, floors.Floors())
    loop.run_once()
    add_jobs(db, 3, 1)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp() - interval '1 minute'")
    loop.run_once()
    assert slots(db)[0] == 0
    loop.floors.next_at = 0.0  # as if ten seconds had passed
    loop.run_once()
    loop.run_once()
    assert slots(db)[0] == 3


def test_a_locked_due_job_stays_above_the_floor(db: psycopg.Connection, connect: Open) -> None:
    add_jobs(db, 1, 1)
    other = connect()
    other.execute("BEGIN")
    other.execute("UPDATE pgsched.jobs SET description = 'x'")
    loop = lead(db, floors.Floors())
    loop.floors.next_at = time.monotonic() + 600  # no look below the floors
    known = floors.Floors()
    for ahead_s in (0, 100, 200):  # as if time passed
        look = leadership.find_due_work(db, 1, since=known.instants)
        known.raise_to(look.firsts, look.now_s + ahead_s)
    loop.floors.instants = known.instants
    loop.run_once()
    assert slots(db)[0] == 0
    other.rollback()
    loop.run_once()
    assert slots(db)[0] == 1


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE pgsched.jobs SET paused = false, resume_from = 'pause'",
        "UPDATE pgsched.jobs SET paused = false; UPDATE pgsched.jobs SET next_run_at = now() - interval '1 day'",
        "INSERT INTO pgsched.jobs (name, task, run_at, misfire_after) VALUES ('o', 't', now() - interval '1 d', '2 d')",
    ],
)
def test_a_job_that_an_edit_makes_due_is_above_the_floor(edit: str, db: psycopg.Connection) -> None:
    add_jobs(db, 1, 1)
    db.execute("UPDATE pgsched.jobs SET paused = true")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp() - interval '1 day'")
    loop = lead(db, floors.Floors())
    loop.run_once()
    loop.floors.next_at = time.monotonic() + 600
    db.execute(edit)
    loop.run_once()
    assert slots(db)[0] == 1


def test_a_clock_that_is_moved_back_hides_no_job(db: psycopg.Connection) -> None:
    loop = lead(db, floors.Floors())
    loop.run_once()
    loop.floors.instants = Instants(
        *(at + 3600.0 for at in loop.floors.instants)
    )  # as they were before the clock was moved back
    loop.floors.next_at = time.monotonic() + 600
    moved(loop, -3600.0)
    add_jobs(db, 2, 1)
    loop.run_once()
    loop.run_once()
    assert slots(db)[0] == 2


# ---- a clock that jumps ahead


def test_after_a_clock_jump_ahead_nothing_is_decided_for_a_minute(db: psycopg.Connection) -> None:
    add_jobs(db, 2, 1)
    db.execute("INSERT INTO pgsched.runs (task, state, available_at) VALUES ('t', 'scheduled', now())")
    db.execute(STOPPED, [1, 7000])
    loop = lead(db, prune_every_s=0.0)
    loop.clock.stepped_s(time.monotonic(), time.monotonic(), time.time() - 3600)
    loop.run_once()
    assert one(db, "SELECT state FROM pgsched.runs") == "scheduled", "no slot is decided either"
    assert 55 < loop.clock.trusted_at - time.monotonic() <= 60
    assert one(db, "SELECT count(*) FROM pgsched.workers") == 1, "nothing is pruned either"
    loop.clock.trusted_at = time.monotonic()
    loop.run_once()
    assert slots(db)[0] == 3
    assert one(db, "SELECT state FROM pgsched.runs WHERE job_id IS NULL") == "queued"


def test_the_clock_is_trusted_again_when_a_jump_is_taken_back(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 1)
    loop = lead(db)
    loop.run_once()
    moved(loop, 7200.0)
    loop.run_once()
    assert loop.clock.trusted_at > time.monotonic()
    moved(loop, -7200.0)
    loop.run_once()
    assert loop.clock.trusted_at <= time.monotonic()

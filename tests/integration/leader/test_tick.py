"""The tick makes no slot twice, however many processes tick at once, and each of its guards is needed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.leader import ticks
from pgsched.db.statements import sql
from pgsched.leader.ticker import tick
from tests.support.db.leading import in_transaction, run_counts, tick_all
from tests.support.db.setting import (
    Aside,
    Open,
    add_jobs,
    at_once,
    cut,
    forget_decided,
    put_back,
    slots,
    text_without,
    wait_until_blocked,
)

pytestmark = pytest.mark.pg14

LOCK = "FOR NO KEY UPDATE OF j SKIP LOCKED"
CONFLICT = "ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING\n"


@pytest.mark.parametrize("tickers", [2, 8])
def test_many_leaders_without_a_fence_make_no_slot_twice(tickers: int, db: psycopg.Connection, connect: Open) -> None:
    add_jobs(db, 200, 20)
    conns = [connect() for _ in range(tickers)]
    made = at_once([lambda conn=conn: tick_all(conn, 13) for conn in conns])  # type: ignore[misc]
    assert sum(made) == 4000
    assert sum(count > 0 for count in made) > 1, "they did not tick at the same time"
    assert slots(db) == (4000, 4000)
    assert run_counts(db) == [20]
    assert db.execute("SELECT count(*) FROM pgsched.jobs WHERE error IS NOT NULL").fetchone() == (0,)


def two_at_once(db: psycopg.Connection, connect: Open) -> None:
    """Run two ticks that both see all slots as undecided: the second meets the uncommitted rows of the first."""
    first, second = in_transaction(connect), in_transaction(connect)
    tick(first, 100)
    other = Aside(lambda: tick(second, 100))
    wait_until_blocked(db, second)
    first.commit()
    other.result()
    second.commit()


def test_the_row_lock_keeps_a_second_tick_away_from_a_job(db: psycopg.Connection, connect: Open) -> None:
    add_jobs(db, 5, 20)
    first, second = in_transaction(connect), in_transaction(connect)
    assert tick(first, 100).slots == 100
    assert tick(second, 100).jobs == 0
    first.commit()
    assert run_counts(db) == [20]


def test_without_the_row_lock_a_second_tick_meets_the_first_one_s_rows(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 5, 20)
    cut(monkeypatch, "tick_due", LOCK)
    two_at_once(db, connect)
    assert slots(db) == (100, 100), "only the index kept them from running twice"


def test_without_the_row_lock_and_the_index_a_slot_gets_two_rows(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 5, 20)
    cut(monkeypatch, "tick_due", LOCK)
    cut(monkeypatch, "tick_insert", CONFLICT)
    db.execute("DROP INDEX pgsched.runs_slot")
    two_at_once(db, connect)  # the second tick waits for the rows of jobs, after it has inserted its runs
    assert slots(db) == (200, 100)
    assert run_counts(db) == [40]


def test_without_the_index_no_run_is_made(db: psycopg.Connection) -> None:
    add_jobs(db, 5, 20)
    db.execute("DROP INDEX pgsched.runs_slot")
    with db.transaction():
        done = tick(db, 100)
    assert {type(error) for error in done.failed.values()} == {psycopg.errors.InvalidColumnReference}
    assert (len(done.failed), slots(db)) == (5, (0, 0))


def test_if_the_mark_fell_back_only_the_index_prevents_a_second_run(db: psycopg.Connection) -> None:
    add_jobs(db, 5, 20)
    tick_all(db, 100)
    before = slots(db)
    forget_decided(db)
    assert tick_all(db, 100) == 0
    assert slots(db) == before == (100, 100)
    assert run_counts(db) == [20], "what has its row already is not counted again"


def test_without_the_index_a_slot_runs_twice_if_the_mark_fell_back(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 5, 20)
    tick_all(db, 100)
    cut(monkeypatch, "tick_insert", CONFLICT)
    db.execute("DROP INDEX pgsched.runs_slot")
    forget_decided(db)
    tick_all(db, 100)
    assert slots(db) == (200, 100)


@pytest.mark.parametrize("guarded", [True, False])
def test_the_mark_only_rises_even_when_the_history_is_gone(guarded: bool, db: psycopg.Connection) -> None:
    add_jobs(db, 5, 20)
    tick_all(db, 100)
    db.execute("DELETE FROM pgsched.runs")  # as retention does
    if not guarded:
        db.execute("ALTER TABLE pgsched.jobs DISABLE TRIGGER b_high_water_mark")
    db.execute("UPDATE pgsched.jobs SET decided_until = anchor_at, next_run_at = clock_timestamp()")
    tick_all(db, 100)
    assert slots(db) == ((0, 0) if guarded else (100, 100))


def test_a_job_that_cannot_be_evaluated_stops_no_other_job(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 20)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET schedule = 'nonsense' WHERE name = 'j2'")
    tick_all(db, 100)
    assert slots(db) == (40, 40)
    bad = db.execute("SELECT name, next_run_at, error FROM pgsched.jobs WHERE error IS NOT NULL").fetchall()
    assert [row[:2] for row in bad] == [("j2", None)]
    assert "schedule" in bad[0][2]


# ---- runs that are triggered between the tick's snapshot and its lock


@pytest.mark.parametrize("later", [True, False])
def test_a_run_triggered_while_the_tick_waits_is_seen(
    later: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`later`: unfinished runs are counted after the lock. A count in the locking statement finds too few."""
    add_jobs(db, 1, 1, overlap="skip")
    cut(monkeypatch, "tick_due", "(SELECT clock_timestamp() AS now,",
        "(SELECT clock_timestamp() AS now, (SELECT true FROM pg_advisory_lock(7)) AS got,")  # fmt: skip
    if not later:
        due, count, early = ticks.due_jobs, ticks.count_open_runs_of_jobs, dict[int, dict[str, Any]]()

        def count_and_lock(conn: psycopg.Connection, *rest: Any) -> Any:
            early.update(count(conn, [row[0] for row in conn.execute("SELECT id FROM pgsched.jobs").fetchall()]))
            return due(conn, *rest)

        monkeypatch.setattr(ticks, "due_jobs", count_and_lock)
        monkeypatch.setattr(ticks, "count_open_runs_of_jobs", lambda conn, ids: early)
    db.execute("SELECT pg_advisory_lock(7)")
    leader = in_transaction(connect)
    ticking = Aside(lambda: tick(leader, 100))
    wait_until_blocked(db, leader)
    jobs.trigger(connect(), "j1", None, "skip")
    db.execute("SELECT pg_advisory_unlock(7)")
    ticking.result()
    leader.commit()
    queued = db.execute("SELECT count(*) FROM pgsched.runs WHERE state = 'queued'").fetchone()
    assert queued == ((1,) if later else (2,))


# ---- one decision for all jobs of a shape

OTHERWISE: dict[str, Any] = {
    "schedule": "*/7 * * * *", "timezone": "Asia/Kolkata", "ends_at": "2100-01-01Z", "max_runs": 99,
    "jitter": "3 seconds", "overlap": "allow", "max_buffer": 7, "misfire_after": "2 hours", "catch_up": "all",
    "max_catch_up": 3, "catch_up_window": "3 days", "start_deadline": "1 hour", "retry_within": "1 hour",
    "calendar": "office",
    "mode": "shadow",
}  # fmt: skip
# columns that matter to a decision but are not part of the shape: read with it, or separately; a job whose slots a
# calendar shifts has a shape of its own
BESIDE = {"id", "excluded", "anchor_at", "starts_at", "run_count", "run_at", "on_excluded", "shifts"}


@pytest.mark.parametrize("column", OTHERWISE)
def test_jobs_that_differ_in_a_policy_have_another_shape(db: psycopg.Connection, column: str) -> None:
    db.execute("INSERT INTO pgsched.calendars (name) VALUES ('office')")
    for n, columns in enumerate([{}, {}, {column: OTHERWISE[column]}]):
        jobs.add(db, {"name": f"j{n}", "schedule": "* * * * *", "task": "t"} | columns)
    with db.transaction():
        shapes = [row[-1] for row in sorted(ticks.due_jobs(db, 9))]
        terms = ticks.schedules_of(db, [row[0] for row in ticks.due_jobs(db, 9)])
    assert shapes[0] == shapes[1] != shapes[2]
    assert set(next(iter(terms.values()))) == set(OTHERWISE) | BESIDE, "a new column of tick_terms belongs in the shape"


def test_jobs_of_one_shape_have_calendars_of_their_own(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 5)
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date)"
               " SELECT id, (now() - interval '1 day')::date + n FROM pgsched.jobs, generate_series(0, 2) n"
               " WHERE name = 'j2'")  # fmt: skip
    db.execute("UPDATE pgsched.jobs SET schedule = '* * * * * *'")
    put_back(db, 5)
    tick_all(db, 100)
    found = db.execute("SELECT DISTINCT name, r.state FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = job_id")
    assert sorted(found) == [("j1", "queued"), ("j2", "skipped"), ("j3", "queued")]


# ---- how much is read


@pytest.mark.parametrize("ends", [True, False])
def test_jobs_that_are_not_due_are_not_read(ends: bool, db: psycopg.Connection) -> None:
    add_jobs(db, 3, 5)
    db.execute("INSERT INTO pgsched.jobs (name, run_at, task)"
               " SELECT 'later' || n, '2100-01-01Z', 't' FROM generate_series(1, 500) n")  # fmt: skip
    db.execute("ANALYZE pgsched.jobs")
    db.execute("SET enable_seqscan = off; SET enable_sort = off")
    text = sql("tick_due")
    if not ends:
        text = text_without("tick_due", "j.next_run_at <= (SELECT now FROM clock)",
                            "j.next_run_at + interval '0' <= (SELECT now FROM clock)")  # fmt: skip
    given = {"n": 100, "lead_s": 0, "since_s": 0, "aside": "{}"}
    with db.transaction():
        (plan,) = db.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + text, given).fetchone()  # type: ignore[misc]
    assert most_rows(plan, "Rows Removed by Filter") == (0 if ends else 500)
    assert most_rows(plan) == 3


# ---- @after


def test_the_end_of_the_last_run_is_found_without_the_history(db: psycopg.Connection) -> None:
    (job,) = db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('j', '@after 1h', 't') RETURNING id")
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, finished_at)"
        " SELECT %s, at, 't', 'succeeded', at - n %% 2 * interval '2 hours'"
        " FROM generate_series(1, 1001) n, LATERAL (SELECT '2020-01-01Z'::timestamptz + n * interval '1 hour') s(at)",
        job,
    )
    found = ticks.last_ends_of(db, list(job))[job[0]]["last_finished_at"]
    assert found == db.execute("SELECT max(finished_at) FROM pgsched.runs").fetchone()[0]  # type: ignore[index]
    db.execute("ANALYZE pgsched.runs")
    db.execute("SET enable_seqscan = off")
    text = b"EXPLAIN (ANALYZE, FORMAT JSON) " + sql("tick_finished")
    (plan,) = db.execute(text, {"job_ids": list(job)}).fetchone()  # type: ignore[misc]
    assert most_rows(plan) <= 100


def most_rows(plan: Any, what: str = "Actual Rows") -> float:
    """Return the most rows that any node of an EXPLAIN ANALYZE returned (or removed)."""
    if isinstance(plan, list):
        return max((most_rows(node, what) for node in plan), default=0)
    if not isinstance(plan, dict):
        return 0
    return max([plan.get(what, 0), *(most_rows(node, what) for node in plan.values())])

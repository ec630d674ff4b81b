"""The tick: no slot twice, whoever ticks and however many, and each of its guards is needed."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db import leading
from pgsched.leader.ticker import tick
from tests.race.setting import Aside, Open, add_jobs, at_once, cut, forget_decided, slots, wait_until_blocked

LOCK = "FOR NO KEY UPDATE OF j SKIP LOCKED"
CONFLICT = "ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING\n"


def tick_all(conn: psycopg.Connection, batch: int) -> int:
    """Tick without any fence until no job is due; how many rows this made."""
    made = 0
    while True:
        with conn.transaction():
            made += tick(conn, batch).slots
        row = conn.execute("SELECT count(*) FROM pgsched.jobs WHERE next_run_at <= clock_timestamp()").fetchone()
        if row == (0,):
            return made


def run_counts(db: psycopg.Connection) -> list[int]:
    return [row[0] for row in db.execute("SELECT DISTINCT run_count FROM pgsched.jobs ORDER BY 1").fetchall()]


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
    """Two ticks that both believe that all slots are undecided: the second meets the first's uncommitted rows."""
    first, second = connect(autocommit=False), connect(autocommit=False)
    tick(first, 100)
    other = Aside(lambda: tick(second, 100))
    wait_until_blocked(db, second)
    first.commit()
    other.result()
    second.commit()


def test_the_row_lock_keeps_a_second_tick_away_from_a_job(db: psycopg.Connection, connect: Open) -> None:
    add_jobs(db, 5, 20)
    first, second = connect(autocommit=False), connect(autocommit=False)
    assert tick(first, 100).slots == 100
    assert tick(second, 100).jobs == 0
    first.commit()
    assert run_counts(db) == [20]


def test_without_the_row_lock_a_job_is_decided_twice(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 5, 20)
    cut(monkeypatch, leading, "tick_due", LOCK)
    two_at_once(db, connect)
    assert run_counts(db) == [40], "the slots were counted twice"
    assert slots(db) == (100, 100), "and only the index kept them from running twice"


def test_without_the_row_lock_and_the_index_a_slot_gets_two_rows(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 5, 20)
    cut(monkeypatch, leading, "tick_due", LOCK)
    cut(monkeypatch, leading, "tick_insert", CONFLICT)
    db.execute("DROP INDEX pgsched.runs_slot")
    first, second = connect(autocommit=False), connect(autocommit=False)
    tick(first, 100)
    other = Aside(lambda: tick(second, 100))
    wait_until_blocked(db, second)  # by the jobs' rows now: its own rows are in already
    first.commit()
    other.result()
    second.commit()
    assert slots(db) == (200, 100)


def test_only_the_index_stops_a_slot_when_the_mark_fell_back(db: psycopg.Connection) -> None:
    add_jobs(db, 5, 20)
    tick_all(db, 100)
    before = slots(db)
    forget_decided(db)
    assert tick_all(db, 100) == 0
    assert slots(db) == before == (100, 100)


def test_without_the_index_a_slot_runs_twice_when_the_mark_fell_back(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 5, 20)
    tick_all(db, 100)
    cut(monkeypatch, leading, "tick_insert", CONFLICT)
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


def test_a_job_that_cannot_be_evaluated_stops_nobody_else(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 20)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET schedule = 'nonsense' WHERE name = 'j2'")
    tick_all(db, 100)
    assert slots(db) == (40, 40)
    bad = db.execute("SELECT name, next_run_at, error FROM pgsched.jobs WHERE error IS NOT NULL").fetchall()
    assert [row[:2] for row in bad] == [("j2", None)]
    assert "schedule" in bad[0][2]

"""The tick: no slot twice, whoever ticks and however many, and each of its guards is needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.planning.plan import SlotRow
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.leader import ticks
from pgsched.db.statements import sql
from pgsched.leader import skipped_slots, ticker
from pgsched.leader.isolation.guard import is_conflict
from pgsched.leader.ticker import tick
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


def ticked(conn: psycopg.Connection) -> int:
    """Tick once; how many rows this made."""
    with conn.transaction():
        return tick(conn, 100).slots


def in_transaction(connect: Open) -> psycopg.Connection:
    """A connection that is inside a transaction already, as the leader's is when it ticks."""
    conn = connect(autocommit=False)
    conn.execute("SELECT 1")
    return conn


def two_at_once(db: psycopg.Connection, connect: Open) -> None:
    """Two ticks that both believe that all slots are undecided: the second meets the first's uncommitted rows."""
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
    two_at_once(db, connect)  # the second waits for the jobs' rows: its own rows are in already
    assert slots(db) == (200, 100)
    assert run_counts(db) == [40]


def test_without_the_index_nothing_is_made(db: psycopg.Connection) -> None:
    add_jobs(db, 5, 20)
    db.execute("DROP INDEX pgsched.runs_slot")
    with db.transaction():
        done = tick(db, 100)
    assert {type(error) for error in done.failed.values()} == {psycopg.errors.InvalidColumnReference}
    assert (len(done.failed), slots(db)) == (5, (0, 0))


def test_only_the_index_stops_a_slot_when_the_mark_fell_back(db: psycopg.Connection) -> None:
    add_jobs(db, 5, 20)
    tick_all(db, 100)
    before = slots(db)
    forget_decided(db)
    assert tick_all(db, 100) == 0
    assert slots(db) == before == (100, 100)
    assert run_counts(db) == [20], "what has its row already is not counted again"


def test_without_the_index_a_slot_runs_twice_when_the_mark_fell_back(
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


# ---- a row that lost its mark


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("overlap", ["replace", "terminate"])
def test_a_slot_that_has_its_row_already_ends_no_run(
    overlap: str, asked: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 1, 3, overlap=overlap)
    tick_all(db, 100)
    (unfinished,) = db.execute("SELECT id FROM pgsched.runs WHERE phase < 3").fetchall()
    db.execute("UPDATE pgsched.runs SET state = 'queued' WHERE id = %s", unfinished)
    forget_decided(db)
    if not asked:
        monkeypatch.setattr(ticker.Work, "without_known", lambda self, conn, parts: parts)
        assert ticked(db) == 0, "it stays due"
    else:
        assert tick_all(db, 100) == 0
    assert db.execute("SELECT state FROM pgsched.runs WHERE id = %s", unfinished).fetchone() == ("queued",)
    assert run_counts(db) == [1]


def test_slots_beyond_those_that_have_their_row_are_decided_by_what_is_unfinished(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 3, overlap="skip")
    tick_all(db, 100)
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() WHERE state = 'queued'")
    db.execute("DELETE FROM pgsched.runs WHERE scheduled_at = (SELECT max(scheduled_at) FROM pgsched.runs)")
    forget_decided(db)
    tick_all(db, 100)
    states = db.execute("SELECT state FROM pgsched.runs ORDER BY scheduled_at").fetchall()
    assert [state for (state,) in states] == ["succeeded", "skipped", "queued"]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("catch_up", ["skip", "latest"])
def test_a_stretch_whose_newest_slot_has_its_row_is_told_without_it(
    catch_up: str, asked: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 1, 5, catch_up=catch_up, misfire_after="0")
    backfilled(db, *nth(db, 5))
    time.sleep(0.6)  # so that the newest slot is a second late, too
    if not asked:
        monkeypatch.setattr(ticker.Work, "without_known", lambda self, conn, parts: parts)
        assert ticked(db) == 0, "it stays due"
        return
    tick_all(db, 100)
    rows = db.execute("SELECT origin, state, covers_count FROM pgsched.runs ORDER BY scheduled_at").fetchall()
    assert rows == [("schedule", "missed", 4), ("backfill", "queued", None)]
    tick_all(db, 100)
    forget_decided(db)
    tick_all(db, 100)
    assert slots(db) == (2, 2), "a row stands for all slots of its stretch"


def backfilled(conn: psycopg.Connection, *made: datetime) -> None:
    """Somebody else makes the rows of these slots of job j1."""
    for slot in made:
        conn.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, origin)"
                     " SELECT id, %s, 't', 'backfill' FROM pgsched.jobs WHERE name = 'j1'", [slot])  # fmt: skip


def nth(db: psycopg.Connection, *numbers: int) -> list[datetime]:
    """These slots of job j1, counted from 1."""
    (anchor,) = db.execute("SELECT anchor_at FROM pgsched.jobs WHERE name = 'j1'").fetchone() or (None,)
    assert anchor is not None
    return [anchor + timedelta(seconds=number) for number in numbers]


@pytest.mark.parametrize("taken", [(1,), (1, 4), (1, 2, 3), (1, 4, 5, 6)])
def test_a_job_has_all_its_runs_however_many_slots_have_rows_of_others(
    taken: tuple[int, ...], db: psycopg.Connection
) -> None:
    """What it decides instead of a slot that has its row may have one, too."""
    add_jobs(db, 2, 20, max_runs=3)
    backfilled(db, *nth(db, *taken))
    tick_all(db, 100)
    assert slots(db) == (6 + len(taken), 6 + len(taken))
    assert run_counts(db) == [3]


def test_a_row_that_says_that_it_stands_for_other_slots_stands_for_its_own(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 3)
    backfilled(db, *nth(db, 2))
    db.execute("UPDATE pgsched.runs SET covers_from = %s, covers_until = %s", nth(db, 30, 40))
    assert ticked(db) == 2
    assert ticked(db) == 0
    assert slots(db) == (3, 3)


def meanwhile(
    db: psycopg.Connection, connect: Open, work: Callable[[psycopg.Connection], int], slot: datetime
) -> tuple[int, psycopg.Connection]:
    """What `work` does while the row of this slot is made by somebody who commits once it waits for it; and its
    connection, in whose transaction it was done."""
    working, other = in_transaction(connect), in_transaction(connect)
    backfilled(other, slot)
    aside = Aside(lambda: work(working))
    wait_until_blocked(db, working)
    other.commit()
    try:
        return aside.result(), working
    except psycopg.Error:
        working.rollback()
        raise


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("told", [True, False])
def test_a_job_whose_slot_gets_its_row_meanwhile_stays_due(
    told: bool, jobs: int, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row that it has is known, and then there is one more: the next tick decides it with both."""
    add_jobs(db, jobs, 20, max_runs=3)
    backfilled(db, *nth(db, 1))
    if not told:
        monkeypatch.setattr(ticks, "slot_taken", lambda error: False)
    failed: list[int] = []

    def decide(conn: psycopg.Connection) -> int:
        done = tick(conn, 100)
        failed.extend(done.failed)
        return done.jobs

    decided, ticking = meanwhile(db, connect, decide, *nth(db, 3))
    ticking.commit()
    assert decided == jobs - 1
    assert len(failed) == (0 if told else 1), "it would be set aside"
    marks = (
        "SELECT decided_until = '-infinity' OR decided_until = anchor_at, next_run_at <= now(), error FROM pgsched.jobs"
    )
    unmoved, due, error = db.execute(f"{marks} WHERE name = 'j1'").fetchone() or (None, None, None)
    assert (unmoved, due, error) == (True, True, None)
    if told:
        assert tick_all(db, 100) == 3
        assert slots(db) == (3 * jobs + 2, 3 * jobs + 2)
        assert run_counts(db) == [3]


@pytest.mark.parametrize("jobs", [1, 3])
def test_slots_that_were_passed_over_are_told_next_time_where_one_gets_its_row_meanwhile(
    jobs: int, db: psycopg.Connection, connect: Open
) -> None:
    add_jobs(db, jobs, 20)
    (newest,) = nth(db, 20)
    db.execute("UPDATE pgsched.jobs SET schedule = '@every 7h'")
    with pytest.raises(psycopg.errors.UniqueViolation) as conflict:
        meanwhile(db, connect, skipped_slots.record, newest)
    assert is_conflict(conflict.value)
    with db.transaction():
        assert skipped_slots.record(db) == jobs
    (told_of,) = db.execute("SELECT sum(covers_count) FROM pgsched.runs WHERE origin = 'schedule'").fetchone() or (0,)
    assert told_of == 20 * jobs - 1


# ---- what is triggered between the tick's snapshot and its lock


@pytest.mark.parametrize("later", [True, False])
def test_a_run_triggered_while_the_tick_waits_is_seen(
    later: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`later`: unfinished runs are counted once the lock is there. In the statement that locks they are too few."""
    add_jobs(db, 1, 1, overlap="skip")
    cut(monkeypatch, "tick_due", "(SELECT clock_timestamp() AS now,",
        "(SELECT clock_timestamp() AS now, (SELECT true FROM pg_advisory_lock(7)) AS got,")  # fmt: skip
    if not later:
        due, count, early = ticks.due_jobs, ticks.unfinished, dict[int, dict[str, Any]]()

        def count_and_lock(conn: psycopg.Connection, *rest: Any) -> Any:
            early.update(count(conn, [row[0] for row in conn.execute("SELECT id FROM pgsched.jobs").fetchall()]))
            return due(conn, *rest)

        monkeypatch.setattr(ticks, "due_jobs", count_and_lock)
        monkeypatch.setattr(ticks, "unfinished", lambda conn, ids: early)
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


# ---- rows that the database refuses

REFUSALS = {
    "constraint": "ALTER TABLE pgsched.runs ADD CONSTRAINT no CHECK (job_id <> {0}) NOT VALID",
    "mark": "ALTER TABLE pgsched.jobs ADD CONSTRAINT no CHECK (id <> {0} OR run_count < 5) NOT VALID",
    "trigger": "CREATE TRIGGER no BEFORE INSERT ON pgsched.runs FOR EACH ROW WHEN (NEW.job_id = {0})"
    " EXECUTE FUNCTION refuse()",
}


def refuse(db: psycopg.Connection, how: str) -> int:
    """Make the database refuse what the tick writes of the job `j2`; its id."""
    db.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$")
    row = db.execute("SELECT id FROM pgsched.jobs WHERE name = 'j2'").fetchone()
    assert row is not None
    db.execute(how.format(row[0]))
    return int(row[0])


@pytest.mark.parametrize("how", REFUSALS)
def test_a_job_whose_rows_are_refused_stops_nobody_else(db: psycopg.Connection, how: str) -> None:
    add_jobs(db, 7, 20)
    refuse(db, REFUSALS[how])
    with db.transaction():
        done = tick(db, 100)
    assert (done.jobs, done.slots, done.errors, len(done.failed)) == (6, 120, 0, 1)
    assert slots(db) == (120, 120)
    bad = db.execute("SELECT id, name, error FROM pgsched.jobs WHERE next_run_at IS NOT NULL").fetchall()
    assert [row[1:] for row in bad] == [("j2", None)], "what refuses it may pass: it keeps its slot"
    assert [*done.failed] == [bad[0][0]]
    good = db.execute("SELECT DISTINCT run_count FROM pgsched.jobs WHERE name <> 'j2'").fetchall()
    assert good == [(20,)]


def test_without_taking_a_refused_batch_apart_nobody_gets_a_row(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 7, 20)
    refuse(db, REFUSALS["constraint"])
    monkeypatch.setattr(ticks, "refused", lambda error: False)
    with pytest.raises(psycopg.errors.CheckViolation), db.transaction():
        tick(db, 100)
    assert slots(db) == (0, 0)


def test_a_job_that_cannot_even_be_marked_stops_nobody_else(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 20)
    bad = refuse(db, "CREATE TRIGGER no BEFORE UPDATE ON pgsched.jobs FOR EACH ROW WHEN (NEW.id = {0})"
                 " EXECUTE FUNCTION refuse()")  # fmt: skip
    with db.transaction():
        assert (tick(db, 100).jobs, slots(db)) == (2, (40, 40))
    with db.transaction():
        assert tick(db, 100).jobs == 0, "so that the leader pauses rather than spin"
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE job_id = %s", [bad]).fetchone() == (0,)


def test_slots_that_were_passed_over_have_their_row_though_another_jobs_is_refused(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 20)
    db.execute("UPDATE pgsched.jobs SET schedule = '@every 7h'")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET queue = ' a' WHERE name = 'j2'")
    with db.transaction():
        assert skipped_slots.record(db) == 3
    found = db.execute("SELECT j.name FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY 1").fetchall()
    assert found == [("j1",), ("j3",)]
    with db.transaction():
        assert skipped_slots.record(db) == 0


def test_a_slot_that_has_its_row_is_noticed_beside_the_first_of_an_excluded_stretch(db: psycopg.Connection) -> None:
    """A row for what no row had yet must not stand for the one that there was."""
    add_jobs(db, 2, 3)
    tick_all(db, 100)
    rows = db.execute("SELECT job_id, scheduled_at FROM pgsched.runs ORDER BY job_id, scheduled_at").fetchall()
    (first, taken), (second, last) = rows[0], rows[-1]
    excluded = SlotRow(last + timedelta(seconds=9), "skipped", last, extend=last, covers_count=1)
    with db.transaction():
        assert ticks.insert_slots(db, [([second], excluded)]) == 1
    state = "SELECT state FROM pgsched.runs WHERE (job_id, scheduled_at) = (%s, %s)"
    assert db.execute(state, [second, excluded.slot]).fetchall() == [("skipped",)]
    db.execute("DELETE FROM pgsched.runs WHERE (job_id, scheduled_at) = (%s, %s)", [second, excluded.slot])
    with pytest.raises(psycopg.errors.UniqueViolation) as refusal, db.transaction():
        ticks.insert_slots(db, [([first], SlotRow(taken, "queued", taken)), ([second], excluded)])
    assert ticks.slot_taken(refusal.value)
    assert slots(db) == (len(rows), len(rows))


# ---- what is decided for many is decided for each

OTHERWISE: dict[str, Any] = {
    "schedule": "*/7 * * * *", "timezone": "Asia/Kolkata", "ends_at": "2100-01-01Z", "max_runs": 99,
    "jitter": "3 seconds", "overlap": "allow", "max_buffer": 7, "misfire_after": "2 hours", "catch_up": "all",
    "max_catch_up": 3, "catch_up_window": "3 days", "start_deadline": "1 hour", "retry_within": "1 hour",
}  # fmt: skip
# what decides without being in the shape: read together with it, or by itself
BESIDE = {"id", "excluded", "anchor_at", "starts_at", "run_count", "run_at"}


@pytest.mark.parametrize("column", OTHERWISE)
def test_jobs_that_differ_in_a_policy_have_another_shape(db: psycopg.Connection, column: str) -> None:
    for n, columns in enumerate([{}, {}, {column: OTHERWISE[column]}]):
        jobs.add(db, {"name": f"j{n}", "schedule": "* * * * *", "task": "t"} | columns)
    with db.transaction():
        shapes = [row[-1] for row in sorted(ticks.due_jobs(db, 9))]
        terms = ticks.terms(db, [row[0] for row in ticks.due_jobs(db, 9)])
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
def test_what_is_not_due_is_not_read(ends: bool, db: psycopg.Connection) -> None:
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
    found = ticks.finished(db, list(job))[job[0]]["last_finished_at"]
    assert found == db.execute("SELECT max(finished_at) FROM pgsched.runs").fetchone()[0]  # type: ignore[index]
    db.execute("ANALYZE pgsched.runs")
    db.execute("SET enable_seqscan = off")
    text = b"EXPLAIN (ANALYZE, FORMAT JSON) " + sql("tick_finished")
    (plan,) = db.execute(text, {"job_ids": list(job)}).fetchone()  # type: ignore[misc]
    assert most_rows(plan) <= 100


def most_rows(plan: Any, what: str = "Actual Rows") -> float:
    """The most rows that any node of an EXPLAIN ANALYZE gave (or left out)."""
    if isinstance(plan, list):
        return max((most_rows(node, what) for node in plan), default=0)
    if not isinstance(plan, dict):
        return 0
    return max([plan.get(what, 0), *(most_rows(node, what) for node in plan.values())])

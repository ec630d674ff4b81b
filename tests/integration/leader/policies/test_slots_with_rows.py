"""A slot that has its row already, or gets one while the tick decides, ends no run and costs its job no run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import psycopg
import pytest

from pgsched.core.planning.plan import SlotRow
from pgsched.db.queries.leader import ticks
from pgsched.leader import passed_over, ticker
from pgsched.leader.isolation.duty_guard import is_conflict
from pgsched.leader.ticker import tick
from tests.support.db.leading import in_transaction, run_counts, tick_all, ticked
from tests.support.db.passing import pass_time
from tests.support.db.setting import Aside, Open, add_jobs, forget_decided, slots, wait_until_blocked

pytestmark = pytest.mark.pg14


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
        monkeypatch.setattr(ticker.TickBatch, "decide_again", lambda self, conn, parts: parts)
        assert ticked(db) == 0, "it stays due"
    else:
        assert tick_all(db, 100) == 0
    assert db.execute("SELECT state FROM pgsched.runs WHERE id = %s", unfinished).fetchone() == ("queued",)
    assert run_counts(db) == [1]


def test_slots_without_a_row_are_decided_by_the_runs_that_are_unfinished(db: psycopg.Connection) -> None:
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
def test_a_stretch_whose_newest_slot_has_its_row_is_recorded_without_it(
    catch_up: str, asked: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 1, 5, catch_up=catch_up, misfire_after="0")
    backfilled(db, *nth(db, 5))
    pass_time(db, 0.6)  # the newest slot was half a second late: now it is late by more than a second
    if not asked:
        monkeypatch.setattr(ticker.TickBatch, "decide_again", lambda self, conn, parts: parts)
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
    """Insert the rows of these slots of job j1, as another process would."""
    for slot in made:
        conn.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, origin)"
                     " SELECT id, %s, 't', 'backfill' FROM pgsched.jobs WHERE name = 'j1'", [slot])  # fmt: skip


def nth(db: psycopg.Connection, *numbers: int) -> list[datetime]:
    """Return these slots of job j1, counted from 1."""
    (anchor,) = db.execute("SELECT anchor_at FROM pgsched.jobs WHERE name = 'j1'").fetchone() or (None,)
    assert anchor is not None
    return [anchor + timedelta(seconds=number) for number in numbers]


@pytest.mark.parametrize("taken", [(1,), (1, 4), (1, 2, 3), (1, 4, 5, 6)])
def test_a_job_has_all_its_runs_however_many_slots_have_rows_of_others(
    taken: tuple[int, ...], db: psycopg.Connection
) -> None:
    """The slot that is decided instead of one that has its row may have a row, too."""
    add_jobs(db, 2, 20, max_runs=3)
    backfilled(db, *nth(db, *taken))
    tick_all(db, 100)
    assert slots(db) == (6 + len(taken), 6 + len(taken))
    assert run_counts(db) == [3]


def test_a_row_that_claims_to_stand_for_other_slots_stands_for_its_own(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 3)
    backfilled(db, *nth(db, 2))
    db.execute("UPDATE pgsched.runs SET covers_from = %s, covers_until = %s", nth(db, 30, 40))
    assert ticked(db) == 2
    assert ticked(db) == 0
    assert slots(db) == (3, 3)


def meanwhile(
    db: psycopg.Connection, connect: Open, work: Callable[[psycopg.Connection], int], slot: datetime
) -> tuple[int, psycopg.Connection]:
    """Run `work` while another transaction makes the row of this slot, and commits once `work` waits for that row.

    Return the result of `work`, and the connection in whose transaction it ran.
    """
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
    """One row is known before the tick, another comes meanwhile. The next tick decides the job with both."""
    add_jobs(db, jobs, 20, max_runs=3)
    backfilled(db, *nth(db, 1))
    if not told:
        monkeypatch.setattr(ticks, "is_slot_taken", lambda error: False)
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
def test_passed_over_slots_are_recorded_next_time_if_one_gets_a_row_meanwhile(
    jobs: int, db: psycopg.Connection, connect: Open
) -> None:
    add_jobs(db, jobs, 20)
    (newest,) = nth(db, 20)
    db.execute("UPDATE pgsched.jobs SET schedule = '@every 7h'")
    with pytest.raises(psycopg.errors.UniqueViolation) as conflict:
        meanwhile(db, connect, passed_over.record_stretches, newest)
    assert is_conflict(conflict.value)
    with db.transaction():
        assert passed_over.record_stretches(db) == jobs
    (told_of,) = db.execute("SELECT sum(covers_count) FROM pgsched.runs WHERE origin = 'schedule'").fetchone() or (0,)
    assert told_of == 20 * jobs - 1


def test_a_slot_that_has_its_row_is_noticed_beside_a_new_excluded_stretch(db: psycopg.Connection) -> None:
    """The new row of the excluded stretch must not hide that another slot had its row already."""
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
    assert ticks.is_slot_taken(refusal.value)
    assert slots(db) == (len(rows), len(rows))

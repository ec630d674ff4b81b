"""A round of backfills takes a bounded time, however long a range is; the next round goes on from there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from pgsched.core.planning import backfill as planning
from pgsched.core.schedule.cron import parse
from pgsched.leader import backfill
from tests.support.db.poisoning import GOOD

pytestmark = pytest.mark.pg14

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
CENTURY = BEGIN + timedelta(days=36525)


def asked(db: psycopg.Connection, schedule: str, *, reverse: bool = False) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, timezone) VALUES ('j', 't', %s, 'UTC')", [schedule])
    db.execute("INSERT INTO pgsched.backfills"
               " (job_id, job, schedule, timezone, anchor_at, from_at, to_at, reverse, max_active)"
               " SELECT id, name, schedule, timezone, anchor_at, %s, %s, %s, 1000 FROM pgsched.jobs",
               [BEGIN, CENTURY, reverse])  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("reverse", [True, False])
def test_counting_and_walking_a_long_range_takes_many_rounds(
    reverse: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "LONGEST_S", 0.0)
    monkeypatch.setattr(planning, "FIRST_WINDOW", planning.LONGEST_WINDOW)
    asked(db, "0 0 29 2 *", reverse=reverse)
    turn, rounds = backfill.BackfillCursor(), 0
    while rounds < 2000:
        with db.transaction():
            done = backfill.run_backfills(db, turn)
        rounds += 1
        if not done.more:
            break
    assert rounds > 20, "each does a little"
    row = db.execute("SELECT slots, started, considered FROM pgsched.backfills").fetchone()
    assert row == (25, 25, 25)


def test_a_range_with_too_many_slots_ends_with_that_error(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "LONGEST_S", 0.0)
    asked(db, "* * * * * *", reverse=True)
    with db.transaction():
        backfill.run_backfills(db)
    row = db.execute("SELECT error, finished_at IS NOT NULL FROM pgsched.backfills").fetchone()
    assert row == ("the range has more than 100,000 slots: ask for a shorter one", True)


@pytest.mark.long
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("schedule", ["* * * * * *", "0 0 29 2 *", "*/7 3 * * 1", "@every 13s"])
def test_no_window_holds_many_slots(schedule: str, reverse: bool) -> None:
    parsed = parse(schedule, "Europe/Berlin", BEGIN)
    most, seen = 0, 0
    for found, _ in planning.windows(parsed, BEGIN, CENTURY, reverse=reverse):
        most, seen = max(most, len(found)), seen + 1
        if seen > 3 * GOOD:
            break
    assert most <= 2 * planning.FULL_WINDOW


@pytest.mark.parametrize("reverse", [True, False])
def test_windows_hold_each_slot_once(reverse: bool) -> None:
    parsed, end = parse("*/10 * * * *", "Europe/Berlin", BEGIN), BEGIN + timedelta(days=100)
    whole = [*parsed.between(BEGIN - timedelta(microseconds=1), end - timedelta(microseconds=1))]
    found = [*planning.slots(parsed, BEGIN, end, reverse=reverse)]
    assert found == (whole[::-1] if reverse else whole)
    cursor = found[1000]
    assert [*planning.slots(parsed, BEGIN, end, reverse=reverse, cursor=cursor)] == found[1001:]


def test_each_round_reads_some_of_many_open_backfills(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all of them in each round would delay every job. So backfills take turns, also those that only wait."""
    monkeypatch.setattr(backfill, "MAX_READ", 3)
    jobs = "INSERT INTO pgsched.jobs (name, task, schedule) SELECT 'j' || n, 't', '@daily' FROM generate_series(1, 8) n"
    db.execute(jobs)
    db.execute("INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at)"
               " SELECT id, name, schedule, 'UTC', %s, %s, %s FROM pgsched.jobs ORDER BY id",
               [BEGIN, BEGIN, BEGIN + timedelta(days=9)])  # fmt: skip
    turn = backfill.BackfillCursor()

    def round_of() -> list[str]:
        """Run one more round; return the jobs whose backfills have begun."""
        with db.transaction():
            backfill.run_backfills(db, turn)
        found = db.execute("SELECT job FROM pgsched.backfills WHERE started > 0 ORDER BY id").fetchall()
        return [job for (job,) in found]

    assert [len(round_of()) for _ in range(3)] == [3, 6, 8]
    # each backfill has an open run; now the run of the last one ends
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE backfill_id = 8")
    for _ in range(3):
        round_of()
    assert db.execute("SELECT started FROM pgsched.backfills WHERE id = 8").fetchone() == (2,)

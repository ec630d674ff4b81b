"""`pgsched.preview`: the next slots that the leader keeps, and why a job has none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.preview import next_slots
from pgsched.db.queries.jobs import jobs
from pgsched.leader.duties.next_slots import NextSlotsDuty
from pgsched.leader.loop import LeaderLoop
from tests.support.db.leading import duty_of
from tests.support.db.leading import lead as lead_loop
from tests.support.db.passing import add, keep_next_slots, lead, now, pass_time
from tests.support.db.setting import cut

Open = Callable[..., psycopg.Connection]
Rows = list[tuple[datetime | None, str | None, str | None]]


def preview(db: psycopg.Connection, n: int | None = None, name: str = "a") -> Rows:
    call = "SELECT * FROM pgsched.preview(%s)" if n is None else "SELECT * FROM pgsched.preview(%s, %s)"
    return db.execute(call.encode(), [name] if n is None else [name, n]).fetchall()


def planned(db: psycopg.Connection, **columns: Any) -> dict[str, Any]:
    """Add a job, and let the leader plan it and keep its next slots."""
    row = add(db, **columns)
    lead(db)
    keep_next_slots(db)
    return row


def why(db: psycopg.Connection) -> str:
    """Return the note of a job without slots."""
    ((slot, local, note),) = preview(db)
    assert (slot, local) == (None, None)
    assert note is not None
    return note


def excluded(db: psycopg.Connection, day: date, reason: str | None = None) -> None:
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date, reason) SELECT id, %s, %s FROM pgsched.jobs",
               [day, reason])  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "timezone"),
    [("0 2 * * *", "Europe/Berlin"), ("*/5 * * * *", "UTC"), ("* * * * * *", "Asia/Kolkata"), ("@every 90s", "UTC")],
)
def test_the_slots_are_those_that_the_program_computes(db: psycopg.Connection, schedule: str, timezone: str) -> None:
    row = planned(db, schedule=schedule, timezone=timezone)
    began = now(db)
    found = preview(db, 10)
    expected = next_slots(parse(schedule, timezone, row["anchor_at"]), found[0][0] - timedelta(microseconds=1), 10)
    assert found[0][0] > began - timedelta(seconds=2)
    assert [slot for slot, _, _ in found] == [fire.at for fire in expected]
    assert [(local or "").replace(":", "") for _, local, _ in found] == [
        f"{fire.local:%a %Y-%m-%d %H%M%S %z}" for fire in expected
    ]


def test_five_slots_are_shown_unless_told_otherwise(db: psycopg.Connection) -> None:
    planned(db, schedule="@hourly")
    assert [len(preview(db)), len(preview(db, 1)), len(preview(db, 10))] == [5, 1, 10]


@pytest.mark.parametrize("n", [0, -1, 11, 2**31 - 1])
def test_a_number_that_is_not_kept_is_refused(db: psycopg.Connection, n: int) -> None:
    planned(db, schedule="@hourly")
    with pytest.raises(psycopg.errors.CheckViolation, match=r"n: .* is out of range 1-10: `pgsched job preview` sho"):
        preview(db, n)


def test_a_slot_on_an_excluded_date_says_so_at_once(db: psycopg.Connection) -> None:
    """The date is that of the job's zone, which is another day than that in UTC."""
    planned(db, schedule="30 0 * * *", timezone="Asia/Tokyo")
    first = preview(db)[0]
    assert first[0] is not None and first[1] is not None and first[2] is None
    day = date.fromisoformat(first[1].split()[1])
    assert day != first[0].astimezone(UTC).date()
    excluded(db, day, "Christmas")
    notes = [note for _, _, note in preview(db)]
    assert notes == [f"it will be skipped: excluded date {day}: Christmas", None, None, None, None]


def test_no_slot_is_shown_behind_the_last_run(db: psycopg.Connection) -> None:
    planned(db, schedule="0 12 * * *", max_runs=2)
    assert [note for _, _, note in preview(db)] == [None, "the last one: the max_runs of the job is 2"]
    slot = preview(db)[0][0]
    assert slot is not None
    excluded(db, slot.astimezone(UTC).date())
    notes = [note for _, _, note in preview(db)]
    assert len(notes) == 3 and (notes[0] or "").startswith("it will be skipped"), "a skipped slot is no run"
    assert notes[1:] == [None, "the last one: the max_runs of the job is 2"]


def test_no_slot_is_shown_behind_the_end(db: psycopg.Connection) -> None:
    end = (now(db) + timedelta(hours=2, minutes=30)).replace(microsecond=0)
    planned(db, schedule="@every 1h", ends_at=end)
    notes = [note for _, _, note in preview(db)]
    assert notes == [None, f"the last one: the ends_at of the job is {end.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"]


def test_a_schedule_that_ends_says_so(db: psycopg.Connection) -> None:
    planned(db, schedule="0 0 29 2 *", timezone="UTC")
    assert len(preview(db, 10)) == 10
    db.execute("UPDATE pgsched.next_slots SET slots = slots[1:2], offsets = offsets[1:2], refresh_at = NULL")
    assert [note for _, _, note in preview(db)] == [None, "the last one of the schedule"]


def test_a_job_that_runs_once_has_one_slot(db: psycopg.Connection) -> None:
    planned(db, run_at=datetime(2100, 7, 1, 1, 30, tzinfo=UTC), timezone="Europe/Berlin")
    assert preview(db) == [(datetime(2100, 7, 1, 1, 30, tzinfo=UTC), "Thu 2100-07-01 03:30:00 +02:00", None)]
    pass_time(db, 100 * 365.25 * 86_400)
    lead(db)
    assert why(db) == "its one slot is decided"


def test_a_paused_job_says_by_whom(db: psycopg.Connection) -> None:
    planned(db, schedule="@hourly")
    jobs.pause(db, "a", "the books are being closed", by="ops")
    assert why(db).startswith("paused by ops since 20")
    assert why(db).endswith(": the books are being closed; no slots until it is resumed")
    jobs.resume(db, "a")
    assert len(preview(db)) == 5, "the slots of the schedule are as they were"


def test_a_job_in_error_says_so(db: psycopg.Connection) -> None:
    planned(db, schedule="@hourly")
    db.execute("UPDATE pgsched.jobs SET schedule = '0 0 31 2 *'")
    lead(db)
    keep_next_slots(db)
    assert why(db) == "in error: schedule: never fires: no month has such a day; no slots until it is changed"


def test_a_fixed_delay_has_no_slots_to_foresee(db: psycopg.Connection) -> None:
    planned(db, schedule="@after 10m")
    assert why(db) == "its slots depend on when runs end, so none can be foreseen"


@pytest.mark.parametrize(
    "change",
    [{"schedule": "@daily"}, {"timezone": "Asia/Kolkata"}, {"schedule": "@every 1h"}, {"starts_at": "2100-01-01Z"}],
)
def test_slots_of_an_edited_schedule_are_not_shown(db: psycopg.Connection, change: dict[str, str]) -> None:
    planned(db, schedule="@hourly")
    (column, value), = change.items()  # fmt: skip
    db.execute(f"UPDATE pgsched.jobs SET {column} = %s".encode(), [value])
    assert why(db) == (
        "not planned yet: no slot of this schedule is known; no process leads now (start a pgsched worker)"
    )
    lead(db)
    keep_next_slots(db)
    assert len(preview(db)) == 5


def test_without_the_comparison_slots_of_an_edited_schedule_would_be_shown(db: psycopg.Connection) -> None:
    planned(db, schedule="@hourly")
    row = db.execute("SELECT pg_get_functiondef('pgsched.known_slots'::regproc)").fetchone()
    guard = "AND (k.schedule, k.timezone, k.anchor_at) = (j.schedule, j.timezone, j.anchor_at)"
    assert row is not None and guard in row[0]
    db.execute("UPDATE pgsched.jobs SET schedule = '@daily'")
    assert [slot for slot, _, _ in preview(db)] == [None]
    db.execute(row[0].replace(guard, ""))
    assert None not in [slot for slot, _, _ in preview(db)]


def test_an_edit_of_something_else_leaves_the_slots_as_they_are(db: psycopg.Connection) -> None:
    planned(db, schedule="@hourly")
    before = preview(db)
    db.execute("UPDATE pgsched.jobs SET priority = 1, description = 'x', max_attempts = 2")
    assert preview(db) == before


def test_an_undecided_slot_is_shown_as_due(db: psycopg.Connection) -> None:
    planned(db, schedule="@every 1h")
    pass_time(db, 5400)
    keep_next_slots(db)
    assert [note for _, _, note in preview(db, 2)] == ["it is due, and not decided yet", None]
    lead(db)
    assert preview(db, 1)[0][2] is None


def test_the_slots_of_a_deleted_job_are_deleted(db: psycopg.Connection) -> None:
    planned(db, schedule="@hourly")
    db.execute("SELECT pgsched.delete_job('a')")
    assert db.execute("SELECT count(*) FROM pgsched.next_slots").fetchone() == (0,)


# ---- the leader


@pytest.fixture
def loop(connect: Open) -> LeaderLoop:
    """Return the loop of a leader that has looked at all jobs once; `run_once` is one round of all duties."""
    loop = lead_loop(connect())
    loop.run_once()
    return loop


def written(db: psycopg.Connection) -> list[str]:
    """Return the version of each row of next slots, which a write changes."""
    return [row[0] for row in db.execute("SELECT xmin::text FROM pgsched.next_slots ORDER BY job_id").fetchall()]


def rounds(loop: LeaderLoop, n: int = 3) -> None:
    """Let the leader do some rounds, each after the lull of the one before."""
    for _ in range(n):
        loop.term.lull_until = 0.0
        loop.run_once()


def test_a_leader_keeps_the_slots_of_a_job_that_it_has_just_planned(db: psycopg.Connection, loop: LeaderLoop) -> None:
    add(db, schedule="@hourly")
    rounds(loop)
    assert len(preview(db, 10)) == 10
    db.execute("UPDATE pgsched.jobs SET schedule = '@daily'")
    rounds(loop)
    assert len(preview(db, 10)) == 10


def test_a_new_leader_keeps_the_slots_of_all_jobs(db: psycopg.Connection, connect: Open) -> None:
    for n in range(3):
        add_named(db, f"j{n}")
    lead(db)
    rounds(lead_loop(connect()))
    assert [len(preview(db, 10, f"j{n}")) for n in range(3)] == [10, 10, 10]


def add_named(db: psycopg.Connection, name: str) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES (%s, 't', '@hourly')", [name])


def test_a_job_that_fires_each_second_is_not_written_each_time(db: psycopg.Connection, loop: LeaderLoop) -> None:
    add(db, schedule="@every 1s", overlap="allow")
    rounds(loop)
    kept = duty_of(loop, NextSlotsDuty).next_slots
    for _ in range(20):
        pass_time(db, 1.03)  # not a whole second: no slot is moved to where another was
        db.execute("UPDATE pgsched.next_slots SET anchor_at = j.anchor_at FROM pgsched.jobs j")
        before = written(db)
        rounds(loop, 1)
        assert written(db) == before
    assert not kept.planned
    fired = db.execute("SELECT count(*) FROM pgsched.runs").fetchone()
    assert fired is not None and fired[0] >= 20


def test_slots_that_run_out_are_followed_by_others(
    db: psycopg.Connection, loop: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(db, schedule="@every 1m")
    rounds(loop)
    db.execute("UPDATE pgsched.next_slots SET slots = slots[1:3], offsets = offsets[1:3],"
               " refresh_at = clock_timestamp()")  # fmt: skip
    assert len(preview(db, 10)) == 3
    pass_time(db, 60)
    db.execute("UPDATE pgsched.next_slots SET anchor_at = j.anchor_at FROM pgsched.jobs j")
    monkeypatch.setattr("pgsched.leader.duties.next_slots.CHECK_S", 0.0)
    duty_of(loop, NextSlotsDuty).next_slots.fired_at = 0.0
    rounds(loop)
    assert len(preview(db, 10)) == 10


def test_slots_by_other_time_zone_rules_are_computed_again(db: psycopg.Connection, connect: Open) -> None:
    planned(db, schedule="@hourly", timezone="Europe/Berlin")
    db.execute("UPDATE pgsched.next_slots SET rules = '1999z', slots[1] = slots[1] - interval '1 minute'")
    wrong = preview(db, 1)
    rounds(lead_loop(connect()))
    assert preview(db, 1) != wrong


def test_a_delete_in_progress_does_not_delay_the_leader(
    db: psycopg.Connection, connect: Open, loop: LeaderLoop
) -> None:
    add(db, schedule="@hourly")
    lead(db)
    duty_of(loop, NextSlotsDuty).next_slots.planned.update({1: None})
    other = connect(autocommit=False)
    other.execute("DELETE FROM pgsched.jobs")
    loop.term.conn.execute("SET lock_timeout = '2s'")
    rounds(loop)
    assert written(db) == []
    other.commit()
    assert written(db) == []


def test_without_skip_locked_a_delete_in_progress_would_delay_the_leader(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(db, schedule="@hourly")
    lead(db)
    cut(monkeypatch, "next_slots_keep", "FOR KEY SHARE SKIP LOCKED", "FOR KEY SHARE")
    other = connect(autocommit=False)
    other.execute("DELETE FROM pgsched.jobs")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        keep_next_slots(connect(options="-c lock_timeout=200ms"))


def test_without_the_lock_a_deleted_job_would_leave_its_slots_behind(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(db, schedule="@hourly")
    lead(db)
    cut(monkeypatch, "next_slots_keep", "FOR KEY SHARE SKIP LOCKED", "")
    other = connect(autocommit=False)
    other.execute("DELETE FROM pgsched.jobs")
    keep_next_slots(db)
    other.commit()
    assert len(written(db)) == 1

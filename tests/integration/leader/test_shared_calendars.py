"""Shared calendars in the database: slots that they shift, changes that replan jobs, and readers in SQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

import psycopg
import pytest

from pgsched.core.planning.job_schedule import job_calendar
from pgsched.core.schedule.zones import zone
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.leader.backfill import run_backfills
from pgsched.leader.duties import calendars as calendars_duty
from pgsched.services.jobs.explain import explain_slot
from tests.support.db.leading import lead as lead_loop
from tests.support.db.passing import add, job, keep_next_slots, lead, runs
from tests.support.db.setting import Open, make_calendar
from tests.support.fleet import one
from tests.support.waiting import wait_until

DAY = timedelta(days=1)
BERLIN, NEXT, PREVIOUS = "Europe/Berlin", "next_business_day", "previous"


def at(days: int, hour: int = 9) -> datetime:
    """Return nine o'clock in Berlin, so many days from today."""
    local = datetime.now(zone(BERLIN)).replace(hour=hour, minute=0, second=0, microsecond=0)
    return datetime.combine(local.date() + days * DAY, local.time(), zone(BERLIN)).astimezone(UTC)


def monthly(db: psycopg.Connection, days: int, **columns: Any) -> dict[str, Any]:
    """Add a job with one slot a year, so many days from today at nine, that uses the calendar."""
    day = at(days).astimezone(zone(BERLIN))
    return add(db, schedule=f"0 9 {day.day} {day.month} *", timezone=BERLIN, calendar="office", **columns)


def test_slots_move_to_the_next_business_day_or_the_one_before(db: psycopg.Connection) -> None:
    make_calendar(db, {"from_date": at(40).date(), "until_date": at(42).date(), "reason": "closed"})
    monthly(db, 41, on_excluded=NEXT)
    lead(db)
    assert job(db)["next_run_at"] == at(43)
    db.execute("UPDATE pgsched.jobs SET on_excluded = 'previous'")
    lead(db)
    assert job(db)["next_run_at"] == at(39)
    db.execute("UPDATE pgsched.jobs SET on_excluded = 'skip'")
    lead(db)
    assert job(db)["next_run_at"] == at(41)


def test_a_changed_calendar_replans_its_jobs_before_their_slots(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    make_calendar(db)
    monthly(db, 41, on_excluded=PREVIOUS)
    loop = lead_loop(db)
    loop.run_once()
    assert job(db)["next_run_at"] == at(41)
    listener = connect()
    listener.execute("LISTEN pgsched_leader")
    changes = [
        ("INSERT", lambda: make_calendar(db, {"from_date": at(41).date()}), at(40)),
        ("UPDATE", lambda: db.execute("UPDATE pgsched.calendar_times SET from_date = from_date - 1"), at(39)),
        ("DELETE", lambda: db.execute("DELETE FROM pgsched.calendar_times"), at(41)),
    ]
    for what, change, expected in changes:
        change()
        assert next(iter(listener.notifies(timeout=10, stop_after=1))).channel == "pgsched_leader", what
        wait_until(lambda expected=expected: loop.run_once() >= 0 and job(db)["next_run_at"] == expected, what=what)
        assert one(db, "SELECT count(*) FROM pgsched.calendars WHERE replan") == 0


def test_jobs_that_another_transaction_has_locked_are_replanned_later(db: psycopg.Connection, connect: Open) -> None:
    make_calendar(db)
    monthly(db, 41, on_excluded=PREVIOUS)
    loop = lead_loop(db)
    loop.run_once()
    editor = connect(autocommit=False)
    editor.execute("UPDATE pgsched.jobs SET description = 'mine'")
    make_calendar(db, {"from_date": at(41).date()})
    for _ in range(3):
        loop.run_once()
    assert one(db, "SELECT replan FROM pgsched.calendars") is True, "it still counts as changed"
    editor.commit()
    wait_until(lambda: loop.run_once() >= 0 and job(db)["next_run_at"] == at(40), what="the locked job")
    wait_until(lambda: loop.run_once() >= 0 and not one(db, "SELECT replan FROM pgsched.calendars"), what="the end")


def test_a_new_leader_goes_on_with_a_changed_calendar(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one sees some of the jobs, and ends. Many jobs are read page by page."""
    monkeypatch.setattr(calendars_duty, "JOBS", 2)
    make_calendar(db)
    day = at(41).astimezone(zone(BERLIN))
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, timezone, calendar, on_excluded)"
        " SELECT 'j' || n, 't', %s, %s, 'office', 'previous' FROM generate_series(1, 7) n",
        [f"0 9 {day.day} {day.month} *", BERLIN],
    )
    lead_loop(db).run_once()
    make_calendar(db, {"from_date": at(41).date()})
    first = lead_loop(db)
    changes = calendars_duty.CalendarChanges()
    assert changes.replan(first.term.leading) == 1
    assert one(db, "SELECT replan FROM pgsched.calendars") is True
    second = lead_loop(db)
    planned = "SELECT count(*) FROM pgsched.jobs WHERE next_run_at = %s"
    wait_until(lambda: second.run_once() >= 0 and one(db, planned, at(40)) == 7, what="all jobs")


def test_an_edit_that_is_not_committed_keeps_no_job_of_its_calendar_waiting(
    db: psycopg.Connection, connect: Open
) -> None:
    make_calendar(db)
    add(db, schedule="* * * * * *", calendar="office", on_excluded=NEXT, overlap="allow")
    lead(db)
    editor = connect(autocommit=False)
    make_calendar(editor, {"from_date": at(41).date()})
    wait_until(lambda: lead(db) >= 0 and len(runs(db)) > 0, what="its slots are decided meanwhile")


def test_a_decided_slot_does_not_run_again_when_the_calendar_changes(db: psycopg.Connection) -> None:
    """Tomorrow's slot ran today, because tomorrow was a holiday. Then the holiday is taken out again."""
    now = datetime.now(UTC)
    tomorrow = (now + DAY).date()
    make_calendar(db, {"from_date": tomorrow})
    due = (now - timedelta(seconds=5)).replace(microsecond=0)
    add(db, schedule=f"{due.second} {due.minute} {due.hour} {tomorrow.day} {tomorrow.month} *", calendar="office",
        on_excluded=PREVIOUS, misfire_after="1 hour")  # fmt: skip
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET decided_until = %s, anchor_at = %s, created_at = %s", [due - DAY] * 3)
    lead(db)
    (run,) = runs(db)
    assert (run["scheduled_at"], run["nominal_at"], run["state"]) == (due, due + DAY, "queued")
    for change in ("DELETE FROM pgsched.calendar_times", "UPDATE pgsched.jobs SET on_excluded = 'skip'",
                   "UPDATE pgsched.jobs SET calendar = NULL", "UPDATE pgsched.jobs SET description = 'x'"):  # fmt: skip
        db.execute(change.encode())
        lead(db)
        assert job(db)["next_run_at"] > due + 2 * DAY, change
    assert len(runs(db)) == 1
    assert "its slot lies at" not in explain_slot(db, "a").text


@pytest.mark.long
def test_the_rows_of_slots_have_intervals_and_those_of_enqueues_have_none(db: psycopg.Connection) -> None:
    make_calendar(db)
    add(db, schedule="* * * * * *", overlap="allow")
    wait_until(lambda: lead(db) >= 0 and len(runs(db)) > 2, what="some slots")
    first, *others = runs(db)
    assert first["interval_start"] == first["scheduled_at"] - timedelta(seconds=1)
    before = {row["scheduled_at"] for row in runs(db)} | {first["interval_start"]}
    assert all(row["interval_start"] in before and row["nominal_at"] is None for row in others)
    db.execute("SELECT pgsched.enqueue('t'); SELECT pgsched.trigger('a')")
    plain = (
        "SELECT count(*) FROM pgsched.runs WHERE origin <> 'schedule' AND num_nonnulls(interval_start, nominal_at) > 0"
    )
    assert one(db, plain) == 0


def test_slots_of_a_pause_are_passed_over_where_the_calendar_has_them(db: psycopg.Connection) -> None:
    """The nominal slot of yesterday was shifted to an hour ago, in the pause: one skipped row there."""
    now = datetime.now(UTC).replace(microsecond=0)
    hour_ago = now - timedelta(hours=1)
    yesterday = (hour_ago - DAY).date()
    make_calendar(db, {"from_date": yesterday})
    add(db, schedule=f"{hour_ago.second} {hour_ago.minute} {hour_ago.hour} {yesterday.day} {yesterday.month} *",
        calendar="office", on_excluded=NEXT, paused=True)  # fmt: skip
    past = [hour_ago - 2 * DAY] * 4
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET decided_until = %s, anchor_at = %s, created_at = %s, paused_at = %s", past)
    db.execute("UPDATE pgsched.jobs SET paused = false")
    wait_until(lambda: lead_loop(db).run_once() >= 0 and len(runs(db)) == 1, what="the stretch is recorded")
    (row,) = runs(db)
    assert (row["scheduled_at"], row["state"], row["nominal_at"]) == (hour_ago, "skipped", hour_ago - DAY)
    lead(db)
    assert len(runs(db)) == 1 and job(db)["next_run_at"] > now


def test_a_slot_that_a_calendar_has_shifted_behind_a_pause_is_kept(db: psycopg.Connection) -> None:
    """The job runs once, at a time that is excluded: its slot lies days later, and the pause ends before."""
    begun = datetime.now(UTC) - timedelta(minutes=1)
    make_calendar(db, {"from_date": begun.date(), "until_date": (begun + DAY).date()})
    add(db, run_at=begun, calendar="office", on_excluded=NEXT)
    lead(db)
    assert job(db)["next_run_at"] == begun + 2 * DAY
    jobs.pause(db, "a")
    jobs.resume(db, "a")
    lead(db)
    assert (job(db)["next_run_at"], runs(db)) == (begun + 2 * DAY, [])


def test_a_backfill_takes_the_shifted_slots_and_repeats_no_nominal_one(db: psycopg.Connection) -> None:
    make_calendar(db, {"weekdays": [0, 6]})
    add(db, schedule="0 9 * * *", timezone=BERLIN, calendar="office", on_excluded=NEXT)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "UPDATE pgsched.jobs SET decided_until = '2026-05-13Z', anchor_at = '2026-01-01Z',"
            " created_at = '2026-01-01Z'"
        )
    request = backfills.Request("2026-05-07", "2026-05-13", max_active=100)
    added = backfills.add_backfill(db, "a", request)
    assert added["slots"] == 4
    with db.transaction():
        run_backfills(db)
    found = [(f"{row['scheduled_at']:%a %d %H}", row["interval_start"], row["nominal_at"]) for row in runs(db)]
    friday = datetime(2026, 5, 8, 7, tzinfo=UTC)
    assert [one for one, _, _ in found] == ["Thu 07 07", "Fri 08 07", "Mon 11 07", "Tue 12 07"]
    assert found[2][1:] == (friday, None)
    # Monday's own slot stood for the weekend as well: with an empty calendar the weekend has no runs
    db.execute("UPDATE pgsched.runs SET nominal_at = '2026-05-09 07:00Z' WHERE scheduled_at = '2026-05-11 07:00Z'")
    db.execute("DELETE FROM pgsched.calendar_times")
    _, choices = backfills.preview_backfill(db, "a", backfills.Request("2026-05-08", "2026-05-13"))
    assert {f"{one.slot:%a}": one.action for one in choices} == {
        "Fri": "leave", "Sat": "leave", "Sun": "run", "Mon": "leave", "Tue": "leave"
    }  # fmt: skip


def test_sql_readers_show_the_shifted_slots(db: psycopg.Connection) -> None:
    make_calendar(db, {"from_date": at(41).date(), "reason": "closed"})
    monthly(db, 41, on_excluded=NEXT)
    lead(db)
    keep_next_slots(db)
    first = "SELECT slot, note FROM pgsched.preview('a', 1)"
    slot, note = db.execute(first).fetchone() or (None, None)
    assert (
        slot == at(42)
        and note is not None
        and note.startswith(f"the schedule has it at {at(41).astimezone(zone(BERLIN)):%a %Y-%m-%d} 09:00")
    )
    make_calendar(db, {"from_date": at(42).date()})
    assert one(db, "SELECT slot FROM pgsched.preview('a', 1)") is None, "what was kept does not hold any more"
    wait_until(
        lambda: lead_loop(db).run_once() >= 0 and one(db, "SELECT slot FROM pgsched.preview('a', 1)") == at(43),
        what="the new slots",
    )
    explained = explain_slot(db, "a", at(41).isoformat()).text
    assert f"{at(41):%Y-%m-%d %H:%M:%S} UTC is excluded by calendar office: {at(41):%Y-%m-%d} (closed)" in explained
    assert f"its slot lies at {at(43):%Y-%m-%d %H:%M:%S} UTC" in explained


@pytest.mark.long
def test_sql_and_the_program_exclude_the_same_instants_in_the_same_words(db: psycopg.Connection) -> None:
    rng = Random(7)
    base = date(2026, 3, 20)
    for _ in range(25):
        db.execute("TRUNCATE pgsched.jobs, pgsched.calendars, pgsched.calendar_times CASCADE")
        make_calendar(db)
        add(db, schedule="@daily", timezone=BERLIN, calendar="office", on_excluded=rng.choice(["skip", NEXT]))
        for _ in range(rng.randint(1, 8)):
            first = base + rng.randint(0, 14) * DAY
            row: dict[str, Any] = {"reason": rng.choice([None, "why"])}
            if rng.random() < 0.6:
                row |= {"from_date": first, "until_date": first + rng.randint(0, 4) * DAY}
            if rng.random() < 0.5 or "from_date" not in row:
                row["weekdays"] = rng.sample(range(7), rng.randint(1, 4))
            if rng.random() < 0.5:
                begin = rng.randint(0, 20)
                row |= {
                    "from_time": time(begin, rng.choice([0, 30])),
                    "until_time": rng.choice(["24:00", f"{begin + 2}:15:30"]),
                }
            make_calendar(db, row)
        if rng.random() < 0.5:
            db.execute(
                "INSERT INTO pgsched.job_calendars SELECT id, %s, %s, 'own' FROM pgsched.jobs",
                [base + 3 * DAY, base + 4 * DAY],
            )
        calendar = job_calendar(jobs.show_planned_job(db, "a"))
        instants = [datetime(2026, 3, 20, tzinfo=UTC) + n * timedelta(minutes=97) for n in range(300)]
        walls = [instant.astimezone(zone(BERLIN)).replace(tzinfo=None) for instant in instants]
        said = db.execute("SELECT array_agg(pgsched.excluded_at(j, w.wall) ORDER BY w.n) FROM pgsched.jobs j,"
                          " unnest(%s::timestamp[]) WITH ORDINALITY w(wall, n)", [walls]).fetchone()  # fmt: skip
        assert said is not None
        assert said[0] == [calendar.excluded(instant) for instant in instants]


def test_a_reset_mark_forgets_which_nominal_slots_were_decided(db: psycopg.Connection) -> None:
    make_calendar(db, {"weekdays": [0, 6]})
    add(db, schedule="0 9 * * *", calendar="office", on_excluded=PREVIOUS)
    lead(db)
    assert job(db)["shifts"] is not None
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET decided_until = now() + interval '90 days'")
    db.execute("SELECT pgsched.reset_mark('a')")
    assert job(db)["shifts"] is None


def test_a_job_that_runs_once_may_get_a_schedule_that_a_calendar_shifts(db: psycopg.Connection) -> None:
    make_calendar(db, {"weekdays": [0, 6]})
    add(db, run_at=at(9))
    before = datetime.now(UTC)
    db.execute(
        "UPDATE pgsched.jobs SET run_at = NULL, schedule = '0 3 * * *', calendar = 'office', on_excluded = %s", [NEXT]
    )
    assert datetime.fromisoformat(job(db)["shifts"]["at"]) >= before
    lead(db)
    found = job(db)
    assert found["error"] is None and found["next_run_at"] > before
    assert jobs.show_job(db, "a")["next_allowed_at"] == found["next_run_at"]


def test_a_slot_that_a_resume_has_passed_over_is_not_shifted_to_later(db: psycopg.Connection) -> None:
    """Its day is excluded, and the same edit that resumes the job lets excluded slots move."""
    begun = datetime.now(UTC) - timedelta(hours=1)
    make_calendar(db, {"from_date": (begun - DAY).date(), "until_date": (begun + DAY).date()})
    add(db, schedule=f"{begun.second} {begun.minute} {begun.hour} * * *", calendar="office", paused=True)
    past = [begun - 10 * DAY] * 4
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET decided_until = %s, anchor_at = %s, created_at = %s, paused_at = %s", past)
    db.execute("UPDATE pgsched.jobs SET paused = false, on_excluded = %s", [NEXT])
    found = job(db)
    assert datetime.fromisoformat(found["shifts"]["at"]) == found["decided_until"]
    lead(db)
    after = job(db)["next_run_at"].date()
    assert after == (begun + 2 * DAY).date(), "the slot of tomorrow, and not one of the pause"


def test_what_the_column_shifts_cannot_be_is_an_error_of_the_job(db: psycopg.Connection) -> None:
    make_calendar(db)
    add(db, schedule="0 3 * * *", calendar="office", on_excluded=NEXT)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("""UPDATE pgsched.jobs SET shifts = '{"at": "-infinity"}', next_run_at = now()""")
    lead(db)
    assert job(db)["error"].startswith("shifts: cannot be read: ValueError: ")
    assert jobs.show_job(db, "a")["next_allowed_at"] is None


@pytest.mark.parametrize("change", ["calendar", "own date", "on_excluded"])
def test_a_job_whose_last_slot_lay_behind_its_end_goes_on_when_it_comes_back(
    db: psycopg.Connection, change: str
) -> None:
    make_calendar(db, *([] if change == "own date" else [{"from_date": at(41).date()}]))
    monthly(db, 41, on_excluded=NEXT, ends_at=at(41, 20))
    if change == "own date":
        db.execute("INSERT INTO pgsched.job_calendars SELECT id, %s, %s FROM pgsched.jobs", [at(41).date()] * 2)
    loop = lead_loop(db)
    wait_until(lambda: loop.run_once() >= 0 and job(db)["next_run_at"] is None, what="no slot before the end")
    statement = {"calendar": "DELETE FROM pgsched.calendar_times", "own date": "DELETE FROM pgsched.job_calendars",
                 "on_excluded": "UPDATE pgsched.jobs SET on_excluded = 'previous'"}[change]  # fmt: skip
    db.execute(statement.encode())
    expected = at(40) if change == "on_excluded" else at(41)
    wait_until(lambda: loop.run_once() >= 0 and job(db)["next_run_at"] == expected, what=change)

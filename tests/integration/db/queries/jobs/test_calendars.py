"""Excluded dates in the database: plain INSERTs, rows that grow, and changes that take effect at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import psycopg
import pytest

from pgsched.core.schedule.calendar import calendar
from pgsched.db.queries.leader import ticks
from tests.support.db.passing import add, job, lead, now, pass_time, runs, set_past_triggers
from tests.support.db.setting import add_jobs, forget_decided
from tests.support.fleet import one

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def exclude(db: psycopg.Connection, first: int = -2, last: int = 2, reason: str | None = None) -> None:
    """Exclude dates, counted from today."""
    db.execute(
        "INSERT INTO pgsched.job_calendars (job_id, from_date, until_date, reason)"
        " SELECT id, current_date + %s, current_date + %s, %s FROM pgsched.jobs",
        [first, last, reason],
    )


def test_a_single_date_is_one_plain_insert(db: psycopg.Connection) -> None:
    add(db, schedule="@daily")
    db.execute(
        "INSERT INTO pgsched.job_calendars (job_id, from_date, reason)"
        " SELECT id, '2026-12-25', 'Christmas' FROM pgsched.jobs"
    )
    row = db.execute("SELECT from_date::text, until_date::text, reason FROM pgsched.job_calendars").fetchone()
    assert row == ("2026-12-25", "2026-12-25", "Christmas")


@pytest.mark.parametrize(
    ("first", "last", "reason", "message"),
    [
        (None, None, None, "from_date: must not be null"),
        ("infinity", None, None, "from_date: infinity is not a date between 1970 and 9000"),
        ("2026-01-01", "infinity", None, "until_date: infinity is not a date between 1970 and 9000"),
        ("2026-01-02", "2026-01-01", None, "until_date: 2026-01-01 is earlier than from_date, 2026-01-02"),
        ("2026-01-01", None, "", "reason: must not be empty"),
        ("2026-01-01", None, "a\nb", "reason: must not contain control characters"),
    ],
)
def test_a_bad_row_is_refused_with_its_field(
    db: psycopg.Connection, first: str | None, last: str | None, reason: str | None, message: str
) -> None:
    a = add(db, schedule="@daily")
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        db.execute("INSERT INTO pgsched.job_calendars VALUES (%s, %s, %s, %s)", [a["id"], first, last, reason])
    assert refusal.value.diag.message_primary == message
    assert refusal.value.diag.column_name == message.split(":", maxsplit=1)[0]


def test_a_blackout_of_a_frequent_job_is_one_row_that_grows(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1s", overlap="allow")
    exclude(db, reason="freeze")
    for round_ in range(1, 8):
        pass_time(db, 3)
        lead(db)
        (row,) = runs(db)
        assert row["covers_count"] >= 3 * round_
        assert row["covers_until"] == job(db)["decided_until"]
    assert row["state"] == "skipped" and row["finished_at"] is not None
    assert row["covers_from"] == job(db)["anchor_at"] + timedelta(seconds=1)
    assert row["reason"].startswith("excluded dates ") and row["reason"].endswith(": freeze")


def test_a_change_of_the_dates_applies_to_slots_decided_after_it(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h", overlap="allow", misfire_after="1 day")
    exclude(db)
    pass_time(db, 3600)
    lead(db)
    db.execute("DELETE FROM pgsched.job_calendars")
    pass_time(db, 3600)
    lead(db)
    exclude(db)
    pass_time(db, 3600)
    lead(db)
    assert [run["state"] for run in runs(db)] == ["skipped", "queued", "skipped"]


def test_a_reason_that_changes_begins_a_new_row(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h")
    exclude(db, reason="a")
    pass_time(db, 3600)
    lead(db)
    db.execute("UPDATE pgsched.job_calendars SET reason = 'b'")
    pass_time(db, 3600)
    lead(db)
    assert [run["reason"][-1] for run in runs(db)] == ["a", "b"]


def test_a_one_off_on_an_excluded_date_is_skipped(db: psycopg.Connection) -> None:
    add(db, run_at=now(db) + HOUR)
    exclude(db)
    pass_time(db, 3600)
    lead(db)
    assert [run["state"] for run in runs(db)] == ["skipped"]
    assert job(db)["next_run_at"] is None


def test_excluded_dates_postpone_a_fixed_delay_until_they_are_removed(db: psycopg.Connection) -> None:
    a = add(db, schedule="@after 1h")
    exclude(db)
    lead(db)
    first = (now(db) + 3 * DAY).replace(hour=0, minute=0, second=0, microsecond=0)
    assert job(db)["next_run_at"] == first
    pass_time(db, 3600)
    assert lead(db) == 0, "no slot, and no row either"
    db.execute("DELETE FROM pgsched.job_calendars")
    assert lead(db) == 1, "an hour after it began"
    assert runs(db)[0]["scheduled_at"] == a["anchor_at"]


def test_a_changed_calendar_notifies_the_leader(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    add(db, schedule="@daily")
    listener = connect()
    listener.execute("LISTEN pgsched_leader")
    changes: list[Any] = [
        lambda: exclude(db),
        lambda: db.execute("UPDATE pgsched.job_calendars SET reason = 'x'"),
        lambda: db.execute("DELETE FROM pgsched.job_calendars"),
    ]
    for change in changes:
        change()
        assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == ["jobs"]


def test_the_dates_of_a_job_are_deleted_with_it(db: psycopg.Connection) -> None:
    add(db, schedule="@daily")
    exclude(db)
    db.execute("DELETE FROM pgsched.jobs")
    assert db.execute("SELECT count(*) FROM pgsched.job_calendars").fetchone() == (0,)


def test_an_excluded_stretch_that_is_decided_again_has_one_row(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 10)
    db.execute("INSERT INTO pgsched.job_calendars SELECT id, current_date - 1, current_date + 1 FROM pgsched.jobs")
    lead(db)
    pass_time(db, 5)
    set_past_triggers(db, ends_at=None, next_run_at=now(db))
    lead(db)
    before = [(run["covers_from"], run["covers_until"], run["covers_count"]) for run in runs(db)]
    assert len(before) == 1 and before[0][2] >= 15
    forget_decided(db)
    set_past_triggers(db, ends_at=before[0][1])
    lead(db)
    assert [(run["covers_from"], run["covers_until"], run["covers_count"]) for run in runs(db)] == before


@pytest.mark.long
def test_dates_that_are_years_ahead_are_not_read_at_every_tick(db: psycopg.Connection) -> None:
    row = add(db, schedule="* * * * *", overlap="allow")
    db.execute(
        "INSERT INTO pgsched.job_calendars (job_id, from_date) SELECT id, now()::date + 7 * n"
        " FROM pgsched.jobs, generate_series(1, 5000) n"
    )
    assert len(ticks.schedules_of(db, [row["id"]])[row["id"]]["excluded"]) <= 53


def test_a_fixed_delay_is_put_off_beyond_the_dates_that_are_read(db: psycopg.Connection) -> None:
    add(db, schedule="@after 1m")
    exclude(db, -1, 400)
    exclude(db, 401, 800)
    lead(db)
    assert job(db)["next_run_at"] - now(db) > timedelta(days=399)
    pass_time(db, 401 * 86400)
    db.execute("UPDATE pgsched.job_calendars SET from_date = from_date - 401, until_date = until_date - 401")
    lead(db)
    assert (job(db)["next_run_at"] - now(db) > timedelta(days=399), runs(db)) == (True, [])


# ---- many dates


@pytest.mark.long
def test_of_overlapping_stretches_the_leader_reads_those_that_matter(db: psycopg.Connection) -> None:
    a = add(db, schedule="@daily")
    every = "SELECT from_date, until_date, reason FROM pgsched.job_calendars"
    instants = [datetime.now(UTC) + timedelta(hours=7 * n) for n in range(52 * 24)]
    for seed in range(30):
        random = Random(seed)
        db.execute("DELETE FROM pgsched.job_calendars")
        for first in random.sample(range(-40, 400), random.randint(1, 60)):
            exclude(db, first, first + random.choice([0, 1, 30, 300]), f"from {first}")
        read = calendar(ticks.schedules_of(db, [a["id"]])[a["id"]]["excluded"], "UTC")
        whole = calendar(db.execute(every).fetchall(), "UTC")
        wrong = [at for at in instants[: 360 * 24 // 7] if read.excluded(at) != whole.excluded(at)]
        assert wrong == [], seed


def test_of_2000_overlapping_stretches_the_leader_reads_one(db: psycopg.Connection) -> None:
    a = add(db, schedule="@daily")
    db.execute("INSERT INTO pgsched.job_calendars SELECT %s, date '2000-01-01' + n, date '8000-01-01' + n, 'x'"
               " FROM generate_series(1, 2000) n", [a["id"]])  # fmt: skip
    assert len(ticks.schedules_of(db, [a["id"]])[a["id"]]["excluded"]) == 1


def test_a_job_has_no_more_than_5000_stretches(db: psycopg.Connection) -> None:
    a = add(db, schedule="@daily")
    fill = "INSERT INTO pgsched.job_calendars SELECT %s, date '2026-01-01' + 2 * n FROM generate_series(1, {}) n"
    with pytest.raises(psycopg.errors.CheckViolation, match="from_date: a job has at most 5000 stretches"):
        db.execute(fill.format(5001).encode(), [a["id"]])
    db.execute(fill.format(5000).encode(), [a["id"]])
    again = " ON CONFLICT (job_id, from_date) DO UPDATE SET until_date = excluded.until_date"
    db.execute(f"INSERT INTO pgsched.job_calendars VALUES (%s, '2026-01-03', '2026-01-04') {again}", [a["id"]])
    db.execute("UPDATE pgsched.job_calendars SET reason = 'x' WHERE from_date = '2026-01-05'")
    db.execute("SELECT pgsched.include_dates((SELECT name FROM pgsched.jobs), '2026-01-03', '2026-01-03')")
    assert one(db, "SELECT count(*) FROM pgsched.job_calendars") == 5000

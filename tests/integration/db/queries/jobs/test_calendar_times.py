"""What the database refuses of calendars that jobs share."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import psycopg
import pytest

from tests.support.db.passing import add, job
from tests.support.db.setting import Aside, Open, make_calendar, wait_until_waits
from tests.support.fleet import one


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "from_date: expected dates, weekdays or times of the day"),
        ({"from_date": "infinity"}, "from_date: infinity is not a date between 1970 and 9000"),
        ({"until_date": "2026-01-01"}, "from_date: must not be null beside until_date"),
        ({"from_date": "2026-01-02", "until_date": "2026-01-01"}, "until_date: 2026-01-01 is earlier than from_da"),
        ({"weekdays": [7]}, "weekdays: expected numbers from 0 (Sunday) to 6"),
        ({"weekdays": []}, "weekdays: expected numbers from 0 (Sunday) to 6"),
        ({"weekdays": [[0, 1], [2, 3]]}, "weekdays: must be a plain list"),
        ({"from_time": "10:00"}, "from_time: from_time and until_time belong together"),
        ({"from_time": "10:00", "until_time": "10:00"}, "until_time: 10:00:00 is not later than from_time, 10:00:00"),
        ({"weekdays": [1], "reason": ""}, "reason: must not be empty"),
    ],
)  # fmt: skip
def test_a_bad_time_is_refused_with_its_field(db: psycopg.Connection, row: dict[str, Any], message: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        make_calendar(db, row)
    assert (refusal.value.diag.message_primary or "").startswith(message)
    assert refusal.value.diag.column_name == message.split(":", maxsplit=1)[0]


def test_a_job_names_a_calendar_that_exists(db: psycopg.Connection) -> None:
    make_calendar(db, name="holidays")
    with pytest.raises(
        psycopg.errors.CheckViolation, match='calendar: there is no calendar named "holiday"; did you mean holidays'
    ):
        add(db, schedule="@daily", calendar="holiday")
    with pytest.raises(psycopg.errors.CheckViolation, match='on_excluded: "next" is not one of skip'):
        add(db, schedule="@daily", calendar="holidays", on_excluded="next")
    add(db, schedule="@daily", calendar="holidays")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        db.execute("DELETE FROM pgsched.calendars")
    with pytest.raises(psycopg.errors.CheckViolation, match="calendar: jobs use it: a"):
        db.execute("SELECT pgsched.delete_calendar('holidays')")
    db.execute("UPDATE pgsched.calendars SET name = 'days'")
    assert job(db)["calendar"] == "days"


def test_a_calendar_has_a_bounded_number_of_times(db: psycopg.Connection) -> None:
    make_calendar(db)
    fill = "INSERT INTO pgsched.calendar_times (calendar, {}) SELECT 'office', {} FROM generate_series(1, %s) n"
    repeated = fill.format("weekdays", "'{1}'::integer[]").encode()
    db.execute(repeated, [100])
    with pytest.raises(psycopg.errors.CheckViolation, match="at most 100 times of a calendar may repeat"):
        db.execute(repeated, [1])
    dated = fill.format(
        "from_date, until_date", "date '2026-01-01' + n::integer, date '2026-01-01' + n::integer"
    ).encode()
    db.execute(dated, [4900])
    with pytest.raises(psycopg.errors.CheckViolation, match="at most 5000 times"):
        db.execute(dated, [1])


@pytest.mark.parametrize("guarded", [True, False])
def test_two_transactions_cannot_both_have_room_for_their_times(
    db: psycopg.Connection, connect: Open, guarded: bool
) -> None:
    make_calendar(db)
    if not guarded:  # counted before the calendar is locked
        db.execute("ALTER TRIGGER d_most ON pgsched.calendar_times RENAME TO b_most")
    fill = (
        b"INSERT INTO pgsched.calendar_times (calendar, from_date)"
        b" SELECT 'office', date '2026-01-01' + n::integer FROM generate_series(1, 2501) n"
    )
    first, second = connect(autocommit=False), connect()
    first.execute(fill)
    other = Aside(lambda: second.execute(fill))
    wait_until_waits(db)
    first.commit()
    with pytest.raises(psycopg.errors.CheckViolation, match="at most 5000 times") if guarded else nullcontext():
        other.result()
    assert one(db, "SELECT count(*) FROM pgsched.calendar_times") == (2501 if guarded else 5002)


def test_a_calendar_has_a_bounded_number_of_times_on_one_date(db: psycopg.Connection) -> None:
    make_calendar(db)
    fill = (
        "INSERT INTO pgsched.calendar_times (calendar, from_date, until_date, from_time, until_time)"
        " SELECT 'office', d, d + 2, '10:00', '11:00'"
        " FROM generate_series(1, %s) n CROSS JOIN LATERAL (SELECT date '2026-01-01' + {} * n::integer AS d) days"
    )
    db.execute(fill.format(3).encode(), [1000])
    db.execute(fill.format(0).encode(), [100])
    with pytest.raises(psycopg.errors.CheckViolation, match="calendar: at most 100 times with hours may fall on"):
        db.execute(fill.format(0).encode(), [1])
    assert one(db, "SELECT count(*) FROM pgsched.calendar_times") == 1100

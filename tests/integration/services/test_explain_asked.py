"""How `explain` finds the slot and job that it is asked about; its locks, and how it formats durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from pgsched.core.explanations import format_timedelta
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.leader import ticks
from pgsched.errors import InputError, NotFound
from pgsched.services.jobs.explain import explain_slot
from tests.support.db.explaining import HOUR, add, hour, put, said_by_sql, why
from tests.support.db.passing import lead, now


def test_a_whole_second_stands_for_the_slot_within_it(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h")
    lead(db)
    slot = jobs.show_job(db, "a")["anchor_at"] + HOUR
    assert slot.microsecond
    asked = slot.replace(microsecond=0)
    for state in ("with its row", "without"):
        assert (why(db, asked).slot, why(db, asked).nearest) == (slot, None), state
        db.execute("DELETE FROM pgsched.runs")
    assert why(db, asked - timedelta(seconds=1)).nearest == (slot - HOUR, slot)
    beside = slot + timedelta(microseconds=1)
    assert why(db, beside).nearest == (slot, slot + HOUR)
    assert why(db, beside).text.startswith(f"{beside:%Y-%m-%d %H:%M:%S.%f} UTC is not a slot of @every 1h (UTC)")


def test_the_latest_due_slot_is_the_default(db: psycopg.Connection) -> None:
    add(db)
    lead(db)
    found = why(db)
    assert (found.slot, found.asked, found.is_slot, found.nearest) == (hour(db), None, True, None)


def test_the_default_of_a_new_job_is_its_first_slot(db: psycopg.Connection) -> None:
    add(db, 0, schedule="0 0 1 1 *")
    found = why(db)
    assert (found.answer, found.slot > now(db)) == ("future", True)


def test_a_fixed_delay_has_only_its_past_slots(db: psycopg.Connection) -> None:
    add(db, schedule="@after 1h")
    with pytest.raises(InputError, match="job a has no slots to explain yet: @after 1h"):
        why(db)
    lead(db)
    slot = db.execute("SELECT scheduled_at FROM pgsched.runs").fetchone()
    assert slot is not None
    assert (why(db).slot, why(db, hour(db, 50)).nearest) == (slot[0], (None, slot[0]))


def test_a_deleted_job_is_found_by_its_id(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    put(db, slot, "succeeded", attempt=1, started_at=slot)
    put(db, slot - HOUR, "queued")
    jobs.delete(db, "a")
    assert (why(db, name="1").answer, why(db, name="1").job) == ("ran", "1 (deleted)")
    assert why(db, slot - HOUR, name="1").text.endswith("job a was deleted.")
    assert why(db, slot - HOUR / 4, name="1").slot == slot


@pytest.mark.parametrize("name", ["b", "2", "9" * 30])
def test_a_job_that_never_existed_is_not_found(db: psycopg.Connection, name: str) -> None:
    with pytest.raises(NotFound, match="there is no job named"):
        why(db, name=name)


def test_an_instant_without_offset_is_the_job_s_wall_clock(db: psycopg.Connection) -> None:
    add(db, schedule="0 2 * * *", timezone="Asia/Tokyo")
    assert why(db, "2026-05-01T02:00").slot == datetime(2026, 4, 30, 17, tzinfo=UTC)
    with pytest.raises(InputError, match='at: "noon" is not a time'):
        why(db, "noon")


def test_explain_locks_no_more_than_a_plain_read(db: psycopg.Connection) -> None:
    add(db)
    with db.transaction():
        explain_slot(db, "a")
        said_by_sql(db, None)
        db.execute("SELECT FROM pgsched.jobs")
        locks = db.execute("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
                           " AND mode <> 'AccessShareLock'").fetchone()  # fmt: skip
    assert locks == (0,)
    ticks.admit(db, 1)


def test_a_wall_time_that_the_zone_skips_stands_for_the_end_of_the_gap(db: psycopg.Connection) -> None:
    jobs.add(db, {"name": "a", "task": "t", "schedule": "30 2 * * *", "timezone": "Europe/Berlin"})
    found = why(db, "2026-03-29 02:30")
    assert (found.is_slot, found.slot) == (True, datetime(2026, 3, 29, 1, tzinfo=UTC))
    assert found.text.startswith(
        "2026-03-29 02:30:00 does not exist in Europe/Berlin: clocks go from 02:00 to 03:00."
        " Slot 2026-03-29 01:00:00 UTC of job a: "
    )
    assert why(db, "2026-03-29 01:30+00:00").text.startswith("2026-03-29 01:30:00 UTC is not a slot of 30 2 * * *")
    assert "does not exist" not in why(db, "2026-10-25 02:30").text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0.4 seconds"), (1, "1 second"), (60, "1 minute"), (90, "1 minute 30 seconds"),
     (101.9, "1 minute 41 seconds"), (281, "4 minutes 41 seconds"), (5400, "1 hour 30 minutes"),
     (90_061, "25 hours 1 minute 1 second"), (172_800, "2 days"), (10_917_137, "126 days 8 hours")],
)  # fmt: skip
def test_durations_are_formatted_in_one_way(seconds: float, words: str) -> None:
    assert format_timedelta(timedelta(seconds=seconds)) == words

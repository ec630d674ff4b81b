"""The high-water mark rises by decisions and edits only: a moved beginning or a clock step back loses no slot."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.schedule.preview import preview_job
from pgsched.db.queries.jobs import jobs
from tests.support.db.explaining import led, why
from tests.support.db.passing import lead, now, pass_time
from tests.support.db.pausing import HOUR, add, hours, runs

MINUTE = timedelta(minutes=1)


def mark_ahead(db: psycopg.Connection) -> bool:
    """Return whether the high-water mark of the only job lies in the future."""
    row = db.execute("SELECT decided_until > clock_timestamp() FROM pgsched.jobs").fetchone()
    assert row is not None
    return bool(row[0])


def later(db: psycopg.Connection, **columns: Any) -> None:
    """Add an hourly job that starts in 30 days, and let a leader plan it."""
    add(db, starts_at=(now(db) + 30 * 24 * HOUR).isoformat(), **columns)
    lead(db)


@pytest.mark.parametrize("schedule", ["@hourly", "@every 1h", "@after 1h"])
def test_before_its_beginning_nothing_of_a_job_is_decided(db: psycopg.Connection, schedule: str) -> None:
    later(db, schedule=schedule)
    job = jobs.show_job(db, "a")
    first = job["anchor_at"] + (HOUR if schedule == "@after 1h" else 0 * HOUR)
    assert not mark_ahead(db)
    assert timedelta(0) <= job["next_run_at"] - first < HOUR
    pass_time(db, 10 * 24 * 3600)
    assert lead(db) == 0


@pytest.mark.parametrize("schedule", ["@hourly", "@every 1h"])
@pytest.mark.parametrize("planned", [True, False])
def test_a_job_whose_beginning_is_removed_has_the_slots_since_the_edit(
    db: psycopg.Connection, schedule: str, planned: bool
) -> None:
    add(db, schedule=schedule, starts_at=(now(db) + 30 * 24 * HOUR).isoformat(), catch_up="all", overlap="allow")
    if planned:
        lead(db)
    jobs.update(db, "a", {"starts_at": None})
    lead(db)
    assert runs(db) == [], "the edit passed over no slot: none was before the beginning"
    pass_time(db, 3 * 3600)
    lead(db)
    assert [run[0] for run in runs(db)] == ["queued"] * 3


def test_a_job_whose_beginning_is_moved_earlier_begins_at_the_new_instant(db: psycopg.Connection) -> None:
    later(db, catch_up="all", overlap="allow")
    jobs.update(db, "a", {"starts_at": (hours(db, 1)[0] + 2 * HOUR).isoformat()})
    lead(db)
    pass_time(db, 4 * 3600)
    lead(db)
    assert [run[1] for run in runs(db)] == hours(db, 3)


def test_a_job_that_was_to_begin_later_may_run_once_before_that(db: psycopg.Connection) -> None:
    later(db)
    jobs.update(db, "a", {"schedule": None, "starts_at": None, "run_at": (now(db) + HOUR).isoformat()})
    pass_time(db, 2 * 3600)
    lead(db)
    assert [run[0] for run in runs(db)] == ["queued"]


def test_a_pause_before_the_beginning_passes_over_nothing(db: psycopg.Connection) -> None:
    later(db)
    jobs.pause(db, "a")
    pass_time(db, 24 * 3600)
    jobs.resume(db, "a")
    jobs.update(db, "a", {"max_runs": 3})
    lead(db)
    assert (runs(db), mark_ahead(db)) == ([], False)
    pass_time(db, 29 * 24 * 3600 + 2 * 3600)
    lead(db)
    assert [run[0] for run in runs(db)] == ["queued"]


def test_an_end_that_is_put_off_before_the_beginning_passes_over_nothing(db: psycopg.Connection) -> None:
    add(db, max_runs=1)
    pass_time(db, 3600)
    lead(db)
    jobs.update(db, "a", {"starts_at": (now(db) + 30 * 24 * HOUR).isoformat()})
    lead(db)
    pass_time(db, 24 * 3600)
    jobs.update(db, "a", {"max_runs": 2})
    lead(db)
    assert len(runs(db)) == 1


def test_explain_and_preview_know_of_no_slots_before_the_beginning(db: psycopg.Connection) -> None:
    later(db)
    led(db)
    start = jobs.show_job(db, "a")["starts_at"]
    assert why(db, hours(db, 1)[0] + 5 * HOUR).answer == "before_start", "also one that is still to come"
    assert why(db).slot >= start
    assert why(db, start + 5 * HOUR).answer == "future"
    shown = preview_job(jobs.show_job(db, "a"), 3)
    assert timedelta(0) <= shown.fires[0].at - start < HOUR


# ---- the clock steps back


def stepped_back(db: psycopg.Connection, schedule: str = "@every 60s") -> None:
    """Add a job that is decided until an hour from now, because the clock stepped back."""
    add(db, schedule=schedule, overlap="allow", catch_up="skip")
    pass_time(db, 3 * 3600)
    lead(db)
    db.execute("DELETE FROM pgsched.runs WHERE state = 'missed'")
    pass_time(db, -3600)
    assert mark_ahead(db)


def test_slots_of_a_new_schedule_before_the_mark_are_recorded(db: psycopg.Connection) -> None:
    stepped_back(db)
    old = jobs.update(db, "a", {"schedule": "@every 30s"})["decided_until"]
    lead(db)
    (told,) = [run for run in runs(db) if run[4]]
    assert told[0] == "skipped"
    assert 118 <= told[4] <= 122
    assert old - 30 * timedelta(seconds=1) < told[1] <= old
    assert told[5].startswith("the schedule was edited at 20")
    assert f" while the clock stood before {old:%Y-%m-%d %H:%M:%S} UTC, until which slots are decided" in told[5]
    pass_time(db, 3600 + 60)
    lead(db)
    assert runs(db)[-1][0] == "queued", "behind the mark it runs"
    slot = max(run[1] for run in runs(db) if run[4])
    assert why(db, slot - 10 * MINUTE).answer == "edited"


def test_a_slot_that_has_its_row_keeps_it(db: psycopg.Connection) -> None:
    stepped_back(db, "* * * * *")
    before = runs(db)
    jobs.update(db, "a", {"schedule": "*/1 * * * *"})
    lead(db)
    assert runs(db)[-1] == before[-1]
    assert sum(run[4] or 0 for run in runs(db)) in (59, 60), "the other slots until then"


def test_an_unchanged_schedule_goes_on_after_the_mark_without_a_record(db: psycopg.Connection) -> None:
    stepped_back(db)
    jobs.pause(db, "a")
    jobs.resume(db, "a")
    jobs.update(db, "a", {"max_runs": 99})
    lead(db)
    assert [run[4] for run in runs(db)] == [None]


def test_explain_says_that_a_slot_ahead_of_the_clock_is_decided(db: psycopg.Connection) -> None:
    stepped_back(db)
    led(db)
    job = jobs.show_job(db, "a")
    found = why(db, job["decided_until"] - 10 * MINUTE)
    assert found.answer == "decided_ahead"
    assert "it is ahead of the clock, but decided: " in found.text
    assert why(db, job["decided_until"] + 10 * MINUTE).answer == "future"
    jobs.update(db, "a", {"schedule": "@every 30s"})
    noted = why(db, job["decided_until"] - 10 * MINUTE)
    assert (noted.answer, "The leader has not recorded it yet" in noted.text) == ("edited", True)

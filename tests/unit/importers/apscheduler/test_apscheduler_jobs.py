"""Jobs of APScheduler as jobs of pgsched: what each value becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgsched.importers.apscheduler.jobs import Row, import_rows
from pgsched.importers.imported import ImportedJob, Reason
from tests.support.importing.slots import NOW
from tests.support.importing.stores import INTERVAL, Called, Pickled, dump, interval, job_state, moment, zone


def read(identity: str = "nightly", **changed: Any) -> ImportedJob:
    (job,) = import_rows([Row(identity, dump(job_state(**changed)))], NOW).jobs
    return job


def test_a_job_has_the_columns_that_do_what_it_did() -> None:
    job = read()
    assert job.exact
    assert job.columns == {
        "task": "shop.jobs.nightly",
        "schedule": "0 9 * * *",
        "timezone": "Europe/Berlin",
        "max_attempts": 1,
        "misfire_after": timedelta(seconds=1),
        "catch_up": "latest",
        "catch_up_window": timedelta(hours=1),
        "start_deadline": timedelta(hours=1),
    }


def test_an_interval_counts_from_its_next_run() -> None:
    """APScheduler adds it to the time of the last run: here to one that was moved by some minutes."""
    job = read(trigger=interval(3600, end_date=moment(2027, 1, 1, 0)), next_run_time=minute(2026, 6, 1, 11, 10))
    assert job.exact
    assert job.columns["schedule"] == "@every 1h"
    assert job.columns["starts_at"] == datetime(2026, 6, 1, 11, 10, tzinfo=UTC)
    paused = read(trigger=interval(3600), next_run_time=None)
    assert paused.columns["starts_at"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert job.columns["ends_at"] == datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changed", "columns", "reasons"),
    [
        ({"next_run_time": None}, {"paused": True}, [Reason.SUSPENDED]),
        ({"coalesce": False}, {"catch_up": "all"}, []),
        ({"max_instances": 3}, {"overlap": "allow", "concurrency_limit": 3}, [Reason.MAX_INSTANCES]),
        ({"executor": "processpool"}, {"queue": "processpool"}, [Reason.EXECUTOR]),
        ({"args": (1, "a")}, {"args": [1, "a"]}, []),
        ({"kwargs": {"days": 30}}, {"args": {"days": 30}}, []),
        ({"args": (1,), "kwargs": {"days": 30}}, {"args": {"days": 30}}, [Reason.ARGUMENTS]),
        ({"trigger": interval(60, jitter=5)}, {"jitter": timedelta(seconds=5)}, [Reason.JITTER_ADDS_UP]),
        ({"name": "Every night"}, {"description": "Every night"}, []),
    ],
)
def test_what_each_value_becomes(changed: dict[str, Any], columns: dict[str, Any], reasons: list[Reason]) -> None:
    job = read(**changed)
    assert {name: job.columns[name] for name in columns} == columns
    assert [remark.reason for remark in job.remarks] == reasons


def minute(year: int, month: int, day: int, hour: int, minutes: int) -> Called:
    """Return a minute in UTC."""
    return Called("datetime.datetime", bytes([*divmod(year, 256), month, day, hour, minutes, 0, 0, 0, 0]), zone("UTC"))


def test_a_next_run_that_was_put_off_is_the_first_slot() -> None:
    job = read(next_run_time=moment(2026, 6, 9, 7))
    assert (job.columns["starts_at"], job.exact) == (datetime(2026, 6, 9, 7, tzinfo=UTC), True)
    assert [remark.reason for remark in job.remarks] == [Reason.ANCHOR]
    assert "starts_at" not in read(next_run_time=moment(2026, 5, 9, 7)).columns, "it lies in the past"


def test_a_next_run_that_is_no_slot_is_a_difference() -> None:
    job = read(next_run_time=minute(2026, 6, 1, 8, 30))
    assert [remark.reason for remark in job.remarks if not remark.reason.informs] == [Reason.SCHEDULE]
    once = Pickled("apscheduler.triggers.date.DateTrigger", {"run_date": moment(2030, 1, 1, 9)})
    job = read(trigger=once, next_run_time=moment(2030, 1, 2, 9))
    assert (job.columns["run_at"], job.exact) == (datetime(2030, 1, 2, 9, tzinfo=UTC), True)


def test_the_random_delay_of_a_combination_of_one_trigger_counts() -> None:
    state = interval(60).state
    name = "apscheduler.triggers.combining:OrTrigger"
    trigger = Pickled(name.replace(":", "."), {"triggers": [(INTERVAL.replace(".Int", ":Int"), state)], "jitter": 5})
    job = read(trigger=trigger)
    assert job.columns["jitter"] == timedelta(seconds=5)
    assert [remark.reason for remark in job.remarks] == [Reason.JITTER_ADDS_UP]


def test_a_job_that_may_be_as_late_as_it_likes_has_no_deadline() -> None:
    job = read(misfire_grace_time=None)
    assert "start_deadline" not in job.columns
    assert job.columns["catch_up_window"] == timedelta(days=3600)


def test_a_job_with_an_id_that_was_made_up_is_called_as_its_function() -> None:
    job = read("0123456789abcdef0123456789abcdef", name="tidy_up")
    assert job.name == "tidy_up"


def test_two_jobs_of_one_function_have_two_names() -> None:
    rows = [Row(f"{n:032x}", dump(job_state())) for n in (1, 2)]
    assert [job.name for job in import_rows(rows, NOW).jobs] == ["nightly", "nightly 000000000000"]

"""Jobs of APScheduler as jobs of pgsched: what each value becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgsched.importers.apscheduler.jobs import Row, import_rows
from pgsched.importers.imported import ImportedJob, Reason
from pgsched.importers.jobs_text import write_jobs_file
from tests.support.importing.slots import NOW
from tests.support.importing.stores import Called, Pickled, cron_trigger, dump, job_state, number, zone

INTERVAL = "apscheduler.triggers.interval.IntervalTrigger"


def moment(*parts: int) -> Called:
    year, month, day, hour = parts
    return Called("datetime.datetime", bytes([*divmod(year, 256), month, day, hour, 0, 0, 0, 0, 0]), zone("UTC"))


def interval(seconds: int, **changed: Any) -> Pickled:
    state = {
        "version": 2,
        "timezone": zone("UTC"),
        "start_date": moment(2026, 1, 1, 0),
        "end_date": None,
        "jitter": None,
    }
    return Pickled(INTERVAL, state | {"interval": Called("datetime.timedelta", 0, seconds, 0)} | changed)


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


def test_an_interval_counts_from_its_start() -> None:
    job = read(trigger=interval(90, end_date=moment(2027, 1, 1, 0)))
    assert job.columns["schedule"] == "@every 1m30s"
    assert job.columns["starts_at"] == datetime(2026, 1, 1, tzinfo=UTC)
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


FIXTURES = [
    *(job_state(id=f"daily {hour}", trigger=cron_trigger(zone("Europe/Berlin"), hour=[number(hour)], minute=[number(0)],
                                                         second=[number(0)])) for hour in (0, 1, 4, 6, 9, 12, 18, 22)),
    *(job_state(id=f"every {seconds}", trigger=interval(seconds)) for seconds in (5, 30, 60, 300, 3600, 86_400)),
    job_state(id="weekdays", trigger=cron_trigger(zone("UTC"), day_of_week=[number(0, 4)], hour=[number(3)],
                                                  minute=[number(30)], second=[number(0)])),
    job_state(id="first", trigger=cron_trigger(zone("UTC"), day=[number(1)], hour=[number(3)], minute=[number(0)],
                                               second=[number(0)])),
    job_state(id="once", trigger=Pickled("apscheduler.triggers.date.DateTrigger",
                                         {"version": 1, "run_date": moment(2030, 1, 1, 9)})),
    job_state(id="paused", next_run_time=None),
    job_state(id="night", trigger=cron_trigger(zone("Europe/Berlin"), hour=[number(2)], minute=[number(30)],
                                               second=[number(0)])),
    job_state(id="many", trigger=interval(60), max_instances=1, coalesce=False, misfire_grace_time=None),
]  # fmt: skip


def test_at_least_nineteen_of_twenty_jobs_are_exact() -> None:
    found = import_rows([Row(state["id"], dump(state)) for state in FIXTURES], NOW)
    inexact = [(job.name, remark) for job in found.jobs for remark in job.remarks if not remark.reason.informs]
    assert found.omitted == []
    assert sum(job.exact for job in found.jobs) >= 0.95 * len(FIXTURES), inexact
    assert write_jobs_file(found, title="test").count("schedule:") == len(FIXTURES) - 1

"""Entries of Celery beat and rows of django-celery-beat as jobs: what each value becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgsched.errors import InputError
from pgsched.importers.celery.crontabs import read_crontab
from pgsched.importers.celery.entries import Entry, Interval, Settings, Solar, Unread, import_entries
from pgsched.importers.celery.options import Broker
from pgsched.importers.celery.tables import CLOCKED, CRONTABS, INTERVALS, SOLARS, TASKS, read_entries, read_instant
from pgsched.importers.imported import Imported, ImportedJob, Reason
from tests.support.importing.django_tables import CRONTAB_ROW, INTERVAL_ROW, TASK_ROW
from tests.support.importing.slots import NOW

NIGHTLY = read_crontab("0", "3", "*", "*", "*")
POLL = Interval(timedelta(seconds=30))
POLICIES = {"overlap": "allow", "catch_up": "latest", "catch_up_window": timedelta(days=3600), "max_attempts": 1}


def read(schedule: Any = NIGHTLY, zone: str = "UTC", broker: Broker = Broker.UNKNOWN, **changed: Any) -> Imported:
    entry = Entry(**{"name": "a", "task": "shop.a", "schedule": schedule, "where": "entry a", **changed})
    return import_entries([entry], Settings(zone, broker), NOW)


def one(*args: Any, **changed: Any) -> ImportedJob:
    (job,) = read(*args, **changed).jobs
    return job


def test_an_entry_has_the_columns_that_do_what_it_did() -> None:
    job = one(zone="Europe/Berlin", args=(7,))
    assert job.exact
    assert job.columns == {
        "task": "shop.a", "schedule": "0 3 * * *", "timezone": "Europe/Berlin", "args": [7], **POLICIES,
    }  # fmt: skip
    assert one(POLL).columns["schedule"] == "@every 30s"


@pytest.mark.parametrize(
    ("options", "columns", "reasons"),
    [
        ({"queue": "reports"}, {"queue": "reports"}, []),
        ({"expires": 600}, {"start_deadline": timedelta(minutes=10)}, [Reason.EXPIRES]),
        ({"expires": timedelta(hours=1)}, {"start_deadline": timedelta(hours=1)}, [Reason.EXPIRES]),
        (
            {"expires": datetime(2027, 1, 1, tzinfo=UTC)},
            {"ends_at": datetime(2027, 1, 1, tzinfo=UTC)},
            [Reason.EXPIRES],
        ),
        ({"countdown": 45}, {"schedule": "45 0 3 * * *"}, []),
        ({"countdown": 90}, {"schedule": "30 1 3 * * *"}, []),
        ({"countdown": 7200}, {"schedule": "0 3 * * *"}, [Reason.COUNTDOWN]),
        ({"time_limit": 30}, {"timeout": timedelta(seconds=30)}, []),
        (
            {"time_limit": 30, "soft_time_limit": 20},
            {"timeout": timedelta(seconds=20), "kill_after": timedelta(seconds=10)},
            [],
        ),
        ({"serializer": "json", "retry": True}, {}, [Reason.MESSAGE]),
        ({"link": object()}, {}, [Reason.LINKS]),
        ({"routing_key": "x"}, {}, [Reason.OPTION]),
        ({"eta": NOW}, {}, [Reason.OPTION]),
        ({"priority": 3}, {}, [Reason.PRIORITY]),
        ({"expires": "soon"}, {}, [Reason.OPTION]),
    ],
)
def test_what_each_option_becomes(options: dict[str, Any], columns: dict[str, Any], reasons: list[Reason]) -> None:
    job = one(options=options)
    assert {name: job.columns[name] for name in columns} == columns
    assert [remark.reason for remark in job.remarks] == reasons


@pytest.mark.parametrize(
    ("url", "given", "expected"),
    [("redis://h/0", 3, 3), ("rediss://h", 0, 0), ("amqp://h", 9, 0), ("pyamqp://h", 2, 7), ("sqs://", 3, None)],
)
def test_priorities_have_the_direction_of_the_broker(url: str, given: int, expected: int | None) -> None:
    assert one(broker=Broker.of(url), options={"priority": given}).columns.get("priority") == expected


@pytest.mark.parametrize(
    ("changed", "args", "exact"),
    [
        ({"args": (1, [2])}, [1, [2]], True),
        ({"kwargs": {"a": 1}}, {"a": 1}, True),
        ({"args": (1,), "kwargs": {"b": 2}, "parameters": ["a", "b"]}, {"a": 1, "b": 2}, True),
        ({"args": (1,), "kwargs": {"a": 2}, "parameters": ["a"]}, {"a": 2}, False),
        ({"args": (1,), "kwargs": {"b": 2}}, {"b": 2}, False),
        ({"args": (NOW,)}, None, False),
        ({"args": (float("nan"),)}, None, False),
        ({"kwargs": {"a": object()}}, None, False),
        ({"kwargs": {"a": "\0"}}, None, False),
        ({"args": ("\ud800",)}, None, False),
    ],
)
def test_arguments_are_json_or_left_out(changed: dict[str, Any], args: Any, exact: bool) -> None:
    job = one(**changed)
    assert job.columns.get("args") == args
    assert job.exact is exact


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        (Solar("sunset"), Reason.SOLAR),
        (Unread(Reason.SCHEDULE, "a class"), Reason.SCHEDULE),
        (Interval(timedelta(milliseconds=1500)), Reason.SCHEDULE),
        (Interval(timedelta(0)), Reason.SCHEDULE),
        (Interval(timedelta(days=100_000)), Reason.SCHEDULE),
        (read_crontab("0", "3", "fri", "13", "*"), Reason.SCHEDULE),
        (read_crontab("0", "3", "*", "30", "2"), Reason.SCHEDULE),
    ],
)
def test_what_no_schedule_means_becomes_no_job(schedule: Any, reason: Reason) -> None:
    found = read(schedule)
    assert found.jobs == []
    assert [left.remark.reason for left in found.omitted] == [reason]


def test_a_clock_of_its_own_is_not_asked_and_said() -> None:
    job = one(own_clock=True)
    assert [remark.reason for remark in job.remarks] == [Reason.NOWFUN]
    assert not job.exact


def test_a_deadline_of_beat_is_the_catch_up_window_of_crontabs() -> None:
    entry = Entry("a", "a", NIGHTLY, "entry a")
    (job,) = import_entries([entry], Settings(starting_deadline=300), NOW).jobs
    assert job.columns["catch_up_window"] == timedelta(minutes=5)


def test_a_zone_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError, match="timezone"):
        read(zone="Europe/Berlim")


def rows(**changed: Any) -> Imported:
    tables = {
        TASKS: [TASK_ROW | changed], INTERVALS: [INTERVAL_ROW], CRONTABS: [CRONTAB_ROW],
        SOLARS: [{"id": 7, "event": "sunset", "latitude": 52.5, "longitude": 13.4}],
        CLOCKED: [{"id": 8, "clocked_time": datetime(2030, 1, 1, 9, tzinfo=UTC)}],
    }  # fmt: skip
    return import_entries(read_entries(tables), Settings(), NOW)


@pytest.mark.parametrize(
    ("changed", "columns", "reasons"),
    [
        ({}, {"schedule": "@every 30s"}, []),
        ({"interval_id": None, "crontab_id": 6}, {"schedule": "0 3 * * *", "timezone": "Europe/Berlin"}, []),
        ({"interval_id": None, "clocked_id": 8, "one_off": True}, {"run_at": datetime(2030, 1, 1, 9, tzinfo=UTC)}, []),
        ({"one_off": True}, {"max_runs": 1}, [Reason.ONE_OFF]),
        ({"enabled": False}, {"paused": True}, [Reason.SUSPENDED]),
        ({"start_time": "2027-01-01 00:00:00"}, {"starts_at": datetime(2027, 1, 1, tzinfo=UTC)}, []),
        ({"expires": datetime(2027, 1, 1, tzinfo=UTC)}, {"ends_at": datetime(2027, 1, 1, tzinfo=UTC)}, []),
        ({"expire_seconds": 60}, {"start_deadline": timedelta(minutes=1)}, [Reason.EXPIRES]),
        ({"queue": "mail", "args": "[1]"}, {"queue": "mail", "args": [1]}, []),
        ({"kwargs": '{"a": 1}', "description": "Why"}, {"args": {"a": 1}, "description": "Why"}, []),
        ({"args": "[1"}, {}, [Reason.ARGUMENTS]),
        ({"priority": 200}, {}, [Reason.PRIORITY]),
    ],
)
def test_what_each_column_becomes(changed: dict[str, Any], columns: dict[str, Any], reasons: list[Reason]) -> None:
    (job,) = rows(**changed).jobs
    assert {name: job.columns[name] for name in columns} == columns
    assert [remark.reason for remark in job.remarks] == reasons


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"interval_id": None, "solar_id": 7}, Reason.SOLAR),
        ({"interval_id": None}, Reason.SYNTAX),
        ({"interval_id": 99}, Reason.SYNTAX),
        ({"task": "celery.backend_cleanup"}, Reason.OWN_JOB),
        ({"name": ""}, Reason.SYNTAX),
    ],
)
def test_rows_that_become_no_job_are_named(changed: dict[str, Any], reason: Reason) -> None:
    found = rows(**changed)
    assert found.jobs == []
    assert [(left.where, left.remark.reason) for left in found.omitted] == [("row 1", reason)]


def test_an_instant_beyond_the_calendar_is_none() -> None:
    assert read_instant("0001-01-01 00:00:00+23:59") is None

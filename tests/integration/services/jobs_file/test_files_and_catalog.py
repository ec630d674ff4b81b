"""The columns of a file are those of the tables, with their defaults; an export makes no difference."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from pgsched.core.jobs_file.model.columns import COLUMNS, JOB, What
from pgsched.core.jobs_file.model.dates import CalendarTime, CalendarTimes
from pgsched.core.jobs_file.model.loading import load
from pgsched.core.jobs_file.texts.document import Document
from pgsched.db.connection.connect import connect
from pgsched.db.queries.files.job_rows import MAY_STAY, WRITTEN
from pgsched.db.queries.jobs.job_columns import SETTABLE
from pgsched.errors import InputError
from pgsched.services.jobs_file import applying
from pgsched.services.jobs_file.exporting import export
from pgsched.services.jobs_file.planning import Options, plan, read_file
from pgsched.services.jobs_file.state import read_everything
from tests.support.files.jobs_files import NOW, RandomValues, file_of

TABLES = {What.QUEUE: "queues", What.LIMIT: "limits", What.PAUSE: "pauses", What.CALENDAR: "calendars",
          What.RETENTION: "retention", What.ALERTS: "alert_defaults"}  # fmt: skip
# Columns that the database keeps, or that are the key.
KEPT = {"name", "what", "applied_at", "limited", "declared_by", "paused_at", "paused_by", "waits_for", "owner",
        "created_at", "version", "replan", "id"}  # fmt: skip
# Two jobs that use every column, none with its default.
NIGHTLY: dict[str, Any] = {
    "description": "every column\nbut three", "kind": "shell", "task": "./report.sh", "args": {"env": {"A": "1"}},
    "queue": "q", "priority": 7, "tags": ["a", "b"], "schedule": "*/15 8-18 * * mon-fri; 0 22 * * *",
    "timezone": "Europe/Berlin", "starts_at": "2027-01-01 00:00:00+00:00", "ends_at": "2087-01-01 00:00:00+00:00",
    "max_runs": 9, "jitter": "5 seconds", "calendar": "office", "excluded_dates": ["2027-12-24..2027-12-26: Christmas"],
    "on_excluded": "previous", "max_buffer": 5, "retry_within": "1 hour", "misfire_after": "5 minutes",
    "catch_up": "all", "max_catch_up": 7, "catch_up_window": "2 days", "start_deadline": "1 hour", "max_attempts": 3,
    "timeout": "90 seconds", "kill_after": "5 seconds", "backoff": "linear", "backoff_base": "1 second",
    "backoff_max": "1 minute", "backoff_jitter": 0.5, "success_codes": [0, 3], "retry_codes": [75], "dead_codes": [64],
    "concurrency_key": "k", "concurrency_limit": 2, "after": ["once"], "after_match": "since_last", "mode": "shadow",
    "paused": True, "paused_reason": "why", "paused_by": "who", "resume_from": "pause", "keep": {"dead": "90 days"},
    "alert_after_failures": 0, "max_lateness": "0 seconds", "max_duration": "1 hour", "expect_every": "1 day",
    "finish_by": "2 hours", "alert_to": ["mail", "ops"], "pause_after_failures": 5,
    "ping_url": "https://example.com/ping",
}  # fmt: skip
ONCE = {"task": "t", "run_at": "2090-01-01 00:00:00+00:00", "delete_after_run": True, "overlap": "allow"}
OFFICE = {
    "description": "shut",
    "times": [{"weekdays": ["sun", "sat"]}, {"from_time": "00:00", "until_time": "07:30", "reason": "night"},
              {"from_time": "18:00", "until_time": "24:00"}, {"from": "2027-05-01", "until": "2027-05-03"}],
}  # fmt: skip
DEFAULTS = {"alert_after_failures": 3, "max_lateness": "1 minute", "max_duration": "1 hour", "expect_every": "1 day",
            "finish_by": "12 hours", "alert_to": [], "dead_runs": 20, "dead_runs_within": "10 minutes"}  # fmt: skip


def test_jobs_have_all_columns_that_people_may_set() -> None:
    assert {*COLUMNS[What.JOB]} - {"after", "excluded_dates"} == {*SETTABLE} - {"name", "after_jobs"} == {*WRITTEN}
    assert {*MAY_STAY} <= {*WRITTEN}


@pytest.mark.parametrize("what", TABLES)
def test_settings_have_all_columns_that_people_may_set(db: psycopg.Connection[Any], what: What) -> None:
    query = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
    found = db.execute(query, [f"pgsched.{TABLES[what]}"])
    assert {name for (name,) in found} - KEPT == {*COLUMNS[what]} - {"times"}


def test_times_of_calendars_have_all_columns(db: psycopg.Connection[Any]) -> None:
    found = db.execute("SELECT to_jsonb(t) FROM jsonb_populate_record(NULL::pgsched.calendar_times, '{}') t").fetchone()
    assert found is not None
    (sent,) = CalendarTimes().send((CalendarTime(None, None, (0,), None, None, None),))
    assert {*sent} == {*found[0]} - {"id", "calendar"}


def test_defaults_are_those_of_the_database(db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('n', 't', '@daily')")
    db.execute("INSERT INTO pgsched.queues (name) VALUES ('n')")
    db.execute("INSERT INTO pgsched.limits (name) VALUES ('n')")
    db.execute("INSERT INTO pgsched.pauses (what) VALUES ('all')")
    db.execute("INSERT INTO pgsched.calendars (name) VALUES ('n')")
    stored = read_everything(db, NOW).stored
    assert {what for what, _ in stored} == {*What}
    for (what, _), found in stored.items():
        given = {"task", "schedule"} if what is What.JOB else set()
        assert {name: value for name, value in found.values.items() if name not in given} == {
            name: column.default for name, column in COLUMNS[what].items() if name not in given
        }, what


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(6))
def test_what_was_exported_makes_no_difference(db: psycopg.Connection[Any], seed: int) -> None:
    """Random values of every column go through YAML into the database, and through YAML and TOML back."""
    file = load(Document("random", RandomValues(seed).file(8), {}))
    applying.apply(db, file, Options(owner="ops"))
    assert applying.find_drift(db, file, Options(owner="ops", prune=True)).changes == ()
    for owner in ("ops", None):
        for file_format in ("yaml", "toml"):
            try:
                text, remarks = export(db, file_format, owner)
            except InputError as error:
                assert file_format == "toml" and "holds null" in str(error)
                continue
            assert remarks == []
            again = read_file(f"x.{file_format}", text.encode())
            found = plan(db, again, Options(owner="ops", prune=True)).difference
            assert (found.changes, found.left, found.unowned) == ((), (), ())


@pytest.mark.parametrize("file_format", ["yaml", "toml"])
def test_a_job_that_uses_every_column_goes_through_an_export_unchanged(
    db: psycopg.Connection[Any], file_format: str
) -> None:
    assert {*NIGHTLY, *ONCE} == {*JOB}
    values = {"owner": "ops", "jobs": {"nightly": NIGHTLY, "once": ONCE}, "calendars": {"office": OFFICE},
              "alerts": DEFAULTS}  # fmt: skip
    assert {*DEFAULTS} == {*COLUMNS[What.ALERTS]}
    file, options = file_of(json.dumps(values)), Options(prune=True)
    applying.apply(db, file, options)
    text, remarks = export(db, file_format, "ops")
    again = read_file(f"x.{file_format}", text.encode())
    assert remarks == []
    for key, entry in file.entries.items():
        assert again.entries[key].given == entry.given, key
    for one in (file, again):
        found = plan(db, one, options)
        assert (found.difference.changes, found.difference.left, found.difference.unowned) == ((), (), ())
        assert applying.apply(db, one, options).changes == ()


def test_an_export_of_what_no_file_declares_makes_no_difference_and_is_taken_by_adopt(
    db: psycopg.Connection[Any],
) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, timeout)"
        " VALUES ('n', 't', '@daily', '1 mon 3 days 04:05:06.5')"
    )
    db.execute("INSERT INTO pgsched.jobs (name, task, declared_by) VALUES ('code', 't', 'shop')")
    db.execute("INSERT INTO pgsched.limits (name, concurrency, declared_by) VALUES ('task:t', 1, 'shop')")
    text, remarks = export(db)
    assert text == (
        "jobs:\n  'n':\n    task: t\n    schedule: '@daily'\n"
        "    timeout: 1 month 3 days 4 hours 5 minutes 6.5 seconds\n"
    )
    assert remarks == ["job code is left out: the code of shop declares it",
                       "limit task:t is left out: the code of shop declares it"]  # fmt: skip
    found = plan(db, file_of(text), Options()).difference
    assert (found.changes, [name for _, name in found.unowned]) == ((), ["n"])
    applying.apply(db, file_of(text), Options(adopt=True))
    assert plan(db, file_of(text), Options(prune=True)).difference.unowned == ()


def test_what_python_cannot_read_is_left_out(db: psycopg.Connection[Any], dsn: str) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, args) VALUES ('n', 't', ('[1' || repeat('0', 5000) || ']')::jsonb)"
    )
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('m', 't')")
    with connect(dsn) as conn:  # the program's own connections read JSON with care
        text, (remark,) = export(conn)
        changes = plan(conn, file_of("jobs: {n: {task: t}}"), Options(adopt=True)).difference.changes
    assert text == f"jobs:\n  m:\n    task: t\n    run_at: '{run_at(db)}'\n"
    assert remark.startswith("job n is left out: args: (this JSON cannot be read: ")
    assert [str(one.action) for one in changes] == ["change"]


def run_at(db: psycopg.Connection[Any]) -> str:
    row = db.execute("SELECT run_at FROM pgsched.jobs WHERE name = 'm'").fetchone()
    assert row is not None
    return str(row[0])

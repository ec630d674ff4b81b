"""Rows of pg_cron as jobs: the next 1,000 slots by pg_cron's own rule, and what each column becomes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pgsched.errors import InputError
from pgsched.importers.imported import Imported, ImportedJob, Reason
from pgsched.importers.pg_cron.jobs import Row, Settings, import_rows
from tests.support.importing.fixtures import cron_job
from tests.support.importing.slots import NOW, imported_slots

COUNT = 1000
MINUTE = timedelta(minutes=1)
FIELDS = (
    ["*", "0", "30", "*/15", "5,10-20/5", "1"],
    ["*", "2", "*/6", "8-17", "0,2,3", "1-3"],
    ["*", "1", "$", "13", "1-7", "*/10", "31"],
    ["*", "1-6", "*/3", "feb", "12"],
    ["*", "1-5", "7", "mon", "*/2", "5-7", "0,6"],
)
NAMES = {
    name: n
    for n, name in enumerate(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1)
}
WEEKDAYS = {name: n for n, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


def bits(text: str, low: int, high: int) -> set[int]:
    """Return the numbers of a field, as get_list in src/entry.c sets its bits."""
    found: set[int] = set()
    for item in text.split(","):
        body, _, step = item.partition("/")
        first, _, last = (f"{low}-{high}" if body == "*" else body).partition("-")
        numbers = [int({**NAMES, **WEEKDAYS}.get(one, one)) for one in (first, last or first)]
        found |= {*range(numbers[0], numbers[1] + 1, int(step or 1))}
    return found


def pg_cron_slots(schedule: str, timezone: str, match_both: bool) -> Iterator[datetime]:
    """Yield what ShouldRunTask in src/pg_cron.c says, asked for each minute."""
    minute, hour, day, month, weekday = schedule.split()
    minutes, hours, months = bits(minute, 0, 59), bits(hour, 0, 23), bits(month, 1, 12)
    days = set() if day == "$" else bits(day, 1, 31)
    weekdays = {number % 7 for number in bits(weekday, 0, 7)}
    both = match_both or day.startswith("*") or weekday.startswith("*")
    tz = ZoneInfo(timezone)
    at = NOW.replace(second=0, microsecond=0) + MINUTE
    until = NOW + timedelta(days=400)
    while at < until:
        local = at.astimezone(tz)
        last = (at + timedelta(days=1)).astimezone(tz).day == 1
        in_month = local.day in days or (day == "$" and last)
        in_week = local.isoweekday() % 7 in weekdays
        if not (local.month in months and (in_month and in_week if both else in_month or in_week)):
            midnight = (local + timedelta(days=1)).replace(hour=0, minute=0, fold=0).astimezone(at.tzinfo)
            at = max(at + MINUTE, midnight)
            continue
        if local.hour in hours and local.minute in minutes:
            yield at
        at += MINUTE


def read(*rows: Row, **settings: Any) -> Imported:
    return import_rows(rows, Settings(**{"database": "shop", "timezone": "GMT", **settings}), NOW)


def one(*args: Any, **changed: Any) -> ImportedJob:
    (job,) = read(cron_job(*args, **changed)).jobs
    return job


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(20))
def test_schedules_have_the_slots_of_pg_cron(seed: int) -> None:
    random.seed(seed)
    schedule = " ".join(random.choice(values) if random.random() < 0.6 else values[0] for values in FIELDS)
    timezone = ("GMT", "Europe/Berlin", "America/New_York", "Asia/Kolkata")[seed % 4]
    match_both = seed % 5 == 0
    found = read(cron_job(schedule), timezone=timezone, match_both=match_both)
    if not found.jobs:
        assert match_both
        assert found.omitted[0].remark.reason is Reason.SCHEDULE
        return
    (job,) = found.jobs
    assert job.exact, job.remarks
    theirs = []
    for slot in pg_cron_slots(schedule, timezone, match_both):
        theirs.append(slot)
        if len(theirs) == COUNT:
            break
    assert imported_slots(job.columns, NOW, COUNT)[: len(theirs)] == theirs


def test_a_job_has_the_columns_that_do_what_it_did() -> None:
    job = one("30 2 $ * *", "DELETE FROM t", jobname="tidy")
    assert (job.name, job.exact) == ("tidy", True)
    assert job.columns == {
        "kind": "sql", "task": "DELETE FROM t", "schedule": "30 2 L * *", "overlap": "buffer_all", "catch_up": "skip",
        "max_attempts": 1,
    }  # fmt: skip


def test_an_interval_lets_one_run_wait() -> None:
    assert one("30 seconds").columns["schedule"] == "@every 30s"
    assert one("1 second").columns["overlap"] == "buffer_one"


def test_a_sixth_field_is_ignored_as_pg_cron_ignores_it() -> None:
    job = one("*/5 * * * * *")
    assert job.columns["schedule"] == "*/5 * * * *"
    assert [remark.reason for remark in job.remarks] == [Reason.IGNORED]


@pytest.mark.parametrize(
    "schedule", ["1/5 * * * *", "60 * * * *", "* * *", "*/61 * * * *", "99 seconds", "x * * * *", ""]
)
def test_what_pg_cron_refuses_becomes_no_job(schedule: str) -> None:
    (left,) = read(cron_job(schedule)).omitted
    assert left.remark.reason is Reason.SYNTAX


def test_a_start_of_the_server_is_no_schedule() -> None:
    assert read(cron_job("@reboot")).omitted[0].remark.reason is Reason.AT_REBOOT


def test_jobs_of_another_database_name_it() -> None:
    job = one(database="warehouse")
    assert job.columns["args"] == {"dsn": "warehouse"}
    assert [remark.reason for remark in job.remarks] == [Reason.DATABASE]
    remote = one(nodename="db2.example.org")
    assert remote.columns["args"] == {"dsn": "shop"}


def test_a_job_that_is_not_active_is_paused() -> None:
    assert one(active=False).columns["paused"] is True


def test_jobs_of_other_roles_are_named() -> None:
    found = read(cron_job(), cron_job(jobid=8), cron_job(jobid=9, username="boss"))
    assert [remark.text for remark in found.remarks] == ["apply the file as app, whose jobs they were"]
    assert [[remark.reason for remark in job.remarks] for job in found.jobs] == [[], [], [Reason.ROLE]]


def test_two_jobs_of_one_name_have_two_names() -> None:
    found = read(cron_job(jobname="a"), cron_job(jobid=8, jobname="a", username="boss"))
    assert [job.name for job in found.jobs] == ["a", "a (8)"]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("VACUUM orders", "VACUUM"),
        ("  vacuum (analyze) a", "VACUUM"),
        ("SELECT 1; VACUUM", "VACUUM"),
        ("CREATE INDEX CONCURRENTLY i ON t (a)", "CREATE INDEX CONCURRENTLY"),
        ("CALL work()", "CALL, if its procedure commits"),
        ("-- nightly\nCALL work()", "CALL, if its procedure commits"),
        ("REINDEX INDEX CONCURRENTLY i", "REINDEX INDEX CONCURRENTLY"),
        ("DO $$ BEGIN PERFORM 1; END $$", None),
        ("SELECT '; VACUUM'", None),
        ("SELECT $q$; CALL x()$q$", None),
        ("/* ; VACUUM */ SELECT 1", None),
        ("SELECT vacuum FROM t", None),
    ],
)
def test_statements_that_need_no_transaction_are_named(command: str, named: str | None) -> None:
    texts = [remark.text for remark in one(command=command).remarks if remark.reason is Reason.TRANSACTION]
    assert texts == ([named] if named else [])


@pytest.mark.parametrize("opener", ["'", "$a$", "/*", "--", '"', "$", "$$ $a$ "])
def test_a_long_command_without_end_is_read_at_once(opener: str) -> None:
    (left,) = read(cron_job(command=opener * 100_000)).omitted
    assert left.remark.reason is Reason.REFUSED


def test_a_zone_that_is_not_known_is_refused_with_the_option() -> None:
    with pytest.raises(InputError, match="--timezone"):
        read(cron_job(), timezone="Mars/Olympus")


def test_a_zone_that_the_role_may_not_see_is_said() -> None:
    found = read(cron_job(), timezone=None, sees_all=False)
    assert [remark.reason for remark in found.remarks] == [Reason.TIME_ZONE, Reason.OWN_JOBS, Reason.ROLE]


@pytest.mark.parametrize(("changed", "reason", "args"), [
    ({"nodename": "localhost", "nodeport": 5432}, None, None),
    ({"nodename": "localhost", "nodeport": 5433}, Reason.SERVER, {"dsn": "shop"}),
    ({"nodename": "db2"}, Reason.SERVER, {"dsn": "shop"}),
    ({"database": "other", "nodeport": 5432}, Reason.DATABASE, {"dsn": "other"}),
])  # fmt: skip
def test_a_job_of_another_server_is_a_difference(changed: dict[str, Any], reason: Reason | None, args: Any) -> None:
    (job,) = import_rows([cron_job(**changed)], Settings("shop", port=5432), NOW).jobs
    assert job.columns.get("args") == args
    assert [remark.reason for remark in job.remarks] == ([] if reason is None else [reason])
    assert job.exact is (reason is not Reason.SERVER)

"""The SQL function pgsched.backfill: one call from any language requests past slots, and the leader counts them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.cli.commands.backfill import describe_backfill
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request
from tests.support.db.backfilling import WEEK, open_slots, through, work
from tests.support.db.leading import lead

MAY = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def job(db: psycopg.Connection) -> dict[str, Any]:
    return jobs.add(db, {"name": "a", "task": "t", "schedule": "0 0 * * *"})


def call(db: psycopg.Connection, arguments: str) -> int:
    row = db.execute(f"SELECT pgsched.backfill({arguments})".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_one_call_runs_every_slot_of_the_range(db: psycopg.Connection) -> None:
    number = call(db, "'a', '2026-05-01Z', '2026-05-08Z'")
    asked = backfills.show_backfill(db, number)
    assert (asked["state"], asked["slots"], asked["from_at"], asked["to_at"]) == (
        "running", None, MAY, MAY + timedelta(days=7),
    )  # fmt: skip
    assert describe_backfill(asked) == f"backfill {number} of job a is running: 0 of ? slots, 0 started, 0 left alone"
    assert list(through(db, number)) == [[slot] for slot in WEEK]
    found = backfills.show_backfill(db, number)
    assert (found["state"], found["slots"], found["considered"], found["succeeded"]) == ("finished", 7, 7, 7)


def test_the_function_takes_every_option_of_the_command(db: psycopg.Connection) -> None:
    names = ("mode", "max_active", "reverse", "priority")
    by_name = call(
        db, "'a', '2026-05-01Z', '2026-05-08Z', reverse => true, max_active => 3, mode => 'all', priority => 2"
    )
    added = backfills.add_backfill(db, "a", Request("2026-05-01", "2026-05-08", "all", 3, True, 2))
    found = backfills.show_backfill(db, by_name)
    assert [found[name] for name in names] == [added[name] for name in names] == ["all", 3, True, 2]
    defaults, request = backfills.show_backfill(db, call(db, "'a', '2026-05-01Z', '2026-05-08Z'")), Request("", "")
    assert [defaults[name] for name in names] == [getattr(request, name) for name in names]


def test_undecided_slots_are_left_to_the_schedule(db: psycopg.Connection) -> None:
    mark = jobs.show_job(db, "a")["decided_until"]
    number = call(db, "'a', now() - interval '3 days', '2100-01-01Z'")
    assert mark < backfills.show_backfill(db, number)["to_at"] <= mark + timedelta(microseconds=1)


@pytest.mark.parametrize("size", [9000, 9001])
def test_a_reason_longer_than_the_cancelled_runs_can_keep_is_refused(db: psycopg.Connection, size: int) -> None:
    number = call(db, "'a', '2026-05-01Z', '2026-05-08Z'")
    work(db)
    if size > 9000:
        with pytest.raises(psycopg.errors.CheckViolation, match="why: "):
            db.execute("SELECT pgsched.cancel_backfill(%s, %s)", [number, "w" * size])
    else:
        assert db.execute("SELECT pgsched.cancel_backfill(%s, %s)", [number, "w" * size]).fetchone() == ("cancelled",)


def test_a_backfill_is_cancelled_by_a_call_as_well(db: psycopg.Connection) -> None:
    number = call(db, "'a', '2026-05-01Z', '2026-05-08Z', max_active => 2")
    work(db)
    assert open_slots(db) == WEEK[:2]
    assert db.execute("SELECT pgsched.cancel_backfill(%s, 'wrong month')", [number]).fetchone() == ("cancelled",)
    assert open_slots(db) == []


def test_the_leader_is_notified_of_a_backfill_and_counts_its_slots(db: psycopg.Connection, connect: Any) -> None:
    listener = connect()
    listener.execute("LISTEN pgsched_leader")
    number = call(db, "'a', '2026-05-01Z', '2026-05-08Z', max_active => 7")
    assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == ["backfills"]
    lead(connect()).run_once()
    assert (backfills.show_backfill(db, number)["slots"], len(open_slots(db))) == (7, 7)


@pytest.mark.parametrize(
    ("schedule", "span", "error"),
    [
        ("0 0 29 2 *", ("2026-05-01Z", "2026-05-08Z"), "there is no slot in that range"),
        ("* * * * *", ("2020-01-01Z", "2026-01-01Z"), "the range has more than 100,000 slots: ask for a shorter one"),
    ],
)
def test_no_slots_or_too_many_end_the_backfill_with_the_reason(
    db: psycopg.Connection, schedule: str, span: tuple[str, str], error: str
) -> None:
    jobs.update(db, "a", {"schedule": schedule})
    number = call(db, f"'a', '{span[0]}', '{span[1]}'")
    work(db)
    found = backfills.show_backfill(db, number)
    assert (found["state"], found["error"], found["open"]) == ("failed", error, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'a', NULL, '2026-05-02Z'", "from_at: must not be null"),
        ("'a', '2026-05-01Z', NULL", "to_at: must not be null"),
        ("'a', '-infinity', '2026-05-02Z'", "from_at: -infinity is not an instant between 1970 and 9000"),
        ("'a', '2026-05-02Z', '2026-05-02Z'", "to_at: 2026-05-02 00:00:00.* is not later than 2026-05-02"),
        ("'a', '2026-05-01Z', '2026-05-02Z', 'some'", 'mode: "some" is not one of missing, failed, unsuccessful, all'),
        ("'a', '2026-05-01Z', '2026-05-02Z', NULL", "mode: must not be null"),
        ("'a', '2026-05-01Z', '2026-05-02Z', max_active => 0", "max_active: 0 is out of range 1-1000"),
        ("'a', '2026-05-01Z', '2026-05-02Z', priority => 10", "priority: 10 is out of range 0-9"),
        ("'a', '2026-05-01Z', '2026-05-02Z', reverse => NULL", "reverse: must not be null"),
        (
            "'a', '2099-01-01Z', '2100-01-01Z'",
            "from_at: job a is decided until .*: slots after that are the schedule's",
        ),
        ("'after', '2026-05-01Z', '2026-05-02Z'", "job: after has no schedule whose past slots are known"),
        ("'once', '2026-05-01Z', '2026-05-02Z'", "job: once has no schedule whose past slots are known"),
    ],
)
def test_impossible_arguments_are_refused(db: psycopg.Connection, arguments: str, message: str) -> None:
    jobs.add(db, {"name": "after", "task": "t", "schedule": "@after 1h"})
    jobs.add(db, {"name": "once", "task": "t"})
    with pytest.raises(psycopg.errors.CheckViolation, match=message):
        call(db, arguments)
    assert backfills.list_backfills(db) == []


@pytest.mark.parametrize("name", ["'b'", "NULL"])
def test_a_job_that_does_not_exist_is_refused(db: psycopg.Connection, name: str) -> None:
    with pytest.raises(psycopg.errors.NoDataFound, match="job: there is no job named"):
        call(db, f"{name}, '2026-05-01Z', '2026-05-02Z'")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("from_at", "-infinity", "from_at: -infinity is not an instant between 1970 and 9000"),
        ("to_at", "infinity", "to_at: infinity is not an instant between 1970 and 9000"),
        ("to_at", "20000-01-01Z", "to_at: 20000-01-01 00:00:00.* is not an instant between 1970 and 9000"),
        ("anchor_at", "infinity", "anchor_at: infinity is not an instant between 1900 and 9000"),
    ],
)
def test_a_plain_insert_with_an_instant_out_of_range_is_refused(
    db: psycopg.Connection, column: str, value: str, message: str
) -> None:
    instants = {"from_at": "2026-05-01Z", "to_at": "2026-05-08Z", "anchor_at": "2026-01-01Z"} | {column: value}
    with pytest.raises(psycopg.errors.CheckViolation, match=message) as refused:
        db.execute(
            "INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, from_at, to_at, anchor_at)"
            " SELECT id, name, schedule, timezone, %s, %s, %s FROM pgsched.jobs",
            list(instants.values()),
        )
    assert refused.value.diag.column_name == column

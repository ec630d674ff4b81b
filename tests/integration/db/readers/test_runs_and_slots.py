"""`recent_runs`, `job_status` and `slots`: what a person at psql reads of runs, jobs and their slots."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pgsched.db.queries.jobs import backfills, jobs
from tests.support.db.explaining import HOUR, add, hour, put, said_by_sql, stamp
from tests.support.db.passing import keep_next_slots, lead, now, pass_time
from tests.support.db.setting import take
from tests.support.fleet import one

WEEK = timedelta(days=7)


def read(db: psycopg.Connection[Any], call: str, *values: Any) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(f"SELECT * FROM pgsched.{call}".encode(), values).fetchall()


def three_slots(db: psycopg.Connection[Any]) -> None:
    """Add a job with a slot that ran late, one that is dead, and one that was skipped; and a run without a job."""
    add(db, 4)
    put(db, hour(db, 3), "succeeded", attempt=1, started_at=hour(db, 3) + timedelta(minutes=2),
        finished_at=hour(db, 3) + timedelta(minutes=5))  # fmt: skip
    put(db, hour(db, 2), "dead", attempt=2, started_at=hour(db, 2), error="no disk\nat line 7")
    put(db, hour(db, 1), "skipped", reason="overlap: run 7 was not finished")
    db.execute("SELECT pgsched.enqueue('mail')")


# ---- recent_runs


def test_the_newest_runs_of_a_job_come_first(db: psycopg.Connection[Any]) -> None:
    three_slots(db)
    found = read(db, "recent_runs('a')")
    assert [(row["run"], row["of_job"], row["state"], row["slot"]) for row in found] == [
        (3, "a", "skipped", hour(db, 1)), (2, "a", "dead", hour(db, 2)), (1, "a", "succeeded", hour(db, 3)),
    ]  # fmt: skip
    assert [row["why"] for row in found] == ["overlap: run 7 was not finished", "no disk", None]
    assert (found[2]["late"], found[2]["took"]) == (timedelta(minutes=2), timedelta(minutes=3))
    assert [row["run"] for row in read(db, "recent_runs('a', 1)")] == [3]


def test_without_a_job_the_newest_runs_of_all_are_given(db: psycopg.Connection[Any]) -> None:
    three_slots(db)
    found = read(db, "recent_runs()")
    assert [(row["run"], row["of_job"], row["task"]) for row in found] == [
        (4, None, "mail"), (3, "a", "t"), (2, "a", "t"), (1, "a", "t"),
    ]  # fmt: skip
    assert found[0]["late"] is None, "a run without a slot is never late"


def test_late_is_when_the_first_attempt_began(db: psycopg.Connection[Any]) -> None:
    add(db)
    slot = hour(db, 1)
    put(db, slot, "succeeded", attempt=2, started_at=slot + timedelta(minutes=9))
    db.execute("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at)"
               " VALUES (1, gen_random_uuid(), 1, 'failed', %s)", [slot + timedelta(seconds=2)])  # fmt: skip
    assert [read(db, f"{name}('a')")[0]["late"] for name in ("recent_runs", "job_status")] == [timedelta(seconds=2)] * 2


# ---- job_status


def test_the_status_of_a_job(db: psycopg.Connection[Any]) -> None:
    three_slots(db)
    lead(db)
    keep_next_slots(db)
    (row,) = read(db, "job_status('a')")
    newest = read(db, "recent_runs('a', 1)")[0]
    assert (row["name"], row["state"], row["paused_by"], row["error"]) == ("a", "active", None, None)
    assert row["next_slot"] == hour(db, -1)
    assert (row["last_run"], row["last_slot"], row["last_state"]) == (newest["run"], newest["slot"], newest["state"])
    assert (row["running"], row["queued"], row["failures"]) == (0, 1, 1)


def test_a_paused_job_says_by_whom_and_has_no_next_slot(db: psycopg.Connection[Any]) -> None:
    add(db, 0)
    lead(db)
    keep_next_slots(db)
    jobs.pause(db, "a", "incident 7", by="ops")
    (row,) = read(db, "job_status('a')")
    assert (row["state"], row["paused_by"], row["paused_reason"]) == ("paused", "ops", "incident 7")
    assert row["next_slot"] is None


def test_the_next_slot_is_one_that_runs(db: psycopg.Connection[Any]) -> None:
    add(db, 0, schedule="0 12 * * *")
    lead(db)
    keep_next_slots(db)
    first = read(db, "job_status()")[0]["next_slot"]
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date) SELECT id, %s FROM pgsched.jobs", [first.date()])
    assert read(db, "job_status()")[0]["next_slot"] == first + timedelta(days=1)


@pytest.mark.parametrize(
    ("columns", "shown"),
    [({"schedule": "@after 10m"}, True), ({"schedule": None, "run_at": "2100-01-01T00:00Z"}, True)],
)
def test_jobs_without_kept_slots_have_a_next_slot_too(
    db: psycopg.Connection[Any], columns: dict[str, Any], shown: bool
) -> None:
    add(db, 0, **columns)
    lead(db)
    (row,) = read(db, "job_status()")
    assert (row["next_slot"] is not None) is shown
    planned = db.execute("SELECT next_run_at FROM pgsched.jobs").fetchone()
    assert planned == (row["next_slot"],)


def test_open_runs_are_counted_as_running_and_queued(db: psycopg.Connection[Any]) -> None:
    add(db, 0)
    for back in (3, 2, 1):
        put(db, hour(db, back), "queued")
    take(db)
    (row,) = read(db, "job_status()")
    assert (row["running"], row["queued"]) == (1, 2)


def test_failures_in_a_row_end_at_the_last_success(db: psycopg.Connection[Any]) -> None:
    add(db, 9)
    for back, state in enumerate(["skipped", "dead", "cancelled", "dead", "succeeded", "dead"]):
        put(db, hour(db, back), state)
    put(db, hour(db, 7), "dead", origin="backfill")
    assert read(db, "job_status()")[0]["failures"] == 2


def test_the_status_of_all_jobs_is_in_the_order_of_names(db: psycopg.Connection[Any]) -> None:
    for name in ("b", "c", "a"):
        jobs.add(db, {"name": name, "task": "t", "schedule": "@hourly"})
    assert [row["name"] for row in read(db, "job_status()")] == ["a", "b", "c"]
    assert [row["name"] for row in read(db, "job_status(NULL, 2)")] == ["a", "b"]
    assert [row["name"] for row in read(db, "job_status('b')")] == ["b"]


# ---- slots


def test_each_slot_has_one_row_newest_first(db: psycopg.Connection[Any]) -> None:
    three_slots(db)
    found = read(db, "slots('a', %s)", now(db) - WEEK)
    assert [(row["first_slot"], row["last_slot"], row["slots"], row["state"], row["run"]) for row in found] == [
        (hour(db, back), hour(db, back), 1, state, run)
        for run, back, state in ((3, 1, "skipped"), (2, 2, "dead"), (1, 3, "succeeded"))
    ]
    assert [row["reason"] for row in found] == ["overlap: run 7 was not finished", "no disk", None]
    assert [row["run"] for row in read(db, "slots('a', %s, %s)", hour(db, 3), hour(db, 2))] == [2, 1], "both ends count"
    assert [row["run"] for row in read(db, "slots('a', '-infinity', 'infinity', 1)")] == [3]


def paused(db: psycopg.Connection[Any], recorded: bool = True) -> None:
    """Let a pause pass over the last three slots."""
    add(db, 0)
    lead(db)
    jobs.pause(db, "a", "incident 7", by="alice")
    pass_time(db, 3 * 3600)
    jobs.resume(db, "a")
    if recorded:
        lead(db)


@pytest.mark.parametrize("part", [(3, 0), (2, 1), (1, 1), (3, 2), (1, 0)])
def test_a_stretch_is_one_row_whatever_part_of_it_is_asked_about(
    db: psycopg.Connection[Any], part: tuple[int, int]
) -> None:
    paused(db)
    since, until = (hour(db, back) for back in part)
    found = read(db, "slots('a', %s, %s)", since, until)
    assert [(row["first_slot"], row["last_slot"], row["slots"], row["state"]) for row in found] == [
        (hour(db, 2), hour(db, 0), 3, "skipped")
    ]
    assert "by alice: incident 7" in found[0]["reason"]


def test_a_stretch_that_is_not_recorded_yet_says_so(db: psycopg.Connection[Any]) -> None:
    paused(db, recorded=False)
    row = read(db, "slots('a', %s)", hour(db, 9))[0]
    assert (row["slots"], row["state"], row["run"]) == (None, "skipped", None)
    assert row["reason"].endswith("incident 7. The leader has not recorded it yet")


def test_a_revived_row_stands_for_its_slot_and_for_the_others_as_before(db: psycopg.Connection[Any]) -> None:
    paused(db)
    db.execute("SELECT pgsched.retry(id) FROM pgsched.runs")
    found = read(db, "slots('a', %s)", hour(db, 9))
    assert sorted((row["slots"], row["state"]) for row in found) == [(1, "queued"), (3, "skipped")]


def test_a_stretch_that_grew_is_found_at_its_end(db: psycopg.Connection[Any]) -> None:
    """Its row has the first of its slots, because later batches extended it."""
    add(db, 6)
    put(db, hour(db, 5), "skipped", reason="excluded dates", covers_from=hour(db, 5), covers_until=hour(db, 2),
        covers_count=4)  # fmt: skip
    assert [row["slots"] for row in read(db, "slots('a', %s)", hour(db, 3))] == [4]
    assert "it lies in a stretch of 4 slots from " in said_by_sql(db, hour(db, 3))


def test_a_run_that_a_person_made_does_not_hide_a_stretch_that_goes_on_behind_it(db: psycopg.Connection[Any]) -> None:
    add(db, 6)
    put(db, hour(db, 5), "skipped", reason="excluded dates", covers_from=hour(db, 5), covers_until=hour(db, 2),
        covers_count=4, origin="schedule")  # fmt: skip
    put(db, hour(db, 4) + timedelta(minutes=7), "succeeded", origin="manual")
    assert [row["slots"] for row in read(db, "slots('a', %s)", hour(db, 3))] == [4]
    assert "it lies in a stretch of 4 slots from " in said_by_sql(db, hour(db, 3))
    found = backfills.evidence(db, one(db, "SELECT id FROM pgsched.jobs"), [hour(db, 3)])
    assert [row["covers_until"] for row in found] == [hour(db, 2)]


# ---- what is refused


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("recent_runs('a', 0)", "n: 0 is out of range 1-1000"),
        ("recent_runs(NULL, 1001)", "n: 1001 is out of range 1-1000"),
        ("job_status(NULL, 10001)", "n: 10001 is out of range 1-10000"),
        ("slots('a', NULL)", "since: must not be null"),
        ("slots('a', now(), NULL)", "until: must not be null"),
        ("slots('a', now(), now(), 10001)", "n: 10001 is out of range 1-10000"),
        ("explain('a', 'infinity')", "at: infinity is not an instant between 1970 and 9000"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(db: psycopg.Connection[Any], call: str, words: str) -> None:
    add(db, 0)
    with pytest.raises(psycopg.errors.CheckViolation, match=words) as refused:
        read(db, call)
    assert (refused.value.diag.schema_name, refused.value.diag.column_name) == ("pgsched", words.partition(":")[0])


# ---- explain, where SQL knows less than the program


def test_explain_says_where_it_cannot_know(db: psycopg.Connection[Any]) -> None:
    add(db, 3)
    ahead = hour(db, -100)
    assert said_by_sql(db, ahead) == (
        f"Time {stamp(ahead)} of job a: not decided yet, or no slot at that time."
        " `pgsched explain` computes the slots of the schedule, which SQL cannot."
    )
    lead(db)
    between = hour(db, 1) + HOUR / 2
    assert said_by_sql(db, between).startswith(f"Time {stamp(between)} of job a: it lies in a stretch of 3 slots from ")
    db.execute("DELETE FROM pgsched.runs")
    assert said_by_sql(db, between).startswith(
        f"Time {stamp(between)} of job a: no slot has a row there: the job has no slot at that time, or its row is no"
    )


def test_a_job_without_any_slot_says_so(db: psycopg.Connection[Any]) -> None:
    add(db, 0)
    told = "Job a has no slot to tell of: none is decided, and none is known"
    assert said_by_sql(db, None) == f"{told}; no process leads now (start a pgsched worker)."


def test_explain_works_in_any_time_zone_and_date_style(db: psycopg.Connection[Any]) -> None:
    three_slots(db)
    slots = [hour(db, back) for back in (3, 2, 1)]
    said = [said_by_sql(db, slot) for slot in slots]
    db.execute("SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'sql_standard'")
    assert [said_by_sql(db, slot) for slot in slots] == said

"""The policies of a job with the real tick: when its slots begin and end, and that no slot ever gets two rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import psycopg
import pytest

from pgsched.core.planning.jitter import offset
from pgsched.db.queries.leader import ticks
from tests.support.db.passing import add, columns_of, job, lead, now, pass_time, runs, set_past_triggers, states
from tests.support.db.pruning import prune
from tests.support.db.setting import add_jobs, slots

HOUR, DAY, INSTANT = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)


def finish(db: psycopg.Connection, state: str = "succeeded") -> None:
    db.execute("UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp() WHERE phase < 3", [state])


# ---- jitter, starts_at, ends_at, max_runs, delete_after_run


def test_jitter_moves_the_start_and_not_the_slot(db: psycopg.Connection) -> None:
    a = add(db, schedule="@every 1h", jitter="30 minutes", start_deadline="40 minutes", overlap="allow")
    pass_time(db, 3 * 3600 + 1)
    set_past_triggers(db, misfire_after=DAY, start_deadline=DAY)
    assert lead(db) == 3
    anchor = job(db)["anchor_at"]
    for k, run in enumerate(runs(db), 1):
        slot = anchor + k * HOUR
        moved = offset(a["id"], slot, timedelta(minutes=30))
        assert (run["scheduled_at"], run["available_at"]) == (slot, slot + moved)
        assert run["expires_at"] == slot + DAY, "the deadline counts from the slot"
        assert run["state"] == ("scheduled" if slot + moved > now(db) else "queued")


@pytest.mark.parametrize("schedule", ["@every 1h", "0 0 * * *"])
def test_a_job_that_starts_later_has_its_first_slot_then(db: psycopg.Connection, schedule: str) -> None:
    midnight = now(db).replace(hour=0, minute=0, second=0, microsecond=0) + 3 * DAY
    add(db, schedule=schedule, starts_at=midnight)
    assert lead(db) == 0
    assert job(db)["next_run_at"] == midnight, "the start itself is a slot"


def test_a_job_that_started_in_the_past_catches_nothing_up(db: psycopg.Connection) -> None:
    start = now(db) - 90 * timedelta(minutes=1)
    add(db, schedule="@every 1h", starts_at=start, catch_up="all")
    assert lead(db) == 0
    assert job(db)["next_run_at"] == start + 2 * HOUR, "it counts from the start"


@pytest.mark.parametrize(("behind", "count"), [(timedelta(0), 3), (-INSTANT, 2)])
def test_a_slot_at_the_end_is_the_last(db: psycopg.Connection, behind: timedelta, count: int) -> None:
    a = add(db, schedule="@every 1h", overlap="allow", catch_up="all")
    db.execute("UPDATE pgsched.jobs SET ends_at = %s", [a["anchor_at"] + 3 * HOUR + behind])
    pass_time(db, 5 * 3600)
    assert lead(db) == count
    assert job(db)["next_run_at"] is None
    pass_time(db, 5 * 3600)
    assert lead(db) == 0


def test_the_lateness_of_a_slot_does_not_depend_on_the_end_of_its_job(db: psycopg.Connection) -> None:
    a = add(db, schedule="@every 1h", start_deadline="2 hours")
    db.execute("UPDATE pgsched.jobs SET ends_at = %s", [a["anchor_at"] + 3 * HOUR])
    pass_time(db, 9 * 3600)
    lead(db)
    (run,) = runs(db)
    assert (run["state"], run["reason"], run["covers_count"]) == ("missed", "start_deadline passed", 3)


def test_a_job_runs_max_runs_times_and_skipped_slots_do_not_count(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 5, overlap="buffer_one", max_runs=2)
    lead(db)
    assert states(db) == ["queued", "waiting"], "later slots do not exist"
    assert (job(db)["run_count"], job(db)["next_run_at"]) == (2, None)
    db.execute("DELETE FROM pgsched.runs")
    db.execute("UPDATE pgsched.jobs SET overlap = 'skip', max_runs = 4, ends_at = NULL")
    pass_time(db, 3)
    lead(db)
    assert states(db)[:4] == ["skipped", "queued", "skipped", "skipped"], "the first stands for those behind the end"
    assert job(db)["run_count"] == 3
    assert job(db)["next_run_at"] is not None


def test_slots_that_replace_each_other_count_once(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 4, overlap="replace", max_runs=2)
    lead(db)
    assert states(db) == ["skipped", "skipped", "skipped", "waiting"]
    assert job(db)["run_count"] == 1


@pytest.mark.parametrize("column", ["max_runs", "ends_at"])
def test_a_job_that_had_ended_goes_on_from_the_edit(db: psycopg.Connection, column: str) -> None:
    a = add(db, schedule="@every 1h", overlap="allow", catch_up="all", catch_up_window="10 days")
    db.execute(f"UPDATE pgsched.jobs SET {column} = %s", [1 if column == "max_runs" else a["anchor_at"] + HOUR])
    pass_time(db, 1.5 * 3600)
    assert lead(db) == 1
    assert job(db)["next_run_at"] is None
    pass_time(db, 10 * 3600)
    db.execute(f"UPDATE pgsched.jobs SET {column} = NULL")
    assert lead(db) == 0, "what would have come meanwhile was no slot"
    assert job(db)["next_run_at"] == job(db)["anchor_at"] + 12 * HOUR


def test_an_earlier_end_takes_the_next_slot_away(db: psycopg.Connection) -> None:
    a = add(db, schedule="@every 1h")
    lead(db)
    assert job(db)["next_run_at"] == a["anchor_at"] + HOUR
    db.execute("UPDATE pgsched.jobs SET ends_at = %s", [a["anchor_at"] + HOUR / 2])
    lead(db)
    assert job(db)["next_run_at"] is None


@pytest.mark.parametrize(("state", "gone"), [("succeeded", True), ("dead", False), ("cancelled", False)])
def test_a_one_off_is_deleted_once_it_succeeded_and_its_run_stays(
    db: psycopg.Connection, state: str, gone: bool
) -> None:
    add(db, delete_after_run=True)
    lead(db)
    prune(db, 3600, 100)
    assert db.execute("SELECT count(*) FROM pgsched.jobs").fetchone() == (1,), "its run is not finished"
    finish(db, state)
    prune(db, 3600, 100)
    assert db.execute("SELECT count(*) FROM pgsched.jobs").fetchone() == (0 if gone else 1,)
    assert states(db) == [state]


# ---- misfires


@pytest.mark.parametrize("catch_up", ["latest", "skip", "earliest", "all"])
def test_late_slots_outside_the_window_end_in_one_row(db: psycopg.Connection, catch_up: str) -> None:
    add(db, schedule="@every 1h", catch_up=catch_up, overlap="allow", catch_up_window="150 minutes")
    pass_time(db, 10.25 * 3600)
    lead(db)
    first, *rest = runs(db)
    assert (first["state"], first["reason"], first["covers_count"]) == ("missed", "outside catch_up_window", 7)
    runs_of = {"latest": ["queued"], "skip": ["missed"], "earliest": ["queued", "missed"], "all": ["queued"] * 3}
    assert [run["state"] for run in rest] == runs_of[catch_up]


@pytest.mark.parametrize(
    ("columns", "state", "reason"),
    [({}, "queued", "late"), ({"catch_up": "skip"}, "missed", "late, and the catch-up policy is skip"),
     ({"catch_up_window": "1 hour"}, "missed", "outside catch_up_window"),
     ({"start_deadline": "1 hour"}, "missed", "start_deadline passed"),
     ({"misfire_after": "1 day"}, "queued", None)],
)  # fmt: skip
def test_a_late_one_off_follows_the_same_policies(
    db: psycopg.Connection, columns: dict[str, str], state: str, reason: str | None
) -> None:
    add(db, **columns)
    pass_time(db, 2 * 3600)
    lead(db)
    (run,) = runs(db)
    assert (run["state"], run["reason"]) == (state, reason)
    assert job(db)["next_run_at"] is None


@pytest.mark.parametrize("catch_up", ["latest", "skip", "earliest", "all"])
def test_two_weeks_of_downtime_of_a_one_second_job_cost_one_bounded_batch(
    db: psycopg.Connection, catch_up: str
) -> None:
    add_jobs(db, 1, 14 * 86_400, catch_up=catch_up)
    began = time.monotonic()
    made = lead(db)
    took = time.monotonic() - began
    assert took < 2.0  # takes about 0.05 s; the margin is for a loaded machine
    assert made <= 61 + 100 + 3
    assert job(db)["next_run_at"] is None and lead(db) == 0, "it was the only batch"
    assert sum(run["covers_count"] or 1 for run in runs(db)) == 14 * 86_400


# ---- no slot twice


def test_a_clock_that_stepped_back_an_hour_repeats_nothing(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1m", overlap="allow", catch_up="all")
    pass_time(db, 61)
    lead(db)
    pass_time(db, -3600)  # as if the clock had been an hour ahead until now
    db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp()")
    before = job(db)["decided_until"]
    assert lead(db) == 0
    assert job(db)["decided_until"] == before > now(db)
    assert job(db)["next_run_at"] == before + timedelta(minutes=1)


@pytest.mark.parametrize("pruned", [True, False])
def test_an_old_row_that_is_written_back_repeats_nothing(db: psycopg.Connection, pruned: bool) -> None:
    add(db, schedule="@every 1m", overlap="allow", catch_up="all")
    (old,) = db.execute("SELECT to_jsonb(j) FROM pgsched.jobs j").fetchone() or [None]
    pass_time(db, 301)
    assert lead(db) == 5
    db.execute("DELETE FROM pgsched.runs") if pruned else None
    names = ", ".join(name for name in columns_of(db) if name not in ("id", "anchor_at"))
    row = f"(SELECT {names} FROM jsonb_populate_record(NULL::pgsched.jobs, %s))"
    old["decided_until"] = (job(db)["decided_until"] - HOUR).isoformat()
    db.execute(f"UPDATE pgsched.jobs SET ({names}) = {row}", [json.dumps(old)])
    assert lead(db) == 0
    assert slots(db)[0] == (0 if pruned else 5)


def test_a_deleted_job_that_is_inserted_again_as_it_was_has_no_past(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1m", overlap="allow", catch_up="all")
    pass_time(db, 301)
    (old,) = db.execute("SELECT to_jsonb(j)::text FROM pgsched.jobs j").fetchone() or [None]
    assert lead(db) == 5
    db.execute("DELETE FROM pgsched.runs")
    db.execute("DELETE FROM pgsched.jobs")
    db.execute("INSERT INTO pgsched.jobs SELECT * FROM jsonb_populate_record(NULL::pgsched.jobs, %s)", [old])
    assert lead(db) == 0


Step = Callable[[psycopg.Connection, Random], object]


def rolled_back(db: psycopg.Connection, _: Random) -> None:
    """Roll a batch back, as when a leader dies in the middle of it."""
    with db.transaction() as batch:
        lead(db)
        raise psycopg.Rollback(batch)


def exclude(db: psycopg.Connection, rng: Random) -> None:
    """Exclude all of the past or nothing: a range over midnight, excluded in part, would count less than it spans."""
    db.execute("DELETE FROM pgsched.job_calendars")
    db.execute(
        "INSERT INTO pgsched.job_calendars SELECT id, current_date - %s, current_date + 1, 'r' FROM pgsched.jobs",
        [rng.randint(3, 4)],
    ) if rng.random() < 0.4 else None


def pause(db: psycopg.Connection, rng: Random) -> None:
    db.execute("UPDATE pgsched.jobs SET paused = NOT paused, resume_from = %s", [rng.choice(("now", "pause"))])


def settle_some(db: psycopg.Connection, rng: Random) -> None:
    ticks.admit(db, 100)
    finish(db) if rng.random() < 0.7 else None


STEPS: tuple[Step, ...] = (rolled_back, exclude, pause, settle_some, settle_some)


@pytest.mark.few(6)
@pytest.mark.parametrize("overlap", ["allow", "skip", "buffer_one", "buffer_all", "replace", "terminate"])
@pytest.mark.parametrize("catch_up", ["latest", "skip", "earliest", "all"])
@pytest.mark.parametrize("steps", [30, pytest.param(90, marks=pytest.mark.long)])
def test_every_slot_of_a_short_life_has_exactly_one_row(
    db: psycopg.Connection, catch_up: str, overlap: str, steps: int
) -> None:
    rng = Random(f"{catch_up} {overlap}")
    columns: dict[str, Any] = {"catch_up": catch_up, "overlap": overlap, "max_catch_up": 5, "catch_up_window": "1 hour"}
    if overlap == "skip":
        columns["retry_within"] = "1 minute"
    add(db, schedule="@every 10s", start_deadline=rng.choice((None, "20 minutes")), **columns)
    for _ in range(steps):
        pass_time(db, rng.choice((5, 10, 60, 900, 7200)) * rng.random())
        rng.choice(STEPS)(db, rng)
        lead(db)
    db.execute("UPDATE pgsched.jobs SET paused = false, resume_from = 'now'")
    lead(db)
    check_coverage(db)


def check_coverage(db: psycopg.Connection) -> None:
    """Check that each slot from the anchor to the mark lies in exactly one row's range, and that counts are right."""
    a, interval = job(db), timedelta(seconds=10)
    count = (a["decided_until"] - a["anchor_at"]) // interval
    expected = 1
    for run in runs(db):
        first = (run["covers_from"] or run["scheduled_at"]) - a["anchor_at"]
        last = (run["covers_until"] or run["scheduled_at"]) - a["anchor_at"]
        assert (first % interval, last % interval) == (timedelta(0), timedelta(0)), run
        assert first // interval == expected, run
        assert run["covers_count"] in (None, (last - first) // interval + 1), run
        expected = last // interval + 1
    assert expected == count + 1
    assert count > 500


def test_the_check_sees_a_slot_without_a_row(db: psycopg.Connection) -> None:
    add(db, schedule="@every 10s", overlap="allow")
    pass_time(db, 10_000)
    lead(db)
    check_coverage(db)
    db.execute("DELETE FROM pgsched.runs WHERE id = (SELECT min(id) FROM pgsched.runs WHERE state = 'queued')")
    with pytest.raises(AssertionError):
        check_coverage(db)

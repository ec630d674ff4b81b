"""`explain` of slots without a run of their own: passed over, coalesced, after the end or before the start."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

from pgsched.db.queries.jobs import backfills, jobs
from pgsched.leader import backfill
from tests.support.db.explaining import HOUR, add, hour, led, stamp, why
from tests.support.db.passing import lead, now, pass_time


def test_paused(db: psycopg.Connection) -> None:
    add(db)
    lead(db)
    db.execute("DELETE FROM pgsched.runs")
    jobs.pause(db, "a", "incident 7", by="alice")
    pass_time(db, 3 * 3600)
    while_paused = why(db, hour(db, 1))
    assert (while_paused.answer, while_paused.run_id) == ("paused", None)
    assert "it is not decided, because the job has been paused since " in while_paused.text
    assert " by alice: incident 7" in while_paused.text
    jobs.resume(db, "a")
    before = why(db, hour(db, 1))
    assert before.answer == "paused"
    assert before.text.endswith("by alice: incident 7. The leader has not recorded it yet.")
    lead(db)
    for back in (0, 1, 2):
        after = why(db, hour(db, back))
        assert (after.answer, after.run_id is not None) == ("paused", True)
        assert "paused since" in after.text
        assert "by alice: incident 7" in after.text
    assert "it lies in a stretch of 3 slots from" in why(db, hour(db, 1)).text


def test_due_before_the_pause(db: psycopg.Connection) -> None:
    add(db)
    led(db, "30 days", "200 minutes")
    jobs.pause(db, "a", "incident 7", by="alice")
    pass_time(db, 3600)
    during, before = why(db, hour(db)), why(db, hour(db, 2))
    assert (during.answer, before.answer) == ("paused", "no_leader")
    assert before.details["held_up_by"][0] == "paused"
    assert " before the pause, and was not decided until then, because no process led from " in before.text
    assert ". Now the job has been paused since 20" in before.text
    jobs.resume(db, "a")
    for _ in range(2):
        before = why(db, hour(db, 2))
        assert ("not decided before the job was paused at 20" in before.text, before.answer) == (True, "too_late")
        assert why(db, hour(db)).answer == "paused"
        lead(db)


def test_coalesced_into_a_run_for_many_slots(db: psycopg.Connection) -> None:
    add(db, 3, misfire_after="0")
    lead(db)
    found = why(db, hour(db, 2))
    assert (found.answer, found.slot, found.run_id) == ("coalesced", hour(db, 2), 1)
    assert f"it lies in a stretch of 3 slots from {stamp(hour(db, 2))} to {stamp(hour(db))}" in found.text


def paused_stretch(db: psycopg.Connection) -> None:
    """Let a pause pass over the last three slots, so that one row stands for them."""
    add(db)
    lead(db)
    db.execute("DELETE FROM pgsched.runs")
    jobs.pause(db, "a", "incident 7", by="alice")
    pass_time(db, 3 * 3600)
    jobs.resume(db, "a")
    lead(db)


@pytest.mark.parametrize("by", ["retry", "backfill"])
def test_a_revived_row_of_a_stretch_runs_for_its_own_slot_alone(db: psycopg.Connection, by: str) -> None:
    paused_stretch(db)
    run_id = why(db, hour(db)).run_id
    if by == "retry":
        db.execute("SELECT pgsched.retry(%s)", [run_id])
    else:
        backfills.add_backfill(db, "a", backfills.Request(hour(db).isoformat(), (hour(db) + HOUR).isoformat()))
        with db.transaction():
            backfill.run_backfills(db)
    for state in ("queued", "succeeded", "dead"):
        db.execute("UPDATE pgsched.runs SET state = %s, started_at = now(), reason = 'no disk', attempt = 1,"
                   " finished_at = CASE WHEN %s <> 'queued' THEN now() END", [state, state])  # fmt: skip
        assert why(db, hour(db)).answer == {"queued": "unroutable", "succeeded": "ran", "dead": "failed"}[state]
        assert "it ran once for" not in why(db, hour(db)).text
        for back in (1, 2):
            other = why(db, hour(db, back))
            assert (other.answer, other.run_id, other.details["state"]) == ("paused", run_id, "skipped")
            assert "it did not run, and was recorded as skipped at " in other.text
            assert other.text.endswith(f"by alice: incident 7. Later run {run_id} was revived, for slot "
                                       f"{stamp(hour(db))} alone.")  # fmt: skip
    db.execute("SELECT pgsched.retry(%s)", [run_id])
    assert why(db, hour(db, 1)).answer == "paused", "revived again"


def test_a_run_for_many_slots_that_is_retried_is_for_all_of_them(db: psycopg.Connection) -> None:
    add(db, misfire_after="0")
    lead(db)
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now()")
    db.execute("SELECT pgsched.retry(1)")
    assert (why(db, hour(db, 1)).answer, why(db, hour(db, 1)).details["state"]) == ("coalesced", "queued")


def test_a_coalesced_run_repeated_by_a_backfill_still_counts_for_its_slots(db: psycopg.Connection) -> None:
    add(db, misfire_after="0")
    lead(db)
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', attempt = 1, started_at = now(), finished_at = now()")
    assert "; it ran once for 3 slots from " in why(db, hour(db)).text
    backfills.add_backfill(db, "a", backfills.Request(hour(db).isoformat(), (hour(db) + HOUR).isoformat(), "all"))
    with db.transaction():
        backfill.run_backfills(db)
    other = why(db, hour(db, 1))
    assert (other.answer, other.details["state"]) == ("coalesced", "succeeded")
    assert "run 1: that run was for all of them, and succeeded. It was decided " in other.text
    assert other.text.endswith(f". Later run 1 was revived, for slot {stamp(hour(db))} alone.")


def test_before_creation(db: psycopg.Connection) -> None:
    add(db)
    found = why(db, hour(db, 50))
    assert found.answer == "before_creation"
    assert "the job was created later, at " in found.text


def test_before_the_edit(db: psycopg.Connection) -> None:
    add(db, 50)
    jobs.update(db, "a", {"schedule": "30 * * * *"})
    lead(db)
    db.execute("DELETE FROM pgsched.runs")
    found = why(db, hour(db, 5) + HOUR / 2)
    assert found.answer == "before_edit"
    assert "the schedule was edited later, at " in found.text


def test_an_undecided_slot_of_the_schedule_before_the_edit(db: psycopg.Connection) -> None:
    add(db)
    jobs.update(db, "a", {"description": "x", "schedule": "0 */1 * * *"})
    found = why(db, hour(db, 1))
    assert found.answer == "edited"
    lead(db)
    assert (why(db, hour(db, 1)).answer, why(db, hour(db, 1)).run_id) == ("edited", 1)


def test_a_stretch_of_the_earlier_schedule_is_named_as_such(db: psycopg.Connection) -> None:
    add(db, 50)
    jobs.update(db, "a", {"schedule": "30 * * * *"})
    noted = why(db, hour(db, 5) + HOUR / 2)
    assert "; slots of the one before did not run: the schedule was edited before" in noted.text
    lead(db)
    found = why(db, hour(db, 5) + HOUR / 2)
    assert (found.answer, "it lies in a stretch" in found.text) == ("edited", False), "it was no slot of that schedule"
    begins = stamp(jobs.show_job(db, "a")["anchor_at"])
    assert f"the schedule of today begins at {begins}; of the one before, 50 slots from " in found.text


def test_the_start_itself_is_a_slot(db: psycopg.Connection) -> None:
    add(db, starts_at=hour(db, -2))
    led(db)
    assert why(db, hour(db, 1)).answer == "undecided"


def test_before_the_start(db: psycopg.Connection) -> None:
    add(db, 50, starts_at=now(db) + 59 * HOUR)
    found = why(db, hour(db, 5))
    assert found.answer == "before_start"


def test_after_the_end(db: psycopg.Connection) -> None:
    add(db, ends_at=hour(db, -2))
    assert why(db, hour(db)).answer == "after_end"
    assert why(db, hour(db, -5)).answer == "after_end"
    assert why(db).slot == hour(db, 1), "the latest due is the last one there was"


def test_max_runs(db: psycopg.Connection) -> None:
    add(db, max_runs=1, catch_up="earliest", misfire_after="0")
    lead(db)
    assert why(db, hour(db, -2)).answer == "max_runs"
    assert "its max_runs is 1" in why(db, hour(db, -2)).text


def test_max_runs_and_a_later_run_by_hand(db: psycopg.Connection) -> None:
    add(db, max_runs=1, catch_up="all", misfire_after="0")
    lead(db)
    jobs.trigger(db, "a")
    assert why(db, hour(db, 2)).answer == "unroutable", "the one that runs"
    for back in (1, 0, -2):
        assert why(db, hour(db, back)).answer == "max_runs", "the latest run by hand says nothing about slots"
    db.execute("DELETE FROM pgsched.runs")
    assert (why(db, hour(db, 2)).answer, why(db, hour(db, 1)).answer) == ("forgotten", "max_runs")


@pytest.mark.parametrize(("column", "answer"), [("ends_at", "after_end"), ("max_runs", "max_runs")])
def test_between_the_end_of_the_job_and_its_extension(db: psycopg.Connection, column: str, answer: str) -> None:
    add(db, catch_up="all", overlap="allow", **{column: 1 if column == "max_runs" else hour(db, -1)})
    lead(db)
    assert why(db, hour(db, 1)).answer == answer
    jobs.update(db, "a", {column: None})
    for _ in range(2):
        found = why(db, hour(db, 1))
        assert found.answer == answer
        assert f"it did not run, and was recorded as skipped at {stamp(now(db))[:4]}" in found.text or not found.run_id
        assert f": the job had ended: its {column} was " in found.text
        lead(db)
    assert why(db, hour(db, 1)).run_id is not None
    assert "late" not in why(db, hour(db, 1)).text


def test_a_one_off(db: psycopg.Connection) -> None:
    add(db, 0, schedule=None, run_at="2100-01-01T00:00Z")
    assert why(db).answer == "future"
    assert why(db, "2050-01-01").nearest == (None, datetime(2100, 1, 1, tzinfo=UTC))
    pass_time(db, 75 * 365.25 * 86_400)
    assert why(db).answer == "no_leader"


def test_a_one_off_that_was_moved(db: psycopg.Connection) -> None:
    add(db, 0, schedule=None, run_at=(now(db) + HOUR).isoformat())
    pass_time(db, 2 * 3600)
    old = jobs.show_job(db, "a")["run_at"]
    new = jobs.update(db, "a", {"run_at": (now(db) + HOUR).isoformat()})["run_at"]
    for _ in range(2):
        for asked in (old, old.replace(microsecond=0)):
            assert (why(db, asked).slot, why(db, asked).answer) == (old, "edited")
            assert "run_at was edited before this slot was decided" in why(db, asked).text
        lead(db)
    assert why(db).slot == new
    between = why(db, old + HOUR)
    assert between.nearest == (old, new)
    assert f" is not a slot of job a; the nearest are {stamp(old)} and {stamp(new)}. " in between.text
    late = why(db, new + HOUR)
    assert f" is not a slot of job a; the nearest is {stamp(new)}. Slot " in late.text

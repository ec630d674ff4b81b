"""`explain` has an answer for everything that can happen to a slot; each test is named after one answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.leader_absence import absences
from pgsched.core.model import Outcome, Result, Settlement
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.errors import InputError
from pgsched.leader import backfill
from pgsched.worker.attempts.misfits import wait_for_newest_release
from tests.support.db.explaining import HOUR, add, hour, led, put, stamp, why
from tests.support.db.passing import lead, now
from tests.support.db.setting import done, take
from tests.support.db.settling import settle


def worker(db: psycopg.Connection, *tasks: str) -> None:
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
        " VALUES ('w1', 'h', 1, '0', 1, '{task}', %s, '30 seconds')",
        [list(tasks)],
    )


def test_ran(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    put(db, slot, "succeeded", attempt=1, started_at=slot + timedelta(milliseconds=400))
    found = why(db, slot)
    assert (found.answer, found.run_id, found.details["late_s"]) == ("ran", 1, 0.4)
    assert found.text == (
        f"Slot {stamp(slot)} of job a: run 1: it ran: it started at {stamp(slot)}, 0.4 seconds after the slot,"
        f" and succeeded at {stamp(slot + timedelta(seconds=3))} at the first attempt."
    )


def test_ran_at_the_second_attempt(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    put(db, slot, "succeeded", attempt=2, started_at=slot + timedelta(minutes=9))
    db.execute(
        "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, error)"
        " VALUES (1, gen_random_uuid(), 1, 'failed', %s, E'no disk\nat line 7')",
        [slot + timedelta(seconds=2)],
    )
    found = why(db, slot)
    assert found.details["late_s"] == 2, "late is when the first attempt began"
    assert found.text.endswith("after 2 attempts, the last error: no disk.")


def test_ran_late_because_no_process_led(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    led(db, "30 days", "2 hours")
    put(db, slot, "succeeded", attempt=1, started_at=slot + timedelta(minutes=20),
        created_at=slot + timedelta(minutes=20), finished_at=slot + timedelta(minutes=21))  # fmt: skip
    found = why(db, slot)
    gap = [slot, slot + timedelta(minutes=20)]
    assert (found.answer, found.details["no_leader"]) == ("ran", [gap])
    assert found.text.endswith(
        f"It was decided 20 minutes late, because no process led from {stamp(gap[0])} to {stamp(gap[1])}."
    )


def test_no_leader_after_the_slot_was_due_is_not_the_reason(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    led(db, "30 days", f"{(now(db) - slot).total_seconds() - 600} seconds")
    put(db, slot, "queued", created_at=slot + timedelta(minutes=20))
    assert ". It was decided 20 minutes late; meanwhile no process led from " in why(db, slot).text


def test_failed(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    put(db, slot, "dead", attempt=3, started_at=slot, error="no disk", reason="all 3 attempts used")
    found = why(db, slot)
    assert found.answer == "failed"
    assert "after 3 attempts, the last error: no disk (all 3 attempts used)." in found.text


def test_cancelled(db: psycopg.Connection) -> None:
    add(db)
    put(db, hour(db, 1), "cancelled", reason="cancelled by alice: wrong month")
    found = why(db, hour(db, 1))
    assert found.answer == "cancelled"
    assert found.text.endswith("cancelled by alice: wrong month.")


def test_overlap(db: psycopg.Connection) -> None:
    add(db)
    put(db, hour(db, 1), "skipped", reason="overlap: run 7 was not finished")
    found = why(db, hour(db, 1))
    assert found.answer == "overlap"
    assert found.text.endswith("recorded as skipped at " + stamp(hour(db, 1) + timedelta(seconds=3))
                               + ": overlap: run 7 was not finished.")  # fmt: skip


def test_too_late(db: psycopg.Connection) -> None:
    add(db, 30, catch_up="skip")
    lead(db)
    found = why(db, hour(db, 3))
    assert found.answer == "too_late"
    assert "late, and the catch-up policy is skip. It was decided" in found.text
    assert "because no process led from" in found.text


def test_excluded(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    for day in {slot.date(), (slot + 30 * HOUR).date()}:
        db.execute("INSERT INTO pgsched.job_calendars SELECT id, %s, %s, 'holidays' FROM pgsched.jobs", [day, day])
    led(db)
    lead(db)
    found = why(db, slot)
    assert found.answer == "excluded"
    assert f"excluded date {slot.date()}: holidays" in found.text
    to_come = why(db, slot + 30 * HOUR)
    assert (to_come.answer, to_come.details["held_up_by"]) == ("future", ["excluded"])
    assert "it will be skipped: excluded date" in to_come.text


def test_no_slot_of_the_schedule(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    put(db, slot, "succeeded", attempt=1, started_at=slot)
    found = why(db, slot + timedelta(minutes=10))
    assert (found.answer, found.slot, found.is_slot, found.nearest) == ("ran", slot, False, (slot, slot + HOUR))
    assert found.text.startswith(
        f"{stamp(slot + timedelta(minutes=10))} is not a slot of @hourly (UTC);"
        f" the nearest are {stamp(slot)} and {stamp(slot + HOUR)}. Slot {stamp(slot)} of job a: "
    )
    assert why(db, slot + timedelta(minutes=50)).slot == slot + HOUR


def test_in_the_future_and_what_will_delay_the_slot(db: psycopg.Connection) -> None:
    add(db, 0)
    led(db)
    found = why(db, hour(db, -5))
    assert (found.answer, found.details) == ("future", {"held_up_by": []})
    db.execute("UPDATE pgsched.leader SET resigned_at = clock_timestamp() - interval '1 minute', seen_at ="
               " clock_timestamp() - interval '1 minute'")  # fmt: skip
    jobs.pause(db, "a", by="alice")
    found = why(db, hour(db, -5))
    assert found.details == {"held_up_by": ["paused", "no_leader"]}
    assert "by alice; and no process leads now (start a pgsched worker)." in found.text


def test_not_decided_because_no_process_leads(db: psycopg.Connection) -> None:
    add(db)
    led(db, "30 days", "150 minutes")
    slot = hour(db, 1)
    found = why(db, slot)
    assert found.answer == "no_leader"
    assert [gap[0] for gap in found.details["no_leader"]] == [slot]
    assert f"it is not decided yet, because no process led from {stamp(slot)} to " in found.text
    assert found.text.endswith(": no process leads now (start a pgsched worker).")


def test_about_to_be_decided(db: psycopg.Connection) -> None:
    add(db)
    led(db)
    assert why(db, hour(db)).answer == "undecided"
    assert why(db, hour(db)).text.endswith("the leader is about to decide it.")


def test_unroutable_and_queued(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 1)
    put(db, slot, "queued")
    assert (why(db, slot).answer, why(db, slot).text.endswith("there is no live worker.")) == ("unroutable", True)
    worker(db, "other")
    found = why(db, slot)
    assert found.answer == "unroutable"
    assert "on queue default, and the one live worker does not offer task t there." in found.text
    worker(db, "t")
    assert why(db, slot).answer == "queued"


def test_waiting_for_a_run(db: psycopg.Connection) -> None:
    add(db)
    put(db, hour(db, 2), "queued")
    put(db, hour(db, 1), "waiting")
    put(db, hour(db), "waiting")
    found = why(db, hour(db, 1))
    assert (found.answer, found.details["waits_for"]) == ("waiting", [1])
    assert f"it waits for run 1 (queued, slot {stamp(hour(db, 2))})" in found.text
    assert why(db, hour(db)).details["waits_for"] == [1, 2]
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = 1")
    assert "it waits for the leader to release it" in why(db, hour(db, 1)).text


def test_running(db: psycopg.Connection) -> None:
    add(db)
    worker(db, "t")
    put(db, hour(db, 1), "queued")
    take(db)
    found = why(db, hour(db, 1))
    assert found.answer == "running"
    assert "it has been running on worker w1 since " in found.text
    assert "(attempt 1 of 3)" in found.text


def test_running_and_asked_to_stop(db: psycopg.Connection) -> None:
    add(db)
    put(db, hour(db, 1), "queued")
    take(db)
    db.execute("SELECT pgsched.cancel(1, 'wrong month')")
    assert why(db, hour(db, 1)).text.count("its worker was asked to stop it at") == 1
    assert "on a worker that is no longer known" in why(db, hour(db, 1)).text


def test_to_be_tried_again(db: psycopg.Connection, dsn: str) -> None:
    add(db)
    put(db, hour(db, 1), "queued")
    (claim,) = take(db)
    settle(dsn, done(claim, Result.FAILED))
    found = why(db, hour(db, 1))
    assert found.answer == "retrying"
    assert "attempt 1 of 3 failed: it failed" in found.text


@pytest.mark.parametrize("failed_before", [False, True])
def test_snoozed(db: psycopg.Connection, dsn: str, failed_before: bool) -> None:
    add(db)
    put(db, hour(db, 1), "queued", **({"attempt": 1, "error": "no disk"} if failed_before else {}))
    (claim,) = take(db)
    settle(dsn, Settlement.of(claim, Outcome(Result.SNOOZED, error="Snooze: not open yet"), 3600))
    found = why(db, hour(db, 1))
    assert found.answer == "scheduled"
    assert "it put itself off until " in found.text and "Snooze: not open yet" in found.text
    assert ("attempt 1 of 3 failed: no disk" in found.text) is failed_before
    assert "jitter" not in found.text


def test_waits_for_a_newer_release(db: psycopg.Connection, dsn: str) -> None:
    add(db)
    put(db, hour(db, 1), "queued")
    (claim,) = take(db)
    settle(dsn, Settlement.of(claim, wait_for_newest_release("args: unknown parameter x"), 30))
    found = why(db, hour(db, 1))
    assert found.answer == "scheduled"
    assert (
        "it waits for a worker of the newest release: args: unknown parameter x; a worker looks again at " in found.text
    )
    assert "jitter" not in found.text
    worker(db, "t")
    db.execute("UPDATE pgsched.runs SET state = 'queued', phase = 2, available_at = clock_timestamp()")
    assert "it waits for a worker of the newest release: args: unknown parameter x" in why(db, hour(db, 1)).text
    assert "to be free" not in why(db, hour(db, 1)).text


def test_moved_by_jitter(db: psycopg.Connection) -> None:
    add(db)
    put(db, hour(db), "scheduled", available_at=hour(db) + timedelta(minutes=90))
    assert why(db, hour(db)).answer == "scheduled"
    assert "the job's jitter moves it by 1 hour 30 minutes" in why(db, hour(db)).text


@pytest.mark.parametrize("at", [None, "now"])
def test_a_job_in_error(db: psycopg.Connection, at: str | None) -> None:
    add(db, hours=0)
    db.execute(
        "UPDATE pgsched.jobs SET schedule = '0 0 31 2 *'"
    )  # the database accepts it; the leader reports the error
    lead(db)
    found = why(db, None if at is None else now(db))
    assert (found.answer, found.slot, found.is_slot) == ("job_in_error", None, False)
    assert found.text.startswith("Job a has no slot to tell of: it has been in error since ")
    assert found.text.endswith(": schedule: never fires: no month has such a day.")


def test_a_job_that_never_fires_before_a_leader_has_seen_it(db: psycopg.Connection) -> None:
    add(db, hours=0)
    db.execute("UPDATE pgsched.jobs SET schedule = '0 0 31 2 *'")
    with pytest.raises(InputError, match="job a has no slots to explain: schedule: never fires: no month has"):
        why(db, now(db))


def test_decided_and_forgotten(db: psycopg.Connection) -> None:
    add(db)
    lead(db)
    db.execute("DELETE FROM pgsched.runs")
    assert why(db, hour(db, 1)).answer == "forgotten"


def test_a_manual_run_is_found_by_its_second(db: psycopg.Connection) -> None:
    add(db)
    jobs.trigger(db, "a")
    (slot,) = db.execute("SELECT scheduled_at FROM pgsched.runs").fetchone() or (now(db),)
    found = why(db, slot.replace(microsecond=0))
    assert (found.slot, found.answer) == (slot, "unroutable")
    assert found.text.endswith("It was asked for by hand.")


def test_a_run_of_a_backfill_names_the_backfill(db: psycopg.Connection) -> None:
    add(db)
    slot = hour(db, 40)
    backfills.add_backfill(db, "a", backfills.Request(slot.isoformat(), (slot + HOUR).isoformat()))
    with db.transaction():
        backfill.run_backfills(db)
    assert why(db, slot).text.endswith("Backfill 1 asked for it.")


START = datetime(2026, 5, 1, tzinfo=UTC)


def term(begin: float, seen: float, resigned: float | None = None) -> dict[str, Any]:
    moments = [None if m is None else START + timedelta(minutes=m) for m in (begin, seen, resigned)]
    return dict(zip(("elected_at", "seen_at", "resigned_at"), moments, strict=True))


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([], [(0, 60)]),
        ([term(-10, 70)], []),
        ([term(-10, -5)], [(0, 60)]),
        ([term(-10, 20)], [(20, 60)]),
        ([term(-10, 21, 20), term(40, 70)], [(20, 40)]),
        ([term(40, 70), term(-10, 20)], [(20, 40)]),
        ([term(5, 20), term(20.05, 50)], [(0, 5), (50, 60)]),
        ([term(5, 59.95)], [(0, 5)]),
        ([term(70, 80)], [(0, 60)]),
        ([term(-10, 50), term(20, 30)], [(50, 60)]),
    ],
)
def test_absences_are_what_no_term_covers(terms: list[dict[str, Any]], expected: list[tuple[float, float]]) -> None:
    found = absences(terms, START, START + HOUR)
    assert found == [(START + timedelta(minutes=a), START + timedelta(minutes=b)) for a, b in expected]

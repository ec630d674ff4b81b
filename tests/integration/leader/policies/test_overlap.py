"""Overlap: each policy against queued, running and retrying runs; replace and terminate also with a worker at work."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import replace

import psycopg
import pytest

from pgsched.core.model import Claim, Outcome
from pgsched.leader.ticker import tick
from pgsched.worker import worker as working
from tests.support.db.overlapping import admitted, finish, job_with_a_run, leader, newer, states, ticked
from tests.support.db.setting import Open, cut, let_expire, put_back, row_of, take
from tests.support.waiting import wait_until
from tests.support.workers import SETTINGS, Handler, becomes, play, registration

REPLACED = "overlap: replaced by the next slot"


# ---- decided when the slot is due


@pytest.mark.parametrize("state", ["queued", "running", "scheduled"])
@pytest.mark.parametrize(
    ("overlap", "new"),
    [("allow", "queued"), ("skip", "skipped"), ("buffer_one", "waiting"), ("buffer_all", "waiting"),
     ("replace", "waiting"), ("terminate", "queued")],
)  # fmt: skip
def test_a_slot_meets_an_unfinished_run(db: psycopg.Connection, overlap: str, new: str, state: str) -> None:
    old = job_with_a_run(db, state, overlap=overlap)
    ((found, reason),) = ticked(db)
    assert (found, reason) == (new, f"overlap: run {old} was not finished" if overlap == "skip" else None)
    row = row_of(db, old)
    if overlap not in ("replace", "terminate"):
        assert (row["state"], row["cancel_requested_at"]) == (state, None)
    elif overlap == "replace" and state == "running":
        assert (row["state"], row["cancel_reason"]) == ("running", REPLACED) and row["cancel_requested_at"] is not None
        assert row["token"] is not None, "it is asked, and may still settle"
    else:
        assert (row["state"], row["reason"], row["token"]) == ("cancelled", REPLACED, None)


@pytest.mark.parametrize("overlap", ["allow", "skip", "buffer_one", "buffer_all", "replace", "terminate"])
def test_a_slot_that_meets_no_unfinished_run_is_queued(db: psycopg.Connection, overlap: str) -> None:
    job_with_a_run(db, "queued", overlap=overlap)
    finish(db)
    assert ticked(db) == [("queued", None)]


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "buffer_all", "replace", "terminate"])
def test_a_run_of_a_backfill_is_no_earlier_run_for_overlap(db: psycopg.Connection, overlap: str) -> None:
    run = job_with_a_run(db, "running", overlap=overlap)
    db.execute("UPDATE pgsched.runs SET origin = 'backfill'")
    assert ticked(db) == [("queued", None)]
    assert row_of(db, run)["state"] == "running"


@pytest.mark.parametrize(("overlap", "room"), [("buffer_one", 1), ("buffer_all", 3)])
def test_slots_without_room_in_the_buffer_are_recorded_as_skipped(
    db: psycopg.Connection, overlap: str, room: int
) -> None:
    old = job_with_a_run(db, "running", overlap=overlap, max_buffer=3)
    found = ticked(db, 5)
    full = f"overlap: run {old} was not finished and {room} already waited"
    assert found == [("waiting", None)] * room + [("skipped", full)] * (5 - room)


def test_buffered_slots_start_one_by_one_oldest_first(db: psycopg.Connection) -> None:
    job_with_a_run(db, "running", overlap="buffer_all")
    ticked(db, 3)
    assert admitted(db) == 0, "the old run is not finished"
    for done in range(3):
        finish(db)
        assert admitted(db) == 1
        assert [state for state, _ in newer(db)] == ["succeeded"] * done + ["queued"] + ["waiting"] * (2 - done)
        assert admitted(db) == 0


def test_a_locked_run_holds_up_only_its_own_job(db: psycopg.Connection, connect: Open) -> None:
    old = job_with_a_run(db, "running", overlap="terminate")
    row = "INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT id, '2020-01-02Z', 't' FROM pgsched.jobs"
    db.execute(row)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [old])
    put_back(db, 1)
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('other', 't')")
    impatient = connect(options="-c lock_timeout=500ms")
    with impatient.transaction():
        assert tick(impatient, 100).jobs == 1
    assert states(db)[:2] == ["running", "queued"], "all or nothing of a job is ended"
    person.rollback()
    with impatient.transaction():
        assert tick(impatient, 100).jobs == 1
    assert states(db)[:2] == ["cancelled", "cancelled"]
    assert states(db)[2:] == ["queued", "queued"], "one of each job, and none was lost"


def test_without_skip_locked_a_locked_run_would_hold_up_every_job(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = job_with_a_run(db, "running", overlap="terminate")
    cut(monkeypatch, "tick_replace", "FOR NO KEY UPDATE OF r SKIP LOCKED", "FOR NO KEY UPDATE OF r")
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [old])
    put_back(db, 1)
    impatient = connect(options="-c lock_timeout=200ms")
    with pytest.raises(psycopg.errors.LockNotAvailable), impatient.transaction():
        tick(impatient, 100)


# ---- retry_within


def test_a_slot_that_would_be_skipped_waits_and_starts_when_the_old_run_ends(db: psycopg.Connection) -> None:
    old = job_with_a_run(db, "running", overlap="skip", retry_within="1 hour")
    earlier = f"overlap: run {old} was not finished"
    assert ticked(db, 3) == [("waiting", earlier), ("skipped", earlier), ("skipped", earlier)]
    assert admitted(db) == 0
    finish(db)
    assert admitted(db) == 1
    db.execute("UPDATE pgsched.runs SET held_until = clock_timestamp() WHERE state = 'queued'")
    assert admitted(db) == 0 and newer(db)[0][0] == "queued", "once admitted, it is not bound by retry_within any more"
    assert len(take(db)) == 1


def test_a_slot_whose_time_to_retry_is_over_already_is_skipped_at_once(db: psycopg.Connection) -> None:
    old = job_with_a_run(db, "running", overlap="skip", retry_within="0.1 seconds")
    assert ticked(db) == [("skipped", f"overlap: run {old} was not finished")]


@pytest.mark.parametrize(
    ("retry_within", "start_deadline", "state", "reason"),
    [
        ("2 seconds", None, "skipped", "overlap: run {} was not finished, nor by 20.* .retry_within."),
        ("2 seconds", "1 hour", "skipped", "overlap: run {} was not finished, nor by 20.* .retry_within."),
        ("1 hour", "2 seconds", "missed", "start_deadline passed: not started by 20.*"),
    ],
)
def test_the_earlier_bound_ends_a_waiting_slot_and_names_itself(
    db: psycopg.Connection, retry_within: str, start_deadline: str | None, state: str, reason: str
) -> None:
    old = job_with_a_run(db, "running", overlap="skip", retry_within=retry_within, start_deadline=start_deadline)
    assert ticked(db)[0][0] == "waiting"
    db.execute(
        "UPDATE pgsched.runs SET held_until = held_until - interval '3 seconds',"
        " expires_at = expires_at - interval '3 seconds' WHERE state = 'waiting'"
    )
    assert admitted(db) == 1
    ((found, why),) = newer(db)
    assert found == state
    assert re.fullmatch(reason.format(old), why or "")


# ---- with a leader and a worker at work


class Stubborn(Handler):
    """A handler that ends only when `let_go` is set, even if cancelled; `most`: the most attempts at work at once."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.now = self.most = 0

    async def execute(self, claim: Claim) -> Outcome:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await super().execute(claim)
        except asyncio.CancelledError:
            await asyncio.to_thread(self.let_go.wait, 20)
            raise
        finally:
            self.now -= 1


def listens(db: psycopg.Connection) -> bool:
    """Return whether the worker already listens for cancelled runs."""
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN pgsched_cancel'"
    return db.execute(f"SELECT EXISTS ({query} AND state = 'idle')").fetchone() == (True,)


def start(dsn: str, handler: Handler, lease_s: float = 3.0) -> tuple[working.Worker, asyncio.Task[None]]:
    settings = replace(SETTINGS, lease_s=lease_s)
    worker = working.Worker(dsn, settings, {"task": handler}, registration(lease_s))
    return worker, asyncio.create_task(worker.run())


@pytest.mark.long
def test_replace_starts_the_new_slot_when_the_old_run_has_ended(dsn: str, db: psycopg.Connection) -> None:
    job_with_a_run(db, "queued", overlap="replace")

    async def scene() -> None:
        handler = Stubborn()
        worker, work = start(dsn, handler)
        await becomes(lambda: handler.begun, "the old run to begin")
        put_back(db, 1)
        await becomes(lambda: handler.cancelled, "the old run to be asked")
        assert states(db) == ["running", "waiting"]
        handler.let_go.set()
        await becomes(lambda: len(handler.begun) == 2, "the new slot to begin")
        assert handler.most == 1, "never both at once"
        worker.stop()
        await work

    with leader(dsn):
        play(scene)
    assert states(db)[0] == "cancelled"
    assert db.execute("SELECT outcome FROM pgsched.attempts ORDER BY attempt DESC LIMIT 1").fetchone() == ("cancelled",)


@pytest.mark.long
def test_replace_starts_the_new_slot_when_the_lease_of_the_old_run_is_revoked(dsn: str, db: psycopg.Connection) -> None:
    job_with_a_run(db, "running", overlap="replace")
    with leader(dsn, reap_every_s=0.1):
        put_back(db, 1)
        wait_until(lambda: states(db) == ["running", "waiting"], what="the new slot to wait")
        let_expire(db)
        wait_until(lambda: states(db) == ["cancelled", "queued"], what="the new slot to start")


@pytest.mark.parametrize("heard", [True, False])
def test_terminate_fences_the_old_run_and_kills_its_handler(
    heard: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = job_with_a_run(db, "queued", overlap="terminate")
    if not heard:

        async def deaf(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(working, "listen", deaf)

    async def scene() -> None:
        handler = Handler()
        # without NOTIFY a heartbeat each second informs the worker; with it no heartbeat comes in time
        worker, work = start(dsn, handler, lease_s=600.0 if heard else 3.0)
        await becomes(lambda: handler.begun and (not heard or listens(db)), "the old run to begin")
        put_back(db, 1)
        await becomes(lambda: states(db)[0] == "cancelled", "the claim to be taken away")
        await asyncio.to_thread(wait_until, lambda: handler.cancelled, 1.5, "the handler to be stopped")
        await becomes(lambda: len(handler.begun) == 2, "the new slot to begin")
        worker.stop()
        await work
        assert worker.verdicts.get("cancelled") is None, "the former owner settles nothing"
        assert "lost" not in worker.verdicts

    with leader(dsn):
        play(scene)
    row = row_of(db, old)
    assert (row["state"], row["token"], row["reason"]) == ("cancelled", None, REPLACED)
    evidence = db.execute("SELECT outcome, worker, error FROM pgsched.attempts WHERE run_id = %s", [old]).fetchall()
    assert evidence == [("cancelled", "w", "overlap: terminated by the next slot")]

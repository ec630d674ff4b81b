"""The worker in this process: stopping while an answer is on its way, losing claims, and rows that somebody locked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from pgsched.config import WorkerSettings
from pgsched.core.model import Claim, Outcome, Result
from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.queries.runs import claims, workers
from pgsched.errors import PgschedError
from pgsched.worker import heartbeat as heartbeat_module
from pgsched.worker.attempts import capacity, prefetch
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import cursor as cursors
from pgsched.worker.claiming import discovery, queue_claims, recovery
from pgsched.worker.claiming import polling as resting
from pgsched.worker.claiming.cursor import Cursor
from pgsched.worker.leases import Leases
from pgsched.worker.settling import settlement_queue
from pgsched.worker.settling import settler as settling
from pgsched.worker.worker import Worker
from tests.support.db.setting import Open, add_runs, cut, let_expire, row_of, take
from tests.support.workers import Handler, becomes, make, play, registration

Claiming = Callable[..., Awaitable[list[Claim]]]


def withhold_answers(monkeypatch: pytest.MonkeyPatch, arrived: threading.Event) -> None:
    """Claims are made in the database, and their answers never come."""
    real: Claiming = queue_claims.claim

    async def held_up(conn: AsyncConnection[Any], *args: Any) -> list[Claim]:
        found = await real(conn, *args)
        if found:
            arrived.set()
            await asyncio.Event().wait()
        return found

    monkeypatch.setattr(queue_claims, "claim", held_up)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_whose_answer_is_on_its_way_at_the_stop_is_handed_back(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 2)
    arrived = threading.Event()
    withhold_answers(monkeypatch, arrived)
    if not guarded:

        async def disconnect_only(self: claiming.Claimer) -> None:
            await self._disconnect()

        monkeypatch.setattr(claiming.Claimer, "close", disconnect_only)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(arrived.is_set, "the claim to be made")
        worker.stop()
        await work
        assert handler.begun == []

    play(scene)
    rows = db.execute("SELECT DISTINCT state, attempt FROM pgsched.runs").fetchall()
    assert rows == ([("queued", 0)] if guarded else [("running", 1)])


def test_claims_that_arrive_after_the_stop_are_not_started(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Claiming = queue_claims.claim
    stopped, made = asyncio.Event(), threading.Event()

    async def slow(conn: AsyncConnection[Any], *args: Any) -> list[Claim]:
        found = await real(conn, *args)
        if found:
            made.set()
            await stopped.wait()
        return found

    monkeypatch.setattr(queue_claims, "claim", slow)
    add_runs(db, 2)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(made.is_set, "the claim to be made")
        worker.stop()
        stopped.set()
        await work
        assert handler.begun == []

    play(scene)
    assert db.execute("SELECT DISTINCT state, attempt FROM pgsched.runs").fetchall() == [("queued", 0)]


def test_a_lost_notification_costs_a_poll_and_no_more(dsn: str, db: psycopg.Connection) -> None:
    db.execute("UPDATE pg_trigger SET tgenabled = 'D' WHERE tgname = 'a_check_insert'")

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: db.execute("SELECT FROM pgsched.workers").rowcount, "the worker")
        await asyncio.to_thread(add_runs, db, 5)
        await becomes(lambda: worker.verdicts.get("succeeded") == 5, "all runs")
        worker.stop()
        await work

    play(scene)


def test_a_claim_that_was_reaped_stops_its_handler_and_settles_nothing(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.begun, "the start")
        await asyncio.to_thread(db.execute, "UPDATE pgsched.runs SET token = gen_random_uuid(), worker_id = 99")
        before = await asyncio.to_thread(row_of, db, 1)
        await becomes(lambda: handler.cancelled, "the handler to be stopped")
        worker.stop()
        await work
        assert worker.verdicts == {}
        assert {**row_of(db, 1), "lease_until": None} == {**before, "lease_until": None}

    play(scene)


def test_a_lease_that_cannot_be_renewed_stops_the_handler_before_it_ends(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("no answer")

    monkeypatch.setattr(heartbeat_module, "heartbeat", no_answer)
    found: list[Any] = []
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        still_ours = "SELECT lease_until > clock_timestamp() FROM pgsched.runs WHERE state = 'running'"
        handler.on_cancel = lambda: found.append(db.execute(still_ours).fetchone())
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.cancelled, "the handler to be stopped")
        worker.stop()
        await work

    play(scene)
    assert found[0] == (True,), "nobody else could own the run yet"
    outcome = db.execute("SELECT DISTINCT outcome, error FROM pgsched.attempts WHERE attempt = 1").fetchall()
    assert ("interrupted", "handed back: the lease could not be renewed in time") in outcome


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Result.FAILED, error="a NUL: \0"),
        Outcome(Result.SUCCEEDED, value={"text": "\0"}),
        Outcome(Result.SUCCEEDED, value=object()),
    ],
    ids=["nul", "nul in JSON", "no JSON"],
)
def test_an_outcome_that_cannot_be_stored_is_a_failure_and_holds_up_nobody(
    outcome: Outcome, dsn: str, db: psycopg.Connection
) -> None:
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler(outcome)
        handler.go.set()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.verdicts, "the settlement")
        worker.stop()
        await work
        assert worker.verdicts == {"dead": 1}

    play(scene)
    assert row_of(db, 1)["state"] == "dead"
    assert "outcome could not be stored" in row_of(db, 1)["error"]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_whose_answer_came_after_its_lease_is_not_started(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Claiming = queue_claims.claim
    late: list[UUID] = []

    async def slow(conn: AsyncConnection[Any], *args: Any) -> list[Claim]:
        found = await real(conn, *args)
        if found and not late:
            over = "SELECT bool_and(lease_until < clock_timestamp()) FROM pgsched.runs"
            await becomes(lambda: db.execute(over).fetchone() == (True,), "the end of the lease")
            late.append(found[0].token)
        return found

    monkeypatch.setattr(queue_claims, "claim", slow)
    if not guarded:
        monkeypatch.setattr(Leases, "past", lambda *_: False)
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        settings = WorkerSettings(concurrency=2, lease_s=1, poll_s=0.1, grace_s=0, leader=False)
        worker = Worker(dsn, settings, {"task": handler}, registration(1))
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.begun, "a start")
        given_back = handler.begun[0].token not in late
        assert given_back is guarded, "the first claim was handed back before anything was started"
        worker.stop()
        await work

    play(scene)


def test_a_locked_row_holds_up_no_other_settlement(dsn: str, db: psycopg.Connection, connect: Open) -> None:
    add_runs(db, 40)
    person = connect(autocommit=False)

    async def scene() -> None:
        handler = Handler()
        settings = WorkerSettings(concurrency=40, lease_s=30, poll_s=0.1, grace_s=5, leader=False)
        worker = Worker(dsn, settings, {"task": handler}, registration(30))
        work = asyncio.create_task(worker.run())
        await becomes(lambda: len(handler.begun) == 40, "all starts")
        await asyncio.to_thread(person.execute, "SELECT pgsched.cancel(7)")  # and leaves its transaction open
        handler.go.set()
        await becomes(lambda: worker.verdicts.get("succeeded") == 39, "the other settlements")
        assert (await asyncio.to_thread(row_of, db, 7))["state"] == "running"
        person.rollback()
        await becomes(lambda: worker.verdicts.get("succeeded") == 40, "the last settlement")
        worker.stop()
        await work

    play(scene)


def test_rows_that_stay_locked_hold_up_no_later_settlement(
    dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is tried again before the other has given up: so one is always there to be tried."""
    monkeypatch.setattr("pgsched.worker.settling_later.LONGEST_S", 0.01)
    add_runs(db, 40)
    person = connect(autocommit=False)

    async def scene() -> None:
        handler = Handler()
        settings = WorkerSettings(concurrency=40, lease_s=30, poll_s=0.1, grace_s=5, leader=False)
        worker = Worker(dsn, settings, {"task": handler}, registration(30))
        work = asyncio.create_task(worker.run())
        await becomes(lambda: len(handler.begun) == 40, "all starts")
        await asyncio.to_thread(person.execute, "SELECT pgsched.cancel(id) FROM pgsched.runs WHERE id IN (7, 8)")
        handler.go.set()
        await becomes(lambda: worker.verdicts.get("succeeded") == 38, "the other settlements")
        await asyncio.to_thread(add_runs, db, 200)
        await becomes(lambda: worker.verdicts.get("succeeded") == 238, "the settlements that came later")
        person.rollback()
        await becomes(lambda: worker.verdicts.get("succeeded") == 240, "the last ones")
        worker.stop()
        await work

    play(scene)


@pytest.mark.parametrize("guarded", [True, False])
def test_handlers_run_ahead_of_the_settlements_only_so_far(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash would have all of them run again."""
    monkeypatch.setattr(settlement_queue, "BEHIND", 100 if guarded else 1_000_000)
    monkeypatch.setattr(prefetch, "MOST_AHEAD", 200)  # what is ahead is attempted, too: on a fast machine all of them
    add_runs(db, 2000)
    asked, answers, really = asyncio.Event(), asyncio.Event(), settling.settle

    async def slow(*given: Any) -> list[str]:
        asked.set()
        await answers.wait()
        return await really(*given)

    monkeypatch.setattr(settling, "settle", slow)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        # so that it goes on as soon as there is room, and not at the next poll: also when those that waited are taken
        worker = make(dsn, handler, poll_s=30.0, settle_wait_s=0.2)
        work = asyncio.create_task(worker.run())
        if guarded:
            await becomes(
                lambda: asked.is_set() and worker.outcomes.settler.queue.is_behind(0) and worker.runner.is_idle(),
                "nothing more to start",
            )
            assert len(handler.begun) < 1500, "and not all that there is"
        else:
            await becomes(lambda: len(handler.begun) == 2000, "all, with nothing settled")
        answers.set()
        await becomes(lambda: worker.verdicts.get("succeeded") == 2000, "all settlements")
        worker.stop()
        await work

    play(scene)


# ---- heartbeats


@pytest.mark.parametrize("guarded", [True, False])
def test_a_row_that_somebody_locked_costs_no_other_claim_its_lease(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 3)
    locked, *others = take(db, 3)
    let_expire(db)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [locked.id])
    worker = connect(options="-c lock_timeout=100ms")
    held = [c.key for c in (locked, *others)]
    if not guarded:
        cut(monkeypatch, "heartbeat", " OF r SKIP LOCKED", " OF r")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            claims.heartbeat(worker, 1, 30.0, held)
        return
    beat = claims.heartbeat(worker, 1, 30.0, held)
    assert beat.kept == {c.key for c in others}
    assert beat.unsure == {locked.key}, "neither renewed nor lost"
    renewed = "SELECT id FROM pgsched.runs WHERE lease_until > clock_timestamp() ORDER BY id"
    assert [row[0] for row in db.execute(renewed).fetchall()] == [c.id for c in others]
    person.rollback()
    assert claims.heartbeat(worker, 1, 30.0, held).kept == set(held)


def test_a_late_heartbeat_does_not_bring_a_stopped_worker_back(db: psycopg.Connection) -> None:
    gone, given_up = workers.start(db, registration()), workers.start(db, registration())
    workers.stop(db, gone, "w", stopped=True)
    db.execute(
        "UPDATE pgsched.workers SET stopped_at = seen_at WHERE id = %s", [given_up]
    )  # the pruner took it for dead
    known = [claims.heartbeat(db, worker_id, 30.0, [], name="w").known for worker_id in (gone, given_up)]
    stopped = db.execute("SELECT id FROM pgsched.workers WHERE stopped_at IS NOT NULL ORDER BY id").fetchall()
    assert stopped == [(gone,), (given_up,)]
    assert known == [True, False], "who was given up, and lives, registers again"


def test_a_worker_whose_number_was_given_to_another_says_nothing_of_that_one(db: psycopg.Connection) -> None:
    """A failover lost its row; it is draining, so it does not register again."""
    other = workers.start(db, replace(registration(), name="other"))
    claims.heartbeat(db, other, 30.0, [], claims.Vitals(stopping=True), name="w")
    workers.stop(db, other, "w", stopped=True)
    rows = db.execute("SELECT stopping_at, stopped_at FROM pgsched.workers").fetchall()
    assert rows == [(None, None)]


def test_a_heartbeat_that_fails_for_an_unknown_reason_ends_the_worker(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(heartbeat_module, "heartbeat", broken)

    async def scene() -> None:
        with pytest.raises(PgschedError, match="heartbeat failed: ZeroDivisionError"):
            await make(dsn, Handler()).run()

    play(scene)


def test_the_heartbeat_signs_off(dsn: str, db: psycopg.Connection) -> None:
    worker_id = workers.start(db, registration())
    calls = heartbeat_module.HeartbeatCalls(lambda *_: None, lambda _: None, claims.Vitals)
    thread = heartbeat_module.Heartbeat(dsn, worker_id, registration(), Leases(3), calls)
    thread.start()
    thread.nudge.stop()
    thread.join(10)
    row = db.execute("SELECT stopping_at IS NOT NULL, stopped_at IS NOT NULL FROM pgsched.workers").fetchone()
    assert row == (True, True)


@pytest.mark.parametrize("other", [None, "another:1"])
def test_a_worker_whose_row_is_lost_registers_again(other: str | None, dsn: str, db: psycopg.Connection) -> None:
    """A failover to a standby that lagged loses the row, and may give its number to another worker."""
    handler = Handler()
    handler.go.set()

    async def scene() -> None:
        worker = make(dsn, handler)
        working = asyncio.create_task(worker.run())
        mine = "SELECT id FROM pgsched.workers WHERE name = %s"
        await becomes(lambda: db.execute(mine, ["w"]).fetchone(), "the worker to register")
        (before,) = db.execute(mine, ["w"]).fetchall()
        lose = "UPDATE pgsched.workers SET name = %s" if other else "DELETE FROM pgsched.workers"
        db.execute(lose, [other] if other else None)
        await becomes(lambda: db.execute(mine, ["w"]).fetchone(), "the worker to register again")
        (after,) = db.execute(mine, ["w"]).fetchall()
        assert after != before
        add_runs(db, 1)
        await becomes(lambda: db.execute("SELECT worker_id FROM pgsched.runs").fetchone() == after, "its own number")
        worker.stop()
        await working
        assert db.execute("SELECT name FROM pgsched.workers WHERE stopped_at IS NULL").fetchone() == (
            (other,) if other else None
        )

    play(scene)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_whose_answer_was_lost_is_asked_for_again(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the question the run would sit claimed, owned by nobody, until its lease ends."""
    real: Claiming = queue_claims.claim
    lost: list[Claim] = []

    async def lose_the_first(conn: AsyncConnection[Any], *args: Any) -> list[Claim]:
        found = await real(conn, *args)
        if found and not lost:
            lost.extend(found)
            raise psycopg.OperationalError("the connection is lost")
        return found

    async def nothing(*_: object) -> list[Claim]:
        return []

    monkeypatch.setattr(queue_claims, "claim", lose_the_first)
    if not guarded:
        monkeypatch.setattr(recovery, "claim_again", nothing)
    add_runs(db, 1)
    handler = Handler()
    handler.go.set()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        if guarded:
            await becomes(lambda: handler.begun, "the lost claim to begin")
        else:
            await becomes(lambda: lost, "the claim to be lost")
            add_runs(db, 1)  # the claimer goes on, with other work
            await becomes(lambda: handler.begun, "another claim to begin")
        worker.stop()
        await work

    play(scene)
    (claim,) = lost
    assert ([begun.id for begun in handler.begun] == [claim.id]) is guarded
    assert (row_of(db, claim.id)["state"] == "succeeded") is guarded


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_commits_behind_the_claim_cursor_is_found(
    guarded: bool, dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is smaller than the last claimed one: only a scan from the start sees it."""
    if not guarded:
        monkeypatch.setattr(Cursor, "full_in", lambda *_: 60.0)
        monkeypatch.setattr(cursors, "EVERY_S", 60.0)
        monkeypatch.setattr(cursors, "QUICK_S", -1.0)
    late = connect(autocommit=False)
    late.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    add_runs(db, 3)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.verdicts.get("succeeded") == 3, "the runs before")
        late.commit()
        await asyncio.to_thread(add_runs, db, 1)  # claims go on, behind the cursor
        await becomes(lambda: worker.verdicts.get("succeeded", 0) >= (5 if guarded else 4), "the claims to go on")
        worker.stop()
        await work

    play(scene)
    assert row_of(db, 1)["state"] == ("succeeded" if guarded else "queued")


@pytest.mark.parametrize("guarded", [True, False])
def test_what_was_claimed_ahead_is_not_parked_behind_a_slow_run_while_another_worker_is_free(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(capacity, "PARKED_S", 60.0)
    add_runs(db, 50)

    async def scene() -> None:
        slow, free = Handler(), Handler()
        slow.go.set()
        free.go.set()
        settings = WorkerSettings(concurrency=1, lease_s=30, poll_s=0.1, grace_s=0, leader=False)
        first, second = (Worker(dsn, settings, {"task": handler}, registration(30)) for handler in (slow, free))
        work = [asyncio.create_task(first.run())]
        await becomes(lambda: first.verdicts.get("succeeded") == 50, "quick work, so that it claims ahead")
        slow.go.clear()
        await asyncio.to_thread(add_runs, db, 20)
        await becomes(lambda: len(slow.begun) == 51, "the slow run")
        work.append(asyncio.create_task(second.run()))
        if guarded:
            await becomes(lambda: second.verdicts.get("succeeded") == 19, "the others to be run elsewhere")
        else:
            await becomes(lambda: db.execute("SELECT FROM pgsched.workers").rowcount == 2, "the second worker")
            await asyncio.sleep(1)
            busy = "SELECT FROM pgsched.runs WHERE state = 'running' AND worker_id = %s"
            held = db.execute(busy, [first.heartbeat.worker_id]).rowcount
            assert held > 1, "the busy one keeps what it has claimed ahead"
            assert second.verdicts.get("succeeded", 0) <= 20 - held, "and the free one cannot have it"
        slow.go.set()
        first.stop()
        second.stop()
        await asyncio.gather(*work)

    play(scene)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_whose_maker_did_not_know_that_the_worker_sleeps_is_found_long_before_the_poll(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(resting, "FIRST_LOOK_S", 300.0)
    listens, really = asyncio.Event(), claiming.Claimer.hint

    def hint(claimer: claiming.Claimer, queue: str | None) -> None:
        really(claimer, queue)
        listens.set()

    said, ask = set[str](), discovery.claimable_queues

    async def noted(conn: Any, wanted: Any, asleep_s: float | None, **options: Any) -> Any:
        found = await ask(conn, wanted, asleep_s, **options)
        if listens.is_set():
            said.update({"asleep"} if asleep_s is not None else (), {"looked"} if options["look"] else ())
        return found

    monkeypatch.setattr(claiming.Claimer, "hint", hint)
    monkeypatch.setattr(discovery, "claimable_queues", noted)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        settings = WorkerSettings(concurrency=2, lease_s=30, poll_s=300, grace_s=0, leader=False)
        worker = Worker(dsn, settings, {"task": handler}, registration(30))
        work = asyncio.create_task(worker.run())
        await listens.wait()  # which makes it look, and say that it sleeps, once more
        await becomes(lambda: said == {"asleep", "looked"}, "the worker to sleep")
        db.execute("ALTER TABLE pgsched.runs DISABLE TRIGGER a_check_insert")
        await asyncio.to_thread(add_runs, db, 1)
        if guarded:
            await becomes(lambda: worker.verdicts.get("succeeded") == 1, "the run to be found", within_s=30.0)
        else:
            await asyncio.sleep(3)
            assert handler.begun == []
        worker.stop()
        await work

    play(scene)

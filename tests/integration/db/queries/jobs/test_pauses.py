"""Pauses of a queue, a task or everything, and full queues.

From the commit of a pause on, nothing that is paused is claimed. A full queue refuses a run, sheds its oldest one, or
lets the enqueue wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext

import psycopg
import pytest

from pgsched import App, InputError, QueueFull
from pgsched.db.queries.jobs import queues
from pgsched.db.queries.leader import limits
from pgsched.db.queries.runs import queue_room
from pgsched.db.statements import sql
from pgsched.leader.ticker import tick
from pgsched.worker.claiming.known_queues import mark
from tests.support.db.setting import CLAIMS, Aside, Open, add_jobs, take, text_without
from tests.support.fleet import one
from tests.support.waiting import wait_until
from tests.support.workers import becomes

MAKE_ROOM = "UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE state = 'queued'"
QUEUE_GUARD = "(p.what, p.name) IN (('all', ''), ('queue', %(queue)s), ('limit', %(queue)s))"


def add(db: psycopg.Connection, n: int = 1, task: str = "t", queue: str = "default") -> None:
    db.execute("INSERT INTO pgsched.runs (task, queue) SELECT %s, %s FROM generate_series(1, %s)", [task, queue, n])


def limit_depth(db: psycopg.Connection, n: int, on_full: str = "reject") -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth, on_full) VALUES ('default', %s, %s)", [n, on_full])


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize(("what", "name"), [("all", ""), ("queue", "default")])
def test_nothing_of_a_paused_queue_is_claimed(
    guarded: bool, what: str, name: str, claim: str, db: psycopg.Connection
) -> None:
    text = sql(claim) if guarded else text_without(claim, QUEUE_GUARD, "false")
    add(db, 2)
    queues.pause(db, what, name, None, None, None)
    assert len(take(db, 5, text=text)) == (0 if guarded else 2)


def test_a_pause_of_one_queue_does_not_hold_another(db: psycopg.Connection) -> None:
    add(db)
    queues.pause(db, "queue", "other", None, None, None)
    assert len(take(db, 5)) == 1


@pytest.mark.parametrize("name", CLAIMS)
def test_a_paused_task_does_not_hold_other_tasks(name: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task, kind) VALUES ('SELECT 1', 'sql'), ('true', 'shell')")
    queues.pause(db, "task", "true", None, None, None)
    assert [claim.task for claim in take(db, 5, text=sql(name))] == ["SELECT 1"]
    queues.resume(db, "task", "true")
    assert [claim.task for claim in take(db, 5, text=sql(name))] == ["true"]


@pytest.mark.parametrize("name", CLAIMS)
def test_a_pause_ends_by_itself(name: str, db: psycopg.Connection) -> None:
    add(db)
    db.execute("INSERT INTO pgsched.pauses (what, resume_at) VALUES ('all', clock_timestamp() + interval '0.3 s')")
    assert take(db, text=sql(name)) == []
    wait_until(lambda: take(db, text=sql(name)), what="the end of the pause")
    with db.transaction():
        limits.delete_obsolete(db)
    assert one(db, "SELECT count(*) FROM pgsched.pauses") == 0


def test_pausing_again_keeps_the_time_and_the_author(db: psycopg.Connection) -> None:
    before = queues.pause(db, "all", "", "first", "ann", None)
    after = queues.pause(db, "all", "", None, None, None)
    assert after == before
    assert queues.list_pauses(db)[0]["reason"] == "first"


def test_a_resume_notifies_listening_workers(db: psycopg.Connection, connect: Open) -> None:
    queues.pause(db, "queue", "mail", None, None, None)
    ear = connect()
    ear.execute("LISTEN pgsched_runs")
    queues.resume(db, "queue", "mail")
    assert [(n.channel, n.payload) for n in ear.notifies(timeout=5, stop_after=1)] == [("pgsched_runs", mark("mail"))]


# ---- full queues


def test_a_full_queue_refuses_with_its_own_sqlstate(db: psycopg.Connection) -> None:
    limit_depth(db, 3)
    add(db, 3)
    with pytest.raises(psycopg.Error) as refused:
        add(db)
    assert refused.value.sqlstate == "PS429"
    take(db, 1)
    add(db)


def test_running_and_scheduled_runs_do_not_fill_a_queue(db: psycopg.Connection) -> None:
    limit_depth(db, 2)
    add(db, 2)
    take(db, 2)
    db.execute("INSERT INTO pgsched.runs (task, available_at) SELECT 't', now() + interval '1 h'"
               " FROM generate_series(1, 5)")  # fmt: skip
    add(db, 2)


def test_runs_that_wait_for_limits_fill_a_queue(db: psycopg.Connection) -> None:
    limit_depth(db, 2)
    db.execute("UPDATE pgsched.queues SET concurrency_limit = 1")
    add(db, 2)
    with pytest.raises(psycopg.Error, match="is full"):
        add(db)


def test_a_full_queue_may_shed_its_oldest(db: psycopg.Connection) -> None:
    limit_depth(db, 3, "shed_oldest")
    add(db, 5)
    rows = db.execute("SELECT state, reason FROM pgsched.runs ORDER BY id").fetchall()
    assert [row[0] for row in rows] == ["cancelled"] * 2 + ["queued"] * 3
    assert rows[0][1] == "shed: queue default was full (max_depth 3) and newer runs came"


def noted_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that grows before each try of an enqueue that waits for room."""
    noted, really = list[float](), queue_room.pauses

    def pauses(seconds: float) -> Iterator[float]:
        for pause in really(seconds):
            noted.append(pause)
            yield pause

    monkeypatch.setattr(queue_room, "pauses", pauses)
    return noted


def test_an_enqueue_waits_for_room(db: psycopg.Connection, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("rooms", dsn=dsn)
    task = app.task(name="t")(lambda: None)
    limit_depth(db, 1)
    task.enqueue()
    with pytest.raises(QueueFull):
        task.options(wait_for_room=0.2).enqueue()
    pauses = noted_pauses(monkeypatch)
    waiting = Aside(lambda: task.options(wait_for_room=20).enqueue())
    wait_until(lambda: len(pauses) > 1, what="the enqueue to be refused and tried again")
    db.execute(MAKE_ROOM)
    assert waiting.result() > 0
    app.close()


def test_an_async_enqueue_waits_for_room(db: psycopg.Connection, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("rooms", dsn=dsn)
    task = app.task(name="t")(lambda: None)
    limit_depth(db, 1)
    add(db)
    pauses = noted_pauses(monkeypatch)

    async def wait() -> int:
        waiting = asyncio.create_task(task.options(wait_for_room=20).enqueue_async())
        await becomes(lambda: len(pauses) > 1, "the enqueue to be refused and tried again")
        db.execute(MAKE_ROOM)
        made = await waiting
        await app.close_async()
        return int(made)

    assert asyncio.run(wait()) > 0


def test_no_enqueue_waits_inside_the_callers_transaction(db: psycopg.Connection, dsn: str) -> None:
    task = App("rooms", dsn=dsn).task(name="t")(lambda: None)
    with pytest.raises(InputError, match="wait_for_room"):
        task.options(connection=db, wait_for_room=1).enqueue()


@pytest.mark.parametrize("on_full", ["reject", "shed_oldest"])
def test_a_slot_finds_room_in_a_full_queue(on_full: str, db: psycopg.Connection) -> None:
    """The leader would try a refused slot again and again, and with it the slots of all other jobs."""
    limit_depth(db, 2, on_full)
    add(db, 2)
    add_jobs(db, 2, 3)
    db.execute("UPDATE pgsched.jobs SET queue = 'elsewhere' WHERE name = 'j2'")
    with db.transaction():
        assert tick(db, 100).errors == 0
    counts = "SELECT queue, count(*) FROM pgsched.runs WHERE state = 'queued' GROUP BY queue ORDER BY queue"
    assert db.execute(counts).fetchall() == [("default", 5 if on_full == "reject" else 2), ("elsewhere", 3)]
    with pytest.raises(psycopg.Error, match="is full") if on_full == "reject" else nullcontext():
        add(db)


def test_a_run_of_a_backfill_finds_room_in_a_full_queue(db: psycopg.Connection) -> None:
    limit_depth(db, 1)
    add(db)
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('j', '@daily', 't')")
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, origin, task) SELECT id, '2020-01-01', 'backfill', 't'"
        " FROM pgsched.jobs"
    )
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE state = 'queued'").fetchone() == (2,)


def test_a_slot_of_a_full_queue_with_a_limit_waits_for_its_turn(db: psycopg.Connection) -> None:
    limit_depth(db, 1)
    db.execute("UPDATE pgsched.queues SET concurrency_limit = 1")
    add(db)
    add_jobs(db, 1, 1)
    with db.transaction():
        assert tick(db, 100).slots == 1
    assert db.execute("SELECT state, ready_at IS NULL FROM pgsched.runs WHERE job_id IS NOT NULL").fetchone() == (
        "waiting",
        False,
    )

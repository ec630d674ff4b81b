"""False, flooding or failing notifications, and locks that any login may take, do no harm to the work of others.

Each statement is sent by the least privileged login that can send it: for notifications and advisory locks this login
has no role of pgsched at all.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.config import LeaderSettings
from pgsched.db.connection.failures import Reaction, classify
from pgsched.db.schema.migrate import upgrade
from pgsched.leader.election import Leader
from pgsched.worker import nudge
from tests.support.db.setting import add_runs
from tests.support.hostile.victim import Victim
from tests.support.logins import Logins, not_refused, one
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until
from tests.support.workers import Handler, becomes, make, noted_looks, play
from tests.support.working import work

FLOOD = """DO $$ BEGIN FOR i IN 1..50000 LOOP
    PERFORM pg_notify('{}', 'x' || i || repeat('y', 60)); END LOOP; END $$"""
LOCKS = ("leader", "leader.fence", "declare", "dependencies", "gated_queues", "after_jobs")
FULLNESS = "pg_catalog.pg_notification_queue_usage() < 0.5::float8"
MODES = ("ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE",
         "ACCESS EXCLUSIVE")  # fmt: skip


@contextmanager
def beside(act: Callable[[], object]) -> Iterator[None]:
    """Repeat an action in a thread until the end of the block."""
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            act()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("asked", [False, True])
def test_a_false_notification_cancels_nothing_and_a_request_acts_at_once(
    asked: bool, dsn: str, db: psycopg.Connection[Any], logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 2)
    nobody, looks = logins.connect("nobody"), noted_looks(monkeypatch)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler, lease_s=600.0)
        task = asyncio.create_task(worker.run())
        await becomes(lambda: len(handler.begun) == 2, "both to begin")
        listens = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN pgsched_cancel' AND datname = %s"
        await becomes(lambda: one(db, listens, db.info.dbname) == 1, "it to listen")
        if asked:
            db.execute("SELECT pgsched.cancel(id) FROM pgsched.runs ORDER BY id LIMIT 1")
            await becomes(lambda: handler.cancelled, "the one that somebody wants cancelled", 0.7)
        for run in (1, 2, 0):  # a look for one notification has ended when the look for the next one is made
            before = len(looks)
            nobody.execute("SELECT pg_notify('pgsched_cancel', %s)", [str(run)])
            await becomes(lambda before=before: len(looks) > before, "a look for the notification")  # type: ignore[misc]
        assert len(handler.cancelled) == asked
        handler.go.set()
        await becomes(lambda: worker.verdicts.get("succeeded") == 2 - asked, "the others to end well")
        worker.stop()
        await task

    play(scene)


def test_a_flood_of_cancel_notifications_causes_few_queries(
    dsn: str, db: psycopg.Connection[Any], logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 1)
    nobody, looks = logins.connect("nobody"), noted_looks(monkeypatch)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler, lease_s=600.0)
        task = asyncio.create_task(worker.run())
        await becomes(lambda: handler.begun, "it to begin")
        began = time.monotonic()
        await asyncio.to_thread(lambda: [nobody.execute("NOTIFY pgsched_cancel, '1'") for _ in range(1000)])
        took_s = time.monotonic() - began
        assert len(looks) <= 3 + took_s / nudge.LEAST_PAUSE_S
        await becomes(lambda: looks, "a look")
        handler.go.set()
        worker.stop()
        await task

    play(scene)


# ---- floods of notifications


@pytest.mark.long
def test_a_flood_of_notifications_delays_nobody(victim: Victim) -> None:
    nobody = victim.logins.connect("nobody")
    for channel in ("pgsched_runs", "pgsched_cancel", "pgsched_leader", "pgsched_election"):
        print(channel)
        nobody.execute(FLOOD.format(channel).encode())
        victim.unharmed()


@pytest.mark.long
def test_endless_notifications_delay_nobody(victim: Victim) -> None:
    """The notifications name a queue that the workers serve. Workers react to unknown names even less often."""
    nobody = victim.logins.connect("nobody")
    mark = one(victim.db, "SELECT pgsched.queue_mark('default')")
    for channel in ("pgsched_runs", "pgsched_leader"):
        print(channel)
        with beside(lambda to=channel: nobody.execute("SELECT pg_notify(%s, %s)", [to, mark])):  # type: ignore[misc]
            victim.unharmed()


def test_notifications_reveal_no_names(db: psycopg.Connection[Any], logins: Logins) -> None:
    nobody, alice = logins.connect("nobody"), logins.connect("alice")
    for channel in ("pgsched_runs", "pgsched_leader", "pgsched_cancel", "pgsched_alerts"):
        nobody.execute(f"LISTEN {channel}".encode())
    db.execute("SELECT pgsched.workers_asleep(60), pgsched.leader_sleeps(60)")
    alice.execute("INSERT INTO jobs (name, task, queue, schedule) VALUES ('merger', 'merge', 'acme', '@daily')")
    alice.execute(
        "SELECT enqueue('merge', queue => 'acme'), pgsched.trigger('merger'), enqueue('merge', delay => '1 s')"
    )
    db.execute("INSERT INTO pgsched.alerts (job_id, kind, job, details) SELECT id, 'failures', name, 'acme'"
               " FROM pgsched.jobs")  # fmt: skip
    db.execute("NOTIFY pgsched_runs, 'end'")
    heard = list[str]()
    for notice in nobody.notifies(timeout=10):
        if notice.payload == "end":
            break
        heard.append(notice.payload)
    assert len(heard) >= 4
    assert not [text for text in heard if "acme" in text or "merge" in text]


# ---- a full notification queue


@pytest.fixture
def full(private_cluster: PrivateCluster) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    """A function that fills the small notification queue of a server, and returns the session that keeps it full."""
    with psycopg.connect(private_cluster.dsn) as db:
        if db.info.server_version < 170000:
            pytest.skip("before PostgreSQL 17 the queue of notifications holds 8 GB")
    private_cluster.stop("fast")
    with (private_cluster.cluster.data / "postgresql.conf").open("a") as conf:
        conf.write("max_notify_queue_pages = 64\n")
    private_cluster.start()
    upgrade(private_cluster.dsn)
    opened = list[psycopg.Connection[Any]]()

    def fill() -> psycopg.Connection[Any]:
        deaf, filler = (psycopg.connect(private_cluster.dsn, autocommit=True) for _ in range(2))
        opened.extend((deaf, filler))
        deaf.execute("LISTEN anything")
        deaf.execute("BEGIN")
        deaf.execute("SELECT 1")
        for _ in range(200):
            try:
                filler.execute("SELECT pg_notify('anything', %s || repeat('x', 7900))", [str(time.monotonic())])
            except psycopg.errors.ProgramLimitExceeded as error:
                assert classify(error) is Reaction.BACK_OFF, "it passes"
                return deaf
        raise AssertionError("the queue does not fill up")

    yield fill
    for conn in opened:
        conn.close()


@pytest.mark.long
def test_a_full_notification_queue_loses_no_outcome_and_no_slot(
    full: Callable[[], psycopg.Connection[Any]], private_cluster: PrivateCluster
) -> None:
    dsn = private_cluster.dsn
    app = App("test", dsn=dsn)
    app.task(name="it")(lambda: None)
    deaf = full()
    leader = Leader(dsn, LeaderSettings(), "test")
    thread = threading.Thread(target=leader.run)
    thread.start()
    try:
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 'it', '@every 1s')")
            for key in ("a", "b"):
                db.execute("SELECT pgsched.enqueue('it', concurrency_key => %s, delay => '10 ms')", [key])
            slots = "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL AND state = 'succeeded'"
            keyed = "SELECT count(*) FROM pgsched.runs WHERE job_id IS NULL AND state = 'succeeded'"
            work(dsn, app, lambda: one(db, slots) >= 2 and one(db, keyed) == 2)
            assert one(db, "SELECT count(*) FROM pgsched.attempts") == 0, "none was lost and made again"
            deaf.execute("ROLLBACK")
            assert one(db, "SELECT pg_notification_queue_usage()") < 0.1
    finally:
        leader.stop()
        thread.join(20)


def test_without_the_fullness_check_a_full_queue_refuses_enqueues(
    full: Callable[[], psycopg.Connection[Any]], private_cluster: PrivateCluster
) -> None:
    full()
    with psycopg.connect(private_cluster.dsn, autocommit=True) as db:
        db.execute("SELECT pgsched.workers_asleep(60)")
        db.execute("SELECT pgsched.enqueue('it')")
        body = str(one(db, "SELECT pg_get_functiondef('pgsched.notify'::regproc)"))
        assert body.count(FULLNESS) == 1
        db.execute(body.replace(FULLNESS, "true").encode())
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            db.execute("SELECT pgsched.enqueue('it')")


# ---- locks


def take_all(conn: psycopg.Connection[Any], db: psycopg.Connection[Any]) -> None:
    for name in LOCKS:
        conn.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [f"pgsched.{name}"])
    mark = one(db, "SELECT pgsched.queue_mark('default')")
    for told in (f"pgsched_runs {mark}", "pgsched_leader runs"):
        conn.execute("SELECT pg_advisory_lock(hashtextextended(%s, 7236838))", [told])


@pytest.mark.long
def test_advisory_locks_stop_nobody(victim: Victim) -> None:
    leads = one(victim.db, "SELECT backend FROM pgsched.leader ORDER BY term DESC LIMIT 1")
    nobody = victim.logins.connect("nobody")
    for name in LOCKS[1:]:
        nobody.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [f"pgsched.{name}"])
    victim.unharmed()
    # The next leader finds the lock taken.
    waits = threading.Thread(
        target=nobody.execute, args=["SELECT pg_advisory_lock(hashtextextended('pgsched.leader', 0))"]
    )
    waits.start()
    wait_until(
        lambda: one(victim.db, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s", nobody.info.backend_pid),
        10, "it to wait for the lock",
    )  # fmt: skip
    victim.db.execute("SELECT pg_terminate_backend(%s, 10000)", [leads])
    waits.join(10)
    wait_until(lambda: one(victim.db, "SELECT max(term) FROM pgsched.leader") > victim.term, 15, "the next term")
    victim.await_new_work()
    assert one(victim.db, "SELECT by_lock FROM pgsched.leader ORDER BY term DESC LIMIT 1") is False
    # Other actions that once took such a lock still work.
    victim.logins.connect("ops").execute("INSERT INTO queues (name, concurrency_limit) VALUES ('mail', 1)")
    child = one(victim.bob, "SELECT enqueue('victim.ok')")
    victim.bob.execute("SELECT enqueue('victim.ok', after => ARRAY[%s::bigint])", [child])
    assert one(victim.db, "SELECT pgsched.try_declare_turn()")


@pytest.fixture
def lead(dsn: str) -> Iterator[Callable[[], Leader]]:
    started = list[tuple[Leader, threading.Thread]]()

    def start() -> Leader:
        leader = Leader(dsn, LeaderSettings(election_every_s=0.1), f"candidate {len(started)}")
        thread = threading.Thread(target=leader.run)
        thread.start()
        started.append((leader, thread))
        return leader

    yield start
    for leader, _ in started:
        leader.stop()
    for _, thread in started:
        thread.join(10)


@pytest.mark.long
def test_a_candidate_with_the_lock_leaves_a_leader_without_it_alone(
    lead: Callable[[], Leader], db: psycopg.Connection[Any], logins: Logins
) -> None:
    nobody = logins.connect("nobody")
    take_all(nobody, db)
    first = lead()
    wait_until(lambda: first.term == 1, 10, "it to lead although the lock is held")
    nobody.close()
    second = lead()
    time.sleep(4)  # longer than a term may be silent: the second candidate must not lead
    assert (first.term, second.term) == (1, None)
    first.stop()
    wait_until(lambda: second.term == 2, 10, "the other to follow at once")
    assert one(db, "SELECT by_lock FROM pgsched.leader WHERE term = 2")


def test_no_producer_or_viewer_may_lock_a_table_or_a_run(logins: Logins, db: psycopg.Connection[Any]) -> None:
    tables = [row[0] for row in db.execute("SELECT relname FROM pg_class WHERE relkind IN ('r', 'p')"
                                           " AND relnamespace = 'pgsched'::regnamespace")]  # fmt: skip
    assert {"jobs", "job_calendars", "runs", "leader", "turns"} <= set(tables)
    for who in ("alice", "eye", "nobody"):
        conn = logins.connect(who)
        if who == "alice":
            conn.execute("INSERT INTO runs (task) VALUES ('t')")
        locks = [f"LOCK TABLE pgsched.{table} IN {mode} MODE NOWAIT" for table in tables for mode in MODES]
        assert not_refused(conn, *locks) == {}, who
        for table in ("runs", "leader", "turns"):
            modes = ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE")
            assert not_refused(conn, *(f"SELECT FROM pgsched.{table} FOR {mode}" for mode in modes)) == {}, who


@pytest.mark.long
def test_an_owner_that_locks_its_running_runs_delays_no_other_outcome(victim: Victim) -> None:
    alice = victim.logins.connect("alice")
    holder = victim.logins.connect("alice")
    holder.execute("BEGIN")

    def harm() -> None:
        alice.execute("SELECT enqueue('victim.ok') FROM generate_series(1, 5)")
        holder.execute("SELECT cancel(id) FROM (SELECT id FROM runs WHERE state = 'running' LIMIT 20) r")
        time.sleep(0.05)

    with beside(harm):
        victim.unharmed()
    holder.execute("ROLLBACK")
    left = "SELECT count(*) FROM pgsched.runs WHERE phase < 3 AND job_id IS NULL"
    wait_until(lambda: one(victim.db, left) == 0, 20, "what was locked to be settled")


@pytest.mark.long
def test_an_open_declaration_keeps_no_worker_from_starting(victim: Victim) -> None:
    """Only a member of pgsched_worker may take this lock."""
    forgotten = victim.logins.connect("worker")
    with forgotten.transaction():
        assert one(forgotten, "SELECT take_declare_turn()")
        (more,) = victim.fleet.start(1)
        wait_until(lambda: one(victim.db, "SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NULL") == 3, 40,
                   "a third worker")  # fmt: skip
        assert more.alive
    victim.unharmed()

"""Rows, keys, dependencies or open transactions that one login piles up do not delay the work of others."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.leader.election import Leader
from tests.support.hostile.victim import LIMIT, TASK, Victim
from tests.support.logins import Logins, one
from tests.support.waiting import wait_until

QUEUES = "INSERT INTO runs (task, queue) SELECT 'nobody.has.it', 'tenant' || n FROM generate_series(1, 5000) n"
KEYS = "INSERT INTO runs (task, concurrency_key) SELECT %s, %s || n %% 2000 FROM generate_series(1, 6000) n"
PARENTS = """INSERT INTO runs (task, available_at) SELECT %s, clock_timestamp() + %s::interval
    FROM generate_series(1, {}) RETURNING id"""
REVERSED = """INSERT INTO dependencies (run_id, parent_id)
    SELECT r.id, later.id FROM runs r JOIN runs later ON later.id = r.id + 1
    WHERE r.state = 'scheduled' AND later.state = 'scheduled'"""
STOPPED = """INSERT INTO workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, seen_at, stopped_at)
    SELECT 'w' || n, 'h', 1, '1', 1, '{task}', '{t}', '30 s', t, t
    FROM generate_series(1, 30000) n CROSS JOIN LATERAL (SELECT clock_timestamp() - n * interval '0.1 s' AS t) s"""


def parents_of_alice(victim: Victim, count: int, delay: str) -> list[int]:
    rows = victim.logins.connect("alice").execute(PARENTS.format(count).encode(), [TASK, delay])
    return [row[0] for row in rows.fetchall()]


def child_of(victim: Victim, parents: list[int]) -> int:
    return int(one(victim.logins.connect("alice"), "SELECT enqueue(%s, after => %s::bigint[])", TASK, parents))


@pytest.mark.long
def test_unroutable_runs_in_thousands_of_queues_delay_nobody(victim: Victim) -> None:
    victim.logins.connect("alice").execute(QUEUES)
    victim.unharmed(healthy=False)  # status reports these runs as unroutable


@pytest.mark.long
def test_thousands_of_long_excluded_periods_delay_nobody(victim: Victim) -> None:
    alice = victim.logins.connect("alice")
    jobs = "INSERT INTO jobs (name, task, schedule) SELECT 'j' || n, %s, '@every 1s' FROM generate_series(1, 5) n"
    alice.execute(jobs, [TASK])
    alice.execute("INSERT INTO job_calendars SELECT id, date '1990-01-01' + n, date '8000-01-01' + n, repeat('x', 200)"
                  " FROM jobs, generate_series(1, 5000) n WHERE name LIKE 'j_'")  # fmt: skip
    victim.unharmed(late_s=1.5)


@pytest.mark.long
def test_thousands_of_limited_keys_delay_nobody(victim: Victim) -> None:
    victim.logins.connect("alice").execute(KEYS, [TASK, f"{LIMIT}:alice"])
    victim.unharmed(healthy=False)


@pytest.mark.long
def test_a_run_that_waits_for_thousands_of_runs_delays_nobody(victim: Victim) -> None:
    child = child_of(victim, parents_of_alice(victim, 5000, "0"))
    victim.unharmed(healthy=False)
    wait_until(lambda: victim.state(child) == "succeeded", 60, "the last of them to be done")


@pytest.mark.long
@pytest.mark.pg14
def test_a_locked_parent_of_a_run_with_many_parents_delays_nobody(victim: Victim) -> None:
    parents = parents_of_alice(victim, 1500, "1 day")
    alice = victim.logins.connect("alice")
    with alice.transaction(force_rollback=True):
        alice.execute("SELECT cancel(%s)", [parents[-1]])
        child = child_of(victim, parents)  # only now, or the leader could mark all of them before one is locked
        marked = "SELECT count(*) FROM pgsched.runs WHERE id = ANY (%s) AND has_children"
        wait_until(lambda: one(victim.db, marked, parents) == len(parents) - 1, 15, "the others to be marked")
        victim.unharmed(healthy=False)
    watched = "SELECT available_at = '9000-01-01Z' FROM pgsched.runs WHERE id = %s"
    wait_until(lambda: one(victim.db, watched, child), 15, "the large one to be watched")


@pytest.mark.long
def test_an_open_transaction_does_not_stop_a_queue_that_gets_a_limit(victim: Victim) -> None:
    forgotten = victim.logins.connect("alice")
    with forgotten.transaction(force_rollback=True):
        forgotten.execute("INSERT INTO runs (task, queue) VALUES ('t', 'another')")
        victim.logins.connect("ops").execute("INSERT INTO queues (name, concurrency_limit) VALUES ('default', 100)")
        victim.await_new_work()
        assert victim.lateness_s() < 9.0 * victim.slowness, "five seconds it may be waited for"


@pytest.mark.long
def test_rows_of_workers_that_ended_delay_nobody(victim: Victim) -> None:
    """Only a member of pgsched_worker may insert such rows."""
    victim.logins.connect("worker").execute(STOPPED)
    victim.unharmed(healthy=False)


@pytest.mark.long
@pytest.mark.pg14
def test_dependencies_on_later_runs_delay_nobody(victim: Victim) -> None:
    """One such dependency is committed and one is not. Bob's slots need dependencies too, which the leader makes."""
    bob, alice = victim.bob, victim.logins.connect("alice")
    bob.execute("INSERT INTO jobs (name, task, schedule) VALUES ('first', %s, '* * * * * *')", [TASK])
    bob.execute("INSERT INTO jobs (name, task, schedule, after_jobs)"
                " SELECT 'behind', task, schedule, ARRAY[id] FROM jobs WHERE name = 'first'")  # fmt: skip
    behind = "SELECT count(*) FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id" \
             " WHERE j.name = 'behind' AND r.state = 'succeeded'"  # fmt: skip
    wait_until(lambda: one(victim.db, behind) > 0, 15, "a slot behind another")
    bob.execute("SET statement_timeout = '1s'")
    runs = [one(alice, "SELECT enqueue('t', delay => '1 day')") for _ in range(4)]
    edge = "INSERT INTO dependencies (run_id, parent_id) VALUES (%s, %s)"
    alice.execute(edge, runs[:2])
    with alice.transaction(force_rollback=True):
        alice.execute(edge, runs[2:])
        for level in psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ:
            bob.isolation_level = level
            with bob.transaction():
                assert one(bob, "SHOW transaction_isolation").replace(" ", "_") == level.name.lower()
                # The parent is made here, so that no worker has it yet: otherwise 40001 would be a correct answer.
                parent = one(bob, "SELECT enqueue(%s)", TASK)
                child = one(bob, "SELECT enqueue(%s, after => ARRAY[%s::bigint])", TASK, parent)
            victim.await_success(child, f"a chain under {level.name}")
        bob.isolation_level = None
        before = one(victim.db, behind)
        wait_until(lambda: one(victim.db, behind) > before + 2, 15, "three slots behind others")
        victim.unharmed()


@pytest.mark.long
def test_circular_dependencies_end_and_long_reversed_chains_delay_nobody(victim: Victim) -> None:
    makers = [victim.logins.connect("alice") for _ in range(2)]
    first, second = (one(makers[0], "SELECT enqueue('t', delay => '1 day')") for _ in range(2))
    for maker, run, parent in ((makers[0], first, second), (makers[1], second, first)):
        maker.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        maker.execute("INSERT INTO dependencies (run_id, parent_id) VALUES (%s, %s)", [run, parent])
    for maker in makers:
        maker.execute("COMMIT")
    wait_until(lambda: [victim.state(run) for run in (first, second)] == ["cancelled"] * 2, 10, "the circle to end")
    reason = one(victim.db, "SELECT reason FROM pgsched.runs WHERE id = %s", first)
    assert reason == f"dependency: run {second} (t) and this one wait for each other"
    makers[0].execute(PARENTS.format(3000).encode(), ["t", "1 day"])
    makers[0].execute(REVERSED)
    for _ in range(3):
        victim.await_slot()
    victim.unharmed()


@pytest.mark.pg14
def test_an_open_edit_of_after_jobs_delays_no_other_owner(logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    for who, names in ((alice, ("a", "b")), (bob, ("c", "d"))):
        for name in names:
            who.execute("INSERT INTO jobs (name, task) VALUES (%s, 't')", [name])
    edit = "UPDATE jobs SET after_jobs = (SELECT array_agg(id) FROM jobs WHERE name = %s) WHERE name = %s"
    bob.execute("SET statement_timeout = '1s'")
    with alice.transaction(force_rollback=True):
        assert alice.execute(edit, ["a", "b"]).rowcount == 1
        assert bob.execute(edit, ["c", "d"]).rowcount == 1


@pytest.mark.long
@pytest.mark.pg14
def test_a_key_that_is_taken_again_during_pruning_makes_no_slot_late(
    logins: Logins, dsn: str, db: psycopg.Connection[Any]
) -> None:
    """The run that had the key is pruned at the same time."""
    alice = logins.connect("alice")
    run = one(alice, "SELECT enqueue('t', idempotency_key => 'k', idempotency_retention => '1 second')")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.runs SET state = 'succeeded', phase = 3, finished_at = now() - interval '1 year'")
        db.execute("UPDATE pgsched.kept_keys SET expires_at = now() - interval '1 hour'")
        db.execute("UPDATE pgsched.rollup_mark SET counted_until = now()")
    logins.connect("bob").execute("INSERT INTO jobs (name, task, schedule) VALUES ('bobs', 't', '@every 1s')")
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1, prune_every_s=0.2), "test")
    thread = threading.Thread(target=leader.run)
    late = "SELECT max(extract(epoch FROM created_at - scheduled_at))::float8, count(*) FROM pgsched.runs" \
           " WHERE job_id IS NOT NULL"  # fmt: skip
    with alice.transaction(force_rollback=True):
        alice.execute("SELECT enqueue('t', idempotency_key => 'k')")
        thread.start()
        try:
            wait_until(lambda: db.execute(late.encode()).fetchall()[0][1] >= 6, 60, "six slots")
        finally:
            leader.stop()
            thread.join(30)
    assert db.execute(late.encode()).fetchall()[0][0] < 3.0
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE id = %s", run) == 1, "it was there to be pruned"

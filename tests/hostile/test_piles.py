"""However much one login piles up, in rows, keys, edges or open transactions, nobody else's work waits for it."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.leader.election import Leader
from tests.support.hostile.victim import LATE_S, LIMIT, TASK, Victim
from tests.support.logins import Logins, one
from tests.support.waiting import wait_until

QUEUES = "INSERT INTO runs (task, queue) SELECT 'nobody.has.it', 'tenant' || n FROM generate_series(1, 5000) n"
KEYS = "INSERT INTO runs (task, concurrency_key) SELECT %s, %s || n %% 2000 FROM generate_series(1, 6000) n"
PARENTS = """INSERT INTO runs (task, available_at) SELECT %s, clock_timestamp() + %s::interval
    FROM generate_series(1, {}) RETURNING id"""
STOPPED = """INSERT INTO workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, seen_at, stopped_at)
    SELECT 'w' || n, 'h', 1, '1', 1, '{task}', '{t}', '30 s', t, t
    FROM generate_series(1, 30000) n CROSS JOIN LATERAL (SELECT clock_timestamp() - n * interval '0.1 s' AS t) s"""


def fan_in(victim: Victim, parents: int, delay: str) -> tuple[int, list[int]]:
    """A run of alice's that waits for so many others of hers; it, and they."""
    alice = victim.logins.connect("alice")
    made = [row[0] for row in alice.execute(PARENTS.format(parents).encode(), [TASK, delay]).fetchall()]
    return one(alice, "SELECT enqueue(%s, after => %s::bigint[])", TASK, made), made


def test_runs_that_nobody_has_the_code_for_in_thousands_of_queues_delay_nobody(victim: Victim) -> None:
    victim.logins.connect("alice").execute(QUEUES)
    victim.unharmed(healthy=False)  # it is said that nobody runs these


def test_thousands_of_limited_keys_delay_nobody(victim: Victim) -> None:
    victim.logins.connect("alice").execute(KEYS, [TASK, f"{LIMIT}:alice"])
    victim.unharmed(healthy=False)


def test_a_run_that_waits_for_thousands_delays_nobody(victim: Victim) -> None:
    child, _ = fan_in(victim, 5000, "0")
    victim.unharmed(healthy=False)
    wait_until(lambda: victim.state(child) == "succeeded", 60, "the last of them to be done")


@pytest.mark.pg14
def test_a_locked_run_for_which_a_very_large_one_waits_holds_up_nobodys_chains(victim: Victim) -> None:
    child, parents = fan_in(victim, 1500, "1 day")
    alice = victim.logins.connect("alice")
    with alice.transaction(force_rollback=True):
        alice.execute("SELECT cancel(%s)", [parents[-1]])
        marked = "SELECT count(*) FROM pgsched.runs WHERE id = ANY (%s) AND has_children"
        wait_until(lambda: one(victim.db, marked, parents) == len(parents) - 1, 15, "the others to be marked")
        victim.unharmed(healthy=False)
    watched = "SELECT available_at = '9000-01-01Z' FROM pgsched.runs WHERE id = %s"
    wait_until(lambda: one(victim.db, watched, child), 15, "the large one to be watched")


def test_somebody_who_leaves_a_transaction_open_stops_no_queue_that_gets_a_limit(victim: Victim) -> None:
    forgotten = victim.logins.connect("alice")
    with forgotten.transaction(force_rollback=True):
        forgotten.execute("INSERT INTO runs (task, queue) VALUES ('t', 'another')")
        victim.logins.connect("ops").execute("INSERT INTO queues (name, concurrency_limit) VALUES ('default', 100)")
        victim.await_new_work()
        assert victim.lateness_s() < 9.0, "five seconds it may be waited for"


def test_rows_of_workers_that_ended_delay_nobody(victim: Victim) -> None:
    """As a member of pgsched_worker: nobody else may."""
    victim.logins.connect("worker").execute(STOPPED)
    victim.unharmed(healthy=False)


@pytest.mark.pg14
def test_an_edge_that_is_left_uncommitted_makes_no_slot_of_others_late(victim: Victim) -> None:
    """Although the leader would make edges, too: there is a job that waits for another one."""
    victim.bob.execute("INSERT INTO jobs (name, task, schedule) VALUES ('first', %s, '* * * * * *')", [TASK])
    victim.bob.execute("INSERT INTO jobs (name, task, schedule, after_jobs)"
                       " SELECT 'behind', task, schedule, ARRAY[id] FROM jobs WHERE name = 'first'")  # fmt: skip
    behind = "SELECT count(*) FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id WHERE j.name = 'behind'"
    wait_until(lambda: one(victim.db, f"{behind} AND r.state = 'succeeded'") > 0, 15, "a slot behind another")
    alice = victim.logins.connect("alice")
    child, parent = (one(alice, "SELECT enqueue('t', delay => '1 day')") for _ in range(2))
    with alice.transaction(force_rollback=True):
        alice.execute("INSERT INTO dependencies (run_id, parent_id) VALUES (%s, %s)", [child, parent])
        wait_until(lambda: one(victim.db, f"{behind} AND r.state = 'waiting'") > 0, 15, "a slot that needs an edge")
        for _ in range(5):
            victim.await_slot()
        assert victim.lateness_s() < LATE_S
    wait_until(lambda: one(victim.db, f"{behind} AND r.state = 'waiting'") == 0, 15, "the slot to go on")


@pytest.mark.pg14
def test_a_key_that_is_being_taken_again_makes_no_slot_late(
    logins: Logins, dsn: str, db: psycopg.Connection[Any]
) -> None:
    """While the run that had it is pruned."""
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

"""Faults of the leader: killed or frozen at given points of its tick, several leaders at once, none for hours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from pgsched.chaos.fleet import Member
from pgsched.chaos.registry import fault
from pgsched.chaos.stage import Stage

ELECTED = "SELECT extract(epoch FROM elected_at)::float8 FROM pgsched.leader ORDER BY term DESC LIMIT 1"
TERM = "SELECT coalesce(max(term), 0) FROM pgsched.leader"
SLOTS = "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL AND scheduled_at > to_timestamp(%s)"
TRIP_LOCK = "SELECT pg_advisory_lock(hashtextextended('chaos.trip', 0))"
TRIPPED = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1
AND (classid::bigint << 32) + objid::bigint = hashtextextended('chaos.trip', 0)"""
LEADER_LOCK = "SELECT pg_advisory_lock(hashtextextended('pgsched.leader', 0))"
NEWEST_SLOT = """SELECT coalesce(max(seq), 0) FROM chaos.journal
WHERE what = 'run' AND op = 'insert' AND job_id IS NOT NULL"""
BEHIND = """SELECT coalesce(max(extract(epoch FROM clock_timestamp() - decided_until)), 0)::float8
FROM pgsched.jobs WHERE schedule IS NOT NULL"""
HOURS = """
SET LOCAL session_replication_role = replica;
UPDATE pgsched.jobs SET anchor_at = anchor_at - interval '5 hours', created_at = created_at - interval '5 hours',
    decided_until = decided_until - interval '5 hours', next_run_at = next_run_at - interval '5 hours';
UPDATE pgsched.jobs SET catch_up = 'all', max_catch_up = 50 WHERE name = 'chaos-0';
UPDATE pgsched.runs SET scheduled_at = scheduled_at - interval '5 hours' WHERE job_id IS NOT NULL;
UPDATE pgsched.leader SET elected_at = elected_at - interval '5 hours', seen_at = seen_at - interval '5 hours';
UPDATE chaos.journal SET slot = slot - interval '5 hours', mark = mark - interval '5 hours';
"""


def await_new_leader(stage: Stage, former: Member, since: float, bound: float) -> None:
    """Wait until another worker leads and decides slots; record the time that this took (at most `bound` seconds)."""
    stage.leader(30, other_than=former)
    stage.figure("another leads after", float(stage.one(ELECTED)) - since, bound=bound)
    now = stage.clock()
    stage.wait(lambda: stage.one(SLOTS, now) >= 3, 15, "slots after the change")


@contextmanager
def stopped_in_tick(stage: Stage, where: str) -> Iterator[Member]:
    """Stop the leader at this point of its next tick, and yield it.

    The leader goes on at the end of the block, if it still lives. `where` is "before insert" or "after insert".
    """
    with psycopg.connect(stage.dsn, autocommit=True, application_name="chaos stage") as trip:
        trip.execute(TRIP_LOCK)
        trip.execute("INSERT INTO chaos.trips VALUES (%s)", [where])
        try:
            stage.wait(lambda: stage.one(TRIPPED), 15, f"the leader to be held {where}")
            yield stage.leader()
        finally:
            trip.execute("DELETE FROM chaos.trips")


def kill_leader_at(stage: Stage, where: str) -> None:
    """Kill the leader at a point of its tick."""
    with stopped_in_tick(stage, where) as leader:
        since = stage.clock()
        leader.kill()
    await_new_leader(stage, leader, since, 5.0)


@fault("leader-killed-before-insert", tier="full")
def leader_killed_before_insert(stage: Stage) -> None:
    """Kill the leader when it is about to insert slots: another leads in seconds, no slot is lost."""
    kill_leader_at(stage, "before insert")


@fault("leader-killed-after-insert", tier="quick")
def leader_killed_after_insert(stage: Stage) -> None:
    """Kill the leader after it has inserted slots, before COMMIT: they are decided again, once."""
    kill_leader_at(stage, "after insert")


@fault("leader-killed-after-commit", tier="full")
def leader_killed_after_commit(stage: Stage) -> None:
    """Kill the leader when it has just committed slots: none is made twice."""
    leader, before = stage.leader(), stage.one(NEWEST_SLOT)
    stage.wait(lambda: stage.one(NEWEST_SLOT) > before, 15, "a tick to commit")
    since = stage.clock()
    leader.kill()
    await_new_leader(stage, leader, since, 5.0)


@fault("leader-frozen-idle", tier="full", lease_s=None, reap_s=None, poll_s=None, jobs=3)
def leader_frozen_idle(stage: Stage) -> None:
    """Freeze the leader between two ticks, with default settings: another leads within 12 s."""
    leader = stage.leader()
    since = stage.clock()
    leader.freeze()
    await_new_leader(stage, leader, since, 12.0)
    leader.thaw()


@fault("leader-frozen-in-tick", tier="quick", lease_s=None, reap_s=None, poll_s=None, jobs=3)
def leader_frozen_in_tick(stage: Stage) -> None:
    """Freeze the leader inside the tick's transaction, with default settings: another leads within 12 s."""
    with stopped_in_tick(stage, "after insert") as leader:
        leader.freeze()
        since = stage.clock()
    await_new_leader(stage, leader, since, 12.0)
    leader.thaw()


@fault("eight-leaders", tier="full", workers=0)
def eight_leaders(stage: Stage) -> None:
    """Make eight processes believe that they hold the leader's lock: the fence and terms keep each slot single."""
    believers = [stage.start_worker(app="pgsched.chaos.forced:app") for _ in range(2)]
    began, since = stage.one(TERM), stage.clock()
    believers += [stage.start_worker(app="pgsched.chaos.forced:app") for _ in range(6)]
    time.sleep(8)  # how long the eight compete is part of the fault
    stage.figure("terms", stage.one(TERM) - began)
    stage.figure("slots decided", decided := stage.one(SLOTS, since))
    assert decided, "several leaders decided nothing: that proves nothing"
    for member in believers:
        member.terminate()
    for member in believers:
        member.ended(20)
    stage.start_worker()
    now = stage.clock()
    stage.wait(lambda: stage.one(SLOTS, now) >= 3, 20, "slots with one leader")


@fault("no-leader-for-hours", tier="quick")
def no_leader_for_hours(stage: Stage) -> None:
    """Have no leader for five hours (all decided slots are moved back): every slot is accounted for."""
    now = stage.clock()
    stage.wait(lambda: stage.one(SLOTS, now) >= 6, 15, "some slots")
    for member in stage.workers:
        member.terminate()
        member.ended(20)
    with stage.db.transaction():
        stage.db.execute(HOURS)
    began = time.monotonic()
    for _ in range(2):
        stage.start_worker()
    stage.wait(lambda: stage.one(BEHIND) < 5, 60, "all slots of five hours to be decided")
    stage.figure("five hours of slots were decided after", time.monotonic() - began, bound=30)


@fault("leader-lock-held", tier="quick", workers=0)
def leader_lock_held(stage: Stage) -> None:
    """Hold the lock of waiting candidates in another application: a worker leads; doctor names the session.

    When that application releases the lock, the same leader goes on.
    """
    with psycopg.connect(stage.dsn, autocommit=True, application_name="monthly report") as other:
        other.execute(LEADER_LOCK)
        for _ in range(2):
            stage.start_worker()
        says = stage.wait(lambda: doctor_text_about(stage, other.info.backend_pid), 20, "doctor to name it")
        stage.note(says or "")
        began = time.monotonic()
        stage.leader()
        stage.figure("a leader although the lock is held", time.monotonic() - began, bound=8)
        now = stage.clock()
        stage.wait(lambda: stage.one(SLOTS, now) >= 3, 15, "slots")
        term = stage.one(TERM)
    now = stage.clock()
    stage.wait(lambda: stage.one(SLOTS, now) >= 3, 15, "slots after the lock was free")
    assert stage.one(TERM) == term, "who has got the lock now leaves the leader alone"


def doctor_text_about(stage: Stage, pid: int) -> str | None:
    """Return the text in doctor's answer that names this server process, or None."""
    command = [sys.executable, "-m", "pgsched", "doctor", "--json"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "PGSCHED_DSN": stage.dsn}
    )
    texts = [str(one) for one in texts_in(json.loads(done.stdout))]
    return next((text for text in texts if str(pid) in text and "monthly report" in text), None)


def texts_in(answer: object) -> Iterator[object]:
    """Yield every text in doctor's answer."""
    if isinstance(answer, dict):
        for value in answer.values():
            yield from texts_in(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from texts_in(value)
    else:
        yield answer

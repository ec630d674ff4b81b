"""Pauses and limits with real workers: a pause stops new starts at once, a changed limit holds within a second."""

from __future__ import annotations

import psycopg

from pgsched.db.queries.jobs import queues
from tests.support.fleet import Fleet, one
from tests.support.waiting import wait_until

ADD = (
    "INSERT INTO pgsched.runs (task, args, queue) SELECT 'spend', '{\"seconds\": 0.01}', %s FROM generate_series(1, %s)"
)
ENDED = "SELECT count(*) FROM pgsched.runs WHERE phase >= 3"


def test_nothing_starts_after_a_pause_until_it_is_resumed(fleet: Fleet, db: psycopg.Connection) -> None:
    fleet.start(2, "--concurrency", "4")
    db.execute(ADD.encode(), ["default", 3000])
    wait_until(lambda: one(db, ENDED) > 20, 30, "work to be under way")
    queues.pause(db, "all", "", "incident", None, None)
    paused_at = one(db, "SELECT clock_timestamp()")
    running = "SELECT count(*) FROM pgsched.runs WHERE state = 'running'"
    wait_until(lambda: one(db, running) == 0, 30, "what ran to end")
    left = one(db, "SELECT count(*) FROM pgsched.runs WHERE phase < 3")
    assert left > 0
    queues.resume(db, "all", "")
    resumed_at = one(db, "SELECT clock_timestamp()")
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.runs WHERE phase < 3") < left, 30, "work to go on")
    # a claim that was under way at the commit may have been made with an older snapshot
    between = "SELECT count(*) FROM pgsched.runs WHERE started_at > %s + interval '1 second' AND started_at < %s"
    assert one(db, between, paused_at, resumed_at) == 0


def test_a_changed_limit_holds_within_a_second(fleet: Fleet, db: psycopg.Connection) -> None:
    queues.set_queue(db, "narrow", {"concurrency_limit": 8})
    fleet.start(2, "--concurrency", "8")
    db.execute(ADD.encode(), ["narrow", 4000])
    wait_until(lambda: one(db, ENDED) > 20, 30, "work to be under way")
    queues.set_queue(db, "narrow", {"concurrency_limit": 0})
    running = "SELECT count(*) FROM pgsched.runs WHERE phase = 2"
    wait_until(lambda: one(db, running) == 0, 30, "what was admitted to end or wait again")
    ended = one(db, ENDED)
    queues.set_queue(db, "narrow", {"concurrency_limit": None})
    wait_until(lambda: one(db, ENDED) > ended, 30, "work to go on")

"""Handlers in child processes under real workers: settled as what they are, and nobody left when the worker is gone."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg

from tests.fleet import Fleet, enqueue, one, state
from tests.unit.test_process_pool import group_of
from tests.waiting import wait_until

APP = ("--app", "tests.apps.processes:app")


def test_outcomes_of_child_processes_are_settled(fleet: Fleet, db: psycopg.Connection) -> None:
    fleet.start(1, *APP)
    done, lost = enqueue(db, "echo", value="hi"), enqueue(db, "segfault")
    db.execute("UPDATE pgsched.runs SET max_attempts = 1 WHERE id = %s", [lost])
    wait_until(lambda: state(db, done) == "succeeded", what="the result")
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.attempts WHERE run_id = %s", lost), what="the crash")
    outcome = db.execute("SELECT outcome, error FROM pgsched.attempts WHERE run_id = %s", [lost]).fetchone()
    assert outcome == ("crashed", "the child process that ran it ended: killed by SIGSEGV")


def test_a_worker_that_drains_or_dies_leaves_no_child(fleet: Fleet, db: psycopg.Connection, tmp_path: Path) -> None:
    for name, number in (("kill", signal.SIGKILL), ("term", signal.SIGTERM)):
        (worker,) = fleet.start(1, *APP, "--grace", "0", "--concurrency", "1")
        on = tmp_path / name
        enqueue(db, "sleeps", on=str(on))
        wait_until(on.exists, what="the handler")
        group = int(on.read_text())
        worker.signal(number)
        worker.ended()
        wait_until(lambda group=group: not group_of(group), what="the end of its child")  # type: ignore[misc]

"""Runs in child processes of real workers are settled with the outcome of their handler.

tests/integration/execute/process_pool/test_ended_children.py checks that no child process is left.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.support.fleet import Fleet, enqueue, one, state
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

APP = ("--app", "tests.support.apps.processes:app")


def test_outcomes_of_child_processes_are_settled(fleet: Fleet, db: psycopg.Connection) -> None:
    fleet.start(1, *APP)
    done, lost = enqueue(db, "echo", value="hi"), enqueue(db, "segfault")
    db.execute("UPDATE pgsched.runs SET max_attempts = 1 WHERE id = %s", [lost])
    wait_until(lambda: state(db, done) == "succeeded", what="the result")
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.attempts WHERE run_id = %s", lost), what="the crash")
    outcome = db.execute("SELECT outcome, error FROM pgsched.attempts WHERE run_id = %s", [lost]).fetchone()
    assert outcome == ("crashed", "the child process that ran it ended: killed by SIGSEGV")

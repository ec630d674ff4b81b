"""A producer can read its own jobs and runs: no command that only reads fails for lack of a grant."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from pgsched.core.explain import Explanation
from pgsched.db.connection.connect import connect
from pgsched.db.queries.jobs import jobs
from pgsched.services.jobs.explain import explain_slot
from tests.support.db.explaining import hour
from tests.support.db.passing import lead, pass_time
from tests.support.logins import Logins, one

READING = (
    "status", "doctor", "check", "explain a", "job list", "job show a", "run list", "run show 1",
    "run cancel 1 --dry-run", "backfill list", "limit list", "queue list",
    "worker list --all", "task list", "report --since 20h", "lock list --all", "election list",
    "kv list",
)  # fmt: skip
FAULTS = {5, 6, 7, 70}  # exit codes: schema too old or too new, a grant is missing, a bug


def paused_job(db: psycopg.Connection[Any], owner: psycopg.Connection[Any]) -> int:
    """Make a run, and a job with slots that a pause passed over; return how many stretches are not recorded yet."""
    jobs.add(owner, {"name": "a", "task": "t", "schedule": "0 * * * *"})
    lead(db)
    jobs.pause(owner, "a", "incident 7")
    pass_time(db, 3 * 3600)
    jobs.resume(owner, "a")
    owner.execute("INSERT INTO runs (task) VALUES ('t')")
    return int(one(db, "SELECT count(*) FROM pgsched.passed_over"))


@pytest.mark.pg14
def test_explain_shows_a_producer_slots_that_were_passed_over(logins: Logins, db: psycopg.Connection[Any]) -> None:
    paused_job(db, logins.connect("alice"))

    def told(who: str) -> Explanation:
        with closing(connect(logins.dsn(who), purpose="test")) as conn:
            return explain_slot(conn, "a", hour(db, 1).isoformat())

    found = told("alice")
    assert found == told("eye")
    assert (found.answer, found.run_id) == ("paused", None)
    assert found.text.endswith("incident 7. The leader has not recorded it yet.")


@pytest.mark.pg14
def test_passed_over_slots_are_visible_to_roles_that_see_the_job(logins: Logins, db: psycopg.Connection[Any]) -> None:
    n = paused_job(db, logins.connect("alice"))
    assert n > 0
    seen = {who: one(logins.connect(who), "SELECT count(*) FROM passed_over") for who in ("alice", "bob", "eye", "ops")}
    assert seen == {"alice": n, "bob": 0, "eye": n, "ops": n}
    leader = logins.connect("leader")
    assert one(leader, "SELECT count(*) FROM passed_over") == n
    assert leader.execute("DELETE FROM passed_over").rowcount == n


def test_no_command_that_reads_lacks_a_grant(
    logins: Logins, db: psycopg.Connection[Any], pgsched: Callable[..., Any]
) -> None:
    paused_job(db, logins.connect("alice"))
    said = {command: pgsched(*command.split(), "--dsn", logins.dsn("alice")) for command in READING}
    assert {command: one.err for command, one in said.items() if one.code in FAULTS} == {}

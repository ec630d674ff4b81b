"""Workers and leaders can do all of their work with their own roles alone, and nothing else."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.config import LeaderSettings
from pgsched.db.queries.jobs.registration import delete_undeclared, register
from pgsched.errors import PgschedError
from pgsched.leader.election import Leader
from tests.support.apps.releases import new, old
from tests.support.logins import Logins, not_refused, one
from tests.support.releases import begin, end, process, time_passes
from tests.support.waiting import wait_until
from tests.support.working import all_ended, work

pytestmark = [pytest.mark.pg14, pytest.mark.scram]


def test_a_worker_cannot_plan_and_a_leader_cannot_change_jobs(logins: Logins) -> None:
    alice = logins.connect("alice")
    alice.execute("INSERT INTO jobs (name, schedule, task) VALUES ('j', '@daily', 't')")
    alice.execute("INSERT INTO runs (task) VALUES ('t')")
    assert not_refused(
        logins.connect("worker"),
        "UPDATE runs SET task = 'evil'",
        "UPDATE runs SET args = '{}'",
        "UPDATE runs SET kind = 'shell'",
        "UPDATE runs SET owner = 'postgres'",
        "UPDATE runs SET queue = 'q'",
        "DELETE FROM runs",
        "DELETE FROM attempts",
        "UPDATE jobs SET next_run_at = now()",
        f"INSERT INTO runs (task, owner) VALUES ('t', '{logins.name('alice')}')",
        "INSERT INTO leader (term, holder, hostname, pid) VALUES (99, 'me', 'here', 1)",
        "INSERT INTO pauses (what) VALUES ('all')",
        "SELECT * FROM audit",
        "SELECT forget_gates()",
        "SELECT rebuild_flags()",
    ) == {}  # fmt: skip
    assert not_refused(
        logins.connect("leader"),
        "INSERT INTO jobs (name, task) VALUES ('x', 't')",
        "UPDATE jobs SET task = 'evil'",
        "UPDATE jobs SET paused = true",
        "UPDATE jobs SET owner = 'postgres'",
        "UPDATE queues SET concurrency_limit = 0",
        "INSERT INTO pauses (what) VALUES ('all')",
        "SELECT * FROM audit",
        "SELECT note('cancelled', 'run', '1')",
    ) == {}  # fmt: skip


def test_workers_and_leaders_work_with_their_roles_alone(logins: Logins, db: psycopg.Connection[Any]) -> None:
    app = App("least")
    tries: list[int] = []

    @app.task(name="flaky")
    def flaky(fail: bool = False) -> str:
        print("some output")
        tries.append(1)
        if fail and len(tries) < 3:
            raise ValueError("once")
        return "done"

    alice = logins.connect("alice")
    alice.execute("INSERT INTO runs (task, max_attempts, backoff_base) VALUES ('flaky', 3, '10 milliseconds')")
    alice.execute("INSERT INTO runs (task, args, max_attempts, backoff_base) VALUES ('flaky', '{\"fail\": true}', 3,"
                  " '10 milliseconds')")  # fmt: skip
    alice.execute("INSERT INTO runs (task, concurrency_key) VALUES ('flaky', 'k')")
    alice.execute("INSERT INTO runs (task, available_at) VALUES ('flaky', clock_timestamp() + interval '1 second')")
    alice.execute("INSERT INTO runs (kind, task) VALUES ('shell', 'echo hello')")
    alice.execute("SELECT enqueue('flaky', after => ARRAY(SELECT min(id) FROM runs))")
    alice.execute("INSERT INTO jobs (name, schedule, task) VALUES ('tick', '@every 1s', 'flaky')")
    alice.execute("INSERT INTO jobs (name, task, delete_after_run) VALUES ('once', 'flaky', true)")

    def done() -> bool:
        return bool(one(db, "SELECT count(*) FILTER (WHERE state = 'succeeded') >= 8 FROM pgsched.runs"))

    refused: list[Exception] = []
    leader = Leader(
        logins.dsn("leader"), LeaderSettings(election_every_s=0.1, prune_every_s=0.5), "test", refused.append
    )
    leading = threading.Thread(target=leader.run, daemon=True)
    leading.start()
    try:
        work(logins.dsn("worker"), app, lambda: refused or done())
    finally:
        leader.stop()
        leading.join()
    assert refused == []
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'dead'") == 0
    assert one(alice, "SELECT count(*) FROM run_logs") > 0
    assert one(alice, "SELECT count(DISTINCT owner) FROM runs") == 1
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL") >= 1


def test_worker_and_leader_roles_suffice_to_declare_and_remove_jobs(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    worker, leader = logins.connect("worker"), logins.connect("leader")
    before, last = begin(worker, new, old)
    end(worker, before)
    time_passes(db, 60)
    with leader.transaction():
        assert [row["name"] for row in delete_undeclared(leader, 600.0, 10)] == ["bonuses"]
    end(worker, last)
    assert register(worker, process(new))[1]["letters"] == "removed"


def test_a_worker_that_does_not_lead_needs_its_own_role_alone(logins: Logins, db: psycopg.Connection[Any]) -> None:
    app = App("least")

    @app.task(name="child")
    def child() -> None:
        pass

    @app.task(name="parent")
    def parent() -> None:
        child.enqueue()

    logins.connect("alice").execute("INSERT INTO runs (task) VALUES ('parent')")
    app.dsn = logins.dsn("worker")
    work(logins.dsn("worker"), app, lambda: all_ended(db))
    assert one(db, "SELECT string_agg(task || ' ' || state, ', ' ORDER BY id) FROM pgsched.runs") == (
        "parent succeeded, child succeeded"
    )


def test_a_worker_that_may_not_settle_fails_before_there_is_work(logins: Logins, db: psycopg.Connection[Any]) -> None:
    db.execute("REVOKE UPDATE (phase) ON pgsched.runs FROM pgsched_worker")
    with pytest.raises(PgschedError, match="permission denied"):
        work(logins.dsn("worker"), App("test"), lambda: False, timeout=20)


def test_the_leaders_work_needs_no_more_than_the_leaders_role(logins: Logins) -> None:
    from tests.support.db.leading import lead

    alice, conn = logins.connect("alice"), logins.connect("leader")
    alice.execute("INSERT INTO jobs (name, schedule, task) VALUES ('tick', '@every 1s', 't')")
    alice.execute("INSERT INTO runs (task, available_at) VALUES ('t', clock_timestamp() + interval '100 ms')")
    alice.execute("INSERT INTO runs (task, concurrency_key) VALUES ('t', 'k')")
    alice.execute("INSERT INTO runs (task, expires_at) VALUES ('t', clock_timestamp() + interval '100 ms')")
    loop = lead(conn)

    def admitted() -> bool:
        loop.run_once()
        return bool(one(alice, "SELECT count(*) FILTER (WHERE state = 'queued') >= 2 AND bool_or(state = 'missed')"
                               " AND bool_or(job_id IS NOT NULL) FROM runs"))  # fmt: skip

    wait_until(admitted, 30, "the leader's work")


@pytest.mark.parametrize("name", ["claim", "claim_start"])
def test_row_policies_cost_a_worker_nothing(name: str, logins: Logins, db: psycopg.Connection[Any]) -> None:
    from uuid import UUID

    from pgsched.db.queries.runs.claims import success_parameters
    from pgsched.db.statements import sql
    from tests.support.db.setting import FROM_THE_START, KINDS

    worker = logins.connect("worker")
    values = {**KINDS, **FROM_THE_START, "queue": "q", "n": 1, "places": 1, "token": None, "worker_id": 1, "lease_s": 1}
    claim = b"EXPLAIN (VERBOSE, COSTS OFF) " + sql(name)
    settle = b"EXPLAIN (VERBOSE, COSTS OFF) " + sql("settle_succeeded")
    settled = success_parameters([1], [UUID(int=0)])

    def plan(conn: psycopg.Connection[Any], text: bytes, given: dict[str, Any]) -> list[Any]:
        conn.execute("SET enable_seqscan = off; SET search_path = pgsched, public")
        return [line for (line,) in conn.execute(text, given) if "Query Identifier" not in line]

    assert plan(worker, claim, values) == plan(db, claim, values), "db is the owner's: policies do not apply"
    assert plan(worker, settle, settled) == plan(db, settle, settled)
    producers = plan(logins.connect("alice"), b"EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM pgsched.runs", {})
    assert any("owner" in line for line in producers), "what a policy that costs looks like"

"""Each role can do its whole work and nothing else: every forbidden thing is tried, and refused with 42501."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.config import LeaderSettings
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.jobs.registration import register, withdraw
from pgsched.db.queries.runs import enqueue, graphs
from pgsched.db.queries.runs import runs as run_rows
from pgsched.db.schema import migrate
from pgsched.errors import PgschedError
from pgsched.leader.election import Leader
from tests.support.apps.releases import new, old
from tests.support.logins import Logins, alone, not_refused, one
from tests.support.releases import begin, end, process, time_passes
from tests.support.schema.releases import next_release, run
from tests.support.waiting import wait_until
from tests.support.working import all_ended, work

pytestmark = [pytest.mark.pg14, pytest.mark.scram]

VALUES: dict[str, Any] = dict.fromkeys(
    ("queue", "priority", "max_attempts", "timeout", "at", "delay", "tags", "unique_key", "unique_scope", "on_conflict",
     "idempotency_key", "idempotency_retention", "after", "after_any", "on_failure", "concurrency_key")
)  # fmt: skip


def test_a_producer_does_its_whole_work(logins: Logins, db: psycopg.Connection[Any]) -> None:
    alice = logins.connect("alice")
    jobs.add(alice, {"name": "nightly", "schedule": "0 2 * * *", "task": "t"})
    jobs.update(alice, "nightly", {"schedule": "0 3 * * *", "concurrency_limit": 1})
    jobs.pause(alice, "nightly", "why not")
    jobs.resume(alice, "nightly")
    alice.execute("INSERT INTO job_calendars (job_id, from_date) SELECT id, '2030-01-01' FROM jobs")
    triggered = jobs.trigger(alice, "nightly", overlap="replace")
    db.execute("UPDATE pgsched.jobs SET decided_until = clock_timestamp(), anchor_at = '2020-01-01'")
    asked = one(alice, "SELECT backfill('nightly', '2024-01-01', '2024-01-03')")
    assert one(alice, "SELECT cancel_backfill(%s)", asked) == "cancelled"
    alice.execute("INSERT INTO runs (task) VALUES ('t')")
    plain = enqueue.enqueue(alice, **VALUES | {"task": "t", "args": "{}"})
    keyed = VALUES | {"task": "t", "args": "{}", "unique_key": "k", "idempotency_key": "i", "on_conflict": "replace"}
    assert (
        enqueue.enqueue(alice, **keyed)
        == enqueue.enqueue(alice, **keyed)
        == enqueue.enqueue(alice, **keyed | {"args": '{"a": 1}', "idempotency_key": None})
    )
    assert enqueue.enqueue(alice, **VALUES | {"task": "t", "args": "{}", "after": [plain]}) > plain
    assert (
        enqueue.enqueue_many(alice, ['{"n": 1}', '{"n": "a\\tb"}'], VALUES | {"task": "many", "tags": ["x", "y"]}) == 2
    )
    assert [r[0] for r in alice.execute("SELECT args FROM runs WHERE task = 'many'")] == [{"n": 1}, {"n": "a\tb"}]
    assert run_rows.cancel(alice, plain, "no more") == "cancelled"
    assert run_rows.retry(alice, plain) == "queued"
    assert [row["skipped"] for row in run_rows.cancel_many(alice, [plain, triggered], None, run_rows.CANCELLED)] == [
        None
    ] * 2
    assert graphs.retry(alice, plain)
    assert one(alice, "SELECT count(*) FROM runs WHERE owner IS DISTINCT FROM current_user") == 0
    jobs.delete(alice, "nightly")


def test_a_producer_touches_no_state_token_lease_or_attempt(logins: Logins) -> None:
    alice = logins.connect("alice")
    alice.execute("INSERT INTO runs (task) VALUES ('t')")
    alice.execute("INSERT INTO jobs (name, schedule, task) VALUES ('j', '@daily', 't')")
    columns = ("state", "token", "lease_until", "attempt", "worker_id", "started_at", "finished_at", "result", "owner",
               "crashes", "max_attempts", "task", "args", "kind", "queue", "job_id", "ready_at")  # fmt: skip
    claim = ("token", "attempt", "lease_until", "job_id", "checked")
    assert not_refused(
        alice,
        *(f"UPDATE runs SET {column} = DEFAULT" for column in columns),
        "INSERT INTO runs (task, state, finished_at) VALUES ('t', 'succeeded', now())",
        "INSERT INTO runs (task, state) VALUES ('t', 'running')",
        *(f"INSERT INTO runs (task, {column}) VALUES ('t', DEFAULT)" for column in claim),
        "DELETE FROM runs",
        "UPDATE jobs SET decided_until = '-infinity'",
        "UPDATE jobs SET next_run_at = NULL",
        "UPDATE jobs SET run_count = 0",
        "UPDATE jobs SET anchor_at = now()",
        "INSERT INTO attempts (run_id, token, attempt, outcome) VALUES (1, gen_random_uuid(), 1, 'failed')",
        "UPDATE attempts SET error = NULL",
        "DELETE FROM attempts",
        "INSERT INTO run_logs (run_id, attempt, seq, stream, chunk) VALUES (1, 1, 1, 'log', 'x')",
        "DELETE FROM run_logs",
        "INSERT INTO passed_over (job_id) VALUES (1)",
        "UPDATE passed_over SET state = 'missed'",
        "DELETE FROM passed_over",
        "UPDATE workers SET stopped_at = now()",
        "INSERT INTO leader (term, holder, hostname, pid) VALUES (99, 'me', 'here', 1)",
        "UPDATE leader SET term = 99",
        "INSERT INTO pauses (what) VALUES ('all')",
        "DELETE FROM pauses",
        "UPDATE queues SET concurrency_limit = 0",
        "INSERT INTO limits (name) VALUES ('x')",
        "UPDATE backfills SET cursor_at = now()",
        "UPDATE dependencies SET state = 'met'",
        "DELETE FROM dependencies",
        "SELECT * FROM audit",
        "INSERT INTO audit (action, what, name) VALUES ('created', 'job', 'x')",
        "SELECT note('cancelled', 'run', '1')",
        "SELECT setval('gated_queues', 0)",
        "SELECT setval('asleep_until', 0)",
        "SELECT forget_gates()",
        "SELECT rebuild_flags()",
        "UPDATE alembic_version SET version_num = '0'",
        "TRUNCATE runs",
        "ALTER TABLE runs DISABLE ROW LEVEL SECURITY",
        "CREATE TABLE pgsched.mine ()",
        "CREATE OR REPLACE FUNCTION pgsched.cancel(bigint, text) RETURNS text LANGUAGE sql AS 'SELECT NULL'",
        "SET ROLE pgsched_owner",
        "SET ROLE pgsched_worker",
    ) == {}  # fmt: skip


def test_a_producer_does_not_see_or_change_what_is_another_owners(logins: Logins, db: psycopg.Connection[Any]) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    bobs = one(bob, "SELECT enqueue('t', unique_key => 'k')")
    bobs_job = one(bob, "INSERT INTO jobs (name, schedule, task) VALUES ('bobs', '@daily', 't') RETURNING id")
    done = one(bob, "SELECT pgsched.trigger('bobs')")
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE id = %s", [done])
    db.execute(
        "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome) VALUES (%s, gen_random_uuid(), 1, 'failed')",
        [done],
    )
    db.execute(
        "INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) VALUES (%s, 1, 1, 'log', 'x')", [done]
    )
    asked = one(db, "INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at, slots)"
                    " SELECT id, name, schedule, timezone, anchor_at, '2024-01-01', '2024-01-03', 2 FROM pgsched.jobs"
                    " RETURNING id")  # fmt: skip
    mine = one(alice, "SELECT enqueue('t')")
    for table in ("jobs", "attempts", "run_logs", "backfills"):
        assert one(bob, f"SELECT count(*) FROM {table}") == 1
        assert one(alice, f"SELECT count(*) FROM {table}") == 0, table
    assert [row[0] for row in alice.execute("SELECT id FROM runs")] == [mine]
    assert alice.execute("UPDATE jobs SET task = 'mine'").rowcount == 0
    assert alice.execute("SELECT id, running FROM delete_job('bobs')").fetchone() == (None, None)
    assert not_refused(
        alice,
        f"SELECT cancel({bobs})",
        f"SELECT set_tags({bobs}, '{{mine}}')",
        f"SELECT retry({done})",
        f"SELECT retry_now({done})",
        f"SELECT retry_tree({done})",
        f"SELECT wait_again(ARRAY[{done}])",
        "SELECT pgsched.trigger('bobs')",
        "SELECT backfill('bobs', '2024-01-01', '2024-01-03')",
        f"SELECT cancel_backfill({asked})",
        "SELECT enqueue('t', unique_key => 'k')",
        "SELECT enqueue('t', unique_key => 'k', on_conflict => 'replace')",
        f"SELECT meet_run({bobs}, 'replace', 't', '{{}}', now())",
        f"SELECT enqueue('t', after => ARRAY[{bobs}])",
        f"INSERT INTO dependencies (run_id, parent_id) VALUES ({bobs}, {mine})",
        f"INSERT INTO job_calendars (job_id, from_date) VALUES ({bobs_job}, '2030-01-01')",
        f"INSERT INTO runs (task, owner) VALUES ('t', '{logins.name('bob')}')",
        f"INSERT INTO backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at, slots) VALUES"
        f" ({bobs_job}, 'bobs', '@daily', 'UTC', now(), '2024-01-01', '2024-01-03', 2)",
    ) == {}  # fmt: skip
    for statement in (
        f"INSERT INTO jobs (name, task, owner) VALUES ('x', 't', '{logins.name('bob')}')",
        f"INSERT INTO runs (kind, task, owner) VALUES ('sql', 'SELECT 1', '{logins.name('bob')}')",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match="may not act for role"):
            alice.execute(statement.encode())
    with pytest.raises(psycopg.errors.CheckViolation, match=f"there is no job {bobs_job}"):
        alice.execute("INSERT INTO jobs (name, task, after_jobs) VALUES ('x', 't', %s)", [[bobs_job]])


def test_rows_of_a_group_belong_to_each_of_its_members(logins: Logins, db: psycopg.Connection[Any]) -> None:
    group = logins.name("group")
    db.execute(f'CREATE ROLE "{group}"'.encode())
    try:
        for who in ("alice", "bob"):
            db.execute(f'GRANT "{group}" TO "{logins.name(who)}"'.encode())
        alice, bob = logins.connect("alice"), logins.connect("bob")
        alice.execute("INSERT INTO jobs (name, task, owner) VALUES ('ours', 't', %s)", [group])
        bob.execute("UPDATE jobs SET task = 'u' WHERE name = 'ours'")
        assert one(bob, "SELECT owner FROM jobs") == group
        assert jobs.trigger(bob, "ours")
    finally:
        db.execute(f'DROP ROLE "{group}"'.encode())


def test_an_operator_has_everything_but_the_state_of_runs(logins: Logins) -> None:
    alice, ops = logins.connect("alice"), logins.connect("ops")
    alice.execute("INSERT INTO jobs (name, schedule, task) VALUES ('hers', '@daily', 't')")
    hers = one(alice, "SELECT enqueue('t')")
    assert run_rows.cancel(ops, hers) == "cancelled"
    assert run_rows.retry(ops, hers) == "queued"
    jobs.pause(ops, "hers")
    jobs.update(ops, "hers", {"priority": 1})
    assert one(ops, "SELECT owner FROM jobs") == logins.name("alice")
    assert jobs.trigger(ops, "hers")
    jobs.update(ops, "hers", {"task": "mine"})
    assert one(ops, "SELECT owner FROM jobs") == logins.name("ops"), "who says what runs becomes its owner"
    ops.execute("INSERT INTO pauses (what, name) VALUES ('queue', 'default')")
    ops.execute("DELETE FROM pauses")
    ops.execute("INSERT INTO queues (name, concurrency_limit) VALUES ('q', 2)")
    ops.execute("INSERT INTO limits (name, concurrency) VALUES ('l', 2)")
    ops.execute("UPDATE workers SET drain_asked_at = now(), drain_asked_by = 'me'")
    assert one(ops, "SELECT count(*) FROM audit") >= 8
    assert not_refused(
        ops,
        "UPDATE runs SET state = 'queued'",
        "UPDATE runs SET token = NULL",
        "UPDATE runs SET attempt = 0",
        "DELETE FROM runs",
        "DELETE FROM audit",
        "UPDATE audit SET who = 'x'",
        "UPDATE leader SET term = 9",
        "UPDATE workers SET seen_at = now()",
        f"INSERT INTO runs (task, owner) VALUES ('t', '{logins.name('alice')}')",
    ) == {}  # fmt: skip


def test_a_viewer_sees_everything_and_changes_nothing(logins: Logins) -> None:
    alice, eye = logins.connect("alice"), logins.connect("eye")
    hers = one(alice, "SELECT enqueue('t')")
    alice.execute("INSERT INTO jobs (name, task) VALUES ('hers', 't')")
    assert run_rows.show(eye, hers)["task"] == "t"
    assert jobs.show(eye, "hers")["task"] == "t"
    assert one(eye, "SELECT count(*) FROM audit") == 1
    assert not_refused(
        eye,
        "INSERT INTO runs (task) VALUES ('t')",
        "INSERT INTO jobs (name, task) VALUES ('x', 't')",
        "UPDATE runs SET tags = NULL",
        "UPDATE jobs SET paused = true",
        "DELETE FROM jobs",
        "SELECT enqueue('t')",
        *(f"SELECT {call}({hers})" for call in ("cancel", "retry", "retry_now")),
        *("SELECT pgsched.trigger('hers')", f"SELECT assert_claim({hers}, gen_random_uuid())"),  # he reads all tokens
        "INSERT INTO pauses (what) VALUES ('all')",
        "DELETE FROM audit",
        "SELECT pgsched.entry_state('mail', NULL)",
        *(f"SELECT pgsched.{turn}_declare_turn()" for turn in ("take", "share", "try")),
        *(f"SELECT pgsched.tell_{call}" for call in ("workers('mail')", "leader()", "once('pgsched_runs', '')")),
    ) == {}  # fmt: skip


def test_a_login_without_a_role_has_nothing(logins: Logins) -> None:
    assert not_refused(logins.connect("nobody"), "SELECT * FROM pgsched.runs", "SELECT pgsched.enqueue('t')",
                       "SELECT pgsched.cancel(1)", "SELECT pgsched.workers_asleep(1)") == {}  # fmt: skip


def test_a_worker_makes_no_plans_and_a_leader_no_jobs(logins: Logins) -> None:
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


def test_workers_declare_and_the_leader_takes_away_with_their_roles_alone(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    worker, leader = logins.connect("worker"), logins.connect("leader")
    before, last = begin(worker, new, old)
    end(worker, before)
    time_passes(db, 60)
    with leader.transaction():
        assert [row["name"] for row in withdraw(leader, 600.0, 10)] == ["bonuses"]
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


def test_a_worker_that_may_not_settle_says_so_before_there_is_work(logins: Logins, db: psycopg.Connection[Any]) -> None:
    db.execute("REVOKE UPDATE (phase) ON pgsched.runs FROM pgsched_worker")
    with pytest.raises(PgschedError, match="permission denied"):
        work(logins.dsn("worker"), App(), lambda: False, timeout=20)


def test_a_migration_puts_the_roles_in_force_again(
    logins: Logins, db: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    db.execute("GRANT SELECT ON pgsched.audit TO PUBLIC")
    migrate.upgrade(dsn)
    assert not_refused(logins.connect("alice"), "SELECT * FROM audit") != {}, "nothing was migrated"
    alone(lambda: run(next_release(tmp_path), "migrate", "--dsn", dsn))
    assert not_refused(logins.connect("alice"), "SELECT * FROM audit") == {}
    assert not_refused(logins.connect("alice"), "SELECT pgsched.note_of(1)") != {}
    owner = "SELECT pg_get_userbyid(proowner), has_function_privilege('public', oid, 'EXECUTE') FROM pg_proc"
    assert db.execute(f"{owner} WHERE proname = 'note_of'").fetchall() == [("pgsched_owner", False)]


def test_functions_with_anothers_rights_pin_their_search_path(logins: Logins, db: psycopg.Connection[Any]) -> None:
    functions = db.execute(
        "SELECT proname, prosecdef, coalesce(proconfig::text LIKE '%search_path=pg_catalog, pg_temp%', false)"
        " FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace AND prokind <> 'a'"
    ).fetchall()
    assert len([name for name, definer, _ in functions if definer]) > 20
    assert [name for name, definer, pinned in functions if definer and not pinned] == []
    # these are inlined or too hot for it; they run with the rights of who calls them
    assert {name for name, _, pinned in functions if not pinned} <= {
        "after_jobs_of", "back_in_line", "bin_of", "has_options", "is_limited", "is_plain", "job_options", "keep_of",
        "limit_of", "may_be_asleep", "notify", "phase_of", "queue_mark", "queue_of", "runs_before_insert",
        "settled_state", "tell_workers", "waits_in_turn",
    }  # fmt: skip


def test_nobody_makes_a_trigger_of_ours_on_rows_of_his_own(logins: Logins, db: psycopg.Connection[Any]) -> None:
    """The types of such rows are his, and so are their casts: code of his would run with the owner's rights."""
    functions = [
        name
        for (name,) in db.execute(
            "SELECT oid::regprocedure::text FROM pg_proc"
            " WHERE pronamespace = 'pgsched'::regnamespace AND prorettype = 'trigger'::regtype"
        )
    ]
    assert functions
    for who in ("alice", "worker", "leader", "ops", "eye"):
        conn = logins.connect(who)
        conn.execute("CREATE TEMP TABLE mine (id text, state text)")
        assert not_refused(
            conn, *(f"CREATE TRIGGER t AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION {f}" for f in functions)
        ) == {}  # fmt: skip
        conn.execute("DROP TABLE mine")


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


def test_check_says_what_a_role_is_for(logins: Logins) -> None:
    from pgsched.services.check import check

    def grants(who: str) -> list[tuple[str, str]]:
        return [(found.level, found.text) for found in check(logins.dsn(who), {}) if found.name == "grants"]

    assert grants("worker")[0] == ("ok", f"role {logins.name('worker')} acts as pgsched_producer, pgsched_worker")
    assert "--no-leader" in grants("worker")[1][1]
    assert grants("alice")[1][0] == "warn"
    assert [level for level, _ in grants("nobody")] == ["fail"]


@pytest.mark.parametrize("name", ["claim", "claim_start"])
def test_row_policies_cost_a_worker_nothing(name: str, logins: Logins, db: psycopg.Connection[Any]) -> None:
    from uuid import UUID

    from pgsched.db.queries.runs.claims import ended
    from pgsched.db.statements import sql
    from tests.support.db.setting import FROM_THE_START, KINDS

    worker = logins.connect("worker")
    values = {**KINDS, **FROM_THE_START, "queue": "q", "n": 1, "places": 1, "token": None, "worker_id": 1, "lease_s": 1}
    claim = b"EXPLAIN (VERBOSE, COSTS OFF) " + sql(name)
    settle = b"EXPLAIN (VERBOSE, COSTS OFF) " + sql("settle_succeeded")
    settled = ended([1], [UUID(int=0)])

    def plan(conn: psycopg.Connection[Any], text: bytes, given: dict[str, Any]) -> list[Any]:
        conn.execute("SET enable_seqscan = off; SET search_path = pgsched, public")
        return [line for (line,) in conn.execute(text, given) if "Query Identifier" not in line]

    assert plan(worker, claim, values) == plan(db, claim, values), "db is the owner's: policies do not apply"
    assert plan(worker, settle, settled) == plan(db, settle, settled)
    producers = plan(logins.connect("alice"), b"EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM pgsched.runs", {})
    assert any("owner" in line for line in producers), "what a policy that costs looks like"


def test_every_table_is_for_somebody_and_nothing_is_for_everybody(logins: Logins, db: psycopg.Connection[Any]) -> None:
    tables = [
        name
        for (name,) in db.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'pgsched'::regnamespace AND relkind = 'r'"
            " AND relname <> 'locks'"
        )
    ]
    leader, eye = logins.name("leader"), logins.name("eye")
    unread = "SELECT NOT has_table_privilege(%s, 'pgsched.' || %s, 'SELECT')"
    assert [name for name in tables if one(db, unread, eye, name)] == []
    assert [name for name in tables if name != "audit" and one(db, unread, leader, name)] == []
    assert one(
        db,
        "SELECT count(*) FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a"
        " WHERE c.relnamespace = 'pgsched'::regnamespace AND c.relkind IN ('r', 'S') AND a.grantee = 0",
    ) == 0  # fmt: skip
    assert one(
        db,
        "SELECT count(*) FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a"
        " WHERE p.pronamespace = 'pgsched'::regnamespace AND a.grantee = 0",
    ) == 0  # fmt: skip

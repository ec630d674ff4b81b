"""Each role for people can do all of its work and nothing else: forbidden statements are tried and refused (42501)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.app.options import OPTIONS
from pgsched.app.release import releases
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.runs import enqueue, graphs, tasks
from pgsched.db.queries.runs import runs as run_rows
from pgsched.db.schema import migrate
from tests.support.logins import Logins, alone, not_refused, one
from tests.support.schema.releases import next_release, run

pytestmark = [pytest.mark.pg14, pytest.mark.scram]

VALUES: dict[str, Any] = dict.fromkeys(OPTIONS)


def test_a_producer_can_do_all_of_its_work(logins: Logins, db: psycopg.Connection[Any]) -> None:
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
    queued = VALUES | {"task": "t", "args": "{}", "unique_by": ["*"], "unique_scope": "while_queued", "keep": "1 h"}
    assert enqueue.enqueue(alice, **queued) == enqueue.enqueue(alice, **queued | {"on_conflict": "merge"})
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
    assert graphs.retry_graph(alice, plain)
    assert one(alice, "SELECT count(*) FROM runs WHERE owner IS DISTINCT FROM current_user") == 0
    jobs.delete(alice, "nightly")


def test_a_producer_enqueues_by_name_and_many_with_their_keys(logins: Logins, db: psycopg.Connection[Any]) -> None:
    shop, mine = App("shop"), App("mine")
    shop.task(name="once", unique_by=True)(lambda n: None)
    assert tasks.register(db, "shop", releases(shop.tasks.values())) is None
    plain = mine.task(name="plain")(lambda n: None)
    alice = logins.connect("alice")
    first, again = (mine.enqueue("once", {"n": 1}, connection=alice) for _ in range(2))
    assert (again, again.how) == (first, "existing")
    assert mine.enqueue("other", {"n": 1}, connection=alice).created
    assert plain.enqueue_many([[1], [2]], connection=alice, idempotency_keys=["b", "a"]) == 2


def test_a_producer_changes_no_state_token_lease_or_attempt(logins: Logins) -> None:
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


def test_a_producer_neither_sees_nor_changes_rows_of_another_owner(logins: Logins, db: psycopg.Connection[Any]) -> None:
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


def test_an_operator_can_change_everything_except_the_state_of_runs(logins: Logins) -> None:
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
    assert run_rows.show_run(eye, hers)["task"] == "t"
    assert jobs.show_job(eye, "hers")["task"] == "t"
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
        *("SELECT pgsched.trigger('hers')", f"SELECT assert_claim({hers}, gen_random_uuid())"),  # viewers read tokens
        "INSERT INTO pauses (what) VALUES ('all')",
        "DELETE FROM audit",
        "SELECT pgsched.entry_state('mail', NULL)",
        *(f"SELECT pgsched.{turn}_declare_turn()" for turn in ("take", "share", "try")),
        *(f"SELECT pgsched.tell_{call}" for call in ("workers('mail')", "leader()", "once('pgsched_runs', '')")),
    ) == {}  # fmt: skip


def test_a_login_without_a_role_has_no_rights(logins: Logins) -> None:
    assert not_refused(logins.connect("nobody"), "SELECT * FROM pgsched.runs", "SELECT pgsched.enqueue('t')",
                       "SELECT pgsched.cancel(1)", "SELECT pgsched.workers_asleep(1)") == {}  # fmt: skip


@pytest.mark.long
def test_a_migration_restores_the_grants_of_the_roles(
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


def test_security_definer_functions_pin_their_search_path(logins: Logins, db: psycopg.Connection[Any]) -> None:
    functions = db.execute(
        "SELECT proname, prosecdef, coalesce(proconfig::text LIKE '%search_path=pg_catalog, pg_temp%', false)"
        " FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace AND prokind <> 'a'"
    ).fetchall()
    assert len([name for name, definer, _ in functions if definer]) > 20
    assert [name for name, definer, pinned in functions if definer and not pinned] == []
    # these are inlined or called too often to pin it; they run with the rights of their caller
    assert {name for name, _, pinned in functions if not pinned} <= {
        "after_jobs_of", "back_in_line", "bin_of", "has_options", "is_limited", "is_own_key", "is_plain",
        "is_unclaimed", "job_options", "keep_of", "limit_of", "may_be_asleep", "notify", "phase_of", "queue_mark",
        "queue_of", "runs_before_insert", "settled_state", "tell_workers", "waits_in_turn",
    }  # fmt: skip


def test_no_role_can_use_trigger_functions_of_pgsched_on_its_own_table(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    """The role owns the types of its rows and their casts, so its code would run with the rights of pgsched's owner."""
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


def test_check_says_what_a_role_is_for(logins: Logins) -> None:
    from pgsched.services.check import check

    def grants(who: str) -> list[tuple[str, str]]:
        return [(found.level, found.text) for found in check(logins.dsn(who), {}) if found.name == "grants"]

    assert grants("worker")[0] == ("ok", f"role {logins.name('worker')} acts as pgsched_producer, pgsched_worker")
    assert "--no-leader" in grants("worker")[1][1]
    assert grants("alice")[1][0] == "warn"
    assert [level for level, _ in grants("nobody")] == ["fail"]


def test_every_table_has_a_reader_and_public_has_no_grant(logins: Logins, db: psycopg.Connection[Any]) -> None:
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

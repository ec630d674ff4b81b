"""`pgsched doctor` finds what is wrong, and names the session, worker, object or setting that causes it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import pgsched
from pgsched.core.schedule.zones import tzdata_version
from pgsched.db.queries.leader.leadership import elect, fence
from pgsched.db.queries.reports import inspection
from pgsched.db.queries.runs import claims
from pgsched.db.schema import expected_objects
from pgsched.db.schema.migrate import upgrade
from pgsched.services import doctor
from pgsched.services.status import read_status
from tests.support.logins import Logins
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

Pgsched = Callable[..., Any]
Open = Callable[..., psycopg.Connection]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PINNED_WARN_S", "WAITS_S"):
        monkeypatch.setattr(doctor, name, 0.1)


def told(found: list[doctor.Finding], name: str, *levels: str) -> str:
    return " ".join(one.text for one in found if one.name == name and one.level in (levels or ("warn", "fail")))


def living(connect: Open) -> list[doctor.Finding]:
    return list(doctor.check_now(connect()))


def test_a_healthy_system_is_ok(pgsched: Pgsched) -> None:
    said = pgsched("doctor", "--json")
    assert said.code == said.json["exit_code"] == 0, said.out
    assert {"work", "objects", "vacuum"} <= {one["name"] for one in said.json["findings"] if one["level"] == "ok"}
    assert [one for one in said.json["findings"] if one["level"] == "fail"] == []


def test_without_a_schema_doctor_ends_with_the_code_of_check(pgsched: Pgsched, empty_dsn: str) -> None:
    assert pgsched("doctor", "--dsn", empty_dsn).code == 5


def test_a_run_without_a_live_worker_is_a_failure(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    said = pgsched("doctor")
    assert said.code == 1
    assert "no live worker, and 1 run is queued" in said.out


@pytest.mark.long
def test_a_session_that_pins_xmin_is_named(db: psycopg.Connection, connect: Open) -> None:
    reader = connect(autocommit=False, application_name="a long report")
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT 'report' FROM pgsched.runs")
    wait_until(lambda: told(living(connect), "xmin"), 20, "the transaction to be old")
    text = told(living(connect), "xmin")
    assert f"pid {reader.info.backend_pid}, user {reader.info.user}, a long report, idle in transaction" in text
    assert "SELECT 'report' FROM pgsched.runs" in text
    reader.rollback()
    assert told(living(connect), "xmin") == ""


@pytest.mark.long
def test_a_session_that_blocks_the_leader_is_named(db: psycopg.Connection, connect: Open) -> None:
    thief = connect(application_name="thief")
    thief.execute("SELECT pg_advisory_lock(hashtextextended('pgsched.leader', 0))")
    assert f"held by another session (pid {thief.info.backend_pid}" in told(living(connect), "leader", "warn")
    thief.execute("SELECT pg_advisory_unlock_all()")
    leader = connect(application_name="pgsched leader here")
    leader.execute("SELECT pg_advisory_lock(hashtextextended('pgsched.leader', 0))")
    assert told(living(connect), "leader") == ""
    with leader.transaction():
        fence(leader, None)
        elect(leader, "here", locked=True)
    with leader.transaction():
        fence(leader, 1)
        wait_until(lambda: "transaction has gone on" in told(living(connect), "leader"), 20, "the term to be slow")


@pytest.mark.long
def test_a_session_that_locks_tables_is_named(
    dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 't', '@daily')")
    locker = connect(autocommit=False, application_name="locker")
    locker.execute("LOCK TABLE pgsched.runs, pgsched.jobs, pgsched.workers IN ACCESS EXCLUSIVE MODE")
    wait_until(lambda: told([*doctor.run_checks_connected(dsn, doctor.SESSIONS)], "blocked"), 20, "an old lock")
    began = time.monotonic()
    found = doctor.doctor(dsn, {}, trend_s=0)
    assert time.monotonic() - began < 10
    text = told(found, "blocked", "fail")
    assert "jobs, runs, workers: locked for " in text
    assert f"(AccessExclusiveLock) by pid {locker.info.backend_pid}, user" in text
    assert f"pg_terminate_backend({locker.info.backend_pid})" in text
    assert "not checked: " in told(found, "work", "fail"), "what waits for the lock says so"
    assert {"ok"} == {one.level for one in found if one.name in ("connection", "vacuum", "leader", "schema")}
    assert doctor.exit_code(found) == 1
    locker.rollback()
    found = doctor.doctor(dsn, {}, trend_s=0)
    assert told(found, "blocked") == "" and "not checked" not in told(found, "work")


def test_status_refers_to_doctor_while_a_table_is_locked(
    pgsched: Pgsched, db: psycopg.Connection, connect: Open
) -> None:
    locker = connect(autocommit=False)
    locker.execute("LOCK TABLE pgsched.runs IN ACCESS EXCLUSIVE MODE")
    said = pgsched("status")
    assert said.code == 1
    assert "`pgsched doctor` names the session that is in the way" in said.err


def test_a_role_that_sees_only_its_own_sessions_reports_xmin_as_unknown(
    db: psycopg.Connection, connect: Open, logins: Logins
) -> None:
    reader = connect(autocommit=False, application_name="a long report")
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT 'report' FROM pgsched.runs")
    wait_until(lambda: told(living(connect), "xmin"), 20, "the transaction to be old")
    found = doctor.run_checks_connected(logins.dsn("ops"), doctor.SESSIONS)
    assert [one.text for one in found if one.name == "xmin"] == ["unknown: this role sees only its own sessions"]
    assert "GRANT pg_monitor" in told(found, "rights", "warn")
    reader.rollback()
    locker = connect(autocommit=False)
    locker.execute("LOCK TABLE pgsched.runs")
    assert f"runs: locked (AccessExclusiveLock) by pid {locker.info.backend_pid}" in told(
        doctor.run_checks_connected(logins.dsn("ops"), doctor.SESSIONS), "blocked"
    )


def test_a_check_that_fails_reports_itself_and_the_others_go_on(db: psycopg.Connection, connect: Open) -> None:
    def broken(conn: psycopg.Connection) -> list[doctor.Finding]:
        raise RuntimeError("no such thing")

    found = list(doctor.run_checks(connect(), (("a", broken), ("b", lambda conn: [doctor.ok("b", "fine")]))))
    assert [(one.name, one.level, one.text) for one in found] == [
        ("a", "fail", "not checked: no such thing"), ("b", "ok", "fine"),
    ]  # fmt: skip


def test_a_session_that_holds_a_lock_pgsched_waits_for_is_named(db: psycopg.Connection, connect: Open) -> None:
    locker, waiter = connect(application_name="locker"), connect(application_name="pgsched settle here")
    waiter.execute("SET lock_timeout = '20s'")
    with locker.transaction():
        locker.execute("LOCK TABLE pgsched.runs")
        import threading

        waiting = threading.Thread(target=lambda: waiter.execute("SELECT FROM pgsched.runs"))
        waiting.start()
        watcher = connect()
        wait_until(lambda: inspection.waits(watcher, 0.1), 20, "the lock to be waited for")
        text = " ".join(one.text for one in doctor.report_lock_waits(inspection.waits(watcher, 0.1)))
    waiting.join()
    assert "pgsched settle here has waited" in text
    assert f"pid {locker.info.backend_pid}" in text
    assert "LOCK TABLE pgsched.runs" in text


def test_missing_and_invalid_indexes_disabled_triggers_and_drift_are_named(
    db: psycopg.Connection, connect: Open
) -> None:
    db.execute("DROP INDEX pgsched.runs_finished")
    db.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'pgsched.runs_claim'::regclass")
    db.execute("ALTER TABLE pgsched.jobs DISABLE TRIGGER a_check_insert")
    db.execute("ALTER TABLE pgsched.runs ADD COLUMN mine int")
    text = told(list(doctor.objects(connect())), "schema", "fail")
    for part in ("index runs_finished is missing", "index runs_claim of runs is invalid",
                 "trigger a_check_insert of jobs is disabled", "column runs.mine is not ours"):  # fmt: skip
        assert part in text


def test_missing_checks_keys_and_row_security_are_named(db: psycopg.Connection, connect: Open) -> None:
    bodies, triggers, checks = expected_objects.expected_objects()
    assert {name for (name,) in db.execute(expected_objects.CHECKS).fetchall()} == checks
    assert {name for name, _ in db.execute(expected_objects.FUNCTIONS).fetchall()} == set(bodies)
    assert set(db.execute(expected_objects.TRIGGERS).fetchall()) == triggers
    db.execute("ALTER TABLE pgsched.runs DROP CONSTRAINT runs_state")
    db.execute("ALTER TABLE pgsched.alert_deliveries DROP CONSTRAINT alert_deliveries_alert_id_fkey")
    db.execute("CREATE POLICY pgsched_own ON pgsched.jobs USING (true)")
    text = told(list(doctor.objects(connect())), "schema", "fail")
    for part in ("check runs_state is missing: `pgsched migrate --sql`", "fk of alert_deliveries.alert_id is missing",
                 "policy pgsched_own of jobs is not asked: row level security is off: `pgsched migrate"):  # fmt: skip
        assert part in text


def test_missing_or_changed_functions_and_triggers_are_named(db: psycopg.Connection, connect: Open) -> None:
    db.execute("DROP TRIGGER b_plan_again ON pgsched.jobs")
    db.execute("DROP FUNCTION pgsched.first_result(text)")
    db.execute(
        "CREATE OR REPLACE FUNCTION pgsched.utc(moment timestamptz) RETURNS text LANGUAGE sql AS $$ SELECT 'never' $$"
    )
    text = told(list(doctor.objects(connect())), "schema", "fail")
    for part in ("trigger b_plan_again of jobs is missing", "function first_result is missing",
                 "function utc is another than expected"):  # fmt: skip
        assert part in text


def test_a_real_invalid_index_is_named_with_its_cure(db: psycopg.Connection, connect: Open) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t'), ('t')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute("CREATE UNIQUE INDEX CONCURRENTLY mine ON pgsched.runs (task)")
    text = told(list(doctor.objects(connect())), "schema", "fail")
    assert "index mine of runs is not ready: REINDEX INDEX CONCURRENTLY" in text


@pytest.mark.long
def test_a_session_that_fills_the_notification_queue_is_named(private_cluster: PrivateCluster) -> None:
    if int((private_cluster.cluster.data / "PG_VERSION").read_text()) < 17:
        pytest.skip("before 17 the queue has 8 GB, which cannot be set")
    private_cluster.stop("fast")
    with (private_cluster.cluster.data / "postgresql.conf").open("a") as conf:
        conf.write("max_notify_queue_pages = 64\n")
    private_cluster.start()
    upgrade(private_cluster.dsn)
    with (
        psycopg.connect(private_cluster.dsn, autocommit=True) as db,
        psycopg.connect(private_cluster.dsn, autocommit=True, application_name="deaf") as listener,
    ):
        assert [one.level for one in doctor.check_now(db) if one.name == "notify"] == ["ok"]
        listener.execute("LISTEN anything")
        listener.execute("BEGIN")
        listener.execute("SELECT 'listens and does not end'")
        for number in range(30):
            db.execute("SELECT pg_notify('anything', %s)", [f"{number} " + "x" * 7000])
        text = told(list(doctor.check_now(db)), "notify", "warn")
        pid = listener.info.backend_pid
        assert (
            f"oldest transaction is that of pid {pid}, user postgres, deaf, idle in transaction: SELECT 'listens"
            in text
        )
        assert f"pg_terminate_backend({pid})" in text
        assert not any("notification queue" in problem for problem in read_status(db).problems)
        for number in range(10):
            db.execute("SELECT pg_notify('anything', %s)", [f"{number} " + "x" * 7000])
        (problem,) = read_status(db).problems
        assert re.match(r"the notification queue is [56]\d% full", problem)
        listener.execute("ROLLBACK")


@pytest.mark.long
def test_an_asynchronous_standby_and_settings_that_lose_data_are_warned_of(private_cluster: PrivateCluster) -> None:
    """The tests' servers have fsync and full_page_writes off."""
    upgrade(private_cluster.dsn)
    with psycopg.connect(private_cluster.dsn, autocommit=True) as db:
        db.execute("ALTER SYSTEM SET synchronous_commit = off")
        db.execute("SELECT pg_reload_conf()")
        wait_until(lambda: db.execute("SHOW synchronous_commit").fetchone() == ("off",), 10, "the setting")
    found = doctor.doctor(private_cluster.dsn, {}, trend_s=0)
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        assert f"{name} = off" in told(found, name, "warn")
    assert told(found, "standby") == ""
    cluster = private_cluster.cluster
    if not (cluster.binaries / "pg_receivewal").exists():
        pytest.skip("the settings are warned of; the programs of this server have no pg_receivewal to be a standby")
    place = str(cluster.data.parent / "received")
    with psycopg.connect(private_cluster.dsn, autocommit=True) as db:
        host, port = db.info.host, str(db.info.port)
        env = os.environ | {"PGPASSWORD": db.info.password}
        command = [
            str(cluster.binaries / "pg_receivewal"),
            "-D",
            place,
            "-h",
            host,
            "-p",
            port,
            "-U",
            "postgres",
            "--no-sync",
        ]
        Path(place).mkdir()
        receiver = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: told(list(doctor.check_now(db)), "standby", "warn"), 30, "the receiver to stream")
            assert "a failover forgets the last commits" in told(list(doctor.check_now(db)), "standby", "warn")
        finally:
            receiver.terminate()
            receiver.wait(20)


def test_a_host_s_clock_that_is_moved_is_seen_at_the_next_heartbeat(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease,"
               " clock_ahead_s) VALUES ('w', 'h', 1, '1', 1, '{task}', '{}', '30 s', 0)")  # fmt: skip
    now = time.time()
    monkeypatch.setattr("pgsched.db.queries.runs.claims.time.time", lambda: now + 7200)
    claims.heartbeat(db, 1, 30.0, [], name="w")
    text = told(list(doctor.check_workers(inspection.list_registered_workers(connect()))), "clock")
    assert re.search(r"the clock of h differed from the database's by \+7(200|199) s at the last heartbeat of w", text)


def test_workers_that_are_gone_or_differ_are_named(db: psycopg.Connection, connect: Open) -> None:
    add = (
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, seen_at,"
        " clock_ahead_s, tz_version)"
        " VALUES (%s, 'h', 1, '1', 1, '{task}', '{}', '30 s', now() - %s::interval, %s, %s)"
    )
    db.execute(add, ["gone", "900 s", 0.01, "2025a"])
    db.execute(add, ["old", "1 s", 0.01, "2025a"])
    db.execute(add, ["new", "1 s", -3600, "2026z"])
    found = list(doctor.check_workers(inspection.list_registered_workers(connect())))
    assert "gone was last seen 9" in told(found, "worker", "warn")
    assert "the clock of h differed from the database's by -3600 s at the last heartbeat of new" in told(found, "clock")
    assert "2025a (old)" in told(found, "tz_version")
    assert "2026z (new)" in told(found, "tz_version")
    assert f"{tzdata_version()} (this program)" in told(found, "tz_version")
    assert "1 (new)" in told(found, "version")
    assert f"{pgsched.__version__} (this program)" in told(found, "version")


def test_the_trend_of_dead_rows_is_reported() -> None:
    row = {"name": "runs", "live": 10, "limit": 1000.0, "vacuumed_s": None, "off": False}
    found = list(doctor.dead_rows([row | {"dead": 80_000}], [row | {"dead": 90_000}], 2.0))
    assert "90000 dead rows (+5000/s) beside 10 live ones, vacuumed never" in told(found, "vacuum", "warn")
    found = list(doctor.dead_rows([row | {"dead": 10}], [row | {"dead": 20, "off": True}], 2.0))
    assert "autovacuum is off for table runs" in told(found, "vacuum", "warn")
    assert "20 dead rows in all tables (+5/s)" in told(found, "vacuum", "ok")


def test_asynchronous_standbys_are_warned_of() -> None:
    assert [one.level for one in doctor.replication({"standbys": 2, "synchronous": 0})] == ["warn"]
    assert [one.level for one in doctor.replication({"standbys": 2, "synchronous": 1})] == []


def test_no_pooler_is_reported_where_there_is_none(db: psycopg.Connection[Any]) -> None:
    assert list(doctor.poolers(db)) == []


def test_strict_counts_warnings() -> None:
    found = [doctor.warn("x", "y")]
    assert (doctor.exit_code(found), doctor.exit_code(found, strict=True)) == (0, 1)

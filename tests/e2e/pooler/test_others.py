"""pgsched leaves nothing behind in pooled sessions that other clients use after it."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched.db.connection.connect import BY_INDEX, BY_KEY, connect
from pgsched.db.connection.handler_pool import IdleConnections
from tests.support.bouncer import Bouncer
from tests.support.fleet import Fleet, enqueue, one, wait_for_leader
from tests.support.pooled import SECONDLY, cli, ended
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

WATCHED = (
    "search_path", "statement_timeout", "lock_timeout", "enable_seqscan", "enable_sort", "jit", "plan_cache_mode",
    "role",
    "TimeZone", "application_name", "idle_in_transaction_session_timeout", "idle_session_timeout",
    "default_transaction_isolation", "client_connection_check_interval", "transaction_isolation",
)  # fmt: skip
SHOW = "SELECT " + ", ".join(f"current_setting('{name}')" for name in WATCHED)
LEFT = (
    "SELECT (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_prepared_statements"
    "  WHERE name NOT LIKE 'PGBOUNCER%'),"  # PgBouncer's own: it shares them between clients that send the same text
    " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
)


class Watcher(threading.Thread):
    """Another client of the same pool, which reads the state of its session again and again."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        super().__init__(daemon=True)
        self.conn = conn
        self.before = conn.execute(SHOW.encode()).fetchone()
        self.seen: set[Any] = set()
        self.left: set[Any] = set()
        self.sessions: set[int] = set()
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            with self.conn.transaction():
                self.seen.add(self.conn.execute(SHOW.encode()).fetchone())
                self.left.add(self.conn.execute(LEFT.encode()).fetchone())
                self.sessions.add(self.conn.execute("SELECT pg_backend_pid()").fetchone()[0])  # type: ignore[index]


@pytest.mark.long
def test_a_foreign_client_never_sees_a_setting_of_pgsched(
    bouncer: Bouncer, fleet: Fleet, foreign: psycopg.Connection[Any], db: psycopg.Connection[Any]
) -> None:
    foreign.execute("SET TimeZone TO 'Asia/Tokyo'")  # poolers keep this setting apart for each client
    watcher = Watcher(foreign)
    watcher.start()
    fleet.start(2, "--app", "tests.support.apps.pooled:app", "--allow", "task,sql")
    db.execute(SECONDLY.encode())
    wait_for_leader(db)
    made = [enqueue(db, task) for task in ("own", "own_async", "talk", "spawn") for _ in range(5)]
    made += [one(db, "INSERT INTO pgsched.runs (kind, task) VALUES ('sql', 'SELECT 1') RETURNING id") for _ in range(5)]
    assert {ended(db, run_id, 60) for run_id in made} == {"succeeded"}
    for command in (["status"], ["doctor"], ["check"], ["run", "list"], ["job", "list"]):
        assert "Traceback" not in cli(bouncer, *command).stderr
    wait_until(lambda: len(watcher.sessions) > 1, 30, "the foreign client to see several sessions")
    watcher.done.set()
    watcher.join()
    print(f"{len(watcher.sessions)} sessions")
    assert watcher.seen == {watcher.before}
    assert watcher.left == {(0, 0, 0)}


def test_sessions_of_the_pool_are_unchanged_after_pgsched_has_disconnected(
    bouncer: Bouncer, db: psycopg.Connection[Any]
) -> None:
    name = sql.Identifier(db.info.dbname)
    db.execute(sql.SQL("ALTER DATABASE {} SET timezone TO 'Europe/Berlin'").format(name))
    with psycopg.connect(bouncer.dsn, autocommit=True, prepare_threshold=None) as foreign:
        before = foreign.execute(SHOW.encode()).fetchone()
    for settings in (BY_KEY, BY_INDEX, {"idle_session_timeout": "10000"}):
        with connect(bouncer.dsn, timeout_s=3, settings=settings) as conn:
            for n in range(10):
                conn.execute("SELECT %s::int", [n])
            with conn.transaction():
                assert conn.execute("SELECT current_setting('TimeZone')").fetchone() == ("UTC",)
    idle = IdleConnections(bouncer.dsn)
    for _ in range(2):
        with idle.lend() as conn, conn.transaction():
            conn.execute("SELECT 1")
    foreigners = [
        psycopg.connect(make_conninfo(bouncer.dsn), autocommit=True, prepare_threshold=None) for _ in range(5)
    ]
    for foreign in foreigners:
        foreign.execute("BEGIN")  # so that each has its own session
    assert {foreign.execute(SHOW.encode()).fetchone() for foreign in foreigners} == {before}
    assert {foreign.execute(LEFT.encode()).fetchone() for foreign in foreigners} == {(0, 0, 0)}
    for foreign in foreigners:
        foreign.close()

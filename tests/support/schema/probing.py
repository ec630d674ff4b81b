"""A database with many rows, and sessions that work in it while it is migrated to the next release (releases.py)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

BATCH = 250_000
RUNS = """
INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, created_at, started_at, finished_at, worker_id, token,
    attempt, phase, state, queue, task, args, origin)
SELECT CASE WHEN n % 4 = 0 THEN 1 + n % 1000 END, CASE WHEN n % 4 = 0 THEN at END, at, at, at, at, 1, gen_random_uuid(),
    1, CASE WHEN n % 50 = 0 THEN 4 ELSE 3 END, CASE WHEN n % 50 = 0 THEN 'dead' ELSE 'succeeded' END,
    'q' || n % 7, 'task.' || n % 30,
    jsonb_build_object('customer', n, 'note', 'from before'), CASE WHEN n % 4 = 0 THEN 'schedule' ELSE 'enqueue' END
FROM (SELECT n, '2025-01-01Z'::timestamptz + n * interval '1 second' AS at FROM generate_series(%s::int, %s::int) n) x
"""
ATTEMPTS = """
INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, finished_at, worker, error)
SELECT r.id, r.token, 1, 'failed', r.started_at, r.finished_at, 'w', 'it did not work' FROM pgsched.runs r
WHERE r.id BETWEEN %s AND %s
"""
LOGS = """
INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk)
SELECT n, 1, 1, 'stdout', 'a line of output' FROM generate_series(%s::int, %s::int) n WHERE n %% 10 = 0
"""
CLAIM = """
UPDATE pgsched.runs r SET state = 'running', token = gen_random_uuid(), attempt = attempt + 1,
    started_at = clock_timestamp(), lease_until = clock_timestamp() + interval '30 s'
WHERE id IN (SELECT id FROM pgsched.runs WHERE phase = 2 AND state = 'queued' AND queue = 'default'
             ORDER BY queue, priority, available_at, id LIMIT 5 FOR UPDATE SKIP LOCKED) RETURNING id, token
"""
SETTLE = """
UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp(), lease_until = NULL
WHERE id = %s AND token = %s AND state = 'running' RETURNING id
"""


def fill(dsn: str, rows: int) -> None:
    """Insert `rows` ended runs, as many attempts, and a tenth as many pieces of output."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule) SELECT 'job ' || n, 't', '0 3 * * *'"
                   " FROM generate_series(1, 1000) n")  # fmt: skip
        db.execute("SET session_replication_role = replica")  # triggers do not run
        for start in range(1, rows + 1, BATCH):
            edges = [start, min(rows, start + BATCH - 1)]
            for statement in (RUNS.replace(" % ", " %% "), ATTEMPTS, LOGS):
                db.execute(statement, edges)
        db.execute("VACUUM (ANALYZE) pgsched.runs")


class Prober:
    """Sessions that each repeat one action every few milliseconds; `longest` holds the longest time of each action."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.longest: dict[str, float] = {}
        self.done: dict[str, int] = {}
        self.errors: list[str] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(name, act), daemon=True) for name, act in ACTS.items()]

    def __enter__(self) -> Prober:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads), "a session of the prober hangs"

    def _go(self, name: str, act: Callable[[psycopg.Connection[Any]], None]) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as db:
            while not self._end.wait(0.005):
                began = time.monotonic()
                try:
                    act(db)
                except psycopg.Error as error:
                    self.errors.append(f"{name}: {error.sqlstate} {error}")
                self.longest[name] = max(self.longest.get(name, 0.0), time.monotonic() - began)
                self.done[name] = self.done.get(name, 0) + 1


def enqueue(db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('probe')")


def enqueue_once(db: psycopg.Connection[Any]) -> None:
    key = f"probe {uuid.uuid4()}"
    ids = {db.execute("SELECT pgsched.enqueue('probe', idempotency_key => %s)", [key]).fetchone() for _ in "12"}
    assert len(ids) == 1, "the key gave two runs"


def work(db: psycopg.Connection[Any]) -> None:
    for claimed in db.execute(CLAIM).fetchall():
        assert db.execute(SETTLE, claimed).fetchone() is not None


def read(db: psycopg.Connection[Any]) -> None:
    db.execute("SELECT state, task FROM pgsched.runs WHERE id = 42")
    db.execute("SELECT name FROM pgsched.jobs WHERE id = 1")


def edit(db: psycopg.Connection[Any]) -> None:
    db.execute("UPDATE pgsched.jobs SET priority = 1 + priority %% 5 WHERE id = 7", [])


ACTS = {"insert": enqueue, "enqueue with a key": enqueue_once, "claim and settle": work, "read": read, "edit": edit}


@contextmanager
def copied(maintenance: psycopg.Connection[Any], source: str, name: str) -> Iterator[None]:
    """Copy a database, and drop the copy after the block."""
    # Before PostgreSQL 15 there is no other strategy.
    strategy = "STRATEGY file_copy" if maintenance.info.server_version >= 150_000 else ""
    maintenance.execute(psycopg.sql.SQL("CREATE DATABASE {} TEMPLATE {} {}").format(
        psycopg.sql.Identifier(name), psycopg.sql.Identifier(source), psycopg.sql.SQL(strategy)))  # fmt: skip
    try:
        yield
    finally:
        maintenance.execute(psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(psycopg.sql.Identifier(name)))

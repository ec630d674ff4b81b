"""A duty that twice crashes the server is left undone, and a restart of the server is blamed on no duty.

When one backend is killed, the server ends all sessions and recovers.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.db.schema.migrate import upgrade
from pgsched.leader import backfill
from pgsched.leader.election import Leader
from tests.support.db.poisoning import add_backfills
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

SLOTS = "SELECT count(*) FROM pgsched.runs WHERE origin = 'schedule'"
LOST = "SELECT coalesce(max(tries), 0) FROM pgsched.set_aside WHERE row_id = 'session'"


@contextmanager
def leading(dsn: str) -> Iterator[None]:
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1), "leader")
    thread = threading.Thread(target=leader.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        leader.stop()
        thread.join(10)


def asked(dsn: str, query: str) -> Any:
    """Return the first value that a query gives, or None while the server is away."""
    try:
        with closing(psycopg.connect(dsn, autocommit=True)) as conn:
            row = conn.execute(query.encode()).fetchone()
            return None if row is None else row[0]
    except psycopg.OperationalError:
        return None


@pytest.fixture
def server(private_cluster: PrivateCluster) -> PrivateCluster:
    """Return a server with a job that is due each second."""
    upgrade(private_cluster.dsn)
    with closing(psycopg.connect(private_cluster.dsn, autocommit=True)) as db:
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule, overlap) VALUES ('s', 't', '@every 1s', 'allow')")
    return private_cluster


def test_a_duty_whose_backend_is_killed_twice_is_left_undone(
    server: PrivateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(psycopg.connect(server.dsn, autocommit=True)) as db:
        add_backfills(db, 1)
    calls: list[float] = []

    def costly(conn: psycopg.Connection, *_: object) -> Any:
        """Kill the backend, as the kernel does when memory runs out."""
        calls.append(time.monotonic())
        os.kill(conn.info.backend_pid, signal.SIGKILL)
        return conn.execute("SELECT pg_sleep(30)").fetchall()

    monkeypatch.setattr(backfill, "run_backfills", costly)
    with leading(server.dsn):
        wait_until(lambda: asked(server.dsn, LOST) == 2, 60, "the second session to be lost")
        before = asked(server.dsn, SLOTS)
        wait_until(lambda: (asked(server.dsn, SLOTS) or 0) > before + 2, 30, "further slots")
    assert len(calls) == 2


def test_restarts_of_the_server_leave_no_duty_undone(server: PrivateCluster) -> None:
    with leading(server.dsn):
        for mode in ("fast", "immediate", "fast"):
            before = asked(server.dsn, SLOTS)
            wait_until(lambda before=before: (asked(server.dsn, SLOTS) or 0) > before, 30, "a slot")  # type: ignore[misc]
            server.stop(mode)  # type: ignore[arg-type]
            server.start()
        before = asked(server.dsn, SLOTS)
        wait_until(lambda: (asked(server.dsn, SLOTS) or 0) > before, 30, "a slot")
        assert asked(server.dsn, LOST) < 2

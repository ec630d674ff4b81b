"""A leader that is cut off or frozen inside a transaction keeps its locks no longer than its session's timeout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgsched.chaos.site.proxy import Proxy
from pgsched.db.connection.connect import DatabaseError, connect
from pgsched.leader import admission
from tests.support.db.leading import lead
from tests.support.db.limiting import add, limit
from tests.support.db.setting import Aside
from tests.support.waiting import wait_until

TIMEOUT_S = 1
FENCE = """SELECT count(*) FROM pg_locks WHERE pid = %s AND (locktype = 'advisory'
    OR relation = 'pgsched.leader'::regclass AND mode = 'RowShareLock')"""


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as running:
        yield running


def session(proxy: Proxy) -> psycopg.Connection[Any]:
    ends = {"idle_session_timeout": f"{TIMEOUT_S}s", "idle_in_transaction_session_timeout": f"{TIMEOUT_S}s"}
    return connect(proxy.dsn, purpose="leader", timeout_s=5, settings=ends)


def locks(db: psycopg.Connection, pid: int) -> int:
    row = db.execute(FENCE, [pid]).fetchone()
    assert row is not None
    return int(row[0])


def part_in(proxy: Proxy, db: psycopg.Connection, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the leader off inside its admission: from then on the server gets nothing from the leader."""
    real = admission.limits.list_waiting_groups

    def parted(*args: Any) -> Any:
        found = real(*args)
        assert locks(db, pid) == 1, "it is inside of the fence"
        proxy.silence("up")
        return found

    monkeypatch.setattr(admission.limits, "list_waiting_groups", parted)


def test_a_leader_cut_off_during_admission_loses_its_locks(
    db: psycopg.Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(db, "k", 1)
    add(db, 1, key="k")
    with session(proxy) as conn:
        pid = conn.info.backend_pid
        loop = lead(conn)
        part_in(proxy, db, pid, monkeypatch)
        admitting = Aside(loop.run_once)
        wait_until(lambda: locks(db, pid) == 1)
        wait_until(lambda: locks(db, pid) == 0, TIMEOUT_S + 5, "the server to end the session")
        proxy.heal()
        with pytest.raises(DatabaseError):
            admitting.result()


@pytest.mark.long
def test_in_a_pipeline_the_server_applies_no_session_timeout(db: psycopg.Connection, proxy: Proxy) -> None:
    """This is why the leader's admission uses no pipeline."""
    with session(proxy) as conn:
        pid = conn.info.backend_pid
        with pytest.raises(DatabaseError), conn.pipeline(), conn.transaction():
            conn.execute("SELECT pg_advisory_xact_lock(1)").fetchone()
            proxy.silence("up", "down")
            with pytest.raises(AssertionError, match="never"):
                never_within(lambda: locks(db, pid) == 0, TIMEOUT_S * 2.5)
            proxy.cut()
            conn.execute("SELECT 1").fetchone()


def never_within(condition: Any, seconds: float) -> None:
    try:
        wait_until(condition, seconds)
    except pytest.fail.Exception:
        raise AssertionError("never") from None

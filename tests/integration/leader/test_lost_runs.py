"""Runs lost with a worker are counted in its row without waiting for a lock; leases that are too long end once."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import DatabaseError
from pgsched.db.queries.leader import expired_leases
from pgsched.leader.reaper import LeaseSearch, ReapQuery
from tests.support.db.leading import lead
from tests.support.db.setting import Open, add_runs, cut, take
from tests.support.waiting import wait_until


@pytest.mark.parametrize("guarded", [True, False])
def test_recording_the_runs_of_a_lost_worker_waits_for_no_lock(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    db.execute("INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
               " VALUES ('w', 'h', 1, '1', 1, '{task}', '{t}', '30 s')")  # fmt: skip
    db.execute("INSERT INTO pgsched.runs (task, worker_id) VALUES ('t', 1)")
    if not guarded:
        cut(monkeypatch, "lost_note", " FOR UPDATE SKIP LOCKED", " FOR UPDATE")
    person, leader = connect(autocommit=False), connect(options="-c lock_timeout=300ms")
    person.execute("SELECT FROM pgsched.workers FOR UPDATE")
    if guarded:
        assert expired_leases.note_lost(leader, [1]) == {1: {"id": 1, "task": "t", "worker": "w"}}
        person.rollback()
        for _ in range(2):
            expired_leases.note_lost(leader, [1])
        assert db.execute("SELECT lost_runs FROM pgsched.workers").fetchone() == ({"t": 2},)
    else:
        with pytest.raises(DatabaseError, match="lock timeout"):
            expired_leases.note_lost(leader, [1])


@pytest.mark.long
def test_a_lease_longer_than_its_worker_s_is_left_alone_once_all_were_shortened(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long lease of an unknown worker may be right. It must be renewed once, and not all the time."""
    really, searches = LeaseSearch.search, list[bool]()

    def noted(search: LeaseSearch, conn: Any, query: ReapQuery) -> Any:
        searches.append(query.wants_long_leases)
        return really(search, conn, query)

    monkeypatch.setattr(LeaseSearch, "search", noted)
    add_runs(db, 1)
    loop = lead(db, reap_every_s=0.05)
    loop.run_once()
    take(db, 1, lease_s=600)
    first = len(searches)
    wait_until(lambda: loop.run_once() >= 0 and len(searches) > first + 2, 20, "three searches")
    assert searches[first:] == [False] * 3
    left = "SELECT lease_until > clock_timestamp() + interval '500 s' FROM pgsched.runs"
    assert db.execute(left).fetchone() == (True,)

"""What lost workers held is noted, and waits for nobody."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.connection.connect import DatabaseError
from pgsched.db.queries.leader import expired_leases
from tests.support.db.setting import Open, cut


@pytest.mark.parametrize("guarded", [True, False])
def test_noting_what_a_lost_worker_held_waits_for_nobody(
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

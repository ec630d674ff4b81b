"""What names a run outside of the database, and whose the database is, only the owner and the leader write."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.support.logins import Logins

WRITABLE = (
    "SELECT r.name, c.name, p.what FROM unnest(%s::text[]) r(name), unnest(%s::text[]) c(name),"
    " unnest('{INSERT,UPDATE}'::text[]) p(what)"
    " WHERE has_column_privilege(r.name, 'pgsched.' || split_part(c.name, '.', 1), split_part(c.name, '.', 2), p.what)"
)


def test_what_names_a_run_is_for_nobody_to_write(logins: Logins, db: psycopg.Connection[Any]) -> None:
    roles = ["pgsched_producer", "pgsched_operator", "pgsched_worker", "pgsched_viewer"]
    columns = ["runs.created_at", "runs.reruns", "identity.database", "identity.fleet"]
    assert db.execute(WRITABLE, [roles, columns]).fetchall() == []
    assert db.execute(WRITABLE, [["pgsched_leader"], columns[:2]]).fetchall() != [], "it makes the runs of jobs"
    for name in ("worker", "alice", "eye"):
        assert logins.connect(name).execute("SELECT fleet IS NOT NULL FROM pgsched.identity").fetchone() == (True,)

"""Columns that identify a run outside of the database: the owner and the leader write them, no other role does.

The columns that identify the database itself are for its owner alone.
"""

from __future__ import annotations

from typing import Any

import psycopg

from tests.support.logins import Logins

WRITABLE = (
    "SELECT r.name, c.name, p.what FROM unnest(%s::text[]) r(name), unnest(%s::text[]) c(name),"
    " unnest('{INSERT,UPDATE}'::text[]) p(what)"
    " WHERE has_column_privilege(r.name, 'pgsched.' || split_part(c.name, '.', 1), split_part(c.name, '.', 2), p.what)"
)


def test_only_the_leader_s_role_can_write_columns_that_identify_a_run(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    roles = ["pgsched_producer", "pgsched_operator", "pgsched_worker", "pgsched_viewer"]
    columns = ["runs.created_at", "runs.reruns", "identity.database", "identity.fleet"]
    assert db.execute(WRITABLE, [roles, columns]).fetchall() == []
    assert db.execute(WRITABLE, [["pgsched_leader"], columns[:2]]).fetchall() != [], "it makes the runs of jobs"
    for name in ("worker", "alice", "eye"):
        assert logins.connect(name).execute("SELECT fleet IS NOT NULL FROM pgsched.identity").fetchone() == (True,)

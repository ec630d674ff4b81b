"""docs/how-to/enqueue.md: the table names every option, and the grants that the page names are enough."""

from __future__ import annotations

import re
from typing import Any

import psycopg

from pgsched.app.options import OPTIONS
from tests.support.db.passing import keep_next_slots
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "how-to" / "enqueue.md"


def test_every_option_and_every_parameter_is_named(db: psycopg.Connection[Any]) -> None:
    table = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    python = {name for row in table for name in re.findall(r"`(\w+)`", row[1])}
    assert python >= OPTIONS.keys()
    row = db.execute("SELECT proargnames FROM pg_proc WHERE oid = 'pgsched.enqueue'::regproc").fetchone()
    assert row is not None
    # `expires` takes an instant in Python; in SQL that is another parameter
    assert python >= set(row[0]) - {"task", "args", "kind", "expires_at"}


def test_a_role_with_the_grants_that_the_page_names_may_enqueue(db: psycopg.Connection[Any], session_name: str) -> None:
    role = f"pgsched_enqueuer_{session_name}_{db.info.backend_pid}"
    db.execute(f"CREATE ROLE {role}".encode())
    try:
        db.execute(f"GRANT USAGE ON SCHEMA pgsched TO {role}".encode())
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA pgsched TO {role}".encode())
        db.execute(f"GRANT INSERT, UPDATE ON pgsched.runs TO {role}".encode())
        db.execute(f"GRANT INSERT, UPDATE, DELETE ON pgsched.kept_keys TO {role}".encode())
        db.execute(f"GRANT INSERT, UPDATE, DELETE ON pgsched.jobs TO {role}".encode())
        db.execute(f"SET ROLE {role}".encode())
        for options in ("", ", unique_key => 'a', on_conflict => 'replace'", ", idempotency_key => 'b'",
                        ", unique_key => 'c', unique_scope => 'bucket(1 day)', on_conflict => 'reject'"):  # fmt: skip
            run_id = db.execute(f"SELECT pgsched.enqueue('t'{options})".encode()).fetchone()
            db.execute("SELECT pgsched.cancel(%s), pgsched.retry(%s)", [*(run_id or ()), *(run_id or ())])
        db.execute("SELECT pgsched.first_result('b')")
        for deletion in ("SELECT pgsched.delete_job('a')", "DELETE FROM pgsched.jobs"):
            db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 't', '@daily')")
            db.execute("RESET ROLE")
            keep_next_slots(db)
            assert db.execute("SELECT count(*) FROM pgsched.next_slots").fetchone() == (1,)
            db.execute(f"SET ROLE {role}".encode())
            assert db.execute(deletion.encode()).rowcount == 1
            assert db.execute("SELECT count(*) FROM pgsched.next_slots").fetchone() == (0,)
    finally:
        db.execute("RESET ROLE")
        db.execute(f"DROP OWNED BY {role}".encode())
        db.execute(f"DROP ROLE {role}".encode())

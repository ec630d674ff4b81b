"""Jobs that are due each second, and commands, behind a pooler."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import psycopg

from tests.support.bouncer import Bouncer
from tests.support.fleet import one, state
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

Db = psycopg.Connection[Any]
SECONDLY = "INSERT INTO pgsched.jobs (name, schedule, task, overlap) VALUES ('j', '@every 1s', 'note', 'allow')"


def cli(bouncer: Bouncer, *args: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")} | {"PGSCHED_DSN": bouncer.dsn}
    return subprocess.run(
        [sys.executable, "-m", "pgsched", *args], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )


def ended(db: Db, run_id: int, timeout: float = 30) -> str:
    wait_until(lambda: one(db, "SELECT phase >= 3 FROM pgsched.runs WHERE id = %s", run_id), timeout, "a run to end")
    return state(db, run_id)


def check_slots(db: Db) -> None:
    """Check that no slot is missing, that none has two runs, and that no run was made twice."""
    gaps = db.execute(
        "SELECT extract(epoch FROM scheduled_at - lag(scheduled_at) OVER (ORDER BY scheduled_at))::float8"
        " FROM pgsched.runs WHERE job_id IS NOT NULL"
    ).fetchall()
    assert set(gaps) == {(None,), (1.0,)}
    assert (
        db.execute("SELECT run_id FROM ledger WHERE event = 'end' GROUP BY run_id HAVING count(*) > 1").fetchall() == []
    )

"""A pooler in session mode is as good as none, statement mode is refused, and the console works through a pooler."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.bouncer import Bouncer
from tests.support.fleet import Fleet, enqueue, one, unaccounted, wait_for_leader
from tests.support.paths import ROOT
from tests.support.pooled import SECONDLY, check_slots, cli, ended
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

Db = psycopg.Connection[Any]
Pooled = Callable[..., Bouncer]
LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.mark.long
def test_in_session_mode_workers_listen_and_the_leader_holds_its_lock(
    pooled: Pooled, fleet_through: Callable[[Bouncer], Fleet], db: Db
) -> None:
    bouncer = pooled(pool_mode="session", default_pool_size=40)
    fleet = fleet_through(bouncer)
    fleet.start(2, "--app", "tests.support.apps.pooled:app", "--poll", "30", "--allow", "task,sql")
    leader = wait_for_leader(db)
    db.execute(SECONDLY.encode())
    runs = [
        enqueue(db, task) for task in ("own", "own_async", "talk", "spawn")
    ]  # a poll alone would find them much later
    assert {ended(db, run_id, 20) for run_id in runs} == {"succeeded"}
    assert one(db, LOCKS) >= 1
    assert "in session mode" in cli(bouncer, "status").stdout
    assert "in session mode: as good as none" in cli(bouncer, "doctor").stdout
    fleet.by_pid(leader).signal(signal.SIGSTOP)  # its session ends by itself, as without a pooler
    wait_for_leader(db, other_than=leader, timeout=20)
    wait_until(
        lambda: one(db, "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL AND phase >= 3") > 3, 30, "slots"
    )
    check_slots(db)
    assert unaccounted(db) == []


@pytest.mark.long
def test_in_statement_mode_every_command_ends_with_one_clear_line(pooled: Pooled) -> None:
    bouncer = pooled(pool_mode="statement")
    for command in (["status"], ["worker", "--allow", "shell"], ["run", "list"], ["doctor"], ["check"], ["leader"]):
        done = cli(bouncer, *command)
        assert done.returncode == 2, (command, done.stdout, done.stderr)
        said = [line for line in (done.stdout + done.stderr).splitlines() if "statement mode" in line]
        assert len(said) == 1 and "Traceback" not in done.stderr


@pytest.mark.long
def test_the_console_works_through_a_pooler(bouncer: Bouncer, db: Db, tmp_path: Path) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('nightly', '0 2 * * *', 't')")
    said = tmp_path / "err"
    command = [sys.executable, "-m", "pgsched", "web", "--no-auth", "--port", "0"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")} | {"PGSCHED_DSN": bouncer.dsn}
    env["PGSCHED_HOME"] = str(tmp_path / "home")
    with said.open("w") as err, subprocess.Popen(command, cwd=ROOT, stderr=err, env=env) as process:
        try:
            pattern = re.compile(r"pgsched web: (http://127\.0\.0\.1:\d+/)\n")
            found = wait_until(lambda: pattern.search(said.read_text()), 60, "the address")
            for page in ("healthz", "", "jobs", "runs", "workers", "queues", "api/v1/jobs", "doctor"):
                with urllib.request.urlopen(f"{found[1]}{page}", timeout=30) as answer:
                    assert answer.status == 200 and answer.read()
        finally:
            process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert "Traceback" not in said.read_text()


def test_the_first_connection_through_a_pooler_takes_less_than_two_seconds(bouncer: Bouncer, dsn: str) -> None:
    from pgsched.db.connection import routes
    from pgsched.db.connection.connect import connect

    began = time.monotonic()
    connect(bouncer.dsn).close()
    took_s = time.monotonic() - began
    print(f"found out in {1000 * took_s:.0f} ms")
    assert routes.pooled(bouncer.dsn)
    assert took_s < 2

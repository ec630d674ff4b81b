"""Text that others wrote reaches neither a terminal nor a page as it is, whichever command shows it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.paths import ROOT

EVIL = "a\x1b[2Jb\x07c\x9b31md\u202ee"
FORBIDDEN = ("\x1b[2J", "\x07", "\x9b", "\u202e")


@pytest.fixture
def hostile(dsn: str, db: psycopg.Connection[Any]) -> str:
    """A database in which whatever takes such text has it."""
    for statement, values in (
        ("INSERT INTO pgsched.jobs (name, schedule, task, description) VALUES ('nightly', '* * * * *', %s, %s)",
         [EVIL, EVIL]),
        ("UPDATE pgsched.jobs SET error = %s, error_at = now(), paused_reason = %s", [EVIL, EVIL]),
        ("INSERT INTO pgsched.runs (kind, task, args, tags) VALUES ('shell', %s, %s, %s)",
         [EVIL, Jsonb({"env": {EVIL: EVIL}}), [EVIL]]),
        ("UPDATE pgsched.runs SET state = 'dead', finished_at = now(), attempt = 1, error = %s, reason = %s,"
         " progress = %s, result = %s", [EVIL, EVIL, Jsonb({"note": EVIL}), Jsonb({EVIL: EVIL})]),
        ("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, worker, error, traceback, log_tail)"
         " VALUES (1, gen_random_uuid(), 1, 'failed', %s, %s, %s, %s)", [EVIL] * 4),
        ("INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) VALUES (1, 1, 1, 'stdout', %s)", [EVIL]),
        ("INSERT INTO pgsched.runs (kind, task) VALUES ('shell', %s)", [EVIL]),
        ("INSERT INTO pgsched.pauses (what, name, reason) VALUES ('queue', 'q', %s)", [EVIL]),
        ("INSERT INTO pgsched.workers (name, hostname, pid, version, app, concurrency, kinds, tasks, lease,"
         " blocked_by, blocked_at, tz_version)"
         " VALUES (%s, %s, 1, %s, %s, 1, '{shell}', '{}', '1 hour', %s, now(), %s)", [EVIL] * 6),
        ("INSERT INTO pgsched.leader (term, holder, hostname, pid) VALUES (1, %s, %s, 1)", [EVIL, EVIL]),
    ):  # fmt: skip
        with contextlib.suppress(psycopg.errors.CheckViolation), db.transaction():  # refused: so much the better
            db.execute(statement.encode(), values)
    return dsn


@pytest.mark.parametrize(
    "command",
    ["status", "doctor", "run list", "run show 1", "run logs 1", "run tree 1", "job list", "job show nightly", "audit",
     "queue list", "run retry 1", "job pause nightly --reason x", "retention show", "limit list", "run cancel 2"],
)  # fmt: skip
def test_no_command_shows_a_control_character(hostile: str, command: str) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")} | {"PGSCHED_DSN": hostile}
    for more in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "pgsched", *command.split(), *more],
            cwd=ROOT,
            env=env,
            capture_output=True,
            timeout=60,
        )
        said = (done.stdout + done.stderr).decode()
        assert "Traceback" not in said, said
        assert [repr(text) for text in FORBIDDEN if text in said] == []

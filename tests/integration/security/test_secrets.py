"""A password appears in nothing that others can read: logs, lists of processes and sessions, answers, tracebacks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import connect
from pgsched.errors import PgschedError
from tests.support.logins import superuser
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

LONG = pytest.mark.long
SECRET = "hunter2-very-secret"
URL = f"postgresql://postgres:{SECRET}@127.0.0.1:1/nowhere"


@pytest.fixture
def secret_dsn(dsn: str, db: psycopg.Connection[Any]) -> Iterator[str]:
    """Yield a DSN of the test's database with the secret as the password."""
    with superuser(db, dsn, SECRET) as secret:
        yield secret


def pgsched(*args: str, **environ: str) -> str:
    """Run a command, and return all of its output."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")} | environ
    done = subprocess.run(
        [sys.executable, "-m", "pgsched", *args], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


COMMANDS = (["status"], ["doctor"], ["check"], ["worker", "--allow", "shell"], ["migrate"], ["run", "list"],
            ["status", "--json"], ["check", "--json"])  # fmt: skip
BAD = (f"host=127.0.0.1 port=1 password={SECRET}", f"{URL}?nonsense=1", f"host=127.0.0.1 port=x password='{SECRET}'")

FEW = (["check"], ["worker", "--allow", "shell"])


# each command runs with one DSN, and each DSN with a few commands; the other pairs give the same messages
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("command", "bad"),
    [
        *((command, URL) for command in COMMANDS),
        *(pytest.param(command, bad, marks=() if command in FEW else LONG) for command in COMMANDS for bad in BAD),
    ],
)
def test_a_command_that_fails_does_not_print_the_password(command: list[str], bad: str) -> None:
    assert SECRET not in pgsched(*command, PGSCHED_DSN=bad, PGSCHED_LOG="debug")
    assert SECRET not in pgsched(*command, "--dsn", bad, PGSCHED_LOG="debug")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "command", [["status"], ["status", "--json"], ["doctor", "--json"], ["check"], ["run", "list"]]
)
def test_a_command_that_succeeds_does_not_print_the_password(secret_dsn: str, command: list[str]) -> None:
    assert SECRET not in pgsched(*command, PGSCHED_DSN=secret_dsn)


@pytest.mark.long
def test_sessions_and_processes_do_not_show_the_password(
    secret_dsn: str, db: psycopg.Connection[Any], tmp_path: Path
) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")}
    command = [sys.executable, "-m", "pgsched", "worker", "--allow", "shell,sql",
               "--dsn", secret_dsn, "--sql-dsn", f"other={secret_dsn}"]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=ROOT, env=env | {"PGSCHED_LOG": "debug"}, stdout=log, stderr=log,
                                  stdin=subprocess.DEVNULL)  # fmt: skip
    try:
        wait_until(lambda: b"started" in (tmp_path / "log").read_bytes(), 30, "the worker")
        db.execute("INSERT INTO pgsched.runs (kind, task, options) VALUES ('sql', 'SELECT 1', '{\"dsn\": \"other\"}')")
        db.execute("INSERT INTO pgsched.runs (kind, task) VALUES ('shell', 'exit 0')")
        wait_until(
            lambda: db.execute("SELECT bool_and(phase >= 3) FROM pgsched.runs").fetchone() == (True,), 30, "runs"
        )
        seen = db.execute(
            "SELECT string_agg(a::text, ' ') FROM pg_stat_activity a WHERE datname = current_database()"
        ).fetchone()
        assert seen is not None and SECRET not in seen[0] and "pgsched" in seen[0]
        rows = db.execute("SELECT string_agg(w::text, '') FROM pgsched.workers w").fetchone()
        assert rows is not None and SECRET not in rows[0]
        shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert SECRET not in shown
        assert SECRET not in (tmp_path / "log").read_text()
    finally:
        worker.terminate()
        worker.wait(30)
    assert SECRET not in (tmp_path / "log").read_text()


def test_no_error_contains_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in (URL, f"host=127.0.0.1 port=1 password={SECRET}", f"{URL}?nonsense=1", f"password={SECRET} nonsense"):
        with pytest.raises(PgschedError) as caught:
            connect(bad)
        assert SECRET not in str(caught.value) + repr(caught.value)

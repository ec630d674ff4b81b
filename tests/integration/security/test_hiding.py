"""A password on the command line does not stay in the list of processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from pgsched.cli.password_hiding import hidden
from tests.support.waiting import wait_until

SECRET = "postgresql://u:hunter2@h/d"


@pytest.mark.parametrize(
    ("args", "kept", "moved"),
    [
        (["status", "--dsn", SECRET, "--json"], ["status", "--json"], {"PGSCHED_DSN": SECRET}),
        (["status", f"--dsn={SECRET}"], ["status"], {"PGSCHED_DSN": SECRET}),
        (["worker", "--sql-dsn", f"dwh={SECRET}"], ["worker", "--sql-dsn", "dwh"], {"PGSCHED_SQL_DSN_DWH": SECRET}),
        (["worker", "--sql-login", SECRET], ["worker"], {"PGSCHED_SQL_LOGIN": SECRET}),
        (["worker", f"--sql-dsn=dwh={SECRET}", "--dsn", "host=h"], ["worker", "--sql-dsn", "dwh", "--dsn", "host=h"],
         {"PGSCHED_SQL_DSN_DWH": SECRET}),
    ],
)  # fmt: skip
def test_what_has_a_password_goes_through_the_environment(
    args: list[str], kept: list[str], moved: dict[str, str]
) -> None:
    assert hidden(args, {"HOME": "/"}) == (kept, {"HOME": "/", **moved})


@pytest.mark.parametrize(
    "args", [[], ["status"], ["status", "--dsn"], ["status", "--dsn", "host=h user=u"], ["psql", "--", "--dsn", SECRET]]
)
def test_what_has_none_stays_as_it_is(args: list[str]) -> None:
    assert hidden(args, {}) is None


def test_a_worker_shows_no_password(dsn: str, tmp_path: Path) -> None:
    secret = make_conninfo(dsn, password="hunter2")
    command = [sys.executable, "-m", "pgsched", "worker", "--allow", "shell", "--no-leader", "--dsn", secret]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: b"started" in (tmp_path / "log").read_bytes() or worker.poll() is not None, 30, "the worker")
        assert worker.poll() is None, (tmp_path / "log").read_text()
        shown = Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        assert b"hunter2" not in shown
        assert b"--no-leader" in shown
        assert b"hunter2" not in (tmp_path / "log").read_bytes()
    finally:
        worker.terminate()
        worker.wait(30)
    assert worker.returncode == 0

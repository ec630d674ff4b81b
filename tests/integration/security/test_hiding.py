"""A secret on the command line does not stay in the list of processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.core import TyperOption
from typer.main import get_command

from pgsched.cli import MAY_HOLD_SECRETS, make_app
from pgsched.cli.password_hiding import CONNECTION_OPTIONS, NAMED_CONNECTION_OPTIONS, SECRET_OPTIONS, move_secrets
from tests.support.logins import superuser
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

DSN = "postgresql://u:hunter2@h/d"
HOOK = "https://hooks.example/T0/hunter2"


@pytest.mark.parametrize(
    ("args", "kept", "moved"),
    [
        (["status", "--dsn", DSN, "--json"], ["status", "--json"], {"PGSCHED_DSN": DSN}),
        (["status", f"--dsn={DSN}"], ["status"], {"PGSCHED_DSN": DSN}),
        (["import", "celery", "--from", DSN, "--json"], ["import", "celery", "--json"], {"PGSCHED_IMPORT_DSN": DSN}),
        (["backfill", "start", "a", "--from", "2026-05-01", "--dsn", DSN],
         ["backfill", "start", "a", "--from", "2026-05-01"], {"PGSCHED_DSN": DSN}),
        (["worker", "--sql-dsn", f"dwh={DSN}"], ["worker", "--sql-dsn", "dwh"], {"PGSCHED_SQL_DSN_DWH": DSN}),
        (["worker", "--sql-login", DSN], ["worker"], {"PGSCHED_SQL_LOGIN": DSN}),
        (["worker", "--sql-dsn", f"my-dwh={DSN}"], ["worker", "--sql-dsn", "my-dwh"], {"PGSCHED_SQL_DSN_MY-DWH": DSN}),
        (["worker", "--alert-webhook", HOOK, "--json"],
         ["worker", "--alert-webhook", "PGSCHED_ALERT_WEBHOOK", "--json"], {"PGSCHED_ALERT_WEBHOOK": HOOK}),
        (["worker", "--alert-apprise", f"ops={HOOK}", "--alert-apprise=team-2=mailto://me", "--json"],
         ["worker", "--alert-apprise", "ops", "--alert-apprise", "team-2", "--json"],
         {"PGSCHED_ALERT_APPRISE_OPS": HOOK, "PGSCHED_ALERT_APPRISE_TEAM-2": "mailto://me"}),
        (["leader", f"--alert-webhook={HOOK}", "--alert-webhook", "http://h"],
         ["leader", "--alert-webhook", "PGSCHED_ALERT_WEBHOOK"],
         {"PGSCHED_ALERT_WEBHOOK": f"{HOOK} http://h"}),
        (["web", "--password-hash", "scrypt$32768$8$1$a$b"], ["web"],
         {"PGSCHED_WEB_PASSWORD_HASH": "scrypt$32768$8$1$a$b"}),
        (["worker", f"--sql-dsn=dwh={DSN}", "--dsn", "host=h"], ["worker", "--sql-dsn", "dwh", "--dsn", "host=h"],
         {"PGSCHED_SQL_DSN_DWH": DSN}),
    ],
)  # fmt: skip
def test_options_with_a_secret_move_to_the_environment(args: list[str], kept: list[str], moved: dict[str, str]) -> None:
    assert move_secrets(args, {"HOME": "/"}) == (kept, {"HOME": "/", **moved})


@pytest.mark.parametrize(
    "args",
    [[], ["status"], ["status", "--dsn"], ["status", "--dsn", "host=h user=u"], ["psql", "--", "--dsn", DSN],
             ["worker", "--alert-webhook", "http://h/a b"], ["worker", "--alert-webhook"],
             ["worker", "--alert-webhook", "PGSCHED_ALERT_WEBHOOK", "--alert-apprise", "ops", "--sql-dsn", "dwh"]],
)  # fmt: skip
def test_a_command_line_without_a_secret_stays_unchanged(args: list[str]) -> None:
    assert move_secrets(args, {}) is None


def test_every_option_that_may_hold_a_secret_is_known() -> None:
    """These are the options for a connection string, a password or a secret URL."""
    assert {*CONNECTION_OPTIONS, *SECRET_OPTIONS, *NAMED_CONNECTION_OPTIONS, "--alert-apprise"} == {*MAY_HOLD_SECRETS}
    told = {
        (option, f"{parameter.help} {parameter.metavar}")
        for command in commands(get_command(make_app(None)))
        for parameter in command.params
        if isinstance(parameter, TyperOption)
        for option in parameter.opts
    }
    words = re.compile(r"\b(DSN|URL|[Pp]assword|[Tt]oken|[Ss]ecret|webhook)\b")
    found = {option for option, text in told if words.search(text) or words.search(option)}
    files = {option for option in found if option.endswith("-file")}
    # --task is stored in the database anyway, and the other two are switches
    assert found - files - {"--task", "--hash-password", "--no-auth"} == {*MAY_HOLD_SECRETS}


def commands(group: Any) -> Iterator[Any]:
    """Yield the command and all commands below it."""
    yield group
    for one in getattr(group, "commands", {}).values():
        yield from commands(one)


@pytest.fixture
def secret_dsn(dsn: str, db: psycopg.Connection[Any]) -> Iterator[str]:
    """Yield a DSN of the test's database with the secret as the password."""
    with superuser(db, dsn, "hunter2") as secret:
        yield secret


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "kept"),
    [(["--dsn", "{dsn}"], "--no-leader"), (["--sql-login", "{dsn}", "--allow", "sql"], "--allow"),
     (["--alert-webhook", "http://127.0.0.1:1/hunter2"], "--no-leader")],
)  # fmt: skip
def test_a_worker_shows_no_password(dsn: str, secret_dsn: str, tmp_path: Path, options: list[str], kept: str) -> None:
    given = [option.format(dsn=secret_dsn) for option in options]
    command = [sys.executable, "-m", "pgsched", "worker", "--allow", "shell", "--no-leader", *given]
    env = os.environ | {"PGSCHED_DSN": dsn}
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
    try:
        wait_until(lambda: b"started" in (tmp_path / "log").read_bytes() or worker.poll() is not None, 30, "the worker")
        assert worker.poll() is None, (tmp_path / "log").read_text()
        shown = Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        assert b"hunter2" not in shown
        assert kept.encode() in shown
        assert b"hunter2" not in (tmp_path / "log").read_bytes()
    finally:
        worker.terminate()
        worker.wait(30)
    assert worker.returncode == 0

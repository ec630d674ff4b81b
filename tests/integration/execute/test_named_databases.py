"""SQL jobs on other databases, which a worker knows by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.config import WorkerSettings, find_sql_dsns
from pgsched.core.model import Outcome, Result
from pgsched.errors import InputError
from pgsched.execute.sql import SqlExecutor
from tests.support.executing import claim, execute

pytestmark = pytest.mark.scram

SECRET = "hunter2"


def run(own: str, named: dict[str, str], text: str, /, **args: Any) -> Outcome:
    return execute(SqlExecutor(own, named=named), claim("sql", text, args, owner="nobody_at_all"))


def test_a_job_runs_on_the_database_that_it_names_with_the_rights_of_its_login(dsn: str, empty_dsn: str) -> None:
    text = "CREATE TABLE public.here AS SELECT current_user::text AS who, %(n)s AS n"
    outcome = run(dsn, {"warehouse": empty_dsn}, text, dsn="warehouse", n=5)
    assert (outcome.result, outcome.value) == (Result.SUCCEEDED, {"rowcount": 1})
    with psycopg.connect(empty_dsn) as there, psycopg.connect(dsn) as here:
        assert there.execute("SELECT who, n FROM public.here").fetchone() == (there.info.user, 5)
        assert here.execute("SELECT to_regclass('public.here')").fetchone() == (None,)


def test_the_name_of_the_database_is_no_parameter_of_the_statement(dsn: str, empty_dsn: str) -> None:
    assert run(dsn, {"w": empty_dsn}, "SELECT 100 % 7", dsn="w").value == {"rowcount": 1}


@pytest.mark.parametrize("name", ["nowhere", 5, ["w"]])
def test_an_unknown_database_name_fails_the_attempt_with_a_clear_error(name: Any, dsn: str, empty_dsn: str) -> None:
    outcome = run(dsn, {"w": empty_dsn}, "SELECT 1", dsn=name)
    assert (outcome.result, outcome.retry) == (Result.FAILED, True), "another worker may know it"
    assert outcome.error == f"args.dsn: this worker knows no database {name!r} (--sql-dsn NAME=DSN)"


def test_a_read_only_database_can_be_used(dsn: str, empty_dsn: str, maintenance: psycopg.Connection) -> None:
    name = psycopg.conninfo.conninfo_to_dict(empty_dsn)["dbname"]
    maintenance.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert run(dsn, {"replica": empty_dsn}, "SELECT 1", dsn="replica").result is Result.SUCCEEDED
    assert "read-only" in (run(dsn, {"replica": empty_dsn}, "CREATE TABLE t ()", dsn="replica").error or "")


def test_flags_and_the_environment_name_databases() -> None:
    env = {"PGSCHED_SQL_DSN_WAREHOUSE": "host=a", "PGSCHED_SQL_DSN_MARTS": "host=b", "PGSCHED_SQL_DSN_NONE": ""}
    found = find_sql_dsns(["marts=postgresql://c/d?x=y", "eu-1=host=e"], env)
    assert found == {"warehouse": "host=a", "marts": "postgresql://c/d?x=y", "eu-1": "host=e"}


@pytest.mark.parametrize("flag", [f"postgresql://me:{SECRET}@host/db", f"W=password={SECRET}", "w", "w=", f"={SECRET}"])
def test_a_wrong_flag_is_refused_without_showing_it(flag: str) -> None:
    with pytest.raises(InputError, match="sql-dsn: ") as refused:
        find_sql_dsns([flag], {})
    assert SECRET not in str(refused.value)


def test_passwords_are_never_shown(dsn: str) -> None:
    unreachable = f"host=127.0.0.1 port=1 user=me password={SECRET} connect_timeout=1"
    outcome = run(dsn, {"w": unreachable}, "SELECT 1", dsn="w")
    assert (outcome.error or "").startswith("DatabaseUnreachable: ") and SECRET not in (outcome.error or "")
    with pytest.raises(InputError, match="sql-dsn: w: it cannot be read as a connection string") as refused:
        SqlExecutor(dsn, named={"w": f"password={SECRET} and no sense"})
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(WorkerSettings(sql_dsns={"w": unreachable}))


@pytest.mark.long
def test_a_wrong_sql_dsn_on_the_command_line_ends_the_worker(dsn: str) -> None:
    options = ["--allow", "sql", "--sql-dsn", f"w=password={SECRET} x", "--dsn", dsn]
    ended = subprocess.run(
        [sys.executable, "-m", "pgsched", "worker", *options],
        cwd=Path.cwd(), env=os.environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "sql-dsn: w: it cannot be read as a connection string" in ended.stderr
    assert SECRET not in ended.stderr + ended.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("flag", ["w=dbname=x", "w=postgresql://u:hunter2@h/x", None])
def test_sql_dsn_without_the_kind_sql_ends_the_worker_with_an_error(flag: str | None, dsn: str) -> None:
    """A DSN in the environment is for all workers of the host, so it does not end this one."""
    options = ["--sql-dsn", flag] if flag else ["--max-memory", "2"]  # too little for any worker
    ended = subprocess.run(
        [sys.executable, "-m", "pgsched", "worker", "--dsn", dsn, *options],
        cwd=Path.cwd(), env=os.environ | {"PGSCHED_SQL_DSN_V": "dbname=y"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    said = ended.stderr.splitlines()[-1]
    assert ended.returncode == 2
    if flag:
        assert said == "error: sql-dsn: this worker runs no sql jobs: start it with --allow sql as well"
    else:
        assert said.startswith("error: max memory: 2 MB is less")


@pytest.mark.parametrize("args", ['{"dsn": 5}', '{"dsn": "Warehouse"}', '{"dsn": ""}', "[1]"])
def test_a_wrong_database_name_is_refused_at_the_insert(args: str, db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="args"):
        db.execute(
            "INSERT INTO pgsched.jobs (name, schedule, kind, task, args) VALUES ('j', '@daily', 'sql', 'SELECT 1', %s)",
            [args],
        )

"""`pgsched import`: what the commands read from databases, print and refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from tests.support.importing.django_tables import (
    CRONTAB_ROW,
    INTERVAL_ROW,
    TASK_ROW,
    create_statements,
    write_beat_tables,
)
from tests.support.importing.stores import dump, job_state, write_store
from tests.support.logins import Logins

Pgsched = Callable[..., Any]
# As the scripts of pg_cron make it, up to version 1.6.
CRON_JOB = """
CREATE SCHEMA cron;
CREATE TABLE cron.job (
    jobid bigint PRIMARY KEY, schedule text NOT NULL, command text NOT NULL, nodename text NOT NULL DEFAULT 'localhost',
    nodeport int NOT NULL DEFAULT current_setting('port')::int, database text NOT NULL DEFAULT current_database(),
    username text NOT NULL DEFAULT current_user, active boolean NOT NULL DEFAULT true, jobname text);
ALTER TABLE cron.job ENABLE ROW LEVEL SECURITY;
CREATE POLICY cron_job_policy ON cron.job USING (username = current_user);
GRANT USAGE ON SCHEMA cron TO public;
GRANT SELECT ON cron.job TO public;
INSERT INTO cron.job (jobid, schedule, command, jobname)
VALUES (1, '0 10 * * *', 'SELECT 1', 'nightly'), (2, '30 seconds', 'SELECT 2', NULL);
"""


def jobs_of(said: Any) -> dict[str, Any]:
    assert said.code == 0, said.err
    found = yaml.safe_load(said.out)
    return {name: {**found.get("defaults", {}), **columns} for name, columns in found["jobs"].items()}


def test_the_jobs_of_pg_cron_are_printed_as_a_file(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute(CRON_JOB)
    said = pgsched("import", "pg_cron")
    found = jobs_of(said)
    assert (
        found["nightly"] | {"kind": "sql", "task": "SELECT 1", "schedule": "0 10 * * *", "paused": True}
        == found["nightly"]
    )
    assert found["cron 2"]["schedule"] == "@every 30s"
    assert said.err.startswith("2 jobs: 2 exact, 0 not\n")
    assert jobs_of(pgsched("import", "pg_cron", "--start", "shadow"))["nightly"]["mode"] == "shadow"
    other = pgsched("import", "pg_cron", "--database", "elsewhere", "--json").json
    assert [job["comments"][0]["reason"] for job in other["jobs"]] == ["database", "database"]


def test_a_role_is_told_that_it_sees_its_own_jobs_only(
    pgsched: Pgsched, db: psycopg.Connection, logins: Logins
) -> None:
    db.execute(CRON_JOB)
    db.execute("UPDATE cron.job SET username = %s WHERE jobid = 2", [logins.name("alice")])
    said = pgsched("import", "pg_cron", "--from", logins.dsn("alice"), "--json").json
    assert [job["name"] for job in said["jobs"]] == ["cron 2"]
    assert [remark["reason"] for remark in said["comments"]] == ["time_zone", "own_jobs", "anchor", "role"]


def test_reading_writes_nothing_even_where_the_table_is_a_trap(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute("CREATE SCHEMA cron; CREATE TABLE witness (n int)")
    db.execute(
        "CREATE FUNCTION trap() RETURNS bigint LANGUAGE sql VOLATILE"
        " AS 'INSERT INTO public.witness VALUES (1) RETURNING 1'"
    )
    db.execute("CREATE VIEW cron.job AS SELECT public.trap() AS jobid, '* * * * *' AS schedule, 'SELECT 1' AS command,"
               " 'a' AS nodename, 'b' AS database, 'c' AS username")  # fmt: skip
    said = pgsched("import", "pg_cron")
    assert said.code != 0
    assert said.out == ""
    assert db.execute("SELECT count(*) FROM public.witness").fetchone() == (0,)


def test_a_database_without_the_table_is_named(pgsched: Pgsched) -> None:
    said = pgsched("import", "pg_cron")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: there is no table cron.job in the database ")


def test_the_tables_of_django_celery_beat_are_read(
    pgsched: Pgsched, db: psycopg.Connection, dsn: str, tmp_path: Path
) -> None:
    types = {"enabled": "boolean", "one_off": "boolean", "expire_seconds": "integer", "start_time": "timestamptz",
             "expires": "timestamptz", "priority": "integer", "clocked_time": "timestamptz"}  # fmt: skip
    for statement in create_statements(types):
        db.execute(statement.encode())
    task = {**TASK_ROW, "enabled": False, "one_off": True, "interval_id": None, "crontab_id": 6}
    for name, row in (("periodictask", task), ("crontabschedule", CRONTAB_ROW), ("intervalschedule", INTERVAL_ROW)):
        marks = ", ".join(["%s"] * len(row))
        db.execute(
            f"INSERT INTO django_celery_beat_{name} ({', '.join(row)}) VALUES ({marks})".encode(), list(row.values())
        )
    found = jobs_of(pgsched("import", "celery", "--from", dsn))
    assert found["poll"] | {"schedule": "0 3 * * *", "max_runs": 1, "paused": True} == found["poll"]
    path = tmp_path / "db.sqlite3"
    write_beat_tables(path, tasks=[TASK_ROW], intervals=[INTERVAL_ROW])
    assert jobs_of(pgsched("import", "celery", str(path)))["poll"]["schedule"] == "@every 30s"


def test_a_job_store_of_apscheduler_is_read(pgsched: Pgsched, db: psycopg.Connection, dsn: str, tmp_path: Path) -> None:
    db.execute("CREATE SCHEMA office; CREATE TABLE office.store (id text, next_run_time float, job_state bytea)")
    db.execute("INSERT INTO office.store VALUES ('nightly', 0, %s)", [dump(job_state())])
    found = jobs_of(pgsched("import", "apscheduler", "--from", dsn, "--table", "office.store"))
    assert found["nightly"]["schedule"] == "0 9 * * *"
    path = tmp_path / "jobs.sqlite"
    write_store(path, [("nightly", dump(job_state()))])
    assert jobs_of(pgsched("import", "apscheduler", str(path))) == found


@pytest.mark.parametrize("kind", ["celery", "apscheduler"])
def test_exactly_one_source_is_named(pgsched: Pgsched, kind: str) -> None:
    for args in ((), ("--from", "postgresql:///a", "b")):
        said = pgsched("import", kind, *args)
        assert (said.code, said.out) == (2, "")
        assert "name one source" in said.err


def test_importing_an_app_is_said_before_it_is_done(pgsched: Pgsched) -> None:
    said = pgsched("import", "celery", "--app", "no_such_module_at_all:app")
    assert said.code == 2
    assert said.err.startswith("note: --app imports no_such_module_at_all: its code runs")

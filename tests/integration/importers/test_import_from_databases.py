"""`pgsched import` from tables of PostgreSQL: what it reads, and databases that were made to do harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched.db.sources import tables
from pgsched.errors import InputError
from pgsched.services.importing.pg_cron import read_pg_cron
from tests.support.cli.said import Said
from tests.support.docs.other_schedulers import BEAT_TABLES, ONE_PG_CRON_JOB
from tests.support.importing.slots import NOW
from tests.support.importing.stores import dump, job_state

Command = Callable[..., Said]
Database = psycopg.Connection[Any]
ONE_BEAT_ROW = """
INSERT INTO django_celery_beat_periodictask (name, task, args, crontab_id, enabled)
VALUES ('nightly-report', 'shop.report', '[7]', 1, true)
"""


@pytest.fixture
def cron(db: Database) -> Database:
    db.execute(ONE_PG_CRON_JOB)
    return db


@pytest.fixture
def role(db: Database) -> Iterator[str]:
    """The name of a role without any right. Roles belong to the whole server, so it goes at the end."""
    name = f"{db.info.dbname}_reader"
    db.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
    yield name
    db.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def test_the_jobs_of_pg_cron_are_printed_and_applied(cron: Database, pgsched: Command, tmp_path: Path) -> None:
    cron.execute(
        "INSERT INTO cron.job VALUES (2, '30 seconds', 'VACUUM', 'db2', 'warehouse', current_user, false, NULL),"
        " (3, '@reboot', 'SELECT 1', '', current_database(), current_user, true, 'start'),"
        " (4, '99 * * * *', 'SELECT 1', '', current_database(), 'somebody', true, 'wrong')"
    )
    said = pgsched("import", "pg_cron", "--start", "shadow")
    assert said.code == 0
    found = yaml.safe_load(said.out)
    assert found["jobs"]["purge"]["task"] == "SELECT purge_events()"
    assert found["jobs"]["cron 2"] == {
        "task": "VACUUM", "schedule": "@every 30s", "args": {"dsn": "warehouse"}, "overlap": "buffer_one",
        "paused": True,
    }  # fmt: skip
    assert "# cron.job 3: @reboot SELECT 1" in said.out
    assert said.err.splitlines()[0] == "2 jobs: 1 exact, 1 not; 2 became no job"
    file = tmp_path / "jobs.yaml"
    file.write_text(said.out)
    assert pgsched("apply", str(file), "--yes").out.endswith("added 2\n")
    assert pgsched("apply", str(file), "--check").code == 0
    assert cron.execute("SELECT name, mode, paused, overlap FROM pgsched.jobs ORDER BY name").fetchall() == [
        ("cron 2", "run", True, "buffer_one"), ("purge", "shadow", False, "buffer_all"),
    ]  # fmt: skip


def test_a_zone_may_be_given(cron: Database, pgsched: Command) -> None:
    said = pgsched("import", "pg_cron", "--timezone", "Europe/Berlin", "--database", "other")
    found = yaml.safe_load(said.out)["jobs"]["purge"]
    assert (found["timezone"], found["args"]) == ("Europe/Berlin", {"dsn": cron.info.dbname})


def test_a_role_reads_its_own_jobs(cron: Database, dsn: str, role: str) -> None:
    """The table of pg_cron has a policy: a role sees the jobs that have its name."""
    cron.execute(
        "ALTER TABLE cron.job ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON cron.job USING (username = current_user)"
    )
    cron.execute(
        sql.SQL("GRANT USAGE ON SCHEMA cron TO {0}; GRANT SELECT ON cron.job TO {0};").format(sql.Identifier(role))
    )
    cron.execute(
        "INSERT INTO cron.job VALUES (2, '* * * * *', 'SELECT 1', '', current_database(), %s, true, 'its own')", [role]
    )
    found = read_pg_cron(make_conninfo(dsn, options=f"-c role={role}"), NOW)
    assert [job.name for job in found.jobs] == ["its own"]
    assert "OWN_JOBS" in {remark.reason.name for remark in found.remarks}


POLICIES = {
    "a function": "evil(username)",
    "an operator": "username OPERATOR(evil.=) current_user",
    "a condition": "username = current_user OR evil(username)",
}


@pytest.mark.parametrize("kind", POLICIES)
def test_a_policy_is_not_run_with_the_rights_of_who_reads(kind: str, cron: Database, dsn: str, role: str) -> None:
    """A policy runs as whoever reads the table: only the one of pg_cron, which calls nothing, is let through."""
    cron.execute("CREATE SCHEMA evil")
    for place, arguments in (("public.evil", "text"), ("evil.equal", "text, name")):
        cron.execute(
            f"CREATE FUNCTION {place}({arguments}) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$"
        )
    cron.execute("CREATE OPERATOR evil.= (FUNCTION = evil.equal, LEFTARG = text, RIGHTARG = name)")
    cron.execute(f"CREATE POLICY own ON cron.job USING ({POLICIES[kind]})")
    cron.execute("ALTER TABLE cron.job ENABLE ROW LEVEL SECURITY")
    grants = "GRANT USAGE ON SCHEMA cron, evil TO {0}; GRANT SELECT ON cron.job TO {0}"
    cron.execute(sql.SQL(grants).format(sql.Identifier(role)))
    with pytest.raises(InputError, match="has a policy, which runs what its maker likes"):
        read_pg_cron(make_conninfo(dsn, options=f"-c role={role}"), NOW)
    assert [job.name for job in read_pg_cron(dsn, NOW).jobs] == ["purge"], "no policy holds for a superuser"


def test_a_policy_with_a_cast_of_its_own_is_not_run(cron: Database, dsn: str, role: str) -> None:
    """PostgreSQL writes no implicit cast: so the column has to be a text."""
    cron.execute("CREATE TYPE cron.kind AS ENUM ('app'); CREATE FUNCTION cron.evil(cron.kind) RETURNS text"
                 " LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;"
                 " CREATE CAST (cron.kind AS text) WITH FUNCTION cron.evil(cron.kind) AS IMPLICIT;"
                 " ALTER TABLE cron.job ALTER username TYPE cron.kind USING 'app';"
                 " CREATE POLICY own ON cron.job USING (username = current_user);"
                 " ALTER TABLE cron.job ENABLE ROW LEVEL SECURITY")  # fmt: skip
    grants = "GRANT USAGE ON SCHEMA cron TO {0}; GRANT SELECT ON cron.job TO {0}"
    cron.execute(sql.SQL(grants).format(sql.Identifier(role)))
    with pytest.raises(InputError, match="has a policy"):
        read_pg_cron(make_conninfo(dsn, options=f"-c role={role}"), NOW)


def test_tables_that_inherit_are_not_read(cron: Database, dsn: str) -> None:
    cron.execute("CREATE TABLE child () INHERITS (cron.job)")
    cron.execute("INSERT INTO child SELECT 2, '* * * * *', 'SELECT 1', '', '', '', true, 'of the child'")
    assert [job.name for job in read_pg_cron(dsn, NOW).jobs] == ["purge"]


@pytest.mark.parametrize("wrong", ["a table with partitions", "no table", "no column", "a view", "a sequence"])
def test_what_is_not_pg_cron_s_table_is_one_line(wrong: str, db: Database, pgsched: Command) -> None:
    db.execute("CREATE SCHEMA cron")
    words = {
        "no table": ("SELECT", f"there is no table cron.job in the database {db.info.dbname}"),
        "no column": ("CREATE TABLE cron.job AS SELECT 1 AS jobid", "cron.job has no column 'schedule'"),
        "a view": ("CREATE VIEW cron.job AS SELECT 1 AS jobid", "cron.job is no table"),
        "a table with partitions": (
            "CREATE TABLE cron.job (jobid bigint) PARTITION BY LIST (jobid)",
            "cron.job is no table",
        ),
        "a sequence": ("CREATE SEQUENCE cron.job", "cron.job is no table"),
    }
    statement, expected = words[wrong]
    db.execute(statement)
    said = pgsched("import", "pg_cron")
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert expected in said.err


def test_a_view_is_not_read_because_it_runs_what_its_owner_likes(db: Database, dsn: str, pgsched: Command) -> None:
    db.execute("CREATE SCHEMA cron; CREATE SCHEMA evil")
    db.execute(
        "CREATE FUNCTION evil.shout() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called'; END $$"
    )
    db.execute("CREATE VIEW cron.job AS SELECT evil.shout() AS jobid, '* * * * *' AS schedule")
    said = pgsched("import", "pg_cron", "--from", dsn)
    assert said.code == 2
    assert "called" not in said.err
    assert "cron.job is no table: a view would run what its maker likes, with your rights" in said.err


def test_functions_and_operators_in_the_search_path_are_not_called(cron: Database, dsn: str) -> None:
    cron.execute(
        """
        CREATE SCHEMA evil;
        CREATE TYPE evil.text AS ENUM ('none');
        CREATE FUNCTION evil.shout(name, name) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
        CREATE OPERATOR evil.= (FUNCTION = evil.shout, LEFTARG = name, RIGHTARG = name);
        CREATE FUNCTION evil.octet_length(pg_catalog.text) RETURNS integer LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'called'; END $$;
        CREATE FUNCTION evil.array_position(name[], name) RETURNS integer LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'called'; END $$;
        """
    )
    cron.execute(
        sql.SQL("ALTER DATABASE {} SET search_path = evil, pg_catalog, cron").format(sql.Identifier(cron.info.dbname))
    )
    with psycopg.connect(dsn) as conn, pytest.raises(psycopg.errors.RaiseException, match="called"):
        conn.execute("SELECT 'a'::name = 'a'::name")
    assert [job.name for job in read_pg_cron(dsn, NOW).jobs] == ["purge"]
    with tables.open_source(dsn) as conn:
        assert [row["jobname"] for row in tables.read_table(conn, "job")] == ["purge"]
        with pytest.raises(Exception, match="there is no table jobs in the database"):
            tables.read_table(conn, "jobs")


def test_a_huge_row_is_refused_before_it_is_fetched(
    cron: Database, monkeypatch: pytest.MonkeyPatch, pgsched: Command
) -> None:
    monkeypatch.setattr(tables, "MOST_BYTES", 2**20)
    cron.execute("UPDATE cron.job SET command = repeat('x', 1100000)")
    composed: list[str] = []
    monkeypatch.setattr(sql.SQL, "format", spying(sql.SQL.format, composed))
    said = pgsched("import", "pg_cron")
    assert said.code == 2
    assert "the table cron.job has more than 1 MiB" in said.err
    assert any("octet_length" in text for text in composed)
    assert not any(text.startswith("SELECT *") for text in composed)


def spying(function: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    """Return the function, which notes the texts of the statements that it composes."""

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(self.as_string(None))
        return function(self, *args, **kwargs)

    return spy


def test_more_rows_than_anybody_has_are_refused(cron: Database, pgsched: Command) -> None:
    cron.execute(
        "INSERT INTO cron.job SELECT n, '* * * * *', 'SELECT 1', '', '', '', true, n FROM generate_series(2, 20001) n"
    )
    said = pgsched("import", "pg_cron")
    assert said.code == 2
    assert "the table cron.job has more than 20,000 rows" in said.err


def test_nothing_can_be_written_by_the_connection_of_an_import(dsn: str) -> None:
    with tables.open_source(dsn) as conn, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        conn.execute("CREATE TABLE t ()")


def test_beat_s_tables_and_a_job_store_are_read_from_postgresql(db: Database, dsn: str, pgsched: Command) -> None:
    db.execute(BEAT_TABLES.encode())
    db.execute(ONE_BEAT_ROW)
    db.execute("CREATE TABLE apscheduler_jobs (id text, next_run_time float, job_state bytea)")
    db.execute("INSERT INTO apscheduler_jobs VALUES ('nightly', 0, %s), ('bad', 0, 'junk')", [dump(job_state())])
    beat = pgsched("import", "celery", "--from", dsn)
    assert (beat.code, [*yaml.safe_load(beat.out)["jobs"]]) == (0, ["nightly-report"])
    store = pgsched("import", "apscheduler", "--from", dsn)
    assert (store.code, [*yaml.safe_load(store.out)["jobs"]]) == (0, ["nightly"])
    assert "# job bad\n#   PICKLE: " in store.out
    missing = pgsched("import", "apscheduler", "--from", dsn, "--table", "other")
    assert (missing.code, missing.err) == (
        2, f"error: there is no table other in the database {db.info.dbname}\n",
    )  # fmt: skip


def test_a_source_may_be_named_in_the_environment(
    db: Database, dsn: str, pgsched: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the command line moves a source with a password; the database of pgsched is no source of its own accord."""
    db.execute(BEAT_TABLES.encode())
    db.execute(ONE_BEAT_ROW)
    monkeypatch.setenv("PGSCHED_DSN", dsn)
    nothing = pgsched("import", "celery")
    assert (nothing.code, "name one source: --app MODULE:APP, --from DSN" in nothing.err) == (2, True)
    monkeypatch.setenv("PGSCHED_IMPORT_DSN", dsn)
    assert [*yaml.safe_load(pgsched("import", "celery").out)["jobs"]] == ["nightly-report"]
    assert pgsched("import", "celery", "db.sqlite3").code == 2

"""Whatever a database, a role or a client is set to, the programs work, and the functions mean the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched.db.connection import routes
from pgsched.db.connection.connect import connect
from pgsched.db.connection.pooler import Pooler, PoolerMode
from pgsched.db.schema.migrate import upgrade
from tests.support.hostile.short_life import command, live, make_app, ours
from tests.support.logins import Logins, alone

pytestmark = pytest.mark.pg14

# The oddest value of what a database may be set to. Those that refuse a client's own statements, or end his session, he
# sets back for himself (OWN).
ODD = {
    "IntervalStyle": "sql_standard", "DateStyle": "German", "TimeZone": "Asia/Kolkata", "extra_float_digits": "-15",
    "standard_conforming_strings": "off", "escape_string_warning": "off", "backslash_quote": "off",
    "array_nulls": "off", "transform_null_equals": "on", "quote_all_identifiers": "on", "row_security": "off",
    "bytea_output": "escape", "xmloption": "document", "xmlbinary": "hex", "timezone_abbreviations": "India",
    "default_transaction_read_only": "on", "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on", "idle_session_timeout": "1500ms", "statement_timeout": "900ms",
    "lock_timeout": "1ms", "exit_on_error": "on", "check_function_bodies": "off", "search_path": "nowhere",
    "enable_indexscan": "off", "enable_nestloop": "off", "enable_sort": "off", "enable_hashagg": "off",
    "gin_fuzzy_search_limit": "1", "geqo": "off", "from_collapse_limit": "1", "join_collapse_limit": "1",
    "cursor_tuple_fraction": "0.01", "work_mem": "64kB", "max_parallel_workers_per_gather": "0",
    "constraint_exclusion": "on", "plan_cache_mode": "force_custom_plan", "jit_above_cost": "0",
    "client_min_messages": "log", "client_encoding": "LATIN1", "synchronous_commit": "off",
    "plpgsql.extra_errors": "all", "plpgsql.extra_warnings": "all", "plpgsql.variable_conflict": "use_variable",
}  # fmt: skip
OWN = ("default_transaction_read_only=off default_transaction_isolation=read\\ committed statement_timeout=0"
       " lock_timeout=0 idle_session_timeout=0 exit_on_error=off row_security=on")  # fmt: skip


def odd(dsn: str, **but: str) -> None:
    """Set the database so, for every session that begins from now on."""
    with connect(dsn) as conn:
        for name, value in (ODD | but).items():
            conn.execute(
                sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                    sql.Identifier(conn.info.dbname), sql.SQL(name), sql.SQL(value) if name == "search_path" else value
                )
            )


def own(dsn: str) -> str:
    """For a client's statements that the settings alone would refuse."""
    return make_conninfo(
        dsn, options=" ".join(f"-c {one}" for one in OWN.replace("\\ ", "\0").split()).replace("\0", "\\ ")
    )


@contextmanager
def shared(monkeypatch: pytest.MonkeyPatch, *dsns: str) -> Iterator[None]:
    """As if a pooler lent these a session for each transaction: one that keeps no setting apart for its clients."""
    known = {dsn: PoolerMode(Pooler.TRANSACTION, False, float("inf"), read_only=True) for dsn in dsns}
    with monkeypatch.context() as patched:
        patched.setattr(routes, "known", known)
        yield


@pytest.mark.parametrize("behind", ["direct", "shared"])
def test_everything_works_whatever_the_database_is_set_to(
    behind: str, logins: Logins, dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, ops, alice = (logins.dsn(who) for who in ("worker", "ops", "alice"))
    for role in ("pgsched_leader", logins.name("alice")):
        alone(lambda role=role: db.execute(f'GRANT "{role}" TO "{logins.name("worker")}"'.encode()))  # type: ignore[misc]
    odd(dsn, **({} if behind == "direct" else {"idle_session_timeout": "0"}))  # that is the pooler's
    through = (worker, ops, dsn) if behind == "shared" else ()
    with ours(dsn) as asking, shared(monkeypatch, *through):
        life = live(asking, worker_dsn=worker, operator_dsn=ops, producer_dsn=own(alice), app_dsn=worker)
        keys = asking.execute("SELECT DISTINCT concurrency_key FROM pgsched.runs WHERE concurrency_key LIKE 'c:%'")
        assert (life.said, sorted(keys.fetchall())) == ([], [("c:1",), ("c:x",)])


def test_a_migration_makes_the_same_schema_whatever_the_database_is_set_to(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as before:
        before.execute("SELECT 1")
        odd(empty_dsn)
        alone(lambda: upgrade(empty_dsn, with_roles=True))
    assert "warn  drift" not in (said := command("check", "--dsn", empty_dsn)).out + said.err
    with psycopg.connect(own(empty_dsn), autocommit=True) as db:
        db.execute("SELECT pgsched.enqueue('t')")


@pytest.fixture
def client(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A client's session, with all of that."""
    odd(dsn)
    with psycopg.connect(own(dsn), autocommit=True, client_encoding="utf8") as conn:
        yield conn


def kept(dsn: str, question: str) -> Any:
    with ours(dsn) as conn:
        return conn.execute(question.encode()).fetchall()


def test_many_runs_begin_when_they_were_asked_to(client: psycopg.Connection[Any], dsn: str) -> None:
    """As text in this style an Indian instant would come back as one of Israel."""
    client.execute("SET DateStyle = 'SQL, DMY'; SET timezone_abbreviations = 'Default'")
    at = datetime(2030, 3, 4, 5, 6, 7, 8, tzinfo=UTC)
    app = make_app(dsn)
    app.tasks["note"].options(connection=client, at=at).enqueue_many([{}] * 3)
    assert kept(dsn, "SELECT DISTINCT available_at FROM pgsched.runs") == [(at,)]


def test_what_is_kept_of_an_edit_is_the_same_for_everybody(client: psycopg.Connection[Any], dsn: str) -> None:
    client.execute("INSERT INTO pgsched.jobs (name, task, timeout, run_at, jitter, backoff_jitter)"
                   " VALUES ('j', 't', '90 seconds', '2030-01-02 03:04:05Z', '1 day 2 hours', 0.25)")  # fmt: skip
    client.execute(
        "UPDATE pgsched.jobs SET timeout = '2 hours', starts_at = '2020-01-02 03:04:05Z', backoff_jitter = 0.75"
    )
    added, changed = (row[0] for row in kept(dsn, "SELECT change FROM pgsched.audit WHERE what = 'job' ORDER BY id"))
    wanted = {"timeout": "00:01:30", "jitter": "1 day 02:00:00", "run_at": "2030-01-02T03:04:05+00:00",
              "backoff_jitter": 0.25}  # fmt: skip
    assert {name: added[name] for name in wanted} == wanted
    assert changed == {
        "timeout": ["00:01:30", "02:00:00"], "starts_at": [None, "2020-01-02T03:04:05+00:00"],
        "backoff_jitter": [0.25, 0.75],
    }  # fmt: skip


def test_texts_that_clients_write_are_read_as_by_everybody_else(client: psycopg.Connection[Any], dsn: str) -> None:
    """In the style sql_standard one sign would hold for all that follows it."""
    client.execute("""INSERT INTO pgsched.jobs (name, task, keep) VALUES ('j', 't', '{"any": "-1 day 48:00:00"}')""")
    client.execute("SELECT pgsched.enqueue('t', unique_key => 'k', unique_scope => 'bucket(-1 day 48:00:00)')")
    assert kept(dsn, "SELECT scope FROM pgsched.kept_keys")[0][0].startswith("bucket 86400.000000 ")


def test_patterns_hold_where_a_backslash_in_quotes_is_an_escape(client: psycopg.Connection[Any], dsn: str) -> None:
    client.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 't', '0 2 * * *')")
    client.execute("SELECT pgsched.enqueue('t', '[7, 8]', concurrency_key => 'c:{1}')")
    assert kept(dsn, "SELECT concurrency_key FROM pgsched.runs") == [("c:8",)]
    for wrong in ("'? 2 * * *'", "'H(0-5) 2 * * *'", "E'0 2 * * *\\n'"):
        with pytest.raises(psycopg.errors.CheckViolation):
            client.execute(f"INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('x', 't', {wrong})".encode())
    for kind, task in (("http", "'http://a b/'"), ("http", "E'http://a\\tb/'"), ("http", "'http://[::1]:99999/'")):
        with pytest.raises(psycopg.errors.CheckViolation):
            client.execute(f"INSERT INTO pgsched.jobs (name, task, kind) VALUES ('x', {task}, '{kind}')".encode())
    with pytest.raises(psycopg.errors.CheckViolation):
        client.execute("INSERT INTO pgsched.runs (task, queue) VALUES ('t', E'a\\nb')")

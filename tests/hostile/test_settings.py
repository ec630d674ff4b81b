"""With any settings of a database, a role or a client, the programs work and the functions mean the same."""

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

# The oddest value of each setting of a database. Some values would refuse a client's own statements or end its session.
# The client sets those back for itself (OWN).
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
    """Give the database these settings, for every session that begins from now on."""
    with connect(dsn) as conn:
        for name, value in (ODD | but).items():
            conn.execute(
                sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                    sql.Identifier(conn.info.dbname), sql.SQL(name), sql.SQL(value) if name == "search_path" else value
                )
            )


def own(dsn: str) -> str:
    """Return the DSN with OWN, for statements of a client that the odd settings would refuse."""
    return make_conninfo(
        dsn, options=" ".join(f"-c {one}" for one in OWN.replace("\\ ", "\0").split()).replace("\0", "\\ ")
    )


@contextmanager
def shared(monkeypatch: pytest.MonkeyPatch, *dsns: str) -> Iterator[None]:
    """Treat these DSNs as if behind a pooler in transaction mode that keeps no setting apart for its clients."""
    known = {dsn: PoolerMode(Pooler.TRANSACTION, False, float("inf"), read_only=True) for dsn in dsns}
    with monkeypatch.context() as patched:
        patched.setattr(routes, "known", known)
        yield


@pytest.mark.long
@pytest.mark.parametrize("behind", ["direct", "shared"])
def test_everything_works_with_any_settings_of_the_database(
    behind: str, logins: Logins, dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, ops, alice = (logins.dsn(who) for who in ("worker", "ops", "alice"))
    for role in ("pgsched_leader", logins.name("alice")):
        alone(lambda role=role: db.execute(f'GRANT "{role}" TO "{logins.name("worker")}"'.encode()))  # type: ignore[misc]
    odd(
        dsn, **({} if behind == "direct" else {"idle_session_timeout": "0"})
    )  # behind a pooler, this timeout is the pooler's concern
    through = (worker, ops, dsn) if behind == "shared" else ()
    with ours(dsn) as asking, shared(monkeypatch, *through):
        life = live(asking, worker_dsn=worker, operator_dsn=ops, producer_dsn=own(alice), app_dsn=worker)
        keys = asking.execute("SELECT DISTINCT concurrency_key FROM pgsched.runs WHERE concurrency_key LIKE 'c:%'")
        assert (life.said, sorted(keys.fetchall())) == ([], [("c:1",), ("c:x",)])


def test_a_migration_makes_the_same_schema_with_any_settings(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as before:
        before.execute("SELECT 1")
        odd(empty_dsn)
        alone(lambda: upgrade(empty_dsn, with_roles=True))
    assert "warn  drift" not in (said := command("check", "--dsn", empty_dsn)).out + said.err
    with psycopg.connect(own(empty_dsn), autocommit=True) as db:
        db.execute("SELECT pgsched.enqueue('t')")


@pytest.fixture
def client(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The session of a client in a database with all these settings."""
    odd(dsn)
    with psycopg.connect(own(dsn), autocommit=True, client_encoding="utf8") as conn:
        yield conn


def kept(dsn: str, question: str) -> Any:
    with ours(dsn) as conn:
        return conn.execute(question.encode()).fetchall()


def test_enqueue_many_keeps_the_requested_time(client: psycopg.Connection[Any], dsn: str) -> None:
    """As text in this style, an instant in Indian time (IST) would be read back as one in Israel's time."""
    client.execute("SET DateStyle = 'SQL, DMY'; SET timezone_abbreviations = 'Default'")
    at = datetime(2030, 3, 4, 5, 6, 7, 8, tzinfo=UTC)
    app = make_app(dsn)
    app.tasks["note"].options(connection=client, at=at).enqueue_many([{}] * 3)
    assert kept(dsn, "SELECT DISTINCT available_at FROM pgsched.runs") == [(at,)]


def test_the_audit_of_an_edit_does_not_depend_on_the_client_s_settings(
    client: psycopg.Connection[Any], dsn: str
) -> None:
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


def test_intervals_in_texts_do_not_depend_on_the_client_s_settings(client: psycopg.Connection[Any], dsn: str) -> None:
    """In the style sql_standard, a sign would apply to all fields that follow it."""
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

"""A program uses the database that was given, and never another one because a variable is empty."""

from __future__ import annotations

import asyncio
import re

import psycopg
import pytest

from pgsched import App
from pgsched.config import REQUIRED_ANY_OF_LIBPQ, allows_embedded, find_dsn, find_dsn_source
from pgsched.db.connection.dsn import describe_database, parameters
from pgsched.db.connection.failures import explain_error
from pgsched.db.embedded import server
from pgsched.errors import DatabaseUnreachable, InputError

DSN = "postgresql://h/a"


@pytest.mark.parametrize(
    ("flag", "environ", "source"),
    [
        (DSN, {"PGSCHED_DSN": "x", "DATABASE_URL": "y", "PGHOST": "z"}, "--dsn"),
        (None, {"PGSCHED_DSN": DSN, "DATABASE_URL": "y", "PGHOST": "z"}, "PGSCHED_DSN"),
        (None, {"DATABASE_URL": DSN, "PGHOST": "z"}, "DATABASE_URL"),
    ],
)
def test_the_option_counts_before_pgsched_dsn_and_database_url(
    flag: str | None, environ: dict[str, str], source: str
) -> None:
    assert find_dsn_source(flag, environ) == (source, DSN)


@pytest.mark.parametrize("empty", ["", " ", "\n"])
def test_a_dsn_that_is_given_but_empty_is_refused(empty: str) -> None:
    for flag, environ, name in (
        (empty, {"PGSCHED_DSN": DSN}, "--dsn"),
        (None, {"PGSCHED_DSN": empty, "DATABASE_URL": DSN}, "PGSCHED_DSN"),
        (None, {"DATABASE_URL": empty, "PGHOST": "h"}, "DATABASE_URL"),
    ):
        with pytest.raises(InputError, match=f"{name} is given, but empty"):
            find_dsn(flag, environ)
    with pytest.raises(InputError, match=re.escape("App(dsn=...) is given, but empty")):
        App("test", dsn=empty)


def test_the_variables_of_libpq_select_a_database() -> None:
    environ = {"PGHOST": "h", "PGPORT": "5433", "PGDATABASE": "it's a \\ db", "PGUSER": "u", "PGPASSWORD": "s3cr"}
    dsn = find_dsn(None, environ)
    assert dsn is not None and "s3cr" not in dsn  # libpq reads the password from PGPASSWORD itself
    assert parameters(dsn) == {"host": "h", "port": "5433", "dbname": "it's a \\ db", "user": "u"}
    assert find_dsn_source(None, {"PGSERVICE": "s"}) == ("PGSERVICE", "service='s'")
    assert find_dsn(None, {"PGUSER": "u", "PGPORT": "1", "PGHOST": ""}) is None


def test_the_dsn_of_an_app_counts_before_the_variables_of_other_programs() -> None:
    """libpq completes a DSN from its variables, so PGHOST must not replace `dbname=shop` as a whole.

    DATABASE_URL may be of the MySQL database of a web application.
    """
    assert find_dsn(None, {"PGHOST": "h"}, "dbname=shop") == "dbname=shop"
    assert find_dsn(None, {"PGHOST": "h", "DATABASE_URL": "mysql://h/a"}, "dbname=shop") == "dbname=shop"
    assert find_dsn(None, {"PGHOST": "h", "PGSCHED_DSN": DSN}, "dbname=shop") == DSN
    assert find_dsn(None, {}, None) is None


NO_DSN = re.escape("no DSN: set PGSCHED_DSN, or give App(dsn=...)")


@pytest.mark.parametrize("allowed", ["", "0"])
def test_an_app_without_a_dsn_starts_no_server(allowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSCHED_DSN", "DATABASE_URL", *REQUIRED_ANY_OF_LIBPQ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGSCHED_EMBEDDED", allowed)
    monkeypatch.setattr(server, "acquire", lambda: pytest.fail("the embedded server was started"))
    app = App("test")
    task = app.task(lambda: None)
    with pytest.raises(DatabaseUnreachable, match=NO_DSN):
        task.enqueue()
    with pytest.raises(DatabaseUnreachable, match=NO_DSN):
        task.enqueue_many([{}])
    with pytest.raises(DatabaseUnreachable, match=NO_DSN):
        asyncio.run(task.enqueue_async())
    with pytest.raises(DatabaseUnreachable, match=NO_DSN):
        app.first_result("k")
    app.close()


def test_an_app_refuses_what_is_no_dsn_and_no_size() -> None:
    with pytest.raises(InputError, match=re.escape("App(dsn=...) is of MySQL: pgsched needs PostgreSQL; give")):
        App("test", dsn="mysql://u:s3cr@h/db")
    with pytest.raises(InputError, match="embedded: not together with dsn"):
        App("test", dsn=DSN, embedded=True)
    with pytest.raises(InputError, match="pool_size: 0 is out of range 1-1000"):
        App("test", dsn=DSN, pool_size=0)
    with pytest.raises(InputError, match="PGSCHED_EMBEDDED: expected 1 or 0"):
        allows_embedded({"PGSCHED_EMBEDDED": "yes"})


def test_an_app_uses_the_first_source_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSCHED_DSN", "DATABASE_URL", *REQUIRED_ANY_OF_LIBPQ):
        monkeypatch.delenv(name, raising=False)
    app, own = App("test", embedded=True), App("test", dsn="dbname=own")
    monkeypatch.setenv("PGHOST", "h")
    assert app.database.dsn() == "host='h'"
    monkeypatch.setenv("DATABASE_URL", DSN)
    assert app.database.dsn() == DSN
    monkeypatch.setenv("PGSCHED_DSN", "dbname=queue")
    assert (app.database.dsn(), own.database.dsn()) == ("dbname=queue", "dbname=own")


@pytest.mark.parametrize("text", ['FATAL:  password authentication failed for user "u"', 'database "x" does not exist'])
def test_a_server_that_refuses_is_not_called_unreachable(text: str) -> None:
    assert "the server refused the connection" in str(explain_error(psycopg.OperationalError(text)))
    assert "cannot reach the database" in str(
        explain_error(psycopg.OperationalError("the database system is starting up"))
    )


@pytest.mark.parametrize(
    ("dsn", "environ", "described"),
    [
        ("host=h dbname=d", {"PGHOST": "other", "PGDATABASE": "other"}, "d on h"),
        ("dbname=d", {"PGHOST": "h"}, "d on h"),
        ("dbname=d", {"PGHOSTADDR": "10.0.0.1"}, "d on 10.0.0.1"),
        ("dbname=d hostaddr=10.0.0.2", {"PGHOST": "h"}, "d on 10.0.0.2"),
        ("host=h", {"PGDATABASE": "d", "PGUSER": "u"}, "d on h"),
        ("host=h", {"PGUSER": "u"}, "u on h"),
        ("host=h user=v", {"PGUSER": "u"}, "v on h"),
        ("service=s", {"PGHOST": "h", "PGDATABASE": "d"}, "its database on service s"),
        ("dbname=d", {"PGSERVICE": "s", "PGHOST": "h"}, "d on service s"),
        ("connect_timeout=1", {}, "the default database on the default host"),
    ],
)
def test_a_database_is_described_as_libpq_will_find_it(
    dsn: str, environ: dict[str, str], described: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq takes what the string leaves open from a service file, and then from its variables."""
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert describe_database(dsn) == described

"""The database that a program uses: what was given, never another because a variable is empty."""

from __future__ import annotations

import psycopg
import pytest

from pgsched import App
from pgsched.config import find_dsn, find_dsn_source
from pgsched.db.connection.dsn import describe_database, parameters
from pgsched.db.connection.failures import explain_error
from pgsched.errors import InputError

DSN = "postgresql://h/a"


@pytest.mark.parametrize(
    ("flag", "environ", "source"),
    [
        (DSN, {"PGSCHED_DSN": "x", "DATABASE_URL": "y", "PGHOST": "z"}, "--dsn"),
        (None, {"PGSCHED_DSN": DSN, "DATABASE_URL": "y", "PGHOST": "z"}, "PGSCHED_DSN"),
        (None, {"DATABASE_URL": DSN, "PGHOST": "z"}, "DATABASE_URL"),
    ],
)
def test_the_nearest_word_counts(flag: str | None, environ: dict[str, str], source: str) -> None:
    assert find_dsn_source(flag, environ) == (source, DSN)


@pytest.mark.parametrize("empty", ["", " ", "\n"])
def test_what_is_given_and_empty_is_refused(empty: str) -> None:
    for flag, environ, name in (
        (empty, {"PGSCHED_DSN": DSN}, "--dsn"),
        (None, {"PGSCHED_DSN": empty, "DATABASE_URL": DSN}, "PGSCHED_DSN"),
        (None, {"DATABASE_URL": empty, "PGHOST": "h"}, "DATABASE_URL"),
    ):
        with pytest.raises(InputError, match=f"{name} is given, but empty"):
            find_dsn(flag, environ)
    with pytest.raises(InputError, match="empty connection string"):
        App(dsn=empty)


def test_the_variables_of_libpq_lead_to_a_database() -> None:
    environ = {"PGHOST": "h", "PGPORT": "5433", "PGDATABASE": "it's a \\ db", "PGUSER": "u", "PGPASSWORD": "s3cr"}
    dsn = find_dsn(None, environ)
    assert dsn is not None and "s3cr" not in dsn  # libpq reads it where it is
    assert parameters(dsn) == {"host": "h", "port": "5433", "dbname": "it's a \\ db", "user": "u"}
    assert find_dsn_source(None, {"PGSERVICE": "s"}) == ("PGSERVICE", "service='s'")
    assert find_dsn(None, {"PGUSER": "u", "PGPORT": "1", "PGHOST": ""}) is None


def test_what_the_code_of_an_app_says_counts_before_variables_that_are_there_for_psql() -> None:
    """libpq takes from those what the DSN leaves open: PGHOST must not lead away from `dbname=shop`."""
    assert find_dsn(None, {"PGHOST": "h"}, "dbname=shop") == "dbname=shop"
    assert find_dsn(None, {"PGHOST": "h", "DATABASE_URL": DSN}, "dbname=shop") == DSN
    assert find_dsn(None, {}, None) is None


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

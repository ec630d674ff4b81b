"""Database URLs as SQLAlchemy, asyncpg, Django, Heroku and Prisma write them lead where they say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.config import check_dsn, find_dsn_source
from pgsched.database_urls import OTHERS, POSTGRESQL, other_product
from pgsched.db.connection.dsn import normalize_url, parameters
from pgsched.db.connection.url_options import IGNORED
from pgsched.errors import InputError

PLAIN = {"user": "u", "password": "p@w", "host": "h", "port": "5433", "dbname": "db"}
DRIVERS = ("", "+psycopg", "+psycopg2", "+psycopg_async", "+psycopg2cffi", "+asyncpg", "+pg8000", "+PSYCOPG")


@pytest.mark.parametrize("scheme", sorted(POSTGRESQL))
@pytest.mark.parametrize("driver", DRIVERS)
def test_each_scheme_of_postgresql_is_read(scheme: str, driver: str) -> None:
    for written in (scheme, scheme.upper()):
        assert parameters(f" {written}{driver}://u:p%40w@h:5433/db\n") == PLAIN


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("postgresql+asyncpg://h/db?ssl=require", {"host": "h", "dbname": "db", "sslmode": "require"}),
        ("postgresql+asyncpg://h/db?ssl=verify-full&timeout=7.2", {"sslmode": "verify-full", "connect_timeout": "8"}),
        ("postgres://h/db?ssl=true", {"sslmode": "require"}),
        ("postgres://h/db?ssl=False", {"sslmode": "disable"}),
        ("postgresql+asyncpg://h/db?prepared_statement_cache_size=0&application_name=web", {"application_name": "web"}),
        ("postgresql+psycopg2://u@/db?host=a:5432&host=b:5433", {"host": "a,b", "port": "5432,5433", "user": "u"}),
        ("postgresql+asyncpg:///db?host=a:5432&host=b", {"host": "a,b", "port": "5432,"}),
        ("postgresql+psycopg:///db?host=a&host=b&port=5432&port=5433", {"host": "a,b", "port": "5432,5433"}),
        ("postgresql+psycopg:///db?host=[::1]:5440", {"host": "::1", "port": "5440"}),
        ("postgresql+psycopg:///db?host=a,b&port=1,2", {"host": "a,b", "port": "1,2"}),
        ("postgresql+psycopg://u:p@/db?host=/var/run/postgresql", {"host": "/var/run/postgresql", "password": "p"}),
        ("postgresql+psycopg:///db?options=-c+geqo%3Doff", {"options": "-c geqo=off"}),
        ("postgresql:///db?application_name=a+b", {"application_name": "a+b"}),
        ("postgres://h/db?conn_max_age=600&CONN_HEALTH_CHECKS=true&sslmode=require", {"sslmode": "require"}),
        ("postgresql://h/db?schema=public&pgbouncer=true&connection_limit=1", {"host": "h", "dbname": "db"}),
        ("postgres://h/db?currentSchema=my%20own", {"options": "-c search_path=my\\ own"}),
        ("pgsql://h/db?options=-c%20geqo%3Doff&schema=own", {"options": "-c geqo=off -c search_path=own"}),
        ("postgres://%2Fvar%2Frun%2Fpostgresql/db", {"host": "/var/run/postgresql", "dbname": "db"}),
        ("postgresql+psycopg://a:1,b:2,[::1]:3/db", {"host": "a,b,::1", "port": "1,2,3"}),
        ("postgresql+psycopg://u:p?ssl=x@h/db", {"password": "p?ssl=x", "host": "h"}),
    ],
)
def test_the_options_of_other_libraries_are_translated(dsn: str, expected: dict[str, str]) -> None:
    found = parameters(dsn)
    assert expected.items() <= found.items()
    assert set(found) <= {*expected, "host", "dbname", "user"}


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://h/db?sslmod=require",
        "postgresql+asyncpg://h/db?direct_tls=true",
        "postgresql+asyncpg://h/db?timeout=soon",
        "postgresql://h/db?timeout=5",
        "postgresql+asyncpg://h/db?ssl=s3cret",
    ],
)
def test_an_option_without_a_meaning_for_libpq_is_refused(dsn: str) -> None:
    with pytest.raises(InputError, match="names an option that libpq does not know") as found:
        parameters(dsn)
    assert "s3cret" not in str(found.value)


def test_options_that_say_nothing_about_the_server_are_dropped() -> None:
    every = "&".join(f"{name}=1" for name in sorted(IGNORED))
    assert normalize_url(f"postgres://h/db?{every}") == "postgresql://h/db"


def test_a_password_that_sqlalchemy_has_hidden_is_named_as_such() -> None:
    with pytest.raises(InputError, match=r"its password is \*\*\*.*render_as_string"):
        parameters("postgresql+psycopg://u:***@h/db")
    with pytest.raises(InputError, match=r"App\(dsn=\.\.\.\) is of type int: expected a string"):
        check_dsn("App(dsn=...)", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dsn", "product"),
    [
        ("mysql+pymysql://u:s3crA@h/db", "MySQL"),
        ("sqlite:///x.db", "SQLite"),
        ("sqlite+aiosqlite:////abs/x.db", "SQLite"),
        ("mongodb+srv://u:s3crA@h/db", "MongoDB"),
        ("rediss://:s3crA@h:6379/0", "Redis"),
        ("mssql+pyodbc:///?odbc_connect=s3crA", "SQL Server"),
        ("cockroachdb://root@h:26257/db", "CockroachDB"),
        ("odd://u:s3crA@h/db", "an unknown product (odd://)"),
    ],
)
def test_the_url_of_another_product_is_named_as_such(dsn: str, product: str) -> None:
    wanted = f"DATABASE_URL is of {product}: pgsched needs PostgreSQL; set PGSCHED_DSN"
    with pytest.raises(InputError, match=re.escape(wanted)) as found:
        find_dsn_source(None, {"DATABASE_URL": dsn})
    assert "s3crA" not in str(found.value)
    with pytest.raises(InputError, match=re.escape(f"--dsn is of {product}: pgsched needs PostgreSQL; give")):
        find_dsn_source(dsn, {})
    with pytest.raises(InputError, match=re.escape(f"dsn: it is of {product}: pgsched needs PostgreSQL")):
        parameters(dsn)


def test_an_url_that_is_not_used_is_not_looked_at() -> None:
    environ = {"DATABASE_URL": "mysql://h/db", "PGSCHED_DSN": "postgresql://h/db"}
    assert find_dsn_source(None, environ) == ("PGSCHED_DSN", "postgresql://h/db")
    assert not {*OTHERS} & POSTGRESQL


@settings(deadline=None)
@given(before=st.text(max_size=60), secret=st.sampled_from(["", "Zq7kX2"]), after=st.text(max_size=30))
def test_any_text_is_read_or_refused(before: str, secret: str, after: str) -> None:
    text = before + secret + after
    for dsn in (text, f"postgresql+asyncpg://{text}", f"postgres://h/db?{text}", f"psql:///?host={text}&host=b"):
        scheme = other_product(dsn) or ""  # which is no secret
        try:
            parameters(dsn)
        except InputError as error:
            assert not secret or secret not in str(error).replace(scheme, "")

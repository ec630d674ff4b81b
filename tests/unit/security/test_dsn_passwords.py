"""No piece of a connection string's password is printed, whatever its characters and its quoting."""

from __future__ import annotations

import io
import re
import time
from contextlib import redirect_stderr
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched import log
from pgsched.cli.password_hiding import move_secrets
from pgsched.db import psql
from pgsched.db.connection import failover
from pgsched.db.connection.connect import connect
from pgsched.db.connection.dsn import hide_secrets, parameters
from pgsched.db.sql_jobs import other_database_dsn
from pgsched.errors import InputError, PgschedError
from pgsched.services import check
from tests.support.fuzz.profile import examples

PIECES = ("s3crA", "s3crB", "s3crC")
ODD = " @:/?#%&=+;,'\"\\[]{}$!()<>|~^*`\tä€"
PASSWORDS = st.lists(st.sampled_from([*ODD, *PIECES, "%zz", "%40", "\\'", "5432", "@h/"]), max_size=7).map(
    lambda parts: PIECES[0] + "".join(parts) + PIECES[1]
)
NAIVE = (
    "postgresql://u:{}@127.0.0.1:1/app",
    "postgres://u:{}@127.0.0.1:1,127.0.0.1:1/app?connect_timeout=1",
    "postgresql+psycopg://u:{}@127.0.0.1:1/app",
    "psql://u:{}@127.0.0.1:1/app?conn_max_age=1",
    "pgsql+asyncpg://u:{}@127.0.0.1:1/app?ssl=disable",
    "postgresql://127.0.0.1:1/app?user=u&password={}",
    "host=127.0.0.1 port=1 password='{}'",
    "host=127.0.0.1 port=1 dbname=app password='{}' user=u",
)
SPACED = "host=127.0.0.1 port=1 password={}"


def everything_printed(dsn: str) -> str:
    """Return everything that pgsched prints about this string, in all ways that need no server."""
    texts = [finding.text for finding in check.check(dsn, {})]
    texts += [finding.text for finding in check.check(None, {"DATABASE_URL": dsn})]
    for call in (
        hide_secrets,
        connect,
        psql.environment,
        failover.learn_timelines,
        lambda text: other_database_dsn("other", text),
    ):
        try:
            found = call(dsn)
        except PgschedError as error:
            texts.append(str(error))
            assert "bug" not in str(error)
        else:
            texts += [found] if call is hide_secrets else []
    kept = move_secrets(["status", "--dsn", dsn], {})
    texts += [] if kept is None else kept[0]
    said = io.StringIO()
    with redirect_stderr(said):
        log.configure()
        log.get("test").warning("connection lost", error=" / ".join(texts))
    return "\n".join([*texts, said.getvalue()])


@examples(50, 100)
@given(password=PASSWORDS, template=st.sampled_from([*NAIVE, SPACED]))
def test_an_odd_password_is_not_printed(password: str, template: str) -> None:
    text = everything_printed(template.format(password))
    assert not [piece for piece in PIECES if piece in text], text


@examples(25, 100)
@given(password=PASSWORDS)
def test_an_escaped_password_is_read_correctly_and_not_printed(password: str) -> None:
    dsn = f"postgresql+asyncpg://u:{quote(password, safe='')}@127.0.0.1:1/app"
    assert parameters(dsn)["password"] == password
    assert not [piece for piece in PIECES if piece in everything_printed(dsn)]
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    dsn = f"host=127.0.0.1 port=1 password='{quoted}'"
    assert parameters(dsn)["password"] == password
    assert not [piece for piece in PIECES if piece in everything_printed(dsn)]


@settings(deadline=None)
@given(password=PASSWORDS.filter(lambda text: "\n" not in text), template=st.sampled_from(NAIVE[:5]))
def test_a_text_that_holds_a_url_is_redacted_to_the_last_at(password: str, template: str) -> None:
    assert not [piece for piece in PIECES if piece in log.redact(f"tried {template.format(password)} in vain")]


def test_redaction_takes_time_in_proportion_to_the_text() -> None:
    """Eight times the text takes eight times as long, and 64 times in quadratic time."""

    def seconds(text: str) -> float:
        began = time.process_time()
        assert len(log.redact(text)) <= len(text) + 3
        return time.process_time() - began

    for hostile in ("postgresql://a:", "://a:@", "aaaaaaaa", "password"):
        assert seconds(hostile * 40_000) < 30 * max(0.005, min(seconds(hostile * 5_000) for _ in range(3)))


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("mysql://u:s3crA@h/db", "it is of MySQL"),
        ("sqlite:///x.db", "it is of SQLite"),
        ("postgresql://u:s3crA@s3crB@h/db", "@ as %40"),
        ("postgresql://u:s3crA/s3crB@h/db", "/ as %2F"),
        ("postgresql://u:s3%zzcr@h/db", "two hexadecimal digits"),
        pytest.param(
            "postgresql://u:s3 cr@h/db",
            "a space as %20",
            marks=pytest.mark.skipif(psycopg.pq.version() < 180_000, reason="an older libpq takes a space as it is"),
        ),
        ("host=h password=s3 cr", "password='it"),
        ("host=h sslmod=require", "an option that libpq does not know"),
        ("localhost/app", "expected postgresql://"),
    ],
)
def test_the_error_for_a_wrong_dsn_does_not_repeat_the_dsn(dsn: str, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)) as found:
        parameters(dsn)
    assert "s3" not in str(found.value)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg", "psycopg_async"])
def test_the_url_of_sqlalchemy_is_read(driver: str) -> None:
    found = parameters(f"postgresql+{driver}://u:p%40w@h:5433/db?ssl=require")
    assert found == {"user": "u", "password": "p@w", "host": "h", "port": "5433", "dbname": "db", "sslmode": "require"}


def test_the_settings_that_are_checked_hold_no_dsn() -> None:
    assert "s3crA" not in str(list(check.settings({"PGSCHED_DSN": "postgresql://u:s3crA@h/db"})))

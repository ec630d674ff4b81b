"""A database of any encoding: pgsched speaks UTF-8 with it. The server converts, or (SQL_ASCII) takes what is UTF-8."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched import App
from pgsched.db import migrate
from pgsched.db.connect import connect
from tests.working import add, all_ended, work

# not \\u escapes: PostgreSQL takes those in UTF-8 databases, and where it can convert them
INSERT = """
INSERT INTO pgsched.runs (task, args, max_attempts) VALUES ('grüßen', jsonb_build_object('name', %s::text), 1)
""".encode()


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def encoded(
    maintenance: psycopg.Connection[Any], server_dsn: str, session_name: str, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The DSN of a database with this encoding."""
    name = sql.Identifier(f"pgsched_encoded_{session_name}_{uuid.uuid4().hex[:6]}")
    provider = " LOCALE_PROVIDER libc" if maintenance.info.server_version >= 150000 else ""
    words = f"CREATE DATABASE {{}} TEMPLATE template0 ENCODING {request.param} LOCALE 'C'{provider}"
    maintenance.execute(sql.SQL(words).format(name))
    yield make_conninfo(server_dsn, dbname=name.as_string(maintenance).strip('"'))
    maintenance.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_texts_of_all_kinds_go_there_and_back(encoded: str) -> None:
    migrate.upgrade(encoded)
    app, seen = App(dsn=encoded), list[str]()

    @app.task(name="grüßen")
    def greet(name: str) -> str:
        seen.append(name)
        if name == "Åsa":
            raise ValueError("größer")
        return f"Hej, {name}"

    with connect(encoded) as db:
        for name in ("Zoë", "Åsa"):
            db.execute(INSERT, [name])
        work(encoded, app, lambda: all_ended(db))
        found = db.execute("SELECT state, result, error FROM pgsched.runs ORDER BY id").fetchall()
    assert sorted(seen) == ["Zoë", "Åsa"]
    assert found == [("succeeded", "Hej, Zoë", None), ("dead", None, "ValueError: größer")]


def test_statements_of_users_get_what_their_database_has(encoded: str) -> None:
    migrate.upgrade(encoded)
    with connect(encoded) as db:
        add(db, "sql", "SELECT convert_from('\\xff', 'LATIN1')")  # a byte that is no UTF-8, if nothing converts it
        work(encoded, None, lambda: all_ended(db))
        assert db.execute("SELECT state, error FROM pgsched.runs").fetchall() == [("succeeded", None)]


def test_a_dsn_cannot_ask_for_another_one(dsn: str) -> None:
    with connect(make_conninfo(dsn, client_encoding="LATIN1")) as conn:
        assert conn.info.encoding == "utf-8"

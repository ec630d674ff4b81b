"""pgsched works in a database of any encoding, because its sessions use UTF-8.

The server converts the text. In an SQL_ASCII database it converts nothing and stores the UTF-8 bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched import App, Run
from pgsched.db.connection.connect import connect
from pgsched.db.schema import migrate
from tests.support.working import add, all_ended, output, work

# no \u escapes here: PostgreSQL takes those only in UTF-8 databases, and where it can convert them
INSERT = """
INSERT INTO pgsched.runs (task, args, max_attempts) VALUES ('grüßen', jsonb_build_object('name', %s::text), 1)
""".encode()

SAID = {"plain": "snow", "umlaut": "ü", "snowman": "\N{SNOWMAN}"}
BUSY = b"SELECT FROM pgsched.runs WHERE state IN ('queued', 'running')"


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def encoded(
    maintenance: psycopg.Connection[Any], server_dsn: str, session_name: str, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Create a database with this encoding, and yield its DSN."""
    name = sql.Identifier(f"pgsched_encoded_{session_name}_{uuid.uuid4().hex[:6]}")
    provider = " LOCALE_PROVIDER libc" if maintenance.info.server_version >= 150000 else ""
    words = f"CREATE DATABASE {{}} TEMPLATE template0 ENCODING {request.param} LOCALE 'C'{provider}"
    maintenance.execute(sql.SQL(words).format(name))
    yield make_conninfo(server_dsn, dbname=name.as_string(maintenance).strip('"'))
    maintenance.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_non_ascii_names_arguments_and_results_are_kept(encoded: str) -> None:
    migrate.upgrade(encoded)
    app, seen = App("test", dsn=encoded), list[str]()

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


def test_text_the_encoding_lacks_costs_no_retry_and_no_output_of_other_runs(encoded: str) -> None:
    migrate.upgrade(encoded)
    app = App("test", dsn=encoded)

    @app.task(name="snows")
    def snows(run: Run, word: str) -> None:
        run.log(f"first {SAID[word]}")
        raise ValueError(f"no {SAID[word]}")

    with connect(encoded) as db:
        runs = {word: add(db, "task", "snows", {"word": word}) for word in SAID}
        db.execute("UPDATE pgsched.runs SET max_attempts = 2")
        work(encoded, app, lambda: not db.execute(BUSY).fetchall())
        states = db.execute("SELECT state, attempt FROM pgsched.runs").fetchall()
        assert states == [("scheduled", 1)] * len(SAID)
        assert all(output(db, run_id).startswith("first ") for run_id in runs.values())
        (error,) = db.execute("SELECT error FROM pgsched.attempts WHERE run_id = %s", [runs["umlaut"]]).fetchall()
        assert error == ("ValueError: no ü",)


def test_an_sql_run_may_use_bytes_that_are_not_utf_8(encoded: str) -> None:
    migrate.upgrade(encoded)
    with connect(encoded) as db:
        add(db, "sql", "SELECT convert_from('\\xff', 'LATIN1')")  # the byte is not UTF-8 unless something converts it
        work(encoded, None, lambda: all_ended(db))
        assert db.execute("SELECT state, error FROM pgsched.runs").fetchall() == [("succeeded", None)]


def test_a_dsn_cannot_choose_another_client_encoding(dsn: str) -> None:
    with connect(make_conninfo(dsn, client_encoding="LATIN1")) as conn:
        assert conn.info.encoding == "utf-8"

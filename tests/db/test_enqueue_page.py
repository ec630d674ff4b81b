"""docs/enqueue.md: its examples run, and its table names every option."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pgsched import App
from pgsched.options import OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "enqueue.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def program(dsn: str) -> dict[str, Any]:
    """What the examples take for granted."""

    class Base(DeclarativeBase): ...

    class User(Base):
        __tablename__ = "users"
        id: Mapped[int] = mapped_column(primary_key=True)

    app = App("shop", dsn=dsn)
    app.task(name="welcome")(lambda user: None)
    app.task(name="reindex")(lambda shop: None)
    app.task(name="digest")(lambda user: None)
    app.task(name="save")(lambda text: None)
    app.task(name="charge")(lambda cents: None)
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    Base.metadata.create_all(engine)
    return {"app": app, "dsn": dsn, "psycopg": psycopg, "engine": engine, "Session": Session, "User": User, **app.tasks}


def test_the_python_examples_do_what_they_say(dsn: str, db: psycopg.Connection[Any]) -> None:
    names = program(dsn)
    body = "\n".join(blocks("python"))
    exec(f"async def main():\n{textwrap.indent(body, '    ')}", names)

    async def run() -> None:
        try:
            await names["main"]()
        finally:
            await names["app"].close_async()

    asyncio.run(run())
    names["app"].close()
    names["engine"].dispose()
    made = dict(db.execute("SELECT task, count(*) FROM pgsched.runs GROUP BY task").fetchall())
    assert made == {"welcome": 1005, "reindex": 1, "digest": 1, "save": 1, "charge": 1}
    assert db.execute("SELECT args FROM pgsched.runs WHERE task = 'save'").fetchone() == ({"text": "draft"},)
    assert db.execute("SELECT array_agg(id ORDER BY id) FROM users").fetchone() == ([7, 8],)


def test_the_sql_examples_run(db: psycopg.Connection[Any]) -> None:
    (body,) = blocks("sql")
    statements = [line for line in body.splitlines() if line]
    found = [db.execute(line).fetchone() for line in statements]
    assert [len(row or ()) for row in found] == [1, 1, 1, 1, 1, 2, 1]
    assert found[5] == (*(found[2] or ()), "existing")


def test_every_option_and_every_parameter_is_named(db: psycopg.Connection[Any]) -> None:
    table = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    python = {name for row in table for name in re.findall(r"`(\w+)`", row[1])}
    assert python >= OPTIONS.keys()
    row = db.execute("SELECT proargnames FROM pg_proc WHERE oid = 'pgsched.enqueue'::regproc").fetchone()
    assert row is not None
    # available_at is the older name of at
    assert python >= set(row[0]) - {"task", "args", "kind", "available_at"}


def test_a_role_with_the_grants_that_the_page_names_may_enqueue(db: psycopg.Connection[Any], session_name: str) -> None:
    role = f"pgsched_enqueuer_{session_name}_{db.info.backend_pid}"
    db.execute(f"CREATE ROLE {role}".encode())
    try:
        db.execute(f"GRANT USAGE ON SCHEMA pgsched TO {role}".encode())
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA pgsched TO {role}".encode())
        db.execute(f"GRANT INSERT, UPDATE ON pgsched.runs TO {role}".encode())
        db.execute(f"GRANT INSERT, UPDATE, DELETE ON pgsched.kept_keys TO {role}".encode())
        db.execute(f"SET ROLE {role}".encode())
        for options in ("", ", unique_key => 'a', on_conflict => 'replace'", ", idempotency_key => 'b'",
                        ", unique_key => 'c', unique_scope => 'bucket(1 day)', on_conflict => 'reject'"):  # fmt: skip
            run_id = db.execute(f"SELECT pgsched.enqueue('t'{options})".encode()).fetchone()
            db.execute("SELECT pgsched.cancel(%s), pgsched.retry(%s)", [*(run_id or ()), *(run_id or ())])
        db.execute("SELECT pgsched.first_result('b')")
    finally:
        db.execute("RESET ROLE")
        db.execute(f"DROP OWNED BY {role}".encode())
        db.execute(f"DROP ROLE {role}".encode())

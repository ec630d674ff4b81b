"""A worker is ready before there is work: its connections are open, and the server has planned its statements."""

from __future__ import annotations

import psycopg
import pytest

from pgsched import App
from pgsched.db.queries.runs import claims
from pgsched.worker.settling import settler as settling
from tests.support.working import all_ended, work

LAST = """
SELECT query FROM pg_stat_activity
WHERE application_name LIKE %s AND datname = current_database() AND state = 'idle'
"""


def last_asked(db: psycopg.Connection, purpose: str) -> str:
    row = db.execute(LAST, [f"pgsched {purpose}%"]).fetchone()
    return "" if row is None else str(row[0])


def test_settlements_are_planned_before_there_is_anything_to_settle(dsn: str, db: psycopg.Connection) -> None:
    work(dsn, App("test"), lambda: "state = 'succeeded'" in last_asked(db, "settle"))
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)


def test_a_worker_that_could_not_plan_its_settlements_still_settles(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    async def refused(_: object) -> None:
        tried.append(1)
        raise psycopg.OperationalError("the server has gone away")

    monkeypatch.setattr(settling, "plan_settlements", refused)
    app = App("test")

    @app.task(name="t")
    async def t() -> None: ...

    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    work(dsn, app, lambda: all_ended(db))
    assert tried == [1]


def test_the_planning_of_claims_claims_no_run(db: psycopg.Connection, dsn: str) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    asked: list[tuple[str, int]] = []
    original = claims.claim

    async def watched(*given: object, **more: object) -> object:
        asked.append((str(given[2]), int(str(given[3]))))
        return await original(*given, **more)  # type: ignore[arg-type]

    claims.claim = watched  # type: ignore[assignment]
    try:
        work(dsn, App("test"), lambda: len(asked) >= 2)
    finally:
        claims.claim = original
    assert asked[:2] == [("", 0)] * 2
    assert db.execute("SELECT state, attempt FROM pgsched.runs").fetchall() == [("queued", 0)]

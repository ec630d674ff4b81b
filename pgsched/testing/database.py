"""What the test kit asks of a database. For tests only: it moves times and drops databases."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql as composing
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from pgsched.core.schedule.cron import parse
from pgsched.db.connection.connect import Connection, connect
from pgsched.db.connection.transaction_pooling import cursor_on
from pgsched.db.schema.migrate import upgrade
from pgsched.db.statements import sql
from pgsched.errors import InputError

SLOTS = 1000


def runs_of(conn: Connection[Any], task: str | None) -> list[dict[str, Any]]:
    """The unfinished runs of a task, or of all."""
    with cursor_on(conn, dict_row) as cursor:
        return cursor.execute(sql("runs_unfinished_of_task"), {"task": task}).fetchall()


def unfinished(conn: Connection[Any], tasks: Sequence[str], queues: list[str] | None, scheduled: bool) -> list[Any]:
    """(id, task, state) of runs that a drain waits for; `scheduled`: those that are due later too, from now on due."""
    values = {"tasks": list(tasks), "queues": queues, "scheduled": scheduled}
    if scheduled:
        conn.execute(sql("runs_hurry"), values)
    return conn.execute(sql("runs_open_of_tasks"), values).fetchall()


def finished(conn: Connection[Any], since: datetime, queues: list[str] | None) -> dict[str, int]:
    """How many runs ended how since then."""
    return dict(conn.execute(sql("runs_ended_since"), {"since": since, "queues": queues}).fetchall())


def clock(conn: Connection[Any]) -> datetime:
    """The database's time."""
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


def travel(conn: Connection[Any], now: datetime, by: timedelta) -> int:
    """Let time go on from `now`; returns how many slots of jobs were passed, each of which has a run now."""
    conn.execute(sql("time_travel"), {"by": by})
    passed = 0
    for name, schedule, timezone, anchor in conn.execute(sql("jobs_of_clock")).fetchall():
        for slot in parse(schedule, timezone, anchor).between(now, now + by):
            made = conn.execute(sql("slot_travelled"), {"job": name, "slot": slot}).fetchone()
            if made is not None:
                conn.execute(sql("slot_triggered"), {"id": made[0], "slot": slot})
                passed += 1
            if passed > SLOTS:
                raise InputError(f"travel: more than {SLOTS} slots of jobs lie in {by}; travel in shorter steps")
    return passed


@contextmanager
def fresh_database(server_dsn: str, template: str | None = None) -> Iterator[tuple[str, str]]:
    """(name, DSN) of a database that is dropped in the end: a copy of `template`, else a new one, migrated."""
    name = f"pgsched_test_{uuid.uuid4().hex[:12]}"
    new, old = composing.Identifier(name), composing.Identifier(template or "template0")
    with connect(server_dsn, purpose="testing") as conn:
        conn.execute(composing.SQL("CREATE DATABASE {} TEMPLATE {}").format(new, old))
        try:
            dsn = make_conninfo(server_dsn, dbname=name)
            if template is None:
                upgrade(dsn)
            yield name, dsn
        finally:
            conn.execute(composing.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(new))

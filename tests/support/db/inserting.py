"""Insert rows into the table `jobs` with plain SQL, and read them."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql


def add(db: psycopg.Connection, **values: Any) -> int:
    values = {"name": "a", "task": "t"} | values
    row = db.execute(
        sql.SQL("INSERT INTO pgsched.jobs ({}) VALUES ({}) RETURNING id").format(
            sql.SQL(",").join(map(sql.Identifier, values)), sql.SQL(",").join(map(sql.Placeholder, values))
        ),
        values,
    ).fetchone()
    assert row is not None
    return int(row[0])


def job(db: psycopg.Connection, *columns: str) -> Any:
    names = sql.SQL(",").join(map(sql.Identifier, columns))
    row = db.execute(sql.SQL("SELECT {} FROM pgsched.jobs WHERE name = 'a'").format(names)).fetchone()
    assert row is not None
    return row if len(columns) > 1 else row[0]

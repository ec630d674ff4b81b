"""Helpers for tests of enqueueing: read runs and dependencies, and end runs by hand."""

from __future__ import annotations

import json
from typing import Any

import psycopg


def end(db: psycopg.Connection[Any], run_id: int, state: str = "succeeded", result: Any = None) -> None:
    ended = "UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp(), result = %s WHERE id = %s"
    db.execute(ended, [state, json.dumps(result), run_id])


def count(db: psycopg.Connection[Any]) -> int:
    row = db.execute("SELECT count(*) FROM pgsched.runs").fetchone()
    return int(row[0]) if row else 0


def edges(db: psycopg.Connection) -> list[tuple[int, int, str, bool]]:
    return db.execute("SELECT run_id, parent_id, on_failure, any_of FROM pgsched.dependencies ORDER BY 1, 2").fetchall()


def runs(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT id, state, args, queue FROM pgsched.runs ORDER BY id").fetchall()

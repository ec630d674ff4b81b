"""What the tests of enqueueing share: runs are counted, and ended by hand."""

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

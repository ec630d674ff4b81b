"""A statement that looks for rows whose time has come does not read the rows whose time is still to come."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import BY_INDEX
from pgsched.db.statements import sql
from tests.support.db.plans import numbering

BOUNDED = [
    ("prune_keys", "expires_at <"),
    ("admit_scheduled", "available_at <"),
    ("admit_waiting", "available_at <"),
    ("runs_expire", "expires_at <"),
    ("runs_expire", "held_until <"),
    ("leader_look", "available_at > "),
    ("runs_finished_lately", "finished_at >"),
]


def plan(db: psycopg.Connection[Any], text: str) -> str:
    numbered, found = numbering(text.encode())
    with db.transaction():
        for setting, value in {**BY_INDEX, "plan_cache_mode": "force_generic_plan"}.items():
            db.execute(f"SET LOCAL {setting} = {value}".encode())
        db.execute(b"PREPARE planned AS " + numbered)
        lines = db.execute(f"EXPLAIN EXECUTE planned ({', '.join(['NULL'] * len(found))})".encode()).fetchall()
        db.execute("DEALLOCATE planned")
    return "\n".join(line for (line,) in lines)


@pytest.mark.parametrize(("name", "bound"), BOUNDED)
def test_the_clock_bounds_the_index_scan(name: str, bound: str, db: psycopg.Connection[Any]) -> None:
    text = sql(name).decode()
    bounds = re.compile(rf"Index Cond: \(+{bound}")
    assert bounds.search(plan(db, text))
    asked = re.compile(r"\(SELECT (clock_timestamp\(\)[^\n]*)\)(?=\n| AND|\) AS)")
    assert asked.search(text)
    assert not bounds.search(plan(db, asked.sub(r"(\1)", text))), "asked for each row, it only filters the index"

"""The rule: which runs wait for which is rows of `dependencies`; what they come to, only the leader's pass decides.

A function takes the connection first and commits nothing.
"""

from __future__ import annotations

from typing import Any

from pgsched.db.arrays import literal
from pgsched.db.connect import Connection
from pgsched.db.statements import sql


def adopt(conn: Connection[Any], n: int) -> list[int]:
    """Watch the parents of runs whose edges are new; returns the runs that wait for nothing that is open."""
    return [row[0] for row in conn.execute(sql("dependencies_adopt"), {"n": n}).fetchall()]


def release(conn: Connection[Any], n: int) -> list[int]:
    """Decide the edges to runs that have ended; returns the runs that waited for them."""
    return [row[0] for row in conn.execute(sql("dependencies_release"), {"n": n}).fetchall()]


def judge(conn: Connection[Any], run_ids: list[int]) -> tuple[int, int]:
    """Let go of the runs whose edges are met, and end those that wait in vain; returns how many of each."""
    row = conn.execute(sql("admit_dependents"), {"ids": literal(run_ids)}).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])

"""Runs that wait for other runs."""

from __future__ import annotations

import math

import psycopg

from pgsched.db.queries.leader import ticks
from pgsched.leader.dependents import decide_dependencies
from tests.support.db.setting import row_of

ENDED = "UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp() WHERE id = ANY (%s)"


def add(db: psycopg.Connection, *parents: int, on_failure: str = "cancel", any_of: bool = False) -> int:
    """Add a run that waits for these parents; return its id."""
    with db.transaction():
        row = db.execute("INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id").fetchone()
        assert row is not None
        link(db, int(row[0]), *parents, on_failure=on_failure, any_of=any_of)
    return int(row[0])


def link(db: psycopg.Connection, run_id: int, *parents: int, on_failure: str = "cancel", any_of: bool = False) -> None:
    if parents:
        db.execute(
            "INSERT INTO pgsched.dependencies (run_id, parent_id, on_failure, any_of)"
            " SELECT %s, p, %s, %s FROM unnest(%s::bigint[]) p",
            [run_id, on_failure, any_of, list(parents)],
        )


def end(db: psycopg.Connection, *run_ids: int, state: str = "succeeded") -> None:
    db.execute(ENDED, [state, list(run_ids)])


def admit(db: psycopg.Connection) -> None:
    """Decide dependencies and admit runs in one transaction, as the leader does."""
    with db.transaction():
        decide_dependencies(db, 5000, longest_s=math.inf)
        ticks.admit(db, 5000)


def states(db: psycopg.Connection, *run_ids: int) -> list[str]:
    return [row_of(db, run_id)["state"] for run_id in run_ids]

"""Pruning in tests: count what ended, then delete what is older."""

from __future__ import annotations

from typing import Any

import psycopg

from pgsched.db.queries.leader import rollups
from pgsched.leader.pruner import Pruner


def keep(db: psycopg.Connection[Any], **outcomes: str) -> None:
    """Set how long runs are kept, by outcome."""
    db.execute("UPDATE pgsched.retention SET keep = %s::jsonb", [psycopg.types.json.Jsonb(outcomes)])


def count(db: psycopg.Connection[Any], n: int = 1_000_000) -> int:
    """Count what has ended by now, as the leader does; nobody else must be writing."""
    with db.transaction():
        return rollups.count(db, rollups.look(db).now, n)


def prune(db: psycopg.Connection[Any], keep_s: float, n: int = 100, pruner: Pruner | None = None) -> int:
    """Delete a batch of what ended longer ago than that; how many runs went."""
    keep(db, any=f"{keep_s} seconds")
    count(db)
    pruner = pruner or Pruner()
    with db.transaction():
        gone = pruner.work(db, n)
        pruner.tidy(db, n)
    return gone

"""A leader that sees a step of the database's clock."""

from __future__ import annotations

import psycopg

from pgsched.db.queries.runs import workers
from pgsched.leader.loop import LeaderLoop

HOUR = 3600.0


def a_worker(db: psycopg.Connection, lease_s: float = 30.0) -> int:
    return workers.insert_worker(db, workers.Registration("host:1", "1", None, 1, None, ["task"], ["t"], lease_s))


def moved(loop: LeaderLoop, by_s: float) -> None:
    """Make the loop believe that the database's clock was moved by `by_s` seconds."""
    really = loop.clock.stepped_s

    def stepped_s(sent_at: float, answered_at: float, now_s: float) -> float:
        return really(sent_at, answered_at, now_s + by_s)

    loop.clock.stepped_s = stepped_s  # type: ignore[method-assign]

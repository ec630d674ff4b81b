"""The database's clock, moved."""

from __future__ import annotations

import psycopg

from pgsched.db.queries.runs import workers
from pgsched.leader.loop import Duties

HOUR = 3600.0


def a_worker(db: psycopg.Connection, lease_s: float = 30.0) -> int:
    return workers.start(db, workers.Registration("host:1", "1", None, 1, None, ["task"], ["t"], lease_s))


def moved(duties: Duties, by_s: float) -> None:
    """As if the clock had been moved since the last look."""
    duties.clock._earliest -= by_s
    duties.clock._latest -= by_s

"""Read what a fault left in the databases into a `History`, without judging it.

The ledger may be on another server than the runs: some faults end with another server in place of the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from pgsched.chaos.history import Ack, Attempt, Change, Event, History, Job, Mark, Run, Term
from pgsched.chaos.load import Acknowledged

T = TypeVar("T")
JOBS = """SELECT id, name, schedule, timezone, extract(epoch FROM anchor_at)::float8,
    extract(epoch FROM coalesce(starts_at, created_at))::float8, extract(epoch FROM ends_at)::float8,
    extract(epoch FROM decided_until)::float8
FROM pgsched.jobs WHERE schedule IS NOT NULL ORDER BY id"""
RUNS = """SELECT id, job_id, extract(epoch FROM scheduled_at)::float8, state, token::text, attempt, task, queue,
    concurrency_key, extract(epoch FROM started_at)::float8, extract(epoch FROM finished_at)::float8,
    extract(epoch FROM ready_at)::float8, extract(epoch FROM covers_from)::float8,
    extract(epoch FROM covers_until)::float8, idempotency_key, reason
FROM pgsched.runs ORDER BY id"""
ATTEMPTS = """SELECT run_id, token::text, attempt, outcome, extract(epoch FROM started_at)::float8,
    extract(epoch FROM finished_at)::float8
FROM pgsched.attempts ORDER BY run_id, finished_at"""
CHANGES = """SELECT seq, extract(epoch FROM at)::float8, op, id, state, token::text, attempt,
    extract(epoch FROM lease_until)::float8, job_id, extract(epoch FROM slot)::float8,
    extract(epoch FROM covers_from)::float8, extract(epoch FROM covers_until)::float8, worker_id
FROM chaos.journal WHERE what = 'run' ORDER BY seq"""
MARKS = """SELECT seq, extract(epoch FROM at)::float8, id, extract(epoch FROM mark)::float8, backend
FROM chaos.journal WHERE what = 'job' ORDER BY seq"""
TERMS = """SELECT seq, extract(epoch FROM at)::float8, op, id, pid, backend, closed
FROM chaos.journal WHERE what = 'term' ORDER BY seq"""
LEDGER = """SELECT seq, run_id, token::text, event, extract(epoch FROM at)::float8, pid
FROM chaos.ledger ORDER BY seq"""


def collect(db: psycopg.Connection[Any], ledger: psycopg.Connection[Any], sent: list[Acknowledged]) -> History:
    """Return a history of the rows in the database `db` and in the ledger, and of the acknowledged enqueues `sent`."""
    found = History()
    found.jobs = rows(db, JOBS, Job)
    found.runs = rows(db, RUNS, Run)
    found.attempts = rows(db, ATTEMPTS, Attempt)
    found.changes = rows(db, CHANGES, Change)
    found.marks = rows(db, MARKS, Mark)
    found.terms = rows(db, TERMS, Term)
    found.ledger = rows(ledger, LEDGER, Event)
    found.acknowledged = [Ack(one.key, one.run_id) for one in sent]
    return found


def rows(db: psycopg.Connection[Any], query: str, kind: Callable[..., T]) -> list[T]:
    """Run a query and return its rows as values of `kind`."""
    return [kind(*row) for row in db.execute(query.encode()).fetchall()]

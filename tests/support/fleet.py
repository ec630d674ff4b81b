"""Real worker processes for tests, started by pgsched.chaos, and signalled and ended by pid. None outlives its test.

Each writes its log to a file. The last lines are printed at the end, so that pytest shows them if the test failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from pgsched.chaos.fleet import Fleet as Workers
from pgsched.chaos.fleet import Member as Member  # noqa: PLC0414  tests import it from here
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

LEASE_S, REAP_S = 2.0, 0.5
QUICK = ("--lease", f"{LEASE_S:g}", "--reap-every", f"{REAP_S:g}", "--poll", "0.2")

TAIL_LINES = 40


class Fleet(Workers):
    """The workers of one test, on one database."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder, "tests.support.apps.ledger:app", cwd=ROOT)

    def start(self, count: int, *options: str) -> list[Member]:
        """Start workers, and wait until each has started up."""
        started = [self.launch(*options) for _ in range(count)]
        self.await_start(*started)
        return started

    def by_pid(self, pid: int) -> Member:
        return next(member for member in self.members if member.pid == pid)

    def end(self) -> None:
        """Send SIGKILL to each process that still lives, stopped or not, and print the last lines of each log."""
        super().end()
        for member in self.members:
            lines = member.log.read_text(errors="replace").splitlines()
            print(f"--- {member.log.name} (pid {member.pid}, exit {member.process.returncode}, {len(lines)} lines)")
            print("\n".join(lines[-TAIL_LINES:]))


@contextlib.contextmanager
def fleet_on(dsn: str, folder: Path) -> Iterator[Fleet]:
    fleet = Fleet(dsn, folder)
    try:
        yield fleet
    finally:
        fleet.end()


# ---- what the database says of the workers and their runs


def one(db: psycopg.Connection, query: str, *values: Any) -> Any:
    """Return the first value of the first row; None if there is no row."""
    row = db.execute(query, values).fetchone()
    return None if row is None else row[0]


def clock(db: psycopg.Connection) -> datetime:
    """Return the database's time, the only clock that pgsched uses."""
    found = one(db, "SELECT clock_timestamp()")
    assert isinstance(found, datetime)
    return found


def leader_pid(db: psycopg.Connection) -> int | None:
    """Return the process id of the current leader; None if no process leads."""
    found = one(db, "SELECT CASE WHEN resigned_at IS NULL THEN pid END FROM pgsched.leader ORDER BY term DESC LIMIT 1")
    return None if found is None else int(found)


def wait_for_leader(db: psycopg.Connection, *, other_than: int = -1, timeout: float = 10.0) -> int:
    def found() -> int | None:
        pid = leader_pid(db)
        return pid if pid != other_than else None

    return wait_until(found, timeout, "a leader") or 0


def enqueue(db: psycopg.Connection, task: str, **args: str) -> int:
    return int(one(db, "SELECT pgsched.enqueue(%s, %s)", task, Jsonb(args)))


def state(db: psycopg.Connection, run_id: int) -> str:
    return str(one(db, "SELECT state FROM pgsched.runs WHERE id = %s", run_id))


def events(db: psycopg.Connection, run_id: int, event: str) -> list[tuple[UUID, int]]:
    """Return the token and the pid of each such event of a run, oldest first."""
    rows = db.execute("SELECT token, pid FROM ledger WHERE run_id = %s AND event = %s ORDER BY at", [run_id, event])
    return [(row[0], row[1]) for row in rows.fetchall()]


def open_gate(db: psycopg.Connection, name: str) -> None:
    db.execute("INSERT INTO public.gates VALUES (%s)", [name])


def unaccounted(db: psycopg.Connection) -> list[Any]:
    """Return runs whose attempts were not each settled exactly once.

    Each attempt that counts leaves a row in `attempts`, except a successful one and the one that is running.
    """
    return db.execute(
        "SELECT r.id, r.state, r.attempt, count(a.token) FROM pgsched.runs r"
        " LEFT JOIN pgsched.attempts a ON a.run_id = r.id AND a.outcome <> 'interrupted'"
        " GROUP BY r.id HAVING r.attempt <> count(a.token) + (r.state IN ('succeeded', 'running'))::int"
    ).fetchall()

"""A leader in the test's own process, or its ticks alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import psycopg

from pgsched.config import LeaderSettings
from pgsched.db.queries.leader.leadership import Firsts, elect, fence
from pgsched.leader.duty import Duty
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.term import Term
from pgsched.leader.ticker import tick
from pgsched.leader.timing.floors import Floors
from tests.support.db.setting import Open

AnyDuty = TypeVar("AnyDuty", bound=Duty)


class NoFloors(Floors):
    """Floors that never rise, so that each round searches the whole index: tests move due times back by hours."""

    def raise_to(self, firsts: Firsts, now_s: float, *, jobs_left: bool = False) -> None:
        """Leave the floors where they are."""


def lead(conn: psycopg.Connection, floors: Floors | None = None, **settings: Any) -> LeaderLoop:
    """Return the loop of a new term; pass `floors` to get those of a real leader."""
    with conn.transaction():
        fence(conn, None)
        number = elect(conn, "test")[0]
    return LeaderLoop(Term(conn, number, LeaderSettings(**settings)), reap_from=0.0, floors=floors or NoFloors())


def duty_of(loop: LeaderLoop, kind: type[AnyDuty]) -> AnyDuty:
    """Return the loop's duty of this class."""
    return next(duty for duty in loop.duties if isinstance(duty, kind))


def add_coming_jobs(db: psycopg.Connection, count: int, seconds: float, **columns: Any) -> datetime:
    """Add jobs whose next slots are all due `seconds` from now; return that instant."""
    given = {"overlap": "skip"} | columns
    names = "".join(f", {name}" for name in given)
    db.execute(
        f"INSERT INTO pgsched.jobs (name, schedule, task{names})"
        f" SELECT 'j' || n, '@every 1h', 't'{', %s' * len(given)} FROM generate_series(1, %s) n",
        [*given.values(), count],
    )
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "UPDATE pgsched.jobs SET next_run_at = at, anchor_at = at - interval '1 hour',"
            " decided_until = at - interval '30 minutes'"
            " FROM (SELECT clock_timestamp() + make_interval(secs => %s) AS at) c",
            [seconds],
        )
    row = db.execute("SELECT DISTINCT next_run_at FROM pgsched.jobs").fetchone()
    assert row is not None
    return datetime.fromisoformat(str(row[0]))


def tick_all(conn: psycopg.Connection, batch: int) -> int:
    """Tick without a fence until no job is due; return how many rows were made."""
    made = 0
    while True:
        with conn.transaction():
            made += tick(conn, batch).slots
        row = conn.execute("SELECT count(*) FROM pgsched.jobs WHERE next_run_at <= clock_timestamp()").fetchone()
        if row == (0,):
            return made


def run_counts(db: psycopg.Connection) -> list[int]:
    return [row[0] for row in db.execute("SELECT DISTINCT run_count FROM pgsched.jobs ORDER BY 1").fetchall()]


def ticked(conn: psycopg.Connection) -> int:
    """Tick once; return how many rows were made."""
    with conn.transaction():
        return tick(conn, 100).slots


def in_transaction(connect: Open) -> psycopg.Connection:
    """Return a connection that is already inside a transaction, as the leader's is during a tick."""
    conn = connect(autocommit=False)
    conn.execute("SELECT 1")
    return conn

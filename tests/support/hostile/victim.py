"""The work of another user, bob, which a hostile test tries to harm: a job each second, chains and limited runs.

Invariant of `unharmed`: no worker process has ended, and the leader's term is still the one of the beginning. Each
second has a slot of bob's job with a run that succeeded in time, and new work of each kind is done within seconds.

`tests/hostile/conftest.py` has the fixture `victim`. Tests do harm as another login: `victim.logins.connect("alice")`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from pgsched.services.status import read_status
from tests.support.fleet import QUICK, Fleet, Member, wait_for_leader
from tests.support.logins import Logins, one
from tests.support.waiting import wait_until

TASK = "victim.ok"
JOB = "bobs"
LIMIT = "bobs_limit"
LATE_S = 3.0  # on a busy machine, a slot starts up to about a second late
SOON_S = 15.0
START_S = 2.0  # two workers start up within it on a machine for which LATE_S is meant
LEASE_S = 6.0  # a worker on a slow machine renews it in time

LATENESS = """
    SELECT coalesce(max(extract(epoch FROM coalesce(r.started_at, clock_timestamp()) - r.scheduled_at)), 0)::float8
    FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE j.name = %s AND r.scheduled_at >= %s"""
GAPS = """
    SELECT earlier::text, later::text FROM (
        SELECT lag(r.scheduled_at) OVER (ORDER BY r.scheduled_at) AS earlier, r.scheduled_at AS later
        FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
        WHERE j.name = %s AND r.scheduled_at >= %s) s
    WHERE later - earlier <> interval '1 second'"""
BAD = """
    SELECT r.id, r.scheduled_at::text, r.state, r.reason, r.error
    FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE r.owner = %s AND (r.phase = 4 OR r.state IN ('skipped', 'cancelled') OR r.crashes > 0)"""


class Victim:
    """Bob's job and limit, and the worker processes, of which one leads. `db`: the superuser's connection."""

    def __init__(self, logins: Logins, db: psycopg.Connection[Any], fleet: Fleet) -> None:
        self.logins = logins
        self.db = db
        self.fleet = fleet
        self.bob = logins.connect("bob")
        self.workers: list[Member] = []
        self.term = 0
        self.slowness = 1.0  # how many times longer than START_S the workers took to start, at least 1

    def begin(self, workers: int, *options: str) -> None:
        """Start the load; return when its first slot has succeeded."""
        self.db.execute("INSERT INTO pgsched.limits (name, concurrency) VALUES (%s, 1)", [LIMIT])
        started = time.monotonic()
        self.workers = self.fleet.start(workers, *QUICK, "--lease", f"{LEASE_S:g}", *options)
        self.slowness = max(1.0, (time.monotonic() - started) / START_S)
        wait_for_leader(self.db)
        self.bob.execute(
            "INSERT INTO jobs (name, task, schedule, overlap) VALUES (%s, %s, '@every 1s', 'allow')", [JOB, TASK]
        )
        self.await_slot()
        self.begun_at = one(self.db, "SELECT clock_timestamp()")
        self.term = one(self.db, "SELECT max(term) FROM pgsched.leader")

    def await_slot(self) -> None:
        """Wait until a slot of the job that is not due yet has succeeded."""
        now = one(self.db, "SELECT clock_timestamp()")
        done = "SELECT EXISTS (SELECT FROM runs WHERE job_id = (SELECT id FROM jobs WHERE name = %s)" \
               " AND scheduled_at > %s AND state = 'succeeded')"  # fmt: skip
        wait_until(lambda: one(self.bob, done, JOB, now), SOON_S, "the next slot of bob's job to succeed")

    def await_new_work(self) -> None:
        """Wait until a new slot, a new child run, a new run with a limit and a new delayed run have succeeded."""
        parent = one(self.bob, "SELECT enqueue(%s)", TASK)
        child = one(self.bob, "SELECT enqueue(%s, after => ARRAY[%s::bigint])", TASK, parent)
        limited = one(self.bob, "SELECT enqueue(%s, concurrency_key => %s)", TASK, f"{LIMIT}:1")
        later = one(self.bob, "SELECT enqueue(%s, delay => '100 ms')", TASK)
        self.await_slot()
        for what, run in (("a chain", child), ("a limited run", limited), ("a delayed run", later)):
            self.await_success(run, what)

    def await_success(self, run: int, what: str) -> None:
        """Wait until a run of bob's has succeeded."""
        wait_until(lambda: self.state(run) == "succeeded", SOON_S, f"{what} of bob's to succeed")

    def state(self, run: int) -> str:
        """Return the state of a run of any owner."""
        return str(one(self.db, "SELECT state FROM pgsched.runs WHERE id = %s", run))

    def lateness_s(self) -> float:
        """Return the greatest lateness of a slot since `begin`."""
        return float(one(self.db, LATENESS, JOB, self.begun_at))

    def problems(self) -> list[str]:
        """Return the problems that `pgsched status` reports to a viewer."""
        return list(read_status(self.logins.connect("eye")).problems)

    def unharmed(self, *, healthy: bool = True, same_term: bool = True, late_s: float = LATE_S) -> None:
        """Do new work, then fail unless bob noticed nothing.

        `healthy`: `read_status` must not report a problem. `late_s`: how late a slot of his may start on a machine
        that is not slow.
        """
        self.await_new_work()
        assert [worker.last_line for worker in self.workers if not worker.alive] == []
        if same_term:
            assert one(self.db, "SELECT max(term) FROM pgsched.leader") == self.term
        late = self.lateness_s() / self.slowness
        assert late < late_s, f"a slot started {late:.1f} s late, counted as on a machine that is not slow"
        assert self.db.execute(GAPS.encode(), [JOB, self.begun_at]).fetchall() == [], "a slot has no row, or two"
        bad = self.db.execute(BAD.encode(), [self.logins.name("bob")]).fetchall()
        assert bad == [], bad
        if healthy:
            assert self.problems() == []


@contextlib.contextmanager
def victim_on(
    logins: Logins, db: psycopg.Connection[Any], folder: Path, *options: str, workers: int = 2
) -> Iterator[Victim]:
    """Yield the load on the test's database.

    The worker processes log in as a member of pgsched_worker and pgsched_leader. `options`: more options of
    `pgsched worker`.
    """
    db.execute(f'GRANT pgsched_leader TO "{logins.name("worker")}"'.encode())
    fleet = Fleet(logins.dsn("worker"), folder)
    fleet.app = "tests.support.apps.victim:app"
    victim = Victim(logins, db, fleet)
    try:
        victim.begin(workers, *options)
        yield victim
    finally:
        fleet.end()

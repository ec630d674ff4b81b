"""The rows of `workers`: which workers there are, what they can run, when they were last seen."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgsched.core.model import Row
from pgsched.core.schedule.zones import tzdata_version
from pgsched.db import fleets
from pgsched.db.connection import pooler
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, first_row
from pgsched.db.statements import sql
from pgsched.errors import NotFound

if TYPE_CHECKING:
    from pgsched.db.queries.jobs.declarations import Declaration
    from pgsched.db.queries.runs.tasks import Release


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of itself at start.

    `version`: of pgsched
    `concurrency`: how many attempts the worker makes at the same time
    `queues`: those that it serves; None: all
    `kinds`, `tasks`: what it can run
    `lease_s`: how long its claims hold without a heartbeat, in seconds
    `jobs`: what its code declares; None: it declares nothing, and does not say what its code would
    `releases`: what is registered of its tasks; None: nothing
    """

    name: str
    version: str
    app: str | None
    concurrency: int
    queues: list[str] | None
    kinds: list[str]
    tasks: list[str]
    lease_s: float
    jobs: Sequence[Declaration] | None = None
    releases: Sequence[Release] | None = None


def which_database(conn: Connection[Any]) -> tuple[Any, ...]:
    """Return values that tell the database of this connection from every other."""
    row = first_row(conn, "which_database")
    assert row is not None
    return tuple(row.values())


def insert_worker(conn: Connection[Any], registration: Registration) -> int:
    """Write the worker's row; return its id. `registration.register` calls this and writes the declared jobs too."""
    values = {name: getattr(registration, name) for name in Registration.__slots__}
    process = {"hostname": socket.gethostname(), "pid": os.getpid()}
    time_of_host = {"tz_version": tzdata_version(), "clock_s": time.time()}
    way = {"pooler": pooler.pooler_of(conn)}
    jobs = registration.jobs
    declares = {"declares": None if jobs is None else sorted(job.name for job in jobs)}
    known = {one.task: one.release for one in registration.releases or ()}
    values["releases"] = [known.get(task) for task in registration.tasks] if known else None
    values |= {"fleet": fleets.expected_fleet(conn), **process, **time_of_host, **way, **declares}
    (row,) = fetch(conn, "worker_start", values)
    fleets.remember_fleet(conn, row["fleet"])
    return int(row["id"])


def stop(conn: Connection[Any], worker_id: int, name: str, *, stopped: bool) -> None:
    """Record that the worker with this id and name is stopping, or with `stopped` has gone."""
    conn.execute(sql("worker_stop"), {"worker_id": worker_id, "name": name, "stopped": stopped})


def drain(conn: Connection[Any], worker_id: int, by: str | None = None) -> Row:
    """Ask a worker to claim nothing more and to end with its runs; it learns so within a third of its lease.

    `by`: who asks, the session's user if None. Raises NotFound.
    """
    found = first_row(conn, "worker_drain", {"id": worker_id, "asked_by": by}) if 0 < worker_id < 2**63 else None
    if found is None:
        raise NotFound(f"there is no worker {worker_id} that has not stopped")
    return found

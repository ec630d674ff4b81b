"""Metrics of the whole database; only the process that leads reads them.

Invariant: reading takes at most a twentieth of the time. A thread reads on a connection of its own, at most every
EVERY_S. A scrape only shows the figures that were read last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, connect
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.reports import metrics
from pgsched.telemetry.metrics import BoundedLabels, Sample
from pgsched.telemetry.system_health import SystemHealth

logger = log.get("metrics")
EVERY_S = 15.0
SHARE = 20  # reading takes at most one part in this many of the time
TIMEOUT_S = 10.0
LOOK_S = 0.5


class Figures(threading.Thread):
    """A thread that reads the figures and judges `health` while `leads()` is true.

    `counted`: False if only health is asked for, so that no figures are read.
    """

    def __init__(self, dsn: str, leads: Callable[[], bool], health: SystemHealth, *, counted: bool = True) -> None:
        super().__init__(name="pgsched-figures", daemon=True)
        self._dsn = dsn
        self._health = health
        self._counted = counted
        self._leads = leads
        self._stopping = threading.Event()
        self._read: list[Sample] = []
        self._read_at = 0.0
        self._queue = BoundedLabels()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()

    def samples(self) -> list[Sample]:
        """Return the figures that were read last; a source of a Meter. Empty where this process does not lead."""
        if not self._read or not self._leads():
            return []
        return [*self._read, ("pgsched_database_read_age_seconds", (), time.monotonic() - self._read_at)]

    def run(self) -> None:
        """Read the figures now and then while this process leads."""
        conn: Connection[Any] | None = None
        next_at = 0.0
        while not self._stopping.wait(LOOK_S):
            if not self._leads():
                close(conn)
                conn, self._read = None, []
            elif time.monotonic() >= next_at:
                began = time.monotonic()
                try:
                    conn = conn or connect(self._dsn, purpose="metrics", timeout_s=TIMEOUT_S)
                    self._health.look(conn)
                    if self._counted:
                        self._take(conn)
                except Exception as error:  # no error may end the thread, not even one outside of the database
                    logger.warning("figures not read", error=log.redact(first_line(error)))
                    close(conn)
                    conn = None
                pause_s = max(EVERY_S, SHARE * (time.monotonic() - began))
                self._health.pause(pause_s)
                next_at = time.monotonic() + pause_s
        close(conn)

    def _take(self, conn: Connection[Any]) -> None:
        began = time.monotonic()
        found = [*self._queues(conn), *job_samples(conn), *tables(conn)]
        self._read_at = time.monotonic()
        self._read = [*found, ("pgsched_database_read_seconds", (), self._read_at - began)]

    def _queues(self, conn: Connection[Any]) -> Iterator[Sample]:
        counts: dict[tuple[str, str], float] = {}
        ages: dict[tuple[str, str], float] = {}
        for row in sorted(metrics.count_unfinished_runs(conn), key=lambda row: -row["n"]):
            key = self._queue(row["queue"]), row["state"]
            counts[key] = counts.get(key, 0) + row["n"]
            ages[key] = max(ages.get(key, 0.0), row["oldest_s"] or 0.0)
        for queue in {queue for queue, _ in counts}:
            counts.setdefault((queue, "queued"), 0)  # so that an alert on it finds a series
        for key, count in counts.items():
            yield "pgsched_queue_runs", key, count
            yield "pgsched_queue_oldest_age_seconds", key, ages.get(key, 0.0)


def job_samples(conn: Connection[Any]) -> Iterator[Sample]:
    """Yield the number of jobs in each state, and how long the oldest due slot has waited."""
    row = metrics.count_jobs(conn)
    for state, column in (("planned", "planned"), ("paused", "paused"), ("error", "broken")):
        yield "pgsched_jobs", (state,), row[column]
    yield "pgsched_jobs_overdue_seconds", (), row["overdue_s"] or 0.0


def tables(conn: Connection[Any]) -> Iterator[Sample]:
    """Yield the live and dead rows of each table."""
    for row in metrics.tables(conn):
        yield "pgsched_table_live_tuples", (row["name"],), row["live"]
        yield "pgsched_table_dead_tuples", (row["name"],), row["dead"]


def close(conn: Connection[Any] | None) -> None:
    """Close a connection, if there is one."""
    if conn is not None:
        conn.close()

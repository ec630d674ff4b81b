"""The times at which the server committed a client's enqueues, read from its own log, the WAL.

A client learns of a commit only afterwards, some clients sooner than others. If the clock started then, a worker that
learns of a job before its client does would look quicker than it is.

Invariant: these are the transactions that inserted into a contestant's table, in the order of their commits, each with
the time in its commit record (pg_walinspect: PostgreSQL 15 and later, a superuser). That time is taken just before the
record is written. So the time after it includes the flush of that commit, alike for all contestants.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import psycopg

from bench.adapter import Failed
from bench.contestants import Contestant
from bench.server import scalar

HERE = "SELECT pg_current_wal_insert_lsn()"
KEEP = "SELECT pg_create_physical_replication_slot(%s, immediately_reserve => true, temporary => true)"
DATABASE = "SELECT oid::text FROM pg_database WHERE datname = current_database()"
FILES = """
SELECT pg_relation_filenode(t.relid) FROM (SELECT %(table)s::regclass UNION SELECT relid FROM
pg_partition_tree(%(table)s::regclass)) AS t (relid) WHERE pg_relation_filenode(t.relid) IS NOT NULL
"""
COMMITS = """
WITH log AS MATERIALIZED (
    SELECT * FROM pg_get_wal_records_info(%(since)s::pg_lsn, pg_current_wal_flush_lsn())
), inserted AS (
    SELECT DISTINCT xid FROM log WHERE resource_manager = 'Heap' AND record_type IN ('INSERT', 'INSERT+INIT')
        AND substring(block_ref FROM 'rel [0-9]+/([0-9]+/[0-9]+)') = ANY (%(files)s)
)
SELECT substring(description FROM '^[0-9-]+ [0-9:.]+') FROM log JOIN inserted USING (xid)
WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT' ORDER BY start_lsn
"""
EVERY_S = 0.1  # the table may be truncated, and then has a new file
SLACK_NS = 20_000  # the record's time is in microseconds, and the two clocks cannot be read at the same instant
STEP_NS = 50_000


class Commits:
    """The commits of a contestant's enqueues during the block. Raises Failed if they cannot be read."""

    def __init__(self, dsn: str, contestant: Contestant) -> None:
        self.contestant = contestant
        self._conn = psycopg.connect(dsn, autocommit=True)
        self._files: set[int] = set()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Commits:
        try:
            self._conn.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
            self._conn.execute(KEEP, [f"bench_{os.getpid()}"])  # otherwise a checkpoint recycles the log
        except psycopg.Error as error:
            self._conn.close()
            text = str(error).splitlines()[0]
            raise Failed(f"commits are read from the WAL, by a superuser and PostgreSQL 15 or later: {text}") from error
        self._since = scalar(self._conn, HERE)
        self._ahead_ns = ahead_ns()
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_watch()
        self._conn.close()

    def _look(self) -> None:
        """Record each file that the table has."""
        with suppress(psycopg.Error):  # the connection broke: `instants` reports it
            while True:
                rows = self._conn.execute(FILES.encode(), {"table": self.contestant.table}).fetchall()
                self._files.update(file for (file,) in rows)
                if self._done.wait(EVERY_S):
                    return

    def _end_watch(self) -> None:
        self._done.set()
        self._watch.join()

    def instants(self, before: Sequence[int], after: Sequence[int]) -> list[int]:
        """Return when each enqueue was committed, as CLOCK_MONOTONIC in ns.

        The calls began at the times in `before` and returned at those in `after`. Raises Failed unless each call has
        one commit.
        """
        self._end_watch()
        try:
            texts = self._texts()
        except psycopg.Error as error:
            raise Failed(f"{self.contestant.name}: the WAL cannot be read: {str(error).splitlines()[0]}") from error
        if abs(stepped := ahead_ns() - self._ahead_ns) > STEP_NS:
            raise Failed(f"the wall clock was set by {stepped / 1e6:.3f} ms meanwhile: the commits have no date")
        warm_up = max(0, len(texts) - len(before))
        found = [wall_ns(text) - self._ahead_ns for text in texts[warm_up:]]
        if len(found) != len(before):
            raise Failed(f"{self.contestant.name}: {len(before)} jobs, {len(found)} commits in the WAL")
        for i, (began, at, returned) in enumerate(zip(before, found, after, strict=True)):
            if not began - SLACK_NS <= at <= returned + SLACK_NS:
                when = f"{(at - began) / 1e6:.3f} ms after its call, {(returned - at) / 1e6:.3f} before the return"
                raise Failed(f"{self.contestant.name}: the commit of job {i} is {when}")
        return found

    def _texts(self) -> list[str]:
        """Return the times of the commits."""
        database = scalar(self._conn, DATABASE)
        values = {"since": self._since, "files": [f"{database}/{file}" for file in self._files]}
        with self._conn.transaction():  # flush the log, because only flushed records can be read
            self._conn.execute("SET LOCAL synchronous_commit = on")
            self._conn.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
        with self._conn.transaction():
            self._conn.execute("SET LOCAL timezone = 'UTC'")
            return [str(text) for (text,) in self._conn.execute(COMMITS.encode(), values).fetchall()]


def ahead_ns() -> int:
    """Return how far the wall clock is ahead of CLOCK_MONOTONIC; only a step of the clock changes this.

    The two are read as close together as possible.
    """
    readings = []
    for _ in range(20):
        first, wall, last = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((last - first, wall - (first + last) // 2))
    return min(readings)[1]


def wall_ns(text: str) -> int:
    """Return the time of a commit record, in ns since 1970, UTC."""
    since = datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000

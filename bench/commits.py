"""When the server committed what a client enqueued: the times in its own log, the WAL.

A client hears of a commit after it, one earlier than another; so a worker that is told of a job before its client is
would look quicker than it is. The rule: the transactions that inserted into a contestant's table, in the order of their
commits, with the time that each commit's record has (pg_walinspect: PostgreSQL 15 and later, a superuser). That time is
taken just before the record is written and flushed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import psycopg

from bench.adapter import Failed
from bench.contestants import Contestant
from bench.server import scalar

HERE = "SELECT pg_current_wal_insert_lsn()"
NODES = """
SELECT pg_relation_filenode(t.relid) FROM (SELECT %(table)s::regclass UNION SELECT relid FROM
pg_partition_tree(%(table)s::regclass)) AS t (relid) WHERE pg_relation_filenode(t.relid) IS NOT NULL
"""
COMMITS = """
WITH log AS MATERIALIZED (
    SELECT * FROM pg_get_wal_records_info(%(since)s::pg_lsn, pg_current_wal_insert_lsn())
), inserted AS (
    SELECT DISTINCT xid FROM log WHERE resource_manager = 'Heap' AND record_type IN ('INSERT', 'INSERT+INIT')
        AND substring(block_ref FROM 'rel [0-9]+/([0-9]+/[0-9]+)') = ANY (%(nodes)s)
)
SELECT substring(description FROM '^[0-9-]+ [0-9:.]+') FROM log JOIN inserted USING (xid)
WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT' ORDER BY start_lsn
"""
DATABASE = "SELECT oid::text FROM pg_database WHERE datname = current_database()"
SLACK_NS = 20_000  # the record's time has microseconds, and the clocks are compared by reading one after the other
Clocks = tuple[int, int]  # CLOCK_MONOTONIC, and how far the wall clock is ahead of it; ns


class Commits:
    """The commits from now on of what is inserted for one contestant. Raises Failed where they cannot be read."""

    def __init__(self, look: psycopg.Connection, contestant: Contestant) -> None:
        try:
            look.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        except psycopg.Error as error:
            text = str(error).splitlines()[0]
            raise Failed(f"commits are read from the WAL, by a superuser and PostgreSQL 15 or later: {text}") from error
        self.look, self.contestant = look, contestant
        self._since = scalar(look, HERE)
        self._began = clocks()

    def instants(self, before: Sequence[int], after: Sequence[int]) -> list[int]:
        """When each was committed, by CLOCK_MONOTONIC, in ns; the calls began and returned at these instants. Raises
        Failed unless each call has one commit."""
        database = scalar(self.look, DATABASE)
        nodes = self.look.execute(NODES.encode(), {"table": self.contestant.table}).fetchall()
        values = {"since": self._since, "nodes": [f"{database}/{node}" for (node,) in nodes]}
        with self.look.transaction():  # only what is flushed can be read
            self.look.execute("SET LOCAL synchronous_commit = on")
            self.look.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
        with self.look.transaction():
            self.look.execute("SET LOCAL timezone = 'UTC'")
            rows = self.look.execute(COMMITS.encode(), values).fetchall()[-len(before) :]  # the warm-up's come first
        ended = clocks()
        found = [monotonic_ns(str(text), self._began, ended) for (text,) in rows]
        if len(found) != len(before):
            raise Failed(f"{self.contestant.name}: {len(before)} jobs, {len(found)} commits in the WAL")
        for i, (began, at, returned) in enumerate(zip(before, found, after, strict=True)):
            if not began - SLACK_NS <= at <= returned + SLACK_NS:
                when = f"{(at - began) / 1e6:.3f} ms after its call, {(returned - at) / 1e6:.3f} before the return"
                raise Failed(f"{self.contestant.name}: the commit of job {i} is {when}")
        return found


def clocks() -> Clocks:
    """Both clocks, read as close together as can be."""
    readings = []
    for _ in range(20):
        first, wall, last = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((last - first, (first + last) // 2, wall))
    _, at, wall = min(readings)
    return at, wall - at


def monotonic_ns(text: str, began: Clocks, ended: Clocks) -> int:
    """What CLOCK_MONOTONIC showed at this instant of the wall clock, in UTC, which may have been slewed in between."""
    since = datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    wall = ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
    share = (wall - began[1] - began[0]) / max(1, ended[0] - began[0])
    return wall - began[1] - round((ended[1] - began[1]) * min(1.0, max(0.0, share)))

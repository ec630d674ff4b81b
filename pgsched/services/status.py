"""Status: the state of the whole system at one moment, with a judgement whether an operator has to act.

Invariant: every figure comes from an index or is bounded (`SAMPLE`, `MOST_OPEN`), so that reading it does not hurt a
system in trouble.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pgsched.config import find_backlog_limits
from pgsched.core.model import Row
from pgsched.core.problems import Patience, find_problems
from pgsched.db.connection import pooler
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import slots
from pgsched.db.queries.reports.facts import build, finished_lately, needing_attention, read_facts
from pgsched.services.status_model import Attention, Finished, NextFire, Status

SAMPLE = 10_000  # finished runs that are read at most
COUNTED = 10  # times SAMPLE: how many runs of the last minutes are counted
OLDER = 1000  # runs that are read of those that ended badly more than a day ago
MOST_OPEN = 200_000  # open runs that are counted at most
EXTRA_SLOTS = 90  # extra slots that are read, because this many may lie on excluded dates


def read_status(conn: Connection[Any], sample: int | None = None) -> Status:
    """Read the state of everything and judge it.

    At most `sample` runs are read of the finished ones, and of those that ended badly within a day, always the newest.
    None means SAMPLE; then COUNTED times as many finished runs are counted. Of runs that ended badly before that day,
    at most `OLDER` are read.
    """
    most = COUNTED * SAMPLE if sample is None else sample
    sample = sample or SAMPLE
    patience = Patience(*find_backlog_limits())
    with conn.transaction():
        # statistics of a queue table are stale by nature; each query below has an index that fits it
        conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL jit = off; SET LOCAL lock_timeout = '3s'")
        facts = read_facts(conn, MOST_OPEN)
        finished = newest_finished(conn, sample, most)
        attention = build(Attention, needing_attention(conn, sample, OLDER))
        fires = next_fires(slots.next_of_jobs(conn, 10 + EXTRA_SLOTS))[:10]
    return Status(
        find_problems(facts, patience), facts.leader, facts.workers, facts.queues, facts.jobs, finished, attention,
        facts.unroutable, fires, facts.errors, facts.counted_all, facts.paused, facts.limits, facts.full_queues,
        pooler.pooler_of(conn), facts.lost_workers,
    )  # fmt: skip


def newest_finished(conn: Connection[Any], sample: int, most: int) -> Finished:
    """Count the newest finished runs; `sampled_s` and `counted_s` are set only where there were more than were read."""
    row = finished_lately(conn, sample, most)
    sampled_s = row["sampled_s"] if row["read"] >= sample else None
    counted_s = row["counted_s"] if row["counted"] >= most else None
    return build(Finished, row | {"sampled_s": sampled_s, "counted_s": counted_s})


def next_fires(jobs: list[Row]) -> list[NextFire]:
    """Return the next slots of these jobs that will run, by time."""
    allowed = [(slot, job) for job in jobs if (slot := next_slot(job)) is not None]
    return [
        NextFire(job["name"], slot, (slot - job["now"]).total_seconds(), job["schedule"], job["timezone"])
        for slot, job in sorted(allowed, key=lambda found: found[0])
    ]


def next_slot(job: Row) -> datetime | None:
    """Return the job's next slot that no calendar excludes."""
    if job["excluded"] is None and job["calendar"] is None:
        return job["next_run_at"]  # type: ignore[no-any-return]
    from pgsched.core.schedule.preview import next_allowed  # importing schedules takes a fifth of this command's time

    return next_allowed(job)

"""The rule: status is read at one moment, cheaply, and says by itself whether somebody has to act.

Every figure comes from an index or is bounded (`SAMPLE`, `MOST_OPEN`): asking does not hurt a system in trouble.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from pgsched.db.connection import pooler
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import Row, one, rows
from pgsched.services import limits as limit_report
from pgsched.services.problems import job_problems, leader_problems, worker_problems
from pgsched.services.status_model import (
    Attention,
    Finished,
    JobCounts,
    JobError,
    Leader,
    LiveWorker,
    NextFire,
    Paused,
    Queue,
    Status,
    Unroutable,
)

LEADER_SEEN_S = 5.0
SAMPLE = 10_000
OLDER = 1000  # of those that ended badly more than a day ago
MOST_OPEN = 200_000
PUT_OFF = 90  # among the next slots, so many on excluded dates are told from those that will run
T = TypeVar("T")


def status(conn: Connection[Any], sample: int | None = None) -> Status:
    """Read the state of everything and judge it; of the finished runs, and of the last day's that ended badly, at most
    the newest `sample` (None: SAMPLE) are read, and `OLDER` of those that ended badly before."""
    sample = sample or SAMPLE
    with conn.transaction():
        # statistics of a queue table are stale by nature; each question below has an index that fits it
        conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL jit = off")
        leader = newest_leader(conn)
        workers = [build(LiveWorker, row) for row in rows(conn, "workers_alive")]
        open_runs = rows(conn, "runs_open_by_state", {"n": MOST_OPEN})
        jobs = build(JobCounts, one(conn, "jobs_counted"))
        finished = newest_finished(conn, sample)
        attention = build(Attention, one(conn, "runs_needing_attention", {"n": sample, "older": OLDER}))
        fires = next_fires(rows(conn, "slots_next", {"n": 10 + PUT_OFF}))[:10]
        errors = [build(JobError, row) for row in rows(conn, "jobs_in_error", {"n": 20})]
        paused = limit_report.pauses(conn)
        limits, full = limit_report.binding(conn)
    queues = by_queue(open_runs)
    unroutable = [
        Unroutable(row["queue"], row["kind"], row["task"], row["n"], row["oldest_s"])
        for row in sorted(open_runs, key=lambda row: -row["n"])
        if not row["offered"]
    ]
    problems = [
        *leader_problems(leader, jobs, queues),
        *worker_problems(workers, going_on(queues, paused), unroutable),
        *job_problems(jobs, errors),
        *limit_report.full_problems(full),
    ]
    counted_all = sum(row["n"] for row in open_runs) < MOST_OPEN
    known = (leader, workers, queues, jobs, finished, attention, unroutable, fires, errors)
    return Status(not problems, problems, *known, counted_all, paused, limits, full, pooler.of(conn))


def build(kind: type[T], row: Row | None) -> T:
    """A value from the columns that bear its fields' names."""
    assert row is not None
    return kind(**{field.name: row[field.name] for field in fields(kind) if field.name in row})  # type: ignore[arg-type]


def newest_leader(conn: Connection[Any]) -> Leader | None:
    """The newest term, None if nobody ever led."""
    row = one(conn, "leader_newest_term")
    if row is None:
        return None
    return build(Leader, row | {"alive": not row["resigned"] and row["seen_s"] <= LEADER_SEEN_S})


def newest_finished(conn: Connection[Any], sample: int) -> Finished:
    """Counts over the newest finished runs; `sampled_s` only where there were more than were read."""
    row = one(conn, "runs_finished_lately", {"n": sample})
    assert row is not None
    return build(Finished, row | {"sampled_s": row["sampled_s"] if row["read"] >= sample else None})


def next_fires(jobs: list[Row]) -> list[NextFire]:
    """The jobs' next slots that will run, by time."""
    allowed = [(slot, job) for job in jobs if (slot := next_slot(job)) is not None]
    return [
        NextFire(job["name"], slot, (slot - job["now"]).total_seconds(), job["schedule"], job["timezone"])
        for slot, job in sorted(allowed, key=lambda found: found[0])
    ]


def next_slot(job: Row) -> datetime | None:
    """The job's next slot that no calendar excludes."""
    if job["excluded"] is None:
        return job["next_run_at"]  # type: ignore[no-any-return]
    from pgsched.core.schedule.preview import next_allowed  # schedules: a fifth of the time that this command takes

    return next_allowed(job)


def going_on(queues: list[Queue], paused: list[Paused]) -> list[Queue]:
    """The queues that are not paused: what waits in the others waits because somebody wants it to."""
    if any(pause.what == "all" for pause in paused):
        return []
    stopped = {pause.name for pause in paused if pause.what == "queue"}
    return [queue for queue in queues if queue.name not in stopped]


def by_queue(open_runs: list[Row]) -> list[Queue]:
    """The open runs rolled up by queue."""
    counts: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
    for row in open_runs:
        queue = counts[row["queue"]]
        queue[row["state"]] += row["n"]
        if row["state"] == "queued":
            queue["oldest_queued_s"] = max(queue.get("oldest_queued_s") or 0.0, row["oldest_s"], 0.0)
    return [Queue(name, **counts[name]) for name in sorted(counts)]

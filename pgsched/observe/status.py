"""The rule: status is read at one moment, cheaply, and says by itself whether somebody has to act.

Every figure comes from an index or is bounded (`SAMPLE`, `MOST_OPEN`): asking does not hurt a system in trouble.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from pgsched.core.preview import next_allowed
from pgsched.db.connect import Connection
from pgsched.db.query import Row, one, rows

TERMS_A_MINUTE = 6
LEADER_SEEN_S = 5.0
OLDEST_QUEUED_S = 300.0
OVERDUE_S = 10.0
SAMPLE = 50_000
MOST_OPEN = 200_000
PUT_OFF = 90  # among the next slots, so many on excluded dates are told from those that will run
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leader:
    """The newest term. `alive`: seen within the last seconds and not resigned."""

    term: int
    holder: str
    hostname: str
    pid: int
    elected_at: datetime
    seen_s: float
    resigned: bool
    terms_lately: int
    alive: bool = False


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker seen within its lease."""

    id: int
    name: str
    hostname: str
    pid: int
    version: str
    app: str | None
    concurrency: int
    running: int
    abandoned: int
    kinds: list[str]
    queues: list[str] | None
    tasks: int
    started_at: datetime
    seen_s: float
    stopping: bool


@dataclass(frozen=True, slots=True)
class Queue:
    """The unfinished runs of one queue. `oldest_queued_s` is null when none is queued."""

    name: str
    queued: int = 0
    running: int = 0
    scheduled: int = 0
    waiting: int = 0
    oldest_queued_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Runs executed in the last minutes, and slots of the last day that started late.

    Where the system is so busy that only the newest runs were read, `sampled_s` says how far back they reach; the
    counts over longer times are then too low.
    """

    done_1: int
    done_5: int
    done_15: int
    late: int
    sampled_s: float | None = None

    def per_s(self, minutes: int) -> float:
        """Executed runs a second over the last minutes (or over what was read of them)."""
        seconds = min(minutes * 60.0, self.sampled_s or minutes * 60.0)
        return float(getattr(self, f"done_{minutes}")) / max(seconds, 1.0)


@dataclass(frozen=True, slots=True)
class Attention:
    """Runs that ended badly and are still kept; `_day`: in the last 24 hours."""

    dead: int
    dead_day: int
    missed_day: int
    missed_slots_day: int


@dataclass(frozen=True, slots=True)
class Unroutable:
    """Queued runs that no live worker offers to run. `task` only for python."""

    queue: str
    kind: str
    task: str | None
    count: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Jobs altogether; `overdue_s`: how long the oldest due slot has been waiting for a leader to decide it."""

    total: int
    paused: int
    broken: int
    planned: int
    overdue_s: float | None


@dataclass(frozen=True, slots=True)
class NextFire:
    """A slot that comes next, on no excluded date. `in_s`: seconds until then, negative when it is due."""

    name: str
    next_run_at: datetime
    in_s: float
    schedule: str | None
    timezone: str


@dataclass(frozen=True, slots=True)
class JobError:
    """A job that the leader could not evaluate."""

    name: str
    error: str
    error_at: datetime | None


@dataclass(frozen=True, slots=True)
class Status:
    """The whole system at one moment."""

    healthy: bool
    problems: list[str]
    leader: Leader | None
    workers: list[LiveWorker]
    queues: list[Queue]
    jobs: JobCounts
    finished: Finished
    attention: Attention
    unroutable: list[Unroutable]
    next_fires: list[NextFire]
    errors: list[JobError]
    counted_all: bool = True  # False: there are more open runs than were counted

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it: instants as ISO text."""
        plain: dict[str, Any] = jsonable(asdict(self))
        plain["throughput_per_s"] = {f"{m}m": round(self.finished.per_s(m), 3) for m in (1, 5, 15)}
        return plain


def jsonable(value: Any) -> Any:
    """Instants become ISO text, at any depth."""
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def status(conn: Connection[Any]) -> Status:
    """Read the state of everything and judge it."""
    with conn.transaction():
        # statistics of a queue table are stale by nature; each question below has an index that fits it
        conn.execute("SET LOCAL enable_seqscan = off")
        leader = newest_leader(conn)
        workers = [build(LiveWorker, row) for row in rows(conn, "status_workers")]
        open_runs = rows(conn, "status_open", {"n": MOST_OPEN})
        jobs = build(JobCounts, one(conn, "status_jobs"))
        finished = newest_finished(conn)
        attention = build(Attention, one(conn, "status_attention"))
        fires = next_fires(rows(conn, "status_next", {"n": 10 + PUT_OFF}))[:10]
        errors = [build(JobError, row) for row in rows(conn, "status_errors", {"n": 20})]
    queues = by_queue(open_runs)
    unroutable = [
        Unroutable(row["queue"], row["kind"], row["task"], row["n"], row["oldest_s"])
        for row in sorted(open_runs, key=lambda row: -row["n"])
        if not row["offered"]
    ]
    problems = [
        *leader_problems(leader, jobs, queues),
        *worker_problems(workers, queues, unroutable),
        *job_problems(jobs, errors),
    ]
    counted_all = sum(row["n"] for row in open_runs) < MOST_OPEN
    known = (leader, workers, queues, jobs, finished, attention, unroutable, fires, errors)
    return Status(not problems, problems, *known, counted_all)


def build(kind: type[T], row: Row | None) -> T:
    """A value from the columns that bear its fields' names."""
    assert row is not None
    return kind(**{field.name: row[field.name] for field in fields(kind) if field.name in row})  # type: ignore[arg-type]


def newest_leader(conn: Connection[Any]) -> Leader | None:
    """The newest term, None if nobody ever led."""
    row = one(conn, "status_leader")
    if row is None:
        return None
    return build(Leader, row | {"alive": not row["resigned"] and row["seen_s"] <= LEADER_SEEN_S})


def newest_finished(conn: Connection[Any]) -> Finished:
    """Counts over the newest finished runs; `sampled_s` only where there were more than were read."""
    row = one(conn, "status_finished", {"n": SAMPLE})
    assert row is not None
    return build(Finished, row | {"sampled_s": row["sampled_s"] if row["read"] >= SAMPLE else None})


def next_fires(jobs: list[Row]) -> list[NextFire]:
    """The jobs' next slots that will run, by time."""
    allowed = [(slot, job) for job in jobs if (slot := next_allowed(job)) is not None]
    return [
        NextFire(job["name"], slot, (slot - job["now"]).total_seconds(), job["schedule"], job["timezone"])
        for slot, job in sorted(allowed, key=lambda found: found[0])
    ]


def by_queue(open_runs: list[Row]) -> list[Queue]:
    """The open runs rolled up by queue."""
    counts: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
    for row in open_runs:
        queue = counts[row["queue"]]
        queue[row["state"]] += row["n"]
        if row["state"] == "queued":
            queue["oldest_queued_s"] = max(queue.get("oldest_queued_s") or 0.0, row["oldest_s"], 0.0)
    return [Queue(name, **counts[name]) for name in sorted(counts)]


def leader_problems(leader: Leader | None, jobs: JobCounts, queues: list[Queue]) -> list[str]:
    """Is anybody deciding slots?"""
    if leader is not None and leader.alive:
        late = jobs.overdue_s is not None and jobs.overdue_s > OVERDUE_S
        problems = [f"the leader is {jobs.overdue_s:.0f} s behind with due slots"] if late else []
        if leader.terms_lately > TERMS_A_MINUTE:
            problems.append(f"{leader.terms_lately} terms began within a minute: leaders fail, see the workers' logs")
        return problems
    held = sum(queue.scheduled + queue.waiting for queue in queues)
    if not jobs.planned and not held:
        return []
    if leader is None:
        why = "nobody has ever led"
    elif leader.resigned:
        why = f"{leader.holder} resigned"
    else:
        why = f"{leader.holder} was last seen {leader.seen_s:.0f} s ago"
    what = f"{jobs.planned} jobs and {held} held runs wait for one"
    return [f"no live leader: {why}; {what} (start a `pgsched worker`)"]


def worker_problems(workers: list[LiveWorker], queues: list[Queue], unroutable: list[Unroutable]) -> list[str]:
    """Is anybody running what is queued?"""
    problems = []
    queued = sum(queue.queued for queue in queues)
    taking = [worker for worker in workers if not worker.stopping]
    if queued and not taking:
        problems.append(f"no live worker, and {queued} runs are queued (start a `pgsched worker`)")
    for what in unroutable[:5] if taking else ():
        name = f"task {what.task}" if what.task else f"kind {what.kind}"
        problems.append(f"unroutable: no live worker offers {name} on queue {what.queue} ({what.count} queued)")
    if taking and len(unroutable) > 5:
        problems.append(f"unroutable: {len(unroutable) - 5} further tasks")
    for queue in queues:
        if queue.oldest_queued_s is not None and queue.oldest_queued_s > OLDEST_QUEUED_S:
            problems.append(f"queue {queue.name}: the oldest queued run has waited {queue.oldest_queued_s:.0f} s")
    if stuck := sum(worker.abandoned for worker in workers):
        problems.append(f"{stuck} abandoned handlers still occupy their workers")
    return problems


def job_problems(jobs: JobCounts, errors: list[JobError]) -> list[str]:
    """Can every job be evaluated?"""
    problems = [f"job {job.name} is in error: {job.error}" for job in errors[:5]]
    if jobs.broken > len(problems):
        problems.append(f"{jobs.broken - len(problems)} further jobs are in error")
    return problems

"""What `status` tells: values, each read at the same moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any


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
    blocked_s: float | None = None
    blocked_by: str | None = None
    pooler: str | None = None


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
    """Runs that ended badly and are still kept; `_day`: in the last 24 hours. `sampled`: there were more in these than
    were read, and the counts are of the newest. `uncounted`: so there are in all, of which fewer are read."""

    dead: int
    dead_day: int
    missed_day: int
    missed_slots_day: int
    sampled: bool = False
    uncounted: bool = False


@dataclass(frozen=True, slots=True)
class Unroutable:
    """Queued runs that no live worker offers to run. `task` only for kind `task`."""

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
class Paused:
    """What somebody stopped `since_s` seconds ago: `what` is all, queue or task. `resume_at`: when it goes on by
    itself, in `resumes_in_s` seconds; null: never."""

    what: str
    name: str
    paused_at: datetime
    paused_by: str
    reason: str | None
    resume_at: datetime | None
    since_s: float
    resumes_in_s: float | None


@dataclass(frozen=True, slots=True)
class Binding:
    """A limit that holds runs now: how many it has let go (of a queue: how many run), and how many wait. Not `applied`:
    it was changed a moment ago."""

    name: str
    admitted: int
    waiting: int
    applied: bool


@dataclass(frozen=True, slots=True)
class FullQueue:
    """A queue in which as many runs wait as may."""

    name: str
    depth: int
    max_depth: int
    on_full: str


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
    paused: list[Paused] = field(default_factory=list)
    limits: list[Binding] = field(default_factory=list)
    full: list[FullQueue] = field(default_factory=list)
    pooler: str | None = None  # session or transaction: what this very connection goes through

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

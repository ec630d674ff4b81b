"""What is known of the running system at one moment: values, all read in one transaction, for core.health to judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Failing:
    """A duty of the leader that has failed each time for `since_s` seconds.

    `left`: it has cost the leader its session twice, and is left undone for a while.
    """

    duty: str
    since_s: float
    left: bool = False


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
    failing: list[Failing] = field(default_factory=list)


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

    def serves(self, queue: str) -> bool:
        """Does it claim runs of this queue?"""
        return not self.stopping and (self.queues is None or queue in self.queues)


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that vanished within ten minutes and did not sign off. `held`: runs by task, if the leader
    has taken its claims back; else `running` says how many it had at its last heartbeat."""

    name: str
    seen_s: float
    running: int
    held: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Queue:
    """The unfinished runs of one queue. `limited`: of those waiting, the ones that only a limit holds. An age is null
    where there is none; `oldest_offered_s` is of queued runs that some live worker would take."""

    name: str
    queued: int = 0
    running: int = 0
    scheduled: int = 0
    waiting: int = 0
    oldest_queued_s: float | None = None
    oldest_offered_s: float | None = None
    limited: int = 0
    oldest_limited_s: float | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """What runs in a queue, by task. `oldest_s`, `newest_s`: since the first and the last of them started; `untimed`:
    how many have no timeout."""

    queue: str
    task: str
    count: int
    oldest_s: float
    newest_s: float
    untimed: int


@dataclass(frozen=True, slots=True)
class Unroutable:
    """Queued runs that no live worker offers to run. `task` only for kind `task`; `hint`: what is offered instead."""

    queue: str
    kind: str
    task: str | None
    count: int
    oldest_s: float
    hint: str = ""


@dataclass(frozen=True, slots=True)
class AwaitedRelease:
    """The newest release of a task that no live worker has, while `count` runs wait for it: their arguments do not fit
    the releases that are there. `gone_s`: since a worker was last seen with it."""

    task: str
    count: int
    gone_s: float


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Jobs altogether; `overdue_s`: how long the oldest due slot has been waiting for a leader to decide it."""

    total: int
    paused: int
    broken: int
    planned: int
    overdue_s: float | None


@dataclass(frozen=True, slots=True)
class JobError:
    """A job that the leader could not evaluate."""

    name: str
    error: str
    error_at: datetime | None


@dataclass(frozen=True, slots=True)
class MarkedAhead:
    """A job whose slots count as decided until an instant that the clock has not reached."""

    name: str
    until: datetime
    ahead_s: float


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
class Shut:
    """A queue that got its first limit and is closed until the limit is in force. No run of it is claimed before.

    `waits_for`: pids of sessions with open transactions that wrote runs before the limit was set.
    """

    queue: str
    since_s: float
    waits_for: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A limit that holds runs now: how many it has let go (of a queue: how many run), and how many wait. Not `applied`:
    it was changed a moment ago. `concurrency`: how many may run at once, null: as many as like."""

    name: str
    admitted: int
    waiting: int
    applied: bool
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class FullQueue:
    """A queue in which as many runs wait as may."""

    name: str
    depth: int
    max_depth: int
    on_full: str


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An incident that is not over; `job` is null where it is about the whole system."""

    id: int
    job: str | None
    kind: str
    details: str
    since_s: float


@dataclass(frozen=True, slots=True)
class Unpruned:
    """A run that should have been deleted long ago: kept for `keep_s` seconds, it ended `age_s` seconds ago."""

    run_id: int
    age_s: float
    keep_s: float


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the judgement rests on. `notify_usage`: how full the notification queue is, from 0 to 1."""

    leader: Leader | None
    workers: list[LiveWorker]
    jobs: JobCounts
    queues: list[Queue] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    unroutable: list[Unroutable] = field(default_factory=list)
    releases: list[AwaitedRelease] = field(default_factory=list)
    errors: list[JobError] = field(default_factory=list)
    paused: list[Paused] = field(default_factory=list)
    shut: list[Shut] = field(default_factory=list)
    limits: list[Binding] = field(default_factory=list)
    full: list[FullQueue] = field(default_factory=list)
    alerts: list[OpenAlert] = field(default_factory=list)
    lost: list[LostWorker] = field(default_factory=list)
    ahead: list[MarkedAhead] = field(default_factory=list)
    unpruned: Unpruned | None = None
    notify_usage: float = 0.0
    counted_all: bool = True

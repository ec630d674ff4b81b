"""Values that describe the running system at one moment: leader, workers, jobs, queues, limits and alerts.

All of them are read in one transaction, and `core.problems` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Failing:
    """A duty of the leader that has failed each time for `since_s` seconds.

    `left`: the duty has cost the leader its session twice, and is not done for a while.
    """

    duty: str
    since_s: float
    left: bool = False


@dataclass(frozen=True, slots=True)
class Leader:
    """The newest term of a leader.

    `seen_s`: seconds since the leader was last seen.
    `terms_lately`: how many terms began within the last minute.
    `alive`: the leader was seen within the last seconds and has not resigned.
    `failing`: its duties that fail.
    """

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
    """A worker that was seen within its lease.

    `running`: attempts that it makes now.
    `abandoned`: handlers that ignore their timeout and still run.
    `queues`: None: all queues.
    `tasks`: how many tasks it offers.
    `seen_s`: seconds since its last heartbeat.
    `blocked_s`, `blocked_by`: for how many seconds a handler has blocked its event loop, and which handler.
    `pooler`: `session` or `transaction`; None: no pooler.
    """

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
        """Check whether this worker claims runs of the queue."""
        return not self.stopping and (self.queues is None or queue in self.queues)


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that vanished within the last ten minutes without signing off.

    `seen_s`: seconds since its last heartbeat.
    `running`: how many runs it had at that heartbeat.
    `runs_by_task`: its runs by task, once the leader has reaped its claims; None before.
    """

    name: str
    seen_s: float
    running: int
    runs_by_task: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Queue:
    """The unfinished runs of one queue. Ages are in seconds; None where no run is counted.

    `oldest_offered_s`: age of the oldest queued run that a live worker offers to run.
    `limited`: how many of the waiting runs only a limit holds.
    `oldest_limited_s`: age of the oldest of these.
    """

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
class RunningTask:
    """The running runs of one task in a queue.

    `oldest_s`, `newest_s`: seconds since the first and the last of them started.
    `untimed`: how many have no timeout.
    """

    queue: str
    task: str
    count: int
    oldest_s: float
    newest_s: float
    untimed: int


@dataclass(frozen=True, slots=True)
class Unroutable:
    """Queued runs that no live worker offers to run.

    `task`: set for kind `task` only. `hint`: similar tasks that are offered.
    """

    queue: str
    kind: str
    task: str | None
    count: int
    oldest_s: float
    hint: str = ""


@dataclass(frozen=True, slots=True)
class AwaitedRelease:
    """The newest release of a task that no live worker has, while `count` runs wait for it.

    The arguments of these runs do not fit the releases that live workers have.

    `gone_s`: seconds since a worker with the newest release was last seen.
    """

    task: str
    count: int
    gone_s: float


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How many jobs there are, by state.

    `broken`: jobs in error.
    `planned`: jobs with a next slot.
    `shadow`: how many of these are in mode shadow.
    `overdue_s`: for how many seconds the oldest due slot has waited for a leader to decide it; None: no slot is due.
    """

    total: int
    paused: int
    broken: int
    planned: int
    overdue_s: float | None
    shadow: int = 0


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
    """A pause that began `since_s` seconds ago.

    `what`: `all`, `queue` or `task`.
    `resume_at`: when the pause ends by itself, in `resumes_in_s` seconds; None: never.
    """

    what: str
    name: str
    paused_at: datetime
    paused_by: str
    reason: str | None
    resume_at: datetime | None
    since_s: float
    resumes_in_s: float | None


@dataclass(frozen=True, slots=True)
class ShutQueue:
    """A queue that got its first limit, and from which nothing is claimed until that limit is in force.

    `waits_for`: pids of sessions with open transactions that wrote runs before the limit was set.
    """

    queue: str
    since_s: float
    waits_for: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BindingLimit:
    """A limit that holds runs now.

    `admitted`: runs that it has admitted; for a queue's limit, how many run.
    `waiting`: runs that wait for it.
    `applied`: False if the limit was changed a moment ago and is not in force yet.
    `concurrency`: how many may run at once; None: any number.
    """

    name: str
    admitted: int
    waiting: int
    applied: bool
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class FullQueue:
    """A queue that holds its maximum number of waiting runs."""

    name: str
    depth: int
    max_depth: int
    on_full: str


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert whose incident has not ended; `job` is None where it is about the whole system."""

    id: int
    job: str | None
    kind: str
    details: str
    since_s: float


@dataclass(frozen=True, slots=True)
class OverdueRun:
    """A run that should have been deleted: it ended `age_s` seconds ago, and is kept for `keep_s` seconds."""

    run_id: int
    age_s: float
    keep_s: float


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts that health is judged by.

    `unpruned`: an ended run that should have been deleted long ago.
    `notify_usage`: how full the server's notification queue is, from 0 to 1.
    `counted_all`: False if there are more open runs than were counted.
    """

    leader: Leader | None
    workers: list[LiveWorker]
    jobs: JobCounts
    queues: list[Queue] = field(default_factory=list)
    running: list[RunningTask] = field(default_factory=list)
    unroutable: list[Unroutable] = field(default_factory=list)
    releases: list[AwaitedRelease] = field(default_factory=list)
    errors: list[JobError] = field(default_factory=list)
    paused: list[Paused] = field(default_factory=list)
    shut_queues: list[ShutQueue] = field(default_factory=list)
    limits: list[BindingLimit] = field(default_factory=list)
    full_queues: list[FullQueue] = field(default_factory=list)
    alerts: list[OpenAlert] = field(default_factory=list)
    lost_workers: list[LostWorker] = field(default_factory=list)
    marked_ahead: list[MarkedAhead] = field(default_factory=list)
    unpruned: OverdueRun | None = None
    notify_usage: float = 0.0
    counted_all: bool = True

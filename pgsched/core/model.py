"""Values that pass between the parts of pgsched: claims, outcomes, settlements, states and kinds.

Invariant: the values are immutable. A value is a fact at one moment, not a handle. Values that the hot path builds for
every run are named tuples, which cost a third of a dataclass.

All instants are timezone-aware UTC datetimes of the database's clock, except `Claim.available_at`, which is text. All
durations in Python are seconds (`_s`) or `timedelta`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self
from uuid import UUID

Key = tuple[int, int]
# A run whose available_at lies in this year or later waits for other runs: migrations/1000_initial/43_dependencies.sql
WAITS_FOR_OTHERS_YEAR = 8998
EnqueueResult = Literal["created", "existing", "replaced", "repeated"]


Row = dict[str, Any]  # a row of a statement's result, by column name


class Kind(StrEnum):
    """How `task` is read: the name of a registered handler, a program, a command line, a statement or a URL."""

    TASK = "task"
    COMMAND = "command"
    SHELL = "shell"
    SQL = "sql"
    HTTP = "http"


# What the kind of a run may be. An item of an item queue that was handed out too often becomes a dead run of the last
# kind, which no worker runs; its retry makes it an item again.
KINDS_OF_RUNS = (*map(str, Kind), "item")


class State(StrEnum):
    """The state of a run. The last five are terminal."""

    WAITING = "waiting"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISSED = "missed"


class Result(StrEnum):
    """How one attempt ended: the `outcome` of an attempt.

    `RELEASED` and `SNOOZED` do not count against max_attempts and leave no row.

    - `RELEASED`: a claim was given back before it was started.
    - `SNOOZED`: the handler asked to be called later.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    RELEASED = "released"
    SNOOZED = "snoozed"


SUCCEEDED = Result.SUCCEEDED  # a module global, because looking up an enum's member is slow


class RunId(int):
    """The id of a run, as an enqueue returns it, with `how` the enqueue got it.

    - `created`: the enqueue made a new run.
    - `existing`: a run with the unique key existed already.
    - `replaced`: a run with the unique key existed, and its work was replaced.
    - `repeated`: the idempotency key was used before, and this is the run of that first request.
    """

    how: EnqueueResult = "created"

    def __new__(cls, run_id: int, how: EnqueueResult = "created") -> Self:
        """Build an id; `how` is stored only where it is not `created`."""
        run = super().__new__(cls, run_id)
        if how != "created":
            run.how = how
        return run

    @property
    def created(self) -> bool:
        """Whether the enqueue made a new run, rather than finding one."""
        return self.how == "created"


@dataclass(frozen=True, slots=True)
class FirstResult:
    """State and result of the run that an idempotency key stands for.

    `state`: the run's state; None if its row was deleted.
    `result`: what the run returned.
    `error`: the error of the last failed attempt.
    `finished_at`: None until the run has ended.
    """

    run_id: int
    state: str | None
    result: Any
    error: str | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A placeholder for JSON that PostgreSQL can store but Python cannot read; `reason` says why.

    No attempt can succeed with this value, and the row must not stop its worker either. So the executors refuse it for
    good.
    """

    reason: str


class Claim(NamedTuple):
    """One attempt that this worker owns: what the executor needs, and the token that fences every write.

    `available_at`: text, as the database writes it in a pgsched session (ISO, UTC), so texts sort like their instants.
    """

    id: int
    token: UUID
    attempt: int
    max_attempts: int
    queue: str
    priority: int
    kind: str
    task: str
    args: Any
    job_id: int | None = None
    scheduled_at: datetime | None = None
    available_at: str | None = None
    owner: str | None = None
    timeout: timedelta | None = None
    kill_after: timedelta | None = None
    backoff: str | None = None
    backoff_base: timedelta | None = None
    backoff_max: timedelta | None = None
    backoff_jitter: float | None = None
    options: dict[str, Any] | Unreadable | None = None
    suspect: bool | None = None  # a worker died while it held this run, so the run is claimed alone
    outside_name: str | None = None  # the run's name outside the database; None: the run is not sent there
    interval_start: datetime | None = None  # the slot before this one
    slot_zone: str | None = None  # the time zone of the slot; None: UTC
    job: str | None = None  # the job's name, for SQL alone

    @property
    def key(self) -> Key:
        """The run's id and the token as a number: identifies this claim, and is quick to hash."""
        return self.id, self.token.int


class Claims(list[Claim]):
    """The claims of one claim statement. `size`: total length of their arguments as JSON text."""

    size = 0


def keys_of(claims: Iterable[Claim | Settlement]) -> list[Key]:
    """Return the key of each claim or settlement, in half the time that reading each `key` takes."""
    return [(claim[0], claim[1].int) for claim in claims]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, as an executor reports it.

    `value`: the run's result, any JSON value; the executors make sure of that.
    `log_tail`: the last few KB of what the work printed.
    `retry`: False means that no further attempt is made, and the run becomes dead.
    `retry_in`: overrides the back-off policy after this attempt. For `SNOOZED`: the time until the run is due again.
    """

    result: Result
    value: Any = None
    error: str | None = None
    traceback: str | None = None
    log_tail: str | None = None
    retry: bool = True
    retry_in: timedelta | None = None


DONE = Outcome(Result.SUCCEEDED)  # success without a result or log to store


class Settlement(NamedTuple):
    """An outcome on its way to the database, with the delay until a retry (seconds) and parts of its claim.

    The claim itself can be freed before the outcome is written, while it is still in the processor's cache.
    """

    id: int
    token: UUID
    attempt: int
    queue: str
    kind: str
    task: str
    outcome: Outcome
    retry_in_s: float | None = None

    @staticmethod
    def of(claim: Claim, outcome: Outcome, retry_in_s: float | None = None) -> Settlement:
        """Build the settlement of this claim's attempt."""
        kept = (claim[0], claim[1], claim[2], claim[4], claim[6], claim[7], outcome, retry_in_s)
        # Built by position, without the class's own constructor: two thirds of the time.
        return tuple.__new__(Settlement, kept)

    @property
    def key(self) -> Key:
        """The key of the claim."""
        return self.id, self.token.int

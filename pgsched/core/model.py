"""The values that travel between the parts. Frozen: whoever holds one holds a fact, not a handle. Those that the hot
path makes for every run are named tuples, which cost a third.

All instants are timezone-aware UTC datetimes of the database's clock, but for one of `Claim`; all durations in Python
are seconds (`_s`) or `timedelta`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

Key = tuple[int, int]
# the year of available_at from which on a run waits for others: migrations/1000_initial/43_dependencies.sql
HELD_BACK = 8998
How = Literal["created", "existing", "replaced", "repeated"]


Row = dict[str, Any]  # a row of a statement, by the names of its columns


class Kind(StrEnum):
    """How `task` is read: the name of a registered handler, a program, a command line, a statement, a URL."""

    TASK = "task"
    COMMAND = "command"
    SHELL = "shell"
    SQL = "sql"
    HTTP = "http"


class State(StrEnum):
    """Where a run is in its life. The last five are terminal."""

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
    """How one attempt ended (the `outcome` of an attempt). The last two are none, cost no attempt and leave no row: a
    claim was given back unstarted, or the handler asked to be called later."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    RELEASED = "released"
    SNOOZED = "snoozed"


SUCCEEDED = Result.SUCCEEDED  # an enum's members are slow to look up


class RunId(int):
    """A run's id, as an enqueue gives it. `how` it came by it: `created` a run, found an `existing` one with the unique
    key, `replaced` what that was to do, or `repeated` what the idempotency key had been used for."""

    how: How = "created"

    def __new__(cls, run_id: int, how: How = "created") -> RunId:
        made = super().__new__(cls, run_id)
        if how != "created":
            made.how = how
        return made

    @property
    def created(self) -> bool:
        """Was a run made, rather than one found?"""
        return self.how == "created"


@dataclass(frozen=True, slots=True)
class FirstResult:
    """What became of the run that an idempotency key stands for. `state` is the run's, None if somebody deleted its
    row; `result` is what it returned, `error` the last failure; `finished_at` is None until it has ended."""

    run_id: int
    state: str | None
    result: Any
    error: str | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for JSON that PostgreSQL stores and Python cannot read (`reason` says why). No attempt can succeed with
    it, but the row must not take its worker down either: the executors refuse it for good."""

    reason: str


class Claim(NamedTuple):
    """One attempt that this worker owns: what the executor needs, and the token that fences every write. `available_at`
    is as the database writes it in a session of ours (ISO, UTC), where texts are in the order of their instants."""

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
    suspect: bool | None = None  # a worker died that held this run: it was claimed alone
    outside_name: str | None = None  # of the run, outside of the database; None: it is not sent there

    @property
    def key(self) -> Key:
        """What tells this claim from every other: the run's id and the token as a number, which is quick to hash."""
        return self.id, self.token.int


class Claims(list[Claim]):
    """What one statement has claimed. `size`: the length of their arguments in JSON."""

    size = 0


def keys_of(claims: Iterable[Claim | Settlement]) -> list[Key]:
    """The key of each, at half of what asking each takes."""
    return [(claim[0], claim[1].int) for claim in claims]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an executor says of an attempt. `retry` False means: never again (the run becomes dead).

    `retry_in` overrides the back-off policy for this attempt, and says when one that was snoozed is due. `value`, the
    run's result, is any JSON value; the executors make sure of that. `log_tail` is the last few KB of what the work
    printed.
    """

    result: Result
    value: Any = None
    error: str | None = None
    traceback: str | None = None
    log_tail: str | None = None
    retry: bool = True
    retry_in: timedelta | None = None


DONE = Outcome(Result.SUCCEEDED)  # and nothing to keep


class Settlement(NamedTuple):
    """An outcome on its way to the database, the delay until a retry, and what is still asked for of its claim. That
    one may go: the processor's cache would not have it any more when the outcome is written."""

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
        """The outcome of this claim's attempt."""
        kept = (claim[0], claim[1], claim[2], claim[4], claim[6], claim[7], outcome, retry_in_s)
        return tuple.__new__(Settlement, kept)  # so, and by place: two thirds of what names and the class's way take

    @property
    def key(self) -> Key:
        """The claim's."""
        return self.id, self.token.int

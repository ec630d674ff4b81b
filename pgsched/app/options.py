"""Options of an enqueue.

Invariant: each option is checked when it is given, in the words that the database would use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypedDict

from pgsched.app.declarations import POLICIES, duration, instant, one_of, text
from pgsched.core import policies
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

KEYS = ("unique_key", "idempotency_key")  # options that name one run
AFTER = ("after", "after_any")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A unique scope: one run in each stretch of `period_s` seconds, whether or not it has ended; see `bucket`."""

    period_s: float

    def __str__(self) -> str:
        return f"bucket({self.period_s!r} seconds)"


def bucket(period: float | timedelta) -> Bucket:
    """Return the unique scope "one run in each hour, day, ...": `unique_scope=bucket(timedelta(hours=1))`.

    `period`: seconds or a timedelta, at least one second. Buckets lie end to end: hours begin at the full hour, days at
    midnight UTC, weeks on Monday. A run belongs to the bucket in which it is due. Raises InputError for a wrong period.
    """
    return Bucket(duration(1)("unique_scope", period).total_seconds())


UniqueScope = Literal["while_active"] | Bucket
OnConflict = Literal["return", "reject", "replace", "keep_time"]
OnFailure = Literal["cancel", "run_anyway", "wait"]


class HasId(Protocol):
    """A run, or a node of an enqueued graph."""

    @property
    def id(self) -> int:
        """Return the run's id."""


Parent = int | HasId


class OptionKeywords(TypedDict, total=False):
    """The keywords of `Task.options`: the fields of `Options`, where each is explained."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: float | timedelta | None
    tags: list[str] | tuple[str, ...] | None
    concurrency_key: str | None
    wait_for_room: float | timedelta | None
    delay: float | timedelta | None
    at: datetime | None
    unique_key: str | None
    unique_scope: UniqueScope | None
    on_conflict: OnConflict | None
    idempotency_key: str | None
    idempotency_retention: float | timedelta | None
    after: Iterable[Parent] | None
    after_any: Iterable[Parent] | None
    on_failure: OnFailure | None


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is queued. None takes the product's default. Durations are seconds or a timedelta.

    `queue`: the queue's name (default: "default").
    `priority`: 0 to 9, lower goes first (5).
    `max_attempts`: how many attempts the run has (3).
    `timeout`: how long one attempt may take (no limit).
    `tags`: up to 100 words that are kept with the run.
    `concurrency_key`: the key that shares a concurrency limit; may hold `{arguments}`.
    `wait_for_room`: how long to wait while the queue is full, outside of your transactions (0).
    `delay`, `at`: when the run is due: after this time, or at this datetime with a time zone (now).
    `unique_key`: at most one open run has this key.
    `unique_scope`: for how long: "while_active", or `bucket(period)` ("while_active").
    `on_conflict`: if a run has the key: "return", "reject", "replace" or "keep_time" ("return").
    `idempotency_key`: the name of this request; the same request gives the same run.
    `idempotency_retention`: how long that key is kept (24 hours).
    `after`: this run starts when all of these runs have succeeded.
    `after_any`: this run starts when one of these runs has succeeded.
    `on_failure`: what the run does when they do not: "cancel", "run_anyway" or "wait" ("cancel").
    """

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: float | timedelta | None = None
    tags: list[str] | tuple[str, ...] | None = None
    concurrency_key: str | None = None
    wait_for_room: float | timedelta | None = None
    delay: float | timedelta | None = None
    at: datetime | None = None
    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    on_conflict: OnConflict | None = None
    idempotency_key: str | None = None
    idempotency_retention: float | timedelta | None = None
    after: Iterable[Parent] | None = None
    after_any: Iterable[Parent] | None = None
    on_failure: OnFailure | None = None

    @classmethod
    def named(cls, given: Mapping[str, Any], *others: str) -> Options:
        """Return the options of these names. Raises InputError for an unknown name; `others` are known names too."""
        unknown = sorted(given.keys() - OPTIONS.keys())
        if unknown:
            known = (*OPTIONS, *others)
            raise InputError(
                f"{unknown[0]}: no such option; known are {', '.join(known)}{did_you_mean(unknown[0], known)}",
                unknown[0],
            )
        return cls(**given)

    def checked(self) -> dict[str, Any]:
        """Return the values as the database takes them. Raises InputError, naming the option, for a wrong one."""
        if self.delay is not None and self.at is not None:
            raise InputError("delay: give either delay or at, not both", "delay")
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: None if value is None else OPTIONS[name](name, value) for name, value in given.items()}


def unique_scope(name: str, value: Any) -> str:
    """Return a unique scope as the database takes it. Raises InputError for any other value."""
    if not isinstance(value, Bucket) and value != "while_active":
        raise InputError(f'{name}: expected "while_active" or pgsched.bucket(period), got {value!r}', name)
    return str(value) if isinstance(value, Bucket) else "while_active"


def run_ids(name: str, value: Any) -> list[int] | None:
    """Return the ids of these runs, given as ids, as Run or as nodes of a graph; None for an empty list.

    Raises InputError for anything else.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name}: expected a list of runs or of their ids, got {type(value).__name__}", name)
    ids: list[Any] = [getattr(run, "id", run) for run in value]
    for run_id in ids:
        if isinstance(run_id, bool) or not isinstance(run_id, int) or not 0 < run_id < 2**63:
            raise InputError(f"{name}: {run_id!r} is no run's id", name)
    return list(dict.fromkeys(int(run_id) for run_id in ids)) or None


OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    **{name: POLICIES[name] for name in ("queue", "priority", "max_attempts", "timeout", "tags")},
    "concurrency_key": text(200),
    "wait_for_room": duration(0),
    "delay": duration(0),
    "at": instant,
    "unique_key": text(500),
    "unique_scope": unique_scope,
    "on_conflict": one_of(*policies.ON_CONFLICT),
    "idempotency_key": text(500),
    "idempotency_retention": duration(1),
    "after": run_ids,
    "after_any": run_ids,
    "on_failure": one_of(*policies.ON_FAILURE),
}

# What a job's runs take from its task: options for every run, none that belongs to one run.
INHERITED = ("queue", "priority", "max_attempts", "timeout", "tags", "concurrency_key")

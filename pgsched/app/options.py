"""Options of an enqueue.

Invariant: each option is checked when it is given, in the words that the database would use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypedDict

from pgsched.app.declarations import POLICIES, Duration, duration, instant, one_of, prose, text
from pgsched.app.rules.retrying import BackoffFunction
from pgsched.app.rules.unique_keys import UniqueScope, check_names, check_scope
from pgsched.core import policies
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

KEYS = ("unique_key", "idempotency_key")  # options that name one run
AFTER = ("after", "after_any")
RETRYING = ("kill_after", "backoff", "backoff_base", "backoff_max", "backoff_jitter")


OnConflict = Literal["return", "reject", "replace", "keep_time", "merge"]
Backoff = Literal["exponential", "linear", "fixed"]
OnFailure = Literal["cancel", "run_anyway", "wait"]


class HasId(Protocol):
    """A run, or a node of an enqueued graph."""

    @property
    def id(self) -> int:
        """Return the run's id."""


Parent = int | HasId


class SharedKeywords(TypedDict, total=False):
    """The options that a call and a task have alike; see `Options`."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: Duration | None
    tags: list[str] | tuple[str, ...] | None
    concurrency_key: str | None
    wait_for_room: Duration | None
    delay: Duration | None
    kill_after: Duration | None
    backoff_base: Duration | None
    backoff_max: Duration | None
    backoff_jitter: float | None
    keep: Duration | None
    unique_key: str | None
    unique_by: bool | tuple[str, ...] | list[str] | None
    unique_scope: UniqueScope | None
    on_conflict: OnConflict | None
    debounce_max: Duration | None
    idempotency_retention: Duration | None


class OptionKeywords(SharedKeywords, total=False):
    """The keywords of `Task.options`: the fields of `Options`, where each is explained."""

    at: datetime | None
    backoff: Backoff | None
    expires: Duration | datetime | None
    idempotency_key: str | None
    after: Iterable[Parent] | None
    after_any: Iterable[Parent] | None
    on_failure: OnFailure | None


class TaskKeywords(SharedKeywords, total=False):
    """The keywords of `@app.task`, where each is explained."""

    name: str | None
    backoff: Backoff | BackoffFunction | None
    expires: Duration | None
    run_in: Literal["loop", "thread", "process"] | None
    memory_mb: int | None
    no_retry: type[BaseException] | tuple[type[BaseException], ...]
    retry_on: type[BaseException] | tuple[type[BaseException], ...] | None
    concurrency: int | None
    rate: str | None
    capture: bool
    extra: Literal["forbid", "ignore"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is queued. None takes the product's default. Durations are seconds, a timedelta or "1h 30m".

    `queue`: the queue's name (default: "default").
    `priority`: 0 to 9, lower goes first (5).
    `max_attempts`: how many attempts the run has (3).
    `timeout`: how long one attempt may take (no limit).
    `tags`: up to 100 words that are kept with the run.
    `concurrency_key`: the key that shares a concurrency limit; may hold `{arguments}`.
    `wait_for_room`: how long to wait while the queue is full, outside of your transactions (0).
    `delay`, `at`: when the run is due: after this time, or at this datetime with a time zone (now).
    `kill_after`: how long after the request to stop an attempt is killed (10 seconds).
    `backoff`: how the wait between attempts grows: "exponential", "linear" or "fixed" ("exponential").
    `backoff_base`, `backoff_max`: the first wait (5 seconds) and the longest (1 hour).
    `backoff_jitter`: by which part of it a wait may be shorter, 0 to 1 (0.2).
    `expires`: a run that has not started so long after it is due, or by this datetime, is missed (never).
    `keep`: how long the run is kept once it has ended (what its queue or the settings say).
    `unique_key`: at most one open run has this key. With `@app.task` it is a template: "user {n}".
    `unique_by`: the key is made of these arguments; True: of all.
    `unique_scope`: for how long: "while_active", "while_queued", `bucket(period)` or `sliding(period)`.
    `on_conflict`: if a run has the key: "return", "reject", "replace", "keep_time" or "merge" ("return").
    `debounce_max`: how long after it was made `on_conflict="replace"` may put off a run (for ever).
    `idempotency_key`: the name of this request; the same request gives the same run.
    `idempotency_retention`: how long that key is kept (24 hours).
    `after`: this run starts when all of these runs have succeeded.
    `after_any`: this run starts when one of these runs has succeeded.
    `on_failure`: what the run does when they do not: "cancel", "run_anyway" or "wait" ("cancel").
    """

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: Duration | None = None
    tags: list[str] | tuple[str, ...] | None = None
    concurrency_key: str | None = None
    wait_for_room: Duration | None = None
    delay: Duration | None = None
    at: datetime | None = None
    kill_after: Duration | None = None
    backoff: Backoff | None = None
    backoff_base: Duration | None = None
    backoff_max: Duration | None = None
    backoff_jitter: float | None = None
    expires: Duration | datetime | None = None
    keep: Duration | None = None
    unique_key: str | None = None
    unique_by: bool | tuple[str, ...] | list[str] | None = None
    unique_scope: UniqueScope | None = None
    on_conflict: OnConflict | None = None
    debounce_max: Duration | None = None
    idempotency_key: str | None = None
    idempotency_retention: Duration | None = None
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
        """Return the values as the database takes them. Raises InputError, naming the option, for a wrong one.

        Beside the options: `expires_at` (if `expires` is an instant), `unique_template` and `defaults` (for keys that a
        task declares).
        """
        if self.delay is not None and self.at is not None:
            raise InputError("delay: give either delay or at, not both", "delay")
        if self.unique_key is not None and self.unique_by:
            raise InputError("unique_by: give either unique_key or unique_by, not both", "unique_by")
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        found = {name: None if value is None else OPTIONS[name](name, value) for name, value in given.items()}
        if found["debounce_max"] is not None and found["on_conflict"] not in ("replace", "merge"):
            raise InputError(
                'debounce_max: it bounds how far on_conflict="replace" or "merge" puts off a run: give one of them',
                "debounce_max",
            )
        instant_given = found["expires"] if isinstance(found["expires"], datetime) else None
        if instant_given is not None:
            found["expires"] = None
        return {**found, "expires_at": instant_given, "unique_template": None, "defaults": None}


def expiry(name: str, value: Any) -> timedelta | datetime:
    """Return a time from when the run is due, or an instant. Raises InputError for any other value."""
    return instant(name, value) if isinstance(value, datetime) else duration(0.001)(name, value)


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
    **{name: POLICIES[name] for name in RETRYING},
    "expires": expiry,
    "keep": duration(0),
    "unique_key": text(500),
    "unique_by": check_names,
    "unique_scope": check_scope,
    "on_conflict": one_of(*policies.ON_CONFLICT),
    "debounce_max": duration(0),
    "idempotency_key": text(500),
    "idempotency_retention": duration(1),
    "after": run_ids,
    "after_any": run_ids,
    "on_failure": one_of(*policies.ON_FAILURE),
}

# What a job's runs take from its task: options for every run, none that belongs to one run.
INHERITED = ("queue", "priority", "max_attempts", "timeout", "tags", "concurrency_key", *RETRYING, "keep")
# The options that hold for every run of a task that is enqueued, by any program. A job's run takes those of INHERITED.
REGISTERED = (
    *INHERITED, "delay", "expires", "unique_by", "unique_scope", "on_conflict", "debounce_max", "idempotency_retention",
)  # fmt: skip


check_reason = prose(10_000)  # why a run is cancelled


def check_changes(priority: Any, at: Any, queue: Any) -> dict[str, Any]:
    """Return those of the new values of a run that are not None. Raises InputError for a wrong value."""
    values = {"priority": priority, "at": at, "queue": queue}
    return {name: OPTIONS[name](name, value) for name, value in values.items() if value is not None}

"""The rule: how a run is to be queued is checked where it is said, option by option, in the words of the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal

from pgsched.declare import POLICIES, duration, instant, one_of, text
from pgsched.errors import InputError

KEYS = ("unique_key", "idempotency_key")  # each names one run


@dataclass(frozen=True, slots=True)
class Bucket:
    """A unique scope: one run for each stretch of so many seconds, whatever became of it; see `bucket`."""

    period_s: float

    def __str__(self) -> str:
        return f"bucket({self.period_s:g} seconds)"


def bucket(period: float | timedelta) -> Bucket:
    """The unique scope "one run in each hour, day, ...": `unique_scope=bucket(timedelta(hours=1))`.

    `period`: seconds or a timedelta, at least one second. Buckets lie end to end: hours begin at the full hour, days at
    midnight UTC, weeks on Monday; a run belongs to the bucket in which it is due. Raises InputError.
    """
    return Bucket(duration(1)("unique_scope", period).total_seconds())


UniqueScope = Literal["while_active"] | Bucket
OnConflict = Literal["return", "reject", "replace", "keep_time"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is to be queued; None takes the product's default. Durations in seconds or as timedelta."""

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: float | timedelta | None = None
    tags: list[str] | tuple[str, ...] | None = None
    delay: float | timedelta | None = None
    at: datetime | None = None
    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    on_conflict: OnConflict | None = None
    idempotency_key: str | None = None
    idempotency_retention: float | timedelta | None = None

    def checked(self) -> dict[str, Any]:
        """The values as the database takes them. InputError names the option."""
        if self.delay is not None and self.at is not None:
            raise InputError("delay: give either delay or at, not both", "delay")
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: None if value is None else OPTIONS[name](name, value) for name, value in given.items()}


def unique_scope(name: str, value: Any) -> str:
    """A scope, as the database takes it."""
    if not isinstance(value, Bucket) and value != "while_active":
        raise InputError(f'{name}: expected "while_active" or pgsched.bucket(period), got {value!r}', name)
    return str(value)


OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    **{name: POLICIES[name] for name in ("queue", "priority", "max_attempts", "timeout", "tags")},
    "delay": duration(0),
    "at": instant,
    "unique_key": text(500),
    "unique_scope": unique_scope,
    "on_conflict": one_of("return", "reject", "replace", "keep_time"),
    "idempotency_key": text(500),
    "idempotency_retention": duration(1),
}

# What a job's runs take from its task: what says how to run, not what one run is about.
INHERITED = ("queue", "priority", "max_attempts", "timeout", "tags")

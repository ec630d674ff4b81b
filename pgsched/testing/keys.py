"""Unique and idempotency keys of recorded runs, by the rules of migrations/*/44_enqueue.sql, without a database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pgsched.core.model import EnqueueResult
from pgsched.errors import AlreadyEnqueued, InputError
from pgsched.testing.clock import Clock
from pgsched.testing.found import Enqueued

MONDAY = datetime(2001, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
Bucket = tuple[str, str, int]


class Keys:
    """The keys that are in use, and the run of each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._active: dict[str, Enqueued] = {}
        self._buckets: dict[Bucket, Enqueued] = {}
        self._first: dict[str, tuple[Enqueued, datetime]] = {}

    def first(self, key: str) -> Enqueued | None:
        """Return the run that an idempotency key stands for, or None if the key is unknown or has expired."""
        run, expires_at = self._first.get(key, (None, None))
        return run if expires_at is not None and expires_at > self._clock.now() else None

    def met(self, values: dict[str, Any], due: datetime) -> tuple[Enqueued, EnqueueResult] | None:
        """Return the existing run that stands for the one to be enqueued, and how it was found; None if there is none.

        Raises AlreadyEnqueued under the policy "reject", InputError if a key belongs to a run of another task.
        """
        key = values["idempotency_key"]
        if key is not None and (first := self.first(key)) is not None:
            if first.task != values["task"]:
                raise InputError(f'idempotency_key: "{key}" was used for run {first.id} of task "{first.task}"')
            return first, "repeated"
        unique = values["unique_key"]
        if unique is None:
            return None
        bucket = bucket_of(values, due)
        run = self._active.get(unique) if bucket is None else self._buckets.get(bucket)
        if run is None or (bucket is None and not run.is_open):
            return None
        how = apply_on_conflict(run, values, due)
        self._remember(values, run)
        return run, how

    def keep(self, values: dict[str, Any], due: datetime, run: Enqueued) -> None:
        """Record that a run was made with these keys."""
        if values["unique_key"] is not None:
            bucket = bucket_of(values, due)
            if bucket is None:
                self._active[values["unique_key"]] = run
            else:
                self._buckets[bucket] = run
        self._remember(values, run)

    def _remember(self, values: dict[str, Any], run: Enqueued) -> None:
        if values["idempotency_key"] is not None:
            lasts = values["idempotency_retention"] or DAY
            self._first[values["idempotency_key"]] = run, self._clock.now() + lasts


def bucket_of(values: dict[str, Any], due: datetime) -> Bucket | None:
    """Return the bucket of a unique key; None for the scope while_active."""
    scope = values["unique_scope"] or "while_active"
    if scope == "while_active":
        return None
    period = timedelta(seconds=float(scope.removeprefix("bucket(").removesuffix(" seconds)")))
    return values["unique_key"], scope, (due - MONDAY) // period


def apply_on_conflict(run: Enqueued, values: dict[str, Any], due: datetime) -> EnqueueResult:
    """Apply the policy `on_conflict` to the run that already has the unique key.

    Raises AlreadyEnqueued under "reject", InputError if another task's arguments would be replaced.
    """
    policy = values["on_conflict"] or "return"
    if policy == "reject":
        raise AlreadyEnqueued(f"unique_key: run {run.id} has {values['unique_key']!r} already", run.id)
    if policy == "return" or run.state == "running" or not run.is_open:
        return "existing"
    if run.task != values["task"]:
        raise InputError(
            f'unique_key: run {run.id} has it, of task "{run.task}": it cannot take the payload of another'
        )
    run.args = json.loads(values["args"])
    if policy == "replace":
        run.at = due
    return "replaced"

"""Unique and idempotency keys of recorded runs, by the rules of migrations/*/44_enqueue.sql, without a database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pgsched.core.model import EnqueueResult
from pgsched.errors import AlreadyEnqueued, InputError
from pgsched.testing.clock import Clock
from pgsched.testing.found import UNSTARTED, Enqueued

MONDAY = datetime(2001, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
Kept = tuple[str, str, int]  # key, scope, and number of the bucket
Standing = tuple[Enqueued, datetime | None]  # the run that a key stands for, and until when (None: see its scope)
Copy = tuple[bool, dict[str, Standing | None]]  # whether the run has begun, and the run of each of its active keys


class Keys:
    """The keys that are in use, and the run of each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._active: dict[str, Standing] = {}
        self._kept: dict[Kept, Standing] = {}
        self._first: dict[str, Standing] = {}
        self._of_run: dict[int, list[tuple[dict[Any, Standing], Any, Standing | None]]] = {}
        self._made_at: dict[int, datetime] = {}
        self._begun: set[int] = set()

    def first(self, key: str) -> Enqueued | None:
        """Return the run that an idempotency key stands for, or None if the key is unknown or has expired."""
        return self._run_of(self._first, key)

    def begin(self, run: Enqueued) -> None:
        """Record that an attempt of the run begins: a key of the scope while_queued is given up."""
        self._begun.add(run.id)

    def has_begun(self, run: Enqueued) -> bool:
        """Check whether an attempt of the run has begun, or the run was retried."""
        return run.id in self._begun

    def made_at(self, run: Enqueued) -> datetime:
        """Return when the run was made."""
        return self._made_at[run.id]

    def find(self, values: dict[str, Any], unique: str | None, due: datetime) -> tuple[Enqueued, bool] | None:
        """Return the run that stands for the one to be enqueued, and whether the idempotency key says so; or None.

        `unique`: the unique key of the run to be enqueued. Raises InputError if the idempotency key belongs to a run of
        another task.
        """
        key = values["idempotency_key"]
        if key is not None and (first := self.first(key)) is not None:
            if first.task != values["task"]:
                raise InputError(f'idempotency_key: "{key}" was used for run {first.id} of task "{first.task}"')
            return first, True
        run = None if unique is None else self._run_of_unique(unique, values, due)
        return None if run is None else (run, False)

    def keep(self, values: dict[str, Any], unique: str | None, due: datetime, run: Enqueued) -> None:
        """Record that a run was made with these keys."""
        self._made_at[run.id] = self._clock.now()
        if unique is not None:
            kept = kept_key(unique, values, due)
            if kept is None:
                self._stand(self._active, unique, run, None)
            else:
                lasts = period_of(kept[1]) if kept[1].startswith("sliding") else None
                self._stand(self._kept, kept, run, None if lasts is None else self._clock.now() + lasts)
        self.remember(values, run)

    def remember(self, values: dict[str, Any], run: Enqueued) -> None:
        """Let the idempotency key, if there is one, stand for this run."""
        if values["idempotency_key"] is not None:
            lasts = values["idempotency_retention"] or DAY
            self._stand(self._first, values["idempotency_key"], run, self._clock.now() + lasts)

    def revive(self, run: Enqueued) -> None:
        """Give a retried run its unique key again. Raises InputError where another open run has it by now."""
        for key in self._active_keys(run):
            other = self._run_of(self._active, key)
            if other is not None and other is not run and other.is_open:
                raise InputError(
                    f'unique_key: an unfinished run has the key "{key}" of run {run.id} already', "unique_key"
                )
            self._active[key] = run, None
        self._begun.add(run.id)

    def copy(self, run: Enqueued) -> Copy:
        """Return what `revive` changes."""
        return run.id in self._begun, {key: self._active.get(key) for key in self._active_keys(run)}

    def restore(self, run: Enqueued, before: Copy) -> None:
        """Take back what `revive` changed."""
        has_begun, standing = before
        if not has_begun:
            self._begun.discard(run.id)
        for key, old in standing.items():
            self._give_back(self._active, key, run, old)

    def forget(self, run: Enqueued) -> None:
        """Give the keys of a run that a rollback has taken away back to the runs that had them."""
        for keys, key, old in self._of_run.pop(run.id, ()):
            self._give_back(keys, key, run, old)

    def forget_key(self, idempotency_key: str | None) -> None:
        """Give up an idempotency key."""
        if idempotency_key is not None:
            self._first.pop(idempotency_key, None)

    def _stand(self, keys: dict[Any, Standing], key: Any, run: Enqueued, until: datetime | None) -> None:
        self._of_run.setdefault(run.id, []).append((keys, key, keys.get(key)))
        keys[key] = run, until

    def _active_keys(self, run: Enqueued) -> list[str]:
        return [key for keys, key, _ in self._of_run.get(run.id, ()) if keys is self._active]

    def _give_back(self, keys: dict[Any, Standing], key: Any, run: Enqueued, old: Standing | None) -> None:
        """Let a key stand for what it stood for before, if it stands for this run by now."""
        if key not in keys or keys[key][0] is not run:
            return
        if old is not None and old[0].id in self._of_run:
            keys[key] = old
        else:
            del keys[key]

    def _run_of(self, keys: dict[Any, Standing], key: Any) -> Enqueued | None:
        run, until = keys.get(key, (None, None))
        return None if until is not None and until <= self._clock.now() else run

    def _run_of_unique(self, unique: str, values: dict[str, Any], due: datetime) -> Enqueued | None:
        kept = kept_key(unique, values, due)
        if kept is None:
            run = self._run_of(self._active, unique)
            return run if run is not None and run.is_open else None
        run = self._run_of(self._kept, kept)
        if run is not None and kept[1] == "while_queued" and (self.has_begun(run) or run.state not in UNSTARTED):
            return None
        return run


def kept_key(unique: str, values: dict[str, Any], due: datetime) -> Kept | None:
    """Return what a unique key is kept by; None for the scope while_active."""
    scope = values["unique_scope"] or "while_active"
    if scope == "while_active":
        return None
    number = (due - MONDAY) // period_of(scope) if scope.startswith("bucket") else 0
    return unique, scope, number


def period_of(scope: str) -> timedelta:
    """Return the period of a bucket or of a sliding scope."""
    return timedelta(seconds=float(scope.partition("(")[2].removesuffix(" seconds)")))


def apply_on_conflict(
    run: Enqueued, values: dict[str, Any], due: datetime, expires_at: datetime | None, made_at: datetime
) -> EnqueueResult:
    """Apply the policy `on_conflict` to the run that already has the unique key.

    `made_at`: when that run was made. Raises AlreadyEnqueued under "reject", InputError if another task's arguments
    would be replaced, or arguments without names be merged.
    """
    policy = values["on_conflict"] or "return"
    if policy == "reject":
        key = "this key" if values["unique_key"] is None else repr(values["unique_key"])
        raise AlreadyEnqueued(f"unique_key: run {run.id} has {key} already", run.id)
    if policy == "return" or run.state == "running" or not run.is_open:
        return "existing"
    if run.task != values["task"]:
        raise InputError(
            f'unique_key: run {run.id} has it, of task "{run.task}": it cannot take the payload of another'
        )
    given = json.loads(values["args"])
    run.args = merged(run.args, given) if policy == "merge" else given
    bound = values["debounce_max"]
    if policy == "replace" or (policy == "merge" and bound is not None):
        run.at = due if bound is None else min(due, made_at + bound)
        run.expires_at = expires_at
    return "replaced"


def merged(args: Any, given: Any) -> dict[str, Any]:
    """Return arguments with others merged into them. Raises InputError unless both have names."""
    if not isinstance(args, dict) or not isinstance(given, dict):
        raise InputError("on_conflict: merge is for arguments by name; these are a list: use replace or keep_time")
    lists = {
        name: [*args[name], *value]
        for name, value in given.items()
        if isinstance(value, list) and isinstance(args.get(name), list)
    }
    return {**args, **given, **lists}

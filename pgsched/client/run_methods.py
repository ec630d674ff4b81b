"""The methods of an App about runs: get a handle, list runs, wait for many, and enqueue by name.

Invariant: `app.run(id)` asks nothing; a handle of a run that does not exist raises NotFound when it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pgsched.app.base import AppBase
from pgsched.app.control import refuse_waiting
from pgsched.app.options import OptionKeywords, Options, Parent, run_ids
from pgsched.app.run_handle import WAIT_S, RunHandle, Timeout, seconds_of
from pgsched.client import use_cases
from pgsched.client.call_arguments import encode_untyped, split_arguments
from pgsched.core.input_values import parse_age_or_instant
from pgsched.core.model import FirstResult, State
from pgsched.core.run_info import RunSummary
from pgsched.core.text import did_you_mean
from pgsched.db.queries.runs.run_filter import Filter
from pgsched.errors import InputError, RunGone
from pgsched.services.runs.filters import TIMES
from pgsched.services.runs.reading import list_summaries
from pgsched.telemetry import tracing

if TYPE_CHECKING:
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn

MISSING_SHOWN = 5
Moment = datetime | timedelta | str


class RunFilters(TypedDict, total=False):
    """Filters of runs, as those of `pgsched run list`; each left out means any.

    `error`: a part of the error or reason.
    `worker`: a worker's name, or its host.
    `since`, `until`: created in this time. A datetime, a timedelta or a text such as "2h": so long ago.
    `ended_since`, `ended_until`: ended in this time.
    `before_id`, `after_id`: bounds of the id, for pages.
    """

    state: str
    job: str
    queue: str
    task: str
    kind: str
    tag: str
    error: str
    worker: str
    since: Moment
    until: Moment
    ended_since: Moment
    ended_until: Moment
    before_id: int
    after_id: int


class RunMethods(AppBase):
    """The part of App that reads, waits for and enqueues runs."""

    use_cases = use_cases

    def run(self, run: Parent) -> RunHandle[Any]:
        """Return the handle of a run, given its id or anything with an `id`. Nothing is asked until it is used."""
        return RunHandle(one_id("run", run), self)

    def runs(
        self, *, limit: int = 50, connection: SyncConn | None = None, **filters: Unpack[RunFilters]
    ) -> list[RunSummary]:
        """Return runs, the newest first.

        `filters`: see `RunFilters`.

        Raises InputError for a wrong filter, NotFound for an unknown job.
        """
        wanted = filter_of_keywords(limit, filters)
        return self.database.call(connection, lambda conn: list_summaries(conn, wanted))

    async def runs_async(
        self, *, limit: int = 50, connection: AsyncConn | None = None, **filters: Unpack[RunFilters]
    ) -> list[RunSummary]:
        """Return runs like `runs`, without blocking the event loop."""
        wanted = filter_of_keywords(limit, filters)
        return await self.database.call_async(connection, lambda conn: list_summaries(conn, wanted))

    def wait(self, runs: Iterable[Parent], timeout: Timeout = WAIT_S) -> dict[int, State]:
        """Wait until all these runs have ended; return the state of each by its id.

        One statement asks for 10,000 runs, and one connection serves all waits of this App. `timeout`: seconds or a
        timedelta; None waits without limit. Raises TimeoutError, RunGone for runs that do not exist, and PgschedError
        inside a handler.
        """
        refuse_waiting("wait")
        ids = run_ids("runs", runs) or []
        found = self.waiter.wait(ids, seconds_of(timeout))
        if left := [run_id for run_id in ids if run_id not in found]:
            found = found | self.database.call(None, lambda conn: self.use_cases.find_ended(conn, left))
        return states_of(ids, found)

    async def wait_async(self, runs: Iterable[Parent], timeout: Timeout = WAIT_S) -> dict[int, State]:
        """Wait like `wait`, without blocking the event loop."""
        refuse_waiting("wait_async")
        ids = run_ids("runs", runs) or []
        found = await self.waiter.wait_async(ids, seconds_of(timeout))
        if left := [run_id for run_id in ids if run_id not in found]:
            found = found | await self.database.call_async(None, lambda conn: self.use_cases.find_ended(conn, left))
        return states_of(ids, found)

    def enqueue(
        self,
        task: str,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        connection: SyncConn | None = None,
        **options: Unpack[OptionKeywords],
    ) -> RunHandle[Any]:
        """Make a run of a task by its name, without importing its handler; return its handle.

        `args`: arguments by name, or a sequence of arguments by position. The `options` are those of `task.options`.
        Arguments of a task that this App has are checked here; those of others by the worker. Raises what
        `task.enqueue` raises.
        """
        values = self._values_by_name(task, args, options)
        with tracing.start_send_span([values]) as sent:
            found = self.database.enqueue(connection, values)
            sent.note_runs(found)
        return RunHandle(found, self, found.how)

    async def enqueue_async(
        self,
        task: str,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        connection: AsyncConn | None = None,
        **options: Unpack[OptionKeywords],
    ) -> RunHandle[Any]:
        """Make a run by the name of its task like `enqueue`, without blocking the event loop."""
        values = self._values_by_name(task, args, options)
        with tracing.start_send_span([values]) as sent:
            found = await self.database.enqueue_async(connection, values)
            sent.note_runs(found)
        return RunHandle(found, self, found.how)

    def first_result(self, idempotency_key: str) -> FirstResult | None:
        """Return the outcome of the run that this key stands for, pruned or not; None if the key has expired."""
        return self.database.first_result(idempotency_key)

    async def first_result_async(self, idempotency_key: str) -> FirstResult | None:
        """Return the same as `first_result`, without blocking the event loop."""
        return await self.database.first_result_async(idempotency_key)

    def _values_by_name(self, task: str, args: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        positional, named = split_arguments(args)
        known = self.tasks.get(task)
        if known is not None:
            return known.options(**options).values(positional, named)
        text = encode_untyped({} if args is None else args)
        return {**Options.named(options).checked(), "task": task, "args": text, "by_name": True}


def one_id(name: str, run: Any) -> int:
    """Return the id of a run. Raises InputError for anything that is no run."""
    (found,) = run_ids(name, [run]) or [0]
    return found


def states_of(ids: Sequence[int], found: Mapping[int, str | None]) -> dict[int, State]:
    """Return the states of all these runs. Raises TimeoutError for runs that go on, RunGone for runs that are gone."""
    if left := len(ids) - len(found):
        raise TimeoutError(f"{left:,} of {len(ids):,} runs have not ended in time")
    states = {run_id: State(state) for run_id in ids if (state := found[run_id]) is not None}
    if gone := [run_id for run_id in ids if run_id not in states]:
        more = f" and {len(gone) - MISSING_SHOWN:,} more" if len(gone) > MISSING_SHOWN else ""
        shown = ", ".join(map(str, gone[:MISSING_SHOWN]))
        raise RunGone(f"there is no run {shown}{more}: pruned, or never committed; the other runs have ended")
    return states


def filter_of_keywords(limit: int, given: Mapping[str, Any]) -> Filter:
    """Return the filter of these keywords. Raises InputError for an unknown one or a wrong value."""
    known = [name for name in Filter.__slots__ if name != "limit"]
    for name, value in given.items():
        if name not in known:
            raise InputError(f"{name}: no such filter; known are {', '.join(known)}{did_you_mean(name, known)}", name)
        if name in TIMES and not isinstance(value, datetime | timedelta | str | None):
            raise InputError(f"{name}: expected a datetime, a timedelta or a text, got {type(value).__name__}", name)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise InputError(f"{name}: {value} has no time zone", name)
    times = {name: parse_age_or_instant(name, given[name]) for name in TIMES if isinstance(given.get(name), str)}
    return Filter(limit=limit, **{**given, **times})

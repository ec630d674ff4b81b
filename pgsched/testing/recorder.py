"""The recorder: it takes the place of an app's database in a test.

Invariants: a recorded run holds the arguments of `enqueue`, checked and carried as JSON as always. A run that was
enqueued in a transaction of the caller (`connection=`) is there when that transaction has committed. Unique and
idempotency keys are kept as the database keeps them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pgsched.app.declarations import JobDeclaration
from pgsched.app.options import INHERITED, OPTIONS
from pgsched.client.application import App
from pgsched.core import payload
from pgsched.core.model import EnqueueResult, FirstResult, RunId
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.slot_text import SlotTerms
from pgsched.testing.callers.base import CallerTransaction
from pgsched.testing.callers.transactions import Transactions
from pgsched.testing.clock import Clock
from pgsched.testing.found import Enqueued
from pgsched.testing.handles import NoConnection, NoDatabase, RecordedHandles
from pgsched.testing.running import Runner
from pgsched.testing.store import Store

if TYPE_CHECKING:
    from pgsched.db.callers.connection_types import SyncConn

T = TypeVar("T")
Recorded = tuple[list[tuple[Enqueued, EnqueueResult]], Iterator[Enqueued]]


@contextmanager
def record(app: App, now: datetime | None = None, *, wait_for_commit: bool = True) -> Iterator[Recorder]:
    """Record what the app enqueues in the block, and send nothing to a database; yield the recorder.

    `now`: the time at which the recorder's clock starts; by default the current time.
    `wait_for_commit`: a run that is enqueued with `connection=` counts when that transaction has committed. False: at
      once, whatever becomes of the transaction.
    """
    with _replace_database(app, Recorder(app, Clock(now), wait_for_commit=wait_for_commit)) as recorder:
        yield recorder


@contextmanager
def inline(
    app: App, now: datetime | None = None, *, wait_for_commit: bool = True, allow_dead: bool = False
) -> Iterator[Recorder]:
    """Run what the app enqueues in the block, at once and whatever its delay; yield the recorder.

    `now`, `wait_for_commit`: as for `record`. A run that is enqueued in a transaction runs after the commit.
    `allow_dead`: a run may end dead. Otherwise `enqueue` raises what the handler raises. What a handler raises after a
      commit is raised when the test next asks for the runs, or at the end of the block.
    """
    recorder = Recorder(app, Clock(now), inline=True, wait_for_commit=wait_for_commit, allow_dead=allow_dead)
    with _replace_database(app, recorder):
        yield recorder


@contextmanager
def _replace_database(app: App, recorder: Recorder) -> Iterator[Recorder]:
    own: Any = app
    before = own.database, own.waiter, own.use_cases
    own.database, own.waiter, own.use_cases = recorder, recorder.handles, recorder.handles
    try:
        yield recorder
        recorder.check()
    finally:
        own.database, own.waiter, own.use_cases = before
        recorder.stop()


class Recorder(NoDatabase):
    """The runs of a test, and their time.

    `runs`: the enqueued runs, oldest first.
    `clock`: their time, which stands still until the test moves it.
    `wait_for_commit`, `allow_dead`: as given to `record` and `inline`; a test may change them.
    `handles`: what the handles of runs use.
    """

    def __init__(
        self, app: App, clock: Clock, *, inline: bool = False, wait_for_commit: bool = True, allow_dead: bool = False
    ) -> None:
        self.app = app
        self.clock = clock
        self.wait_for_commit = wait_for_commit
        self._anchor_at = clock.now()
        self._transactions = Transactions(self._report)
        store = self._store = Store(clock, self._transactions.look)
        self._runner = Runner(app, clock, store.keys.begin, store.decide, inline=inline, allow_dead=allow_dead)
        self._to_run: deque[Enqueued] = deque()
        self.handles = RecordedHandles(self.check, store, self._runner, app.tasks)
        clock.listeners.append(self._enqueue_passed_slots)

    # ---- called by tests

    @property
    def runs(self) -> list[Enqueued]:
        """Return the enqueued runs, oldest first. Raises what handlers raised that ran after a commit."""
        self.check()
        return [*self._store.runs]

    def pending(self, connection: SyncConn | None = None) -> list[Enqueued]:
        """Return the runs of the transaction that is open on this connection; None: of all open transactions."""
        self.check()
        return self._store.pending.runs() if connection is None else self._store.pending.runs_of(connection)

    @property
    def allow_dead(self) -> bool:
        """Tell whether a run may end dead without failing the test."""
        return self._runner.allow_dead

    @allow_dead.setter
    def allow_dead(self, value: bool) -> None:
        self._runner.allow_dead = value

    def travel(self, by: float | timedelta | None = None, *, to: datetime | None = None) -> datetime:
        """Move the clock like `Clock.travel`; each slot of the app's jobs that passes makes a run."""
        self.check()
        return self.clock.travel(by, to=to)

    def drain(self, queue: str | None = None, *, scheduled: bool = False) -> list[Enqueued]:
        """Run what is due, and what that enqueues, until nothing is due; return the runs in the order they ran.

        `queue`: only this one. `scheduled`: also what is due later. What only snoozes is left. Raises handlers' errors.
        """
        self.check()
        done: list[Enqueued] = []
        order = self._store.order(lambda run: queue in (None, run.queue) and self._runner.has_task(run), scheduled)
        while (run := order.next()) is not None:
            self._runner.run(run)
            self._store.settle()  # what the handler has committed
            done.append(run)
        return done

    async def drain_async(self, queue: str | None = None, *, scheduled: bool = False) -> list[Enqueued]:
        """Do the same as `drain`, without blocking the event loop."""
        await self._run_committed_async()
        self._runner.raise_errors()
        done: list[Enqueued] = []
        order = self._store.order(lambda run: queue in (None, run.queue) and self._runner.has_task(run), scheduled)
        while (run := order.next()) is not None:
            await self._runner.run_async(run)
            self._store.settle()
            done.append(run)
        return done

    def check(self) -> None:
        """Run inline what has committed; raise what handlers raised that ran after a commit."""
        self._run_committed()
        self._runner.raise_errors()

    # ---- called by the app, in place of its database

    def enqueue(self, conn: Any, values: dict[str, Any]) -> RunId:
        """Record a run, and run it at once if the recorder is inline; return its id."""
        return self.enqueue_many_ids(conn, [values["args"]], values)[0]

    async def enqueue_async(self, conn: Any, values: dict[str, Any]) -> RunId:
        """Do the same as `enqueue`, without blocking the event loop."""
        return (await self.enqueue_many_ids_async(conn, [values["args"]], values))[0]

    def enqueue_many(self, conn: Any, args: Iterable[str], values: dict[str, Any]) -> int:
        """Record a run for each text of arguments; return how many."""
        return len(self.enqueue_many_ids(conn, args, values))

    async def enqueue_many_async(self, conn: Any, args: Iterable[str], values: dict[str, Any]) -> int:
        """Do the same as `enqueue_many`, without blocking the event loop."""
        return len(await self.enqueue_many_ids_async(conn, args, values))

    def enqueue_many_ids(self, conn: Any, args: Iterable[str], values: dict[str, Any]) -> list[RunId]:
        """Record a run for each text of arguments, or find the one that has its key: all or none; return their ids."""
        self._run_committed()
        each = values_of_each(args, values)
        results, to_run = self._put(each, self._follow(conn) if each else None)
        for run in to_run:
            self._runner.run(run)
        return [RunId(run.id, how) for run, how in results]

    async def enqueue_many_ids_async(self, conn: Any, args: Iterable[str], values: dict[str, Any]) -> list[RunId]:
        """Do the same as `enqueue_many_ids`, without blocking the event loop."""
        await self._run_committed_async()
        each = values_of_each(args, values)
        results, to_run = self._put(each, await self._follow_async(conn) if each else None)
        for run in to_run:
            await self._runner.run_async(run)
        return [RunId(run.id, how) for run, how in results]

    def first_result(self, key: str) -> FirstResult | None:
        """Return the outcome of the run that an idempotency key stands for, or None."""
        self._run_committed()
        run = self._store.first(key)
        return None if run is None else FirstResult(run.id, run.state, run.result, run.error, run.finished_at)

    async def first_result_async(self, key: str) -> FirstResult | None:
        """Return the same as `first_result`."""
        await self._run_committed_async()
        return self.first_result(key)

    def call(self, connection: Any, use_case: Callable[[Any], T], *, maybe: str | None = None) -> T:
        """Call a use case of a handle: of the caller's connection only the transaction counts here."""
        return use_case(NoConnection(connection, self._follow(connection)))

    async def call_async(self, connection: Any, use_case: Callable[[Any], T], *, maybe: str | None = None) -> T:
        """Call a use case like `call`."""
        return use_case(NoConnection(connection, await self._follow_async(connection)))

    def stop(self) -> None:
        """Stop following the transactions of callers."""
        self._transactions.close()

    # ---- transactions

    def _follow(self, conn: Any) -> CallerTransaction | None:
        return self._transactions.follow(conn) if self.wait_for_commit and conn is not None else None

    async def _follow_async(self, conn: Any) -> CallerTransaction | None:
        return await self._transactions.follow_async(conn) if self.wait_for_commit and conn is not None else None

    def _report(self, transaction: CallerTransaction) -> None:
        """Run inline what has just committed: in a hook of the library, which must not raise a handler's error."""
        if self._runner.inline and transaction.is_async:
            from sqlalchemy.util import await_only

            await_only(self._run_committed_async())
        else:
            self._run_committed()

    def _run_committed(self) -> None:
        self._store.settle()
        self._to_run += self._take_startable()
        while self._to_run:
            run = self._to_run.popleft()
            if self._store.may_begin(run):
                try:
                    self._runner.run(run)
                except (Exception, SystemExit) as error:
                    self._runner.keep_error(run, error)
                self._to_run += self._take_startable()

    async def _run_committed_async(self) -> None:
        self._store.settle()
        self._to_run += self._take_startable()
        while self._to_run:
            run = self._to_run.popleft()
            if self._store.may_begin(run):
                try:
                    await self._runner.run_async(run)
                except (Exception, SystemExit) as error:
                    self._runner.keep_error(run, error)
                self._to_run += self._take_startable()

    def _put(self, each: list[dict[str, Any]], transaction: CallerTransaction | None) -> Recorded:
        """Record runs. Also return, if the recorder is inline, those of them that run where they are enqueued."""
        with self._store.lock:
            results = self._store.put(each, transaction)
            created = {run.id for run, how in results if how == "created"}
            startable = self._take_startable()
        self._to_run += [run for run in startable if run.id not in created]
        return results, (run for run in startable if run.id in created and self._store.may_begin(run))

    def _take_startable(self) -> list[Enqueued]:
        """Return the runs that have become startable since the last call, if the recorder is inline."""
        found = self._store.take_startable() if self._runner.inline else []
        return [run for run in found if self._runner.has_task(run)]

    def _enqueue_passed_slots(self, before: datetime, now: datetime) -> None:
        for values, terms in values_of_slots(self.app, self._anchor_at, before, now):
            self._runner.slot_terms[self._store.put([values], slot=values["at"])[0][0].id] = terms
        if self._runner.inline:
            self.drain()


def values_of_each(args: Iterable[str], values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values of each run of `enqueue_many`, each with its own arguments and idempotency key."""
    texts = list(args)
    keys = values.get("idempotency_keys") or [values["idempotency_key"]] * len(texts)
    return [{**values, "args": text, "idempotency_key": key} for text, key in zip(texts, keys, strict=True)]


def values_of_slots(
    app: App, anchor_at: datetime, before: datetime, now: datetime
) -> Iterator[tuple[dict[str, Any], SlotTerms]]:
    """Yield the values of a run for each slot of the app's jobs in the time that has passed, and its slot's terms."""
    slots = [(*slot, job) for job in app.declared_jobs for slot in slots_of(job, anchor_at, before, now)]
    for slot, terms, job in sorted(slots, key=lambda each: each[0]):
        options = {name: job.policies[name] for name in INHERITED if name in job.policies}
        own = {"at": slot, "expires": app.tasks[job.task].values["expires"]}
        values = {**dict.fromkeys(OPTIONS), **options, **own, "task": job.task, "args": payload.encode(job.args)}
        yield values, terms


def slots_of(
    job: JobDeclaration, anchor_at: datetime, before: datetime, now: datetime
) -> list[tuple[datetime, SlotTerms]]:
    """Return a job's slots in the time that has passed; none for `@after`, which counts from the end of a run."""
    schedule = parse(job.schedule, job.timezone, anchor_at)
    slots = list(schedule.between(before, now))
    starts = [*(schedule.before(slot) for slot in slots[:1]), *slots]
    return [(slot, SlotTerms(start, job.timezone)) for start, slot in zip(starts, slots, strict=False)]

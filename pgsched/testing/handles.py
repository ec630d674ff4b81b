"""Handles of recorded runs: `run.state()`, `run.result()`, `run.cancel()` without a database.

Invariant: a recorded run is changed only as the database would change it. Nothing waits here: time stands still in a
test, so a run that has not ended yet ends only by what the test does next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from pgsched.app.options import check_changes, check_reason
from pgsched.core.lifecycle import ENDED_STATES
from pgsched.core.model import State
from pgsched.core.run_info import LogLine, RunInfo, RunOutcome
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError, NotFound
from pgsched.testing.callers.base import CallerTransaction
from pgsched.testing.found import Enqueued
from pgsched.testing.running import Runner
from pgsched.testing.store import Store

ADVICE = (
    "need a database, and this test has a recorder in its place: use the fixture"
    " pgsched_database instead of pgsched_recorder or pgsched_inline, or no record() or inline() around it"
)


class RecordedHandles:
    """What handles of runs use in place of a database and its services.

    `check`: is called before each look at a run; runs what has committed.
    `tasks`: those of the app, by their names.
    """

    def __init__(self, check: Callable[[], None], store: Store, runner: Runner, tasks: Mapping[str, Any]) -> None:
        self._check = check
        self._store = store
        self._runner = runner
        self._tasks = tasks

    # ---- in place of the waiter

    def wait(self, ids: Iterable[int], timeout_s: float | None) -> dict[int, str | None]:
        """Return the states of those runs that have ended; None for one that is not there."""
        return self.find_ended(None, [*ids])

    async def wait_async(self, ids: Iterable[int], timeout_s: float | None) -> dict[int, str | None]:
        """Return the same as `wait`."""
        return self.wait(ids, timeout_s)

    def close(self) -> None:
        """Do nothing: there is no connection to close."""

    # ---- in place of the use cases

    def read_info(self, conn: Any, run_id: int) -> RunInfo:
        """Return what is known about a recorded run."""
        run = self._run(conn, run_id)
        return RunInfo(
            id=run.id, state=State(run.state), task=run.task, queue=run.queue, kind="task", job=None,
            origin="enqueue" if run.slot is None else "schedule", scheduled_at=run.slot, available_at=run.at,
            created_at=self._store.keys.made_at(run), started_at=None, finished_at=run.finished_at,
            attempt=run.attempt, max_attempts=run.max_attempts, reason=run.reason, error=run.error, tags=run.tags,
            priority=run.priority, owner=None, args=run.args, result=run.result, progress=None, worker=None,
            unique_key=run.unique_key, idempotency_key=run.idempotency_key, concurrency_key=run.concurrency_key,
            cancel_requested_at=None, attempts=[],
        )  # fmt: skip

    def find_outcome(self, conn: Any, run_id: int) -> RunOutcome | None:
        """Return how a recorded run has ended, or its state so far."""
        run = self._run(conn, run_id)
        return RunOutcome(State(run.state), run.result, run.error, run.reason, None, run.task)

    def read_log(self, conn: Any, run_id: int, attempt: int | None, stream: str | None) -> list[LogLine]:
        """Return no lines: output of handlers is not recorded."""
        self._run(conn, run_id)
        return []

    def cancel(self, conn: Any, run_id: int, why: str | None) -> State:
        """Cancel a recorded run that has not ended; ask its handler to stop if it is running."""
        reason = "cancelled by the test" + ("" if why is None else f": {check_reason('why', why)}")
        run = self._run(conn, run_id)
        if run.state == State.RUNNING:
            self._runner.stop(run, reason)
        elif run.is_open:
            self._store.change(run, conn.followed, lambda: self._store.states.cancel(run, reason))
        return State(run.state)

    def retry(self, conn: Any, run_id: int, now: bool) -> State:
        """Revive a recorded run that has ended without success."""
        run = self._run(conn, run_id)
        self._store.change(run, conn.followed, lambda: self._store.states.retry(run, now))
        return State(run.state)

    def update(self, conn: Any, run_id: int, priority: int | None, at: datetime | None, queue: str | None) -> State:
        """Change a recorded run that has not started."""
        given = check_changes(priority, at, queue)
        if not given:
            raise InputError("nothing to change: give priority, at or queue")
        run = self._run(conn, run_id)
        self._store.change(run, conn.followed, lambda: self._store.states.update(run, given))
        return State(run.state)

    def find_ended(self, conn: Any, ids: Sequence[int]) -> dict[int, str | None]:
        """Return the states of those of these recorded runs that have ended; None for one that is not there."""
        self._check()
        found = {int(run_id): self._store.find(run_id, given_connection(conn)) for run_id in ids}
        return {
            run_id: None if run is None else run.state
            for run_id, run in found.items()
            if run is None or run.state in ENDED_STATES
        }

    def explain_waiting(self, conn: Any, run_id: int) -> str:
        """Return why a recorded run has not ended."""
        run = self._run(conn, run_id)
        if run.state == State.WAITING:
            why = "a run that it waits for has not ended"
        elif not self._runner.has_task(run):
            hint = did_you_mean(run.task, self._tasks)
            why = f"this app has no task {run.task}, so the test does not run it{hint}"
        elif run.state == State.SCHEDULED:
            why = f"due at {run.at.isoformat()} only: call travel(), or drain(scheduled=True)"
        else:
            other = "" if self._runner.inline else ", or use the fixture pgsched_inline"
            why = f"the test has not run it: call drain(){other}"
        return f"it is {run.state}, and {why}"

    def _run(self, conn: Any, run_id: int) -> Enqueued:
        self._check()
        run = self._store.find(run_id, given_connection(conn))
        if run is None:
            raise NotFound(f"there is no recorded run {int(run_id)}")
        return run


def given_connection(conn: Any) -> Any:
    """Return the caller's connection that a method of a handle was given, or None."""
    return conn.given if isinstance(conn, NoConnection) else None


class NoConnection:
    """What a use case that needs a database gets: any other use of it raises InputError.

    `given`: the caller's connection. `followed`: the caller's transaction on it; None if changes count at once.
    """

    def __init__(self, given: Any, followed: CallerTransaction | None) -> None:
        self.given = given
        self.followed = followed

    def __getattr__(self, name: str) -> NoReturn:
        raise InputError(f"jobs and lists of runs {ADVICE}")


class NoDatabase:
    """What an app's database has, and a recorder has not.

    `records`: runs are only recorded here, so a worker inside the program has nothing to do.
    """

    records = True

    def dsn(self) -> NoReturn:
        """Raise InputError: there is no database to connect to."""
        raise InputError(f"the console and connections of your own {ADVICE}")

    def send(self, *_: Any, maybe: str | None = None) -> NoReturn:
        """Raise InputError: graphs, batches and counts need a database."""
        raise InputError(f"graphs, batches, counts and DatabaseClock {ADVICE}; recorder.travel() moves the time")

    async def send_async(self, *_: Any, maybe: str | None = None) -> NoReturn:
        """Raise InputError like `send`."""
        self.send()

    def close(self) -> None:
        """Do nothing: there is no connection to close."""

    async def close_async(self) -> None:
        """Do nothing: there is no connection to close."""

"""Misfits: runs whose arguments do not fit the task's function in this worker's release of the code.

Invariant: the newest release of a task alone decides whether a misfit is dead.

- A worker of the newest release: the run can never succeed, and is dead at once.
- A worker of an older release: it gives the claim back as if it had never taken it. Then it claims no run of that task
  for `LEAVE_S`. So a release with a new argument can be rolled out without losing a run.
- No worker of the newest release is running: the run waits, at no cost of an attempt. The release was taken back, or
  its worker is starting.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pgsched import log
from pgsched.core.model import Outcome, Result
from pgsched.core.text import replace_unstorable
from pgsched.core.waiting_reasons import NEWEST_RELEASE
from pgsched.db.connection.connect import DatabaseError, aconnect
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.runs import tasks
from pgsched.db.queries.runs.workers import Registration
from pgsched.errors import PgschedError
from pgsched.execute.outcomes import refusal_outcome
from pgsched.worker.claiming.claimer import Claimer

logger = log.get("worker")
LEAVE_S = 60.0  # after that this worker claims the task's runs again: the newer release may have been taken back
WAIT = timedelta(seconds=30)
CHARACTERS = 1000
UNKNOWN = "unknown"


class Misfits:
    """The decisions about runs that do not fit, for one worker. `claimer`: the worker's claimer."""

    def __init__(self, dsn: str, registration: Registration) -> None:
        self.claimer: Claimer | None = None
        self._dsn = dsn
        self._app = registration.app
        self._releases = {one.task: one.release for one in registration.releases or ()}
        self._tasks_left: set[str] = set()
        self._asking = asyncio.Lock()
        self._questions: dict[str, asyncio.Task[str | None]] = {}  # by task: a question that is not sent yet

    async def outcome(self, task: str, error: str) -> Outcome:
        """Return the outcome of an attempt at `task` whose arguments do not fit; `error` says why."""
        release = self._releases.get(task)
        if self._app is None or release is None:
            return refusal_outcome(error)  # a worker that registers no tasks has no other release
        if (asked := self._questions.get(task)) is None:
            asked = self._questions[task] = asyncio.get_running_loop().create_task(self._ask(self._app, task, release))
        standing = await asyncio.shield(asked)
        if standing == "newest":
            return refusal_outcome(error)
        if standing is None:  # another role owns the app
            return refusal_outcome(error, retry=True)
        if standing == "older":
            self._leave(task, error)
            return Outcome(Result.RELEASED, error=describe_release("left to a newer release", error))
        return wait_for_newest_release(error)

    async def _ask(self, app: str, task: str, release: str) -> str | None:
        """Ask the database how this release stands, on one connection however many runs do not fit at once.

        An attempt that comes while the question is on its way asks again: the newest release may have been registered
        since.
        """
        async with self._asking:
            del self._questions[task]
            try:
                async with await aconnect(self._dsn, purpose="worker") as conn:
                    return await tasks.release_standing(conn, app, task, release)
            except (DatabaseError, PgschedError) as failure:
                logger.warning("cannot ask for the newest release", task=task, error=log.redact(first_line(failure)))
                return UNKNOWN

    def _leave(self, task: str, error: str) -> None:
        if task not in self._tasks_left:
            logger.warning("left to workers of a newer release for a while", task=task, seconds=LEAVE_S, error=error)
            self._tasks_left.add(task)
            asyncio.get_running_loop().call_later(LEAVE_S, self._take, task)
            self._claim({task}, set())

    def _take(self, task: str) -> None:
        self._tasks_left.discard(task)
        self._claim(set(), {task})

    def _claim(self, less: set[str], more: set[str]) -> None:
        if self.claimer is not None:
            self.claimer.change_tasks(less, more)


def wait_for_newest_release(error: str) -> Outcome:
    """Return the outcome of a run that waits for a worker of the newest release; this costs no attempt."""
    return Outcome(Result.SNOOZED, error=describe_release(NEWEST_RELEASE, error), retry_in=WAIT)


def describe_release(what: str, error: str) -> str:
    """Return the text that says why a run is given back."""
    return replace_unstorable(f"{what}: {error}")[:CHARACTERS]

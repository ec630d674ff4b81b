"""Run recorded runs: each handler in the test's process, once, with the app's middleware around it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from pgsched.app.control import IN_HANDLER
from pgsched.app.run import Run
from pgsched.app.signals import Discard, Retry, Snooze, consists_of, effective_error, format_error, wait_of
from pgsched.client.application import App
from pgsched.core import payload
from pgsched.core.model import Result
from pgsched.core.schedule.slot_text import SlotTerms
from pgsched.errors import TaskError
from pgsched.execute.outcomes import outcome_of_value
from pgsched.testing.clock import Clock
from pgsched.testing.found import Enqueued
from pgsched.testing.own_threads import OwnThreads

Call = Callable[[], Any]


class Runner:
    """Runs the handlers of recorded runs. `begin`, `end`: called with each run whose attempt begins, or has ended.

    `inline`: a run that its handler gives up (`Discard`, the last `Retry`) fails the test like any other dead run.
    `allow_dead`: no dead run fails the test.
    `errors`: what handlers raised that ran after a commit, where raising it would disturb the caller.
    `slot_terms`: what runs of slots know of their slots, by the ids of the runs.
    """

    def __init__(
        self,
        app: App,
        clock: Clock,
        begin: Callable[[Enqueued], object],
        end: Callable[[Enqueued], object],
        *,
        inline: bool,
        allow_dead: bool,
    ) -> None:
        self.inline = inline
        self.allow_dead = allow_dead
        self.errors: list[BaseException] = []
        self.slot_terms: dict[int, SlotTerms] = {}
        self._app = app
        self._threads = app.hooks.in_tests or OwnThreads()
        self._clock = clock
        self._note_begin = begin
        self._note_end = end
        self._attempts: dict[int, Run] = {}  # by the ids of the runs that are running
        self._to_stop: dict[int, str] = {}  # why runs that are running were cancelled

    def has_task(self, run: Enqueued) -> bool:
        """Check whether this app has the run's task. Other runs are left for the program that has it."""
        return run.task in self._app.tasks

    def run(self, run: Enqueued) -> None:
        """Run a handler. Raises what the handler raises, unless that is allowed."""
        token = IN_HANDLER.set(True)
        try:
            call, is_async = self._begin(run)
            self._succeeded(run, self._threads.in_a_loop(call) if is_async else call())
        except BaseException as error:
            self._failed(run, error)
        finally:
            IN_HANDLER.reset(token)
            self._end(run)

    async def run_async(self, run: Enqueued) -> None:
        """Run a handler: the asyncio form of `run`."""
        token = IN_HANDLER.set(True)
        try:
            call, is_async = self._begin(run)
            self._succeeded(run, await (call() if is_async else self._threads.in_thread(call)))
        except BaseException as error:
            self._failed(run, error)
        finally:
            IN_HANDLER.reset(token)
            self._end(run)

    def stop(self, run: Enqueued, reason: str) -> None:
        """Ask the handler of a run that is running to stop: unless it succeeds, the run is cancelled then."""
        self._to_stop.setdefault(run.id, reason)
        if run.id in self._attempts:
            self._attempts[run.id].cancelled.set()

    def keep_error(self, run: Enqueued, error: BaseException) -> None:
        """Keep an error of a run that ran after its commit, to be raised when the test next asks for the runs."""
        error.add_note(f"pgsched: run {run.id} of {run.task} ran after the commit of the transaction that enqueued it")
        self.errors.append(error)

    def raise_errors(self) -> None:
        """Raise the errors that were kept, in a group if there are several."""
        errors, self.errors = self.errors, []
        if len(errors) > 1:
            raise BaseExceptionGroup("runs that ran after a commit are dead", errors)
        if errors:
            raise errors[0]

    def _begin(self, run: Enqueued) -> tuple[Call, bool]:
        """Return the handler's call with the app's middleware around it, and whether to await it."""
        task, hooks = self._app.tasks[run.task], self._app.hooks
        self._note_begin(run)
        run.state, run.attempt = "running", run.attempt + 1
        attempt = self._attempts[run.id] = Run(
            run.id,
            None if run.slot is None else 1,
            run.slot,
            run.attempt,
            uuid4(),
            task=run.task,
            queue=run.queue,
            max_attempts=run.max_attempts,
            slot_terms=self.slot_terms.get(run.id),
        )
        call = task.prepare(run.args, attempt)
        if not task.is_async:
            call = hooks.call_of_plain(attempt, call)
        if not hooks.around_all:
            return call, task.is_async
        inner = call if task.is_async else partial(self._threads.in_thread, call)
        return hooks.call_of_all(attempt, inner), True

    def _succeeded(self, run: Enqueued, result: Any) -> None:
        outcome = outcome_of_value(result)
        if outcome.result is not Result.SUCCEEDED:
            raise TaskError(f"task {run.task}: {outcome.error}")
        run.result = json.loads(payload.encode(outcome.value))
        run.state, run.finished_at = "succeeded", self._clock.now()

    def _failed(self, run: Enqueued, error: BaseException) -> None:
        """Act on Snooze, Retry and Discard as a worker does; raise any other error in the test."""
        run.error, meant = format_error(error), effective_error(error)
        is_ordinary = isinstance(error, (Exception, SystemExit))
        if is_ordinary and run.id in self._to_stop:
            run.state, run.reason, run.finished_at = "cancelled", self._to_stop[run.id], self._clock.now()
            return
        if isinstance(meant, Snooze) or (isinstance(meant, Retry) and run.attempt < run.max_attempts):
            run.attempt -= isinstance(meant, Snooze)
            run.state, run.at = "scheduled", self._clock.now() + (wait_of(meant) or timedelta(0))
            return
        run.state, run.finished_at = "dead", self._clock.now()
        if self.allow_dead and is_ordinary:
            return
        was_given_up = isinstance(meant, Retry) or consists_of(error, (Discard,))
        if self.inline or not was_given_up:
            raise error

    def _end(self, run: Enqueued) -> None:
        self._attempts.pop(run.id, None)
        self._to_stop.pop(run.id, None)
        self._note_end(run)

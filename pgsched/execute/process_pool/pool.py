"""The pool of child processes that run the Python handlers of one worker.

Invariant: the pool has at most `size` children, and a child that was asked to stop, died or misbehaved gets no second
attempt.

Children are started when they are needed, by spawning and never by forking. A fork of a process with threads inherits
locks that are never released. Each child imports the worker's app by its path, and looks tasks up by their registered
names.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pgsched.app.app_location import LocatedApp, locate_app, refuse_while_importing
from pgsched.app.control import AttemptState
from pgsched.core.model import Claim, Outcome, Result
from pgsched.errors import TaskError
from pgsched.execute.base import get_kill_after_s
from pgsched.execute.outcomes import refusal_outcome
from pgsched.execute.output.record import Record
from pgsched.execute.process_pool.child_process import PoolChild
from pgsched.execute.process_pool.protocol import Message, attempt_message, home_message, outcome_of
from pgsched.execute.subprocess.process_groups import Groups

START_S = 60.0
IDLE_S = 300.0
LEAVE_S = 1.0


class Pool:
    """The child processes of one worker. A child that is idle for `idle_s` seconds is ended."""

    def __init__(self, size: int, app: LocatedApp | None, *, start_s: float = START_S, idle_s: float = IDLE_S) -> None:
        refuse_while_importing()
        self._app = app
        self._size = size
        self._start_s = start_s
        self._idle_s = idle_s
        self._groups = Groups()
        self._idle: list[PoolChild] = []
        self._children: set[PoolChild] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(size)

    async def execute(
        self, claim: Claim, memory_mb: int | None, record: Record | None = None, own: AttemptState | None = None
    ) -> Outcome:
        """Run one attempt in a child, with the same contract as `Executor.execute`."""
        async with self._places:
            child = self._rested()
            if child is None:
                started = await self._start()
                if isinstance(started, Outcome):
                    return started
                child = started
            child.attempt = record, None if own is None else own.control
            return await self._attempt(child, claim, attempt_message(claim, memory_mb, own))

    async def close(self) -> None:
        """End all children; idle ones may run their exit handlers first."""
        for child in list(self._idle):
            self._let_go(child)
        await asyncio.gather(*self._ending)
        await asyncio.gather(*(self._end(child) for child in self._children))
        self._groups.close()
        self._places = asyncio.Semaphore(self._size)

    async def _attempt(self, child: PoolChild, claim: Claim, message: Message) -> Outcome:
        again = False
        try:
            answer = await child.ask(message)
            if answer is None:
                return crash_outcome(child, "the child process that ran it ended")
            outcome = outcome_of(answer)
            again = not answer["retire"]
            return outcome
        except asyncio.CancelledError:
            await child.stop(get_kill_after_s(claim))
            raise
        except (KeyError, TypeError, ValueError):
            return Outcome(Result.CRASHED, error="the child process that ran it gave an answer that is none")
        finally:
            if again:
                self._keep_idle(child)
            else:
                await self._end(child)

    # ---- children

    async def _start(self) -> PoolChild | Outcome:
        """Start a child and let it import the app; return the child, or the outcome of an attempt without one."""
        try:
            place = locate_app(self._app)
            self._groups.start()
            child = PoolChild(place)
        except TaskError as error:
            return refusal_outcome(str(error), retry=True)
        except OSError as error:
            return refusal_outcome(
                f"cannot start a child process: {(error.strerror or str(error)).lower()}", retry=True
            )
        self._children.add(child)
        self._groups.add(child.group)
        child.on_death = lambda: self._let_go(child)
        problem: Outcome | None = None
        ready = False
        try:
            await child.open()
            async with asyncio.timeout(self._start_s):
                problem = import_failure(child, await child.ask(home_message(place)), place.path)
            ready = problem is None
        except TimeoutError:
            problem = refusal_outcome(
                f"a child process took more than {self._start_s:g} s to import {place.path}", retry=True
            )
        finally:
            if not ready:
                await self._end(child)
        return problem or child

    def _rested(self) -> PoolChild | None:
        """Return the living idle child that was used last, so that surplus children stay idle and are ended."""
        while self._idle:
            child = self._idle[-1]
            if child.alive:
                self._wake(child)
                return child
            self._let_go(child)
        return None

    def _keep_idle(self, child: PoolChild) -> None:
        """Keep a child for a later attempt."""
        child.attempt = None, None
        self._idle.append(child)
        child.idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._let_go, child)

    def _wake(self, child: PoolChild) -> None:
        self._idle.remove(child)
        if child.idle_timer is not None:
            child.idle_timer.cancel()

    def _let_go(self, child: PoolChild) -> None:
        """End an idle child that was idle for too long, or has died."""
        if child not in self._idle:
            return
        self._wake(child)
        task = asyncio.get_running_loop().create_task(self._end(child, LEAVE_S))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, child: PoolChild, leave_s: float = 0.0) -> None:
        if leave_s:
            await child.leave(leave_s)
        await child.end()
        self._children.discard(child)
        self._groups.remove(child.group)


def import_failure(child: PoolChild, answer: Message | None, path: str) -> Outcome | None:
    """Return the outcome where the child has not imported the app, or None if it has."""
    if answer is None:
        return crash_outcome(child, f"a child process ended while it imported {path}")
    if answer["error"] is None:
        return None
    outcome = refusal_outcome(f"a child process could not import {path}: {answer['error']}", retry=True)
    return replace(outcome, traceback=answer["traceback"])


def crash_outcome(child: PoolChild, what: str) -> Outcome:
    """Return the outcome of an attempt whose child is dead."""
    return Outcome(Result.CRASHED, error=f"{what}: {child.how_it_ended()}", traceback=child.fault())

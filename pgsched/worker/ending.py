"""How a worker comes to its end. The first stop drains: no new claims, running handlers get the grace time, the rest is
handed back without costing an attempt. The second hurries.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from pgsched import log
from pgsched.errors import DatabaseUnreachable, PgschedError
from pgsched.worker import log_lines
from pgsched.worker.attempts.attempt import Ended
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.heartbeat import Heartbeat
from pgsched.worker.settling.outcomes import Outcomes

logger = log.get("worker")
FLUSH_S = 5.0
STUCK_S = 15.0


class Ending:
    """Whether one worker is to end, and why. `on_stop()` is called at each stop."""

    def __init__(self, on_stop: Callable[[], object] = bool) -> None:
        self.on_stop = on_stop
        self.stops = 0
        self.began = asyncio.Event()
        self.fatal: PgschedError | None = None
        self.report_state: Callable[[str], object] = lambda word: None  # tells a supervisor what becomes of this worker
        self._signalled_at: float | None = None

    def stop(self) -> None:
        """First call: drain. Second call: hurry. Call it on the loop's thread."""
        self.stops += 1
        self.began.set()
        self.on_stop()

    def stop_at_least(self, times: int) -> None:
        """As after so many stops."""
        while self.stops < times:
            self.stop()

    def signal_received(self) -> None:
        """A signal asks to stop. Called wherever the main thread is, also while the loop is blocked."""
        self._signalled_at = self._signalled_at or time.monotonic()

    def retire(self, why: str, error: PgschedError | None = None) -> None:
        """Take no more, and end when what runs has ended by itself; with this error if there is one."""
        if not self.began.is_set():
            logger.info("retiring", why=why, **({"error": str(error)} if error else {}))
            self.fatal = error
            self.began.set()
            self.on_stop()
            self.report_state(why)

    def fail(self, error: PgschedError) -> None:
        """End the worker with this error (from a helper thread, through the loop)."""
        self.fatal = self.fatal or error
        self.stop()
        self.stop()

    def bug(self, error: BaseException) -> None:
        """A part of the worker has failed: end with it, never silently."""
        logger.error("stopping", error=str(error))
        self.fail(error if isinstance(error, PgschedError) else PgschedError(f"worker failed: {error!r}"))

    def give_up(self, who: str, heartbeat: Heartbeat, grace_s: float) -> None:
        """The loop is blocked: end the process if it has been told to stop and nothing else will. (From the watchdog's
        thread.)"""
        if self._signalled_at is not None and time.monotonic() > self._signalled_at + grace_s + STUCK_S:
            logger.error("ending at once: the event loop is blocked and hears no stop", by=who)
            heartbeat.nudge.stop()
            heartbeat.join(3.0)
            os._exit(1)

    async def drain(self, runner: AttemptRunner, outcomes: Outcomes, grace_s: float) -> None:
        """Wait for what runs, end what does not end by itself, and write what they came to."""
        runner.hand_back()
        if not self.stops:  # nobody asked: what runs has all the time it needs, until somebody does
            await runner.idle(lambda: self.stops > 0)
        found = runner.running()
        running = {"runs": log_lines.running(found), "hint": log_lines.HURRY} if found else {}
        logger.info("draining", running=len(runner), grace_s=grace_s, **running)
        telling = asyncio.create_task(log_lines.tell_what_runs(runner.running))
        await self._until_idle(runner, grace_s, hurry=True)
        longest = runner.end_all(Ended.SHUTDOWN)
        await self._until_idle(runner, max(longest, 10.0) + FLUSH_S + 1, hurry=False)
        telling.cancel()
        try:
            async with asyncio.timeout(FLUSH_S):
                await outcomes.flushed()
        except TimeoutError:
            self.fatal = self.fatal or DatabaseUnreachable(
                "stopped with unsettled outcomes: the database took no answer, so they run again when their leases end"
            )
            logger.error("stopped with unsettled outcomes: they run again when their leases end")

    async def _until_idle(self, runner: AttemptRunner, seconds: float, *, hurry: bool) -> None:
        """Wait until no handler runs, the time is over, or (with `hurry`) a second stop."""
        try:
            async with asyncio.timeout(seconds):
                await runner.idle(lambda: hurry and self.stops > 1)
        except TimeoutError:
            pass

"""The end of a worker: the stops it was asked for, and how it drains.

- The first stop drains: no new claims; running handlers get the grace time; the rest is handed back without costing an
  attempt.
- The second stop hurries: running handlers are stopped at once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from pgsched import log
from pgsched.errors import DatabaseUnreachable, PgschedError
from pgsched.worker import log_lines
from pgsched.worker.attempts.attempt import EndReason
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.heartbeat import Heartbeat
from pgsched.worker.settling.outcomes import Outcomes

logger = log.get("worker")
FLUSH_S = 5.0
STUCK_S = 15.0


class WorkerEnd:
    """Whether one worker is to end, and why.

    - `on_stop()`: called at each stop.
    - `stops`: how many stops were requested.
    - `draining`: set once the worker takes no more runs.
    - `why`: why it takes no more runs, where no stop asked for that.
    - `fatal`: the error that the worker ends with, if any.
    - `report_state`: tells a supervisor the worker's state.
    - `inside`: the worker runs inside another program, which has the signals.
    """

    def __init__(self, on_stop: Callable[[], object] = bool) -> None:
        self.on_stop = on_stop
        self.stops = 0
        self.draining = asyncio.Event()
        self.why: str | None = None
        self.fatal: PgschedError | None = None
        self.report_state: Callable[[str], object] = lambda word: None
        self.inside = False
        self._signalled_at: float | None = None

    def stop(self) -> None:
        """Drain at the first call, hurry at the second. Call it on the event loop's thread."""
        self.stops += 1
        self.draining.set()
        self.on_stop()

    def stop_at_least(self, times: int) -> None:
        """Stop until `times` stops were requested."""
        while self.stops < times:
            self.stop()

    def signal_received(self) -> None:
        """Note that a signal asks to stop. Called in the main thread at any point, also while the loop is blocked."""
        self._signalled_at = self._signalled_at or time.monotonic()

    def retire(self, why: str, error: PgschedError | None = None) -> None:
        """Take no more runs and end when the running ones have ended; `error`: what to end with, if anything."""
        if not self.draining.is_set():
            logger.info("retiring", why=why, **({"error": str(error)} if error else {}))
            self.why, self.fatal = why, error
            self.draining.set()
            self.on_stop()
            self.report_state(why)

    def fail(self, error: PgschedError) -> None:
        """End the worker with this error. Call it on the event loop's thread."""
        self.fatal = self.fatal or error
        self.stop()
        self.stop()

    def bug(self, error: BaseException) -> None:
        """End the worker with the error of a failed part, never silently."""
        logger.error("stopping", error=str(error))
        self.fail(error if isinstance(error, PgschedError) else PgschedError(f"worker failed: {error!r}"))

    def give_up(self, who: str, heartbeat: Heartbeat, grace_s: float) -> None:
        """End the process where the event loop is blocked, a stop was requested and its time is over.

        Called in the watchdog's thread. `who`: what blocks the loop.
        """
        if self._signalled_at is not None and time.monotonic() > self._signalled_at + grace_s + STUCK_S:
            logger.error("ending at once: the event loop is blocked and hears no stop", by=who)
            heartbeat.nudge.stop()
            heartbeat.join(3.0)
            os._exit(1)

    async def drain(self, runner: AttemptRunner, outcomes: Outcomes, grace_s: float) -> None:
        """Wait for running attempts, end those that do not end in time, and write their outcomes."""
        runner.hand_back()
        if not self.stops:  # retired without a stop: running attempts get all the time they need, until a stop
            await runner.idle(lambda: self.stops > 0)
        hint = {} if self.inside else {"hint": log_lines.HURRY}
        logger.info("draining", **log_lines.drain_fields(runner.running(), grace_s, hint))
        telling = asyncio.create_task(log_lines.log_running_attempts(runner.running, hint))
        try:
            await self._until_idle(runner, grace_s, hurry=True)
            longest = runner.end_all(EndReason.SHUTDOWN)
            await self._until_idle(runner, max(longest, 10.0) + FLUSH_S + 1, hurry=False)
        finally:
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
        """Wait until no handler runs, the time is over, or (with `hurry`) a second stop is requested."""
        try:
            async with asyncio.timeout(seconds):
                await runner.idle(lambda: hurry and self.stops > 1)
        except TimeoutError:
            pass

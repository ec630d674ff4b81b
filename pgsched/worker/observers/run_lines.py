"""The log lines about the ends of runs: one line a run while there are few, a summary every ten seconds otherwise.

Invariant: while there are many, an attempt costs nothing here, and a batch of outcomes one addition. Nothing is
formatted that is not written.

- A success is information, a failure a warning, a run that is dead an error.
- At most MOST_LINES lines of each level are written a second. The summary counts what they leave out.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pgsched import log
from pgsched.core.model import SUCCEEDED, Claim, Key, Outcome, Result, Settlement
from pgsched.core.wording import format_seconds
from pgsched.db.connection.connect import Connection
from pgsched.worker.attempts.attempt import EndReason
from pgsched.worker.observers.events import WorkerEvents

logger = log.get("worker")
MOST_LINES = 20  # a second, of each level
SUMMARY_S = 10.0
UNSETTLED_S = 10.0  # how long the time of an attempt is kept for the line about its end
BAD = (Result.FAILED, Result.TIMED_OUT, Result.CRASHED)


class RunLines:
    """The lines about the runs of one worker, as an observer; `inner` gets all events as well.

    `verdicts`: how many runs have reached each state; the worker counts them.
    """

    def __init__(self, inner: WorkerEvents) -> None:
        self.inner = inner
        self.verdicts: Mapping[str, int] = {}
        self._seconds: dict[Key, tuple[float, float]] = {}  # of ended attempts that are not settled, and when noted
        self._ended = 0  # runs in this second
        self._written: Counter[str] = Counter()  # lines in this second, by level
        self._is_busy = False
        self._summary_at = time.monotonic()
        self._before: dict[str, int] = {}
        self._shows = log.is_enabled("worker", "info")
        self._may_show = False  # a line about the next attempt may be written
        self._choose()

    @property
    def wants_times(self) -> bool:
        """Whether the times of the next attempt are wanted; `inner` may change its mind at any time."""
        return self._may_show or self.inner.wants_times

    def _choose(self) -> None:
        """Choose whether a line about the next attempt may be written; asked seldom, because each attempt reads it."""
        self._may_show = self._shows and not self._is_busy and len(self._seconds) < MOST_LINES

    # ---- lines

    def attempt_failed(self, claim: Claim, outcome: Outcome, retry_in_s: float | None, fields: dict[str, Any]) -> None:
        """Log an attempt that did not succeed: a failure as a warning, an end that was asked for as information."""
        level = "warning" if outcome.result in BAD else "info"
        seconds = self._pop_seconds(claim.key)
        if not self._may_write(level):
            return
        error = (outcome.error or "")[:200]
        took = "" if seconds is None else f" in {format_seconds(seconds)}"
        which = f", attempt {claim.attempt} of {claim.max_attempts}" if outcome.result in BAD else ""
        again = ""
        if retry_in_s is not None and (outcome.result is Result.SNOOZED or claim.attempt < claim.max_attempts):
            again = f", again in {format_seconds(retry_in_s)}"
        plain = f"run {claim.id} {claim.task[:80]} {outcome.result}{took}{which}{again}{': ' if error else ''}{error}"
        getattr(logger, level)(
            "attempt ended", outcome=str(outcome.result), error=error, run=claim.id, task=claim.task[:80],
            attempt=claim.attempt, **rounded(seconds), **fields, **{log.PLAIN: plain},
        )  # fmt: skip

    def settled(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        """Take a batch of written outcomes: log dead runs, and while there are few those that have succeeded."""
        self.inner.settled(batch, verdicts)
        self._ended += len(batch)
        if "dead" in verdicts:
            self._log_dead(batch, verdicts)
        if self._shows and not self._is_busy:
            if self._ended > MOST_LINES:
                self._is_busy, self._summary_at, self._before = True, time.monotonic(), dict(self.verdicts)
                self._seconds.clear()
            else:
                self._log_successes(batch, verdicts)
        self._choose()

    def _log_successes(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        for one, verdict in zip(batch, verdicts, strict=False):
            seconds = self._pop_seconds((one.id, one.token.int))
            if one.outcome.result is SUCCEEDED and verdict == "succeeded" and self._may_write("info"):
                took = "" if seconds is None else f" in {format_seconds(seconds)}"
                logger.info("run ended", run=one.id, task=one.task[:80], state=verdict, **rounded(seconds),
                            **{log.PLAIN: f"run {one.id} {one.task[:80]} succeeded{took}"})  # fmt: skip

    def _log_dead(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        for one, verdict in zip(batch, verdicts, strict=False):
            if verdict == "dead" and self._may_write("error"):
                error, more = (one.outcome.error or "")[:200], f"pgsched run show {one.id}"
                plain = f"run {one.id} {one.task[:80]} is dead after attempt {one.attempt}; see: {more}"
                logger.error("run is dead", run=one.id, task=one.task[:80], attempt=one.attempt, state=verdict,
                             error=error, more=more, **{log.PLAIN: plain})  # fmt: skip

    def _pop_seconds(self, key: Key) -> float | None:
        noted = self._seconds.pop(key, None)
        return None if noted is None else noted[0]

    def _may_write(self, level: str) -> bool:
        self._written[level] += 1
        return self._written[level] <= MOST_LINES

    async def watch(self) -> None:
        """Begin a new second each second, and write the summaries."""
        inner = asyncio.ensure_future(self.inner.watch())
        try:
            while True:
                await asyncio.sleep(1.0)
                self._turn(time.monotonic())
                if inner.done():
                    inner.result()
        finally:
            if self._is_busy:
                self._summarize(time.monotonic())
            inner.cancel()
            await asyncio.gather(inner, return_exceptions=True)

    def _turn(self, now: float) -> None:
        """End a second: write a summary if ten seconds are over, or if the worker is no longer busy."""
        few = self._ended <= MOST_LINES
        if self._is_busy and (few or now >= self._summary_at + SUMMARY_S):
            self._summarize(now)
            self._is_busy = not few
        self._ended = 0
        self._written.clear()
        self._shows = log.is_enabled("worker", "info")
        if self._seconds:  # those of lost claims are never settled
            self._seconds = {key: one for key, one in self._seconds.items() if one[1] > now - UNSETTLED_S}
        self._choose()

    def _summarize(self, now: float) -> None:
        seconds, after = now - self._summary_at, dict(self.verdicts)
        counts = {state: count - self._before.get(state, 0) for state, count in after.items()}
        found = {state: count for state, count in counts.items() if count}
        self._summary_at, self._before = now, after
        total = sum(found.values())
        if total:
            states = ", ".join(f"{count:,} {state}" for state, count in found.items())
            logger.info("runs ended", seconds=round(seconds, 1), runs=total, **found,
                        **{log.PLAIN: f"{total:,} attempts in {format_seconds(seconds)}: {states}"})  # fmt: skip

    # ---- other events

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Pass the claims on."""
        self.inner.claimed(claims)

    def attempt_ended(self, claim: Claim, started: float, now: float) -> None:
        """Note how long an attempt took."""
        if self.inner.wants_times:
            self.inner.attempt_ended(claim, started, now)
        if self._shows and not self._is_busy:
            self._seconds[claim.key] = now - started, now
        self._choose()

    def ending(self, claim: Claim, why: EndReason) -> None:
        """Pass on that an attempt is stopped from outside."""
        self.inner.ending(claim, why)

    def beat(self, conn: Connection[Any]) -> None:
        """Pass on that the database has answered a heartbeat."""
        self.inner.beat(conn)


def rounded(seconds: float | None) -> dict[str, float]:
    """Return the field `seconds`; nothing if they are not known."""
    return {} if seconds is None else {"seconds": round(seconds, 6)}

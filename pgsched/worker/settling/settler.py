"""The settler: writes outcomes to the database in batches, and repeats a batch until the database answers.

Invariant: each row is fenced by its token. A row that comes back as lost belongs to another claim now: it is logged and
never tried again.

While one batch is on its way the next one collects, so the size of batches grows with the load. An outcome becomes a
failure only by an error about its own value, because other errors say nothing about the work. A run whose outcome
cannot be written runs again when its lease ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pgsched import log
from pgsched.core.backoff import retry_delay
from pgsched.core.model import Claim, Outcome, Result, Settlement
from pgsched.core.text import escape_non_ascii
from pgsched.db.connection.connect import BY_KEY, AsyncConnection, DatabaseError, aconnect
from pgsched.db.connection.failures import UNFORESEEN, Reaction, back_off_s, classify, explain_error, first_line
from pgsched.db.queries.runs.claims import LOCKED, plan_settlements, settle, settle_unlocked
from pgsched.errors import PgschedError
from pgsched.worker.settling.settlement_queue import SettlementQueue

logger = log.get("settle")
ENOUGH = 1000  # a batch of this many outcomes is written without waiting for more
LOCK_TIMEOUT_MS = "50"  # a locked row delays its batch, and all outcomes after it, this long once
WARY_S = 30.0  # after that locked rows are skipped for this many seconds
AGAIN = (Result.FAILED, Result.TIMED_OUT, Result.CRASHED, Result.SNOOZED)

POLICY = ("exponential", timedelta(seconds=5), timedelta(hours=1), 0.2)


def retry_in_s(claim: Claim, outcome: Outcome, random: Callable[[], float]) -> float | None:
    """Return the seconds until the next attempt, or None where there is to be none.

    The statement that settles knows whether an attempt is left.
    """
    if outcome.result not in AGAIN or not outcome.retry:
        return None
    if outcome.retry_in is not None:
        return max(0.0, outcome.retry_in.total_seconds())
    given = (claim.backoff, claim.backoff_base, claim.backoff_max, claim.backoff_jitter)
    backoff, base, maximum, jitter = (d if value is None else value for value, d in zip(given, POLICY, strict=True))
    return retry_delay(claim.attempt, backoff, base, maximum, jitter, random).total_seconds()  # type: ignore[arg-type]


def in_ascii(outcome: Outcome) -> Outcome:
    """Return the outcome with its texts in ASCII, which a database of any encoding can store."""
    error, traceback, log_tail = (
        None if text is None else escape_non_ascii(text)
        for text in (outcome.error, outcome.traceback, outcome.log_tail)
    )
    return replace(outcome, error=error, traceback=traceback, log_tail=log_tail)


class Settler:
    """The writer of the outcomes in `queue`. `on_settled` is called with each batch and its verdicts."""

    def __init__(self, dsn: str, worker: str, wait_s: float) -> None:
        self.dsn = dsn
        self.worker = worker
        self.wait_s = wait_s
        self.on_settled: Callable[[list[Settlement], list[str]], object] = lambda batch, verdicts: None
        self.on_fatal: Callable[[PgschedError], object] = bool  # called when an outcome is refused, reason unknown
        self.on_taken: Callable[[], object] = bool  # called when fewer outcomes wait
        self.more_to_come: Callable[[], bool] = lambda: True  # whether a batch shall wait for other outcomes
        self.queue = SettlementQueue()
        self._wary_until = 0.0
        self._conn: AsyncConnection[Any] | None = None

    async def run(self) -> None:
        """Write batches until cancelled. Raises PgschedError when no retry can help."""
        try:
            await self._get_ready()
            while True:
                await self.queue.arrived.wait()
                if len(self.queue) < ENOUGH and self.more_to_come():
                    await asyncio.sleep(self.wait_s)
                batch = self.queue.next()
                self.on_taken()
                await self._write(batch, UNFORESEEN)
                self.queue.written()
        finally:
            if self._conn is not None:
                await self._conn.close()

    async def _get_ready(self) -> None:
        """Connect before there is something to write.

        An error that a retry may solve is left to the first batch. Any other error is raised before a run has started.
        """
        try:
            await plan_settlements(await self._connected())
        except (DatabaseError, PgschedError) as error:
            if classify(error) is Reaction.CONFIGURATION:
                raise explain_error(error) if isinstance(error, DatabaseError) else error from error

    async def _connected(self) -> AsyncConnection[Any]:
        if self._conn is None:
            settings = BY_KEY | {"lock_timeout": LOCK_TIMEOUT_MS}
            self._conn = await aconnect(self.dsn, purpose="settle", settings=settings)
        return self._conn

    async def _write(self, batch: list[Settlement], unforeseen: int) -> None:
        """Write a batch, and repeat until it is written or set aside.

        `unforeseen`: how many errors of unknown meaning may still be taken for temporary ones.
        """
        failures = 0
        while True:
            wary = time.monotonic() < self._wary_until
            try:
                write = settle_unlocked if wary else settle
                self._report(batch, await write(await self._connected(), batch, self.worker))
                return
            except (DatabaseError, PgschedError, ValueError, TypeError) as error:  # the last two: no JSON or UTF-8
                reaction = classify(error)
                if reaction is Reaction.CONFIGURATION:
                    raise explain_error(error) if isinstance(error, DatabaseError) else error from error
                if reaction is Reaction.VALUE or (reaction is Reaction.BUG and unforeseen <= 0):
                    await self._write_apart(batch, error, unforeseen)
                    return
                if reaction is Reaction.RETRY:
                    self._wary_until = time.monotonic() + WARY_S
                    if wary:
                        await self._write_around(batch, error, unforeseen)
                        return
                    continue
                unforeseen -= reaction is Reaction.BUG
                failures += 1
                await self._back_off(failures, error)

    async def _write_around(self, batch: list[Settlement], error: BaseException, unforeseen: int) -> None:
        """Set aside an outcome that cannot be written now, although locked rows are skipped.

        The batch is halved until that outcome is alone, so that the others are written.
        """
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._write(batch[:middle], unforeseen)
            await self._write(batch[middle:], unforeseen)
            return
        self.queue.retried.put(batch, log.redact(first_line(error)))

    async def _write_apart(self, batch: list[Settlement], error: BaseException, unforeseen: int) -> None:
        """Write each outcome of a batch alone, because the database refuses one value.

        - The refused outcome is written as a failure.
        - An outcome that fails for an unknown reason is left to its lease, and the worker ends.
        """
        if len(batch) > 1:
            for settlement in batch:
                await self._write([settlement], unforeseen)
            return
        (settlement,) = batch
        plain = in_ascii(settlement.outcome)
        if classify(error) is Reaction.VALUE and plain != settlement.outcome:
            await self._write([settlement._replace(outcome=plain)], unforeseen)
            return
        reason = escape_non_ascii(f"outcome could not be stored: {first_line(error)}")
        unknown = classify(error) is Reaction.BUG
        if unknown or settlement.outcome.error == reason:
            logger.error("settlement refused", run=settlement.id, error=reason)
            self.on_settled([settlement], ["lost"])
            if unknown and isinstance(error, DatabaseError):
                self.on_fatal(explain_error(error))
            return
        failed = Outcome(Result.FAILED, error=reason, retry=False)
        await self._write([settlement._replace(outcome=failed, retry_in_s=None)], unforeseen)

    async def _back_off(self, failures: int, error: BaseException) -> None:
        delay = back_off_s(failures, 0.05)
        logger.warning("settling again", error=log.redact(first_line(error)), retry_in_s=round(delay, 2))
        if self._conn is not None:
            await self._conn.close()
            self._conn = None
        await asyncio.sleep(delay)

    def _report(self, batch: list[Settlement], verdicts: list[str]) -> None:
        if LOCKED in verdicts:
            self._wary_until = time.monotonic() + WARY_S
            pairs = list(zip(batch, verdicts, strict=True))
            self.queue.retried.put([s for s, verdict in pairs if verdict == LOCKED], "another session locks the run")
            batch, verdicts = [s for s, v in pairs if v != LOCKED], [v for v in verdicts if v != LOCKED]
        for settlement in batch if self.queue.retried.last_wait_s else ():
            self.queue.retried.forget(settlement)
        if "lost" in verdicts:
            for settlement, verdict in zip(batch, verdicts, strict=True):
                if verdict == "lost":
                    logger.warning("claim lost, outcome dropped", run=settlement.id, attempt=settlement.attempt,
                                   outcome=str(settlement.outcome.result))  # fmt: skip
        self.on_settled(batch, verdicts)

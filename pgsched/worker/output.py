"""The log pump: writes the output and progress of all attempts together, about once a second, on one connection.

Invariant: an attempt's output is written before its outcome, unless that would delay the outcome too long. Lost output
never fails a run.

One statement is repeated until the database answers. Meanwhile the records keep as much as they have room for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pgsched import log
from pgsched.core.model import Key
from pgsched.core.text import escape_non_ascii
from pgsched.db.connection.connect import BY_KEY, AsyncConnection, aconnect
from pgsched.db.connection.failures import UNFORESEEN, Reaction, back_off_s, classify
from pgsched.db.queries.runs.run_output import Page, tell_progress, write_pages
from pgsched.execute.output.kept_output import Progress
from pgsched.execute.output.record import Journal, Record, progress_to_json
from pgsched.worker.output_pages import OutputRows

logger = log.get("logs")
EVERY_S = 1.0
PATIENCE_S = 2.0
BATCH_BYTES = 4 << 20
SETTINGS = BY_KEY | {"lock_timeout": "500"}


class LogPump:
    """The writer of the output in a journal's records. It connects when there is something to write."""

    def __init__(self, dsn: str, journal: Journal, every_s: float = EVERY_S) -> None:
        self._dsn = dsn
        self._journal = journal
        self._every_s = every_s
        self._conn: AsyncConnection[Any] | None = None
        self._woken = asyncio.Event()
        self._hurry = asyncio.Event()
        self._empty = asyncio.Event()
        self._woken_once = False
        self._next_at = 0.0
        self._callbacks: dict[Key, Callable[[], object]] = {}

    @property
    def waiting_outcomes(self) -> int:
        """The number of outcomes that wait for the output of their attempts."""
        return len(self._callbacks)

    def before(self, key: Key, then: Callable[[], object]) -> None:
        """Call `then` once this attempt's output is written, or after PATIENCE_S seconds."""
        if key not in self._journal.unwritten:
            then()
            return
        self._callbacks[key] = then
        asyncio.get_running_loop().call_later(PATIENCE_S, self._go_on, key)
        self._hurry.set()

    async def finished(self) -> None:
        """Wait until all output so far is written."""
        while self._journal.waiting() or self._callbacks:
            self._empty.clear()
            self._hurry.set()
            self._woken.set()
            await self._empty.wait()

    async def run(self) -> None:
        """Write until cancelled. Raises nothing."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            # Where a wake-up is pending already, the flush that follows it will also find this record.
            if not self._woken_once:
                self._woken_once = True
                with contextlib.suppress(RuntimeError):  # an abandoned thread may outlive the loop
                    loop.call_soon_threadsafe(self._woken.set)

        self._journal.on_wake = wake
        try:
            while True:
                await self._woken.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self._next_at - time.monotonic())):
                        await self._hurry.wait()
                self._woken.clear()
                self._hurry.clear()
                self._woken_once = False
                self._next_at = time.monotonic() + self._every_s
                await self._flush()
        finally:
            self._journal.on_wake = None
            await self._disconnect()

    async def _flush(self) -> None:
        """Write everything that the records hold now."""
        waiting = self._journal.waiting()
        while waiting:
            batch, pages, news, size = [], [], [], 0
            while waiting and size < BATCH_BYTES:
                record = waiting.pop()
                taken = record.take()
                if record.book is None:
                    record.book = OutputRows(self._journal.tail_bytes)
                if taken.progress is not None and (text := progress_text(taken.progress)) is not None:
                    news.append((record.key, text))
                page = record.book.page(record.key, record.attempt, taken, final=record.closed)
                if page is not None:
                    pages.append(page)
                    size += sum(len(line[2]) for line in page.lines)
                batch.append(record)
            await self._write(batch, pages, news)
            for record in batch:
                self._journal.written(record)
        for key in [key for key in self._callbacks if key not in self._journal.unwritten]:
            self._go_on(key)
        if not (self._journal.unwritten or self._callbacks):
            self._empty.set()

    async def _write(self, batch: list[Record], pages: list[Page], news: list[tuple[Key, str]]) -> None:
        """Write these pages and this progress; repeat until the database takes or refuses them."""
        failures = unforeseen = 0
        plain = False
        while pages or news:
            try:
                self._conn = self._conn or await aconnect(self._dsn, purpose="logs", settings=SETTINGS)
                if pages:
                    set_bases(batch, pages, await write_pages(self._conn, pages))
                    pages = []
                if news:
                    resend_progress(batch, news, await tell_progress(self._conn, news))
                    news = []
            except Exception as error:  # any error, even an unforeseen one: the worker goes on without this output
                reaction = classify(error)
                unforeseen += reaction is Reaction.BUG
                what = {"error": log.redact(str(error).strip())[:500], "runs": [page.key[0] for page in pages][:10]}
                if reaction is Reaction.VALUE and pages and not plain:  # the database's encoding lacks a character
                    plain, pages = True, [in_ascii(page) for page in pages]
                    continue
                if reaction in (Reaction.VALUE, Reaction.CONFIGURATION) or unforeseen > UNFORESEEN:
                    logger.warning("output is lost", **what)
                    return
                failures += 1
                delay = back_off_s(failures, 0.05)
                logger.warning("writing output again", retry_in_s=round(delay, 2), **what)
                if reaction is not Reaction.RETRY:
                    await self._disconnect()
                await asyncio.sleep(delay)

    def _go_on(self, key: Key) -> None:
        then = self._callbacks.pop(key, None)
        if then is not None:
            then()
        if not self._callbacks and not self._journal.unwritten:
            self._empty.set()

    async def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()


def in_ascii(page: Page) -> Page:
    """Return the page with escapes for characters that are not ASCII."""
    return replace(page, lines=[(seq, stream, escape_non_ascii(text)) for seq, stream, text in page.lines])


def set_bases(batch: list[Record], pages: Sequence[Page], bases: Sequence[int | None]) -> None:
    """Give each book the base of its rows; close the record of an attempt that may not write any more."""
    records = {record.key: record for record in batch}
    for page, base in zip(pages, bases, strict=True):
        record = records[page.key]
        if base is None:
            logger.info("output of a former owner is dropped", run=page.key[0], attempt=page.attempt)
            record.closed = True
        else:
            record.book.base = base


def resend_progress(batch: list[Record], news: Sequence[tuple[Key, str]], written: set[Key]) -> None:
    """Resend progress that could not be written, with the next flush; after the attempt's end only once."""
    records = {record.key: record for record in batch}
    for key, _ in news:
        if key not in written:
            records[key].tell_again()


def progress_text(progress: Progress) -> str | None:
    """Return a progress as a JSON object, or None where it holds no numbers."""
    values = progress_to_json(progress)
    if values is None:
        return None
    named = zip(("done", "total", "note"), values, strict=True)
    return json.dumps({name: value for name, value in named if value is not None})

"""The log pump: what all attempts of a worker say is written together, about once a second, over one connection.

The rule: a log is complete before its attempt is settled, unless that would hold the attempt up: losing a log never
fails a run. One statement is repeated until the database answers; meanwhile the records keep what they have room for.
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
from pgsched.core.text import escaped
from pgsched.db.connection.connect import BY_KEY, AsyncConnection, aconnect
from pgsched.db.connection.failures import UNFORESEEN, Reaction, back_off_s, classify
from pgsched.db.queries.runs.run_output import Page, tell_progress, write
from pgsched.execute.output.kept_output import Progress
from pgsched.execute.output.record import Journal, Record, in_json
from pgsched.worker.output_pages import Book

logger = log.get("logs")
EVERY_S = 1.0
PATIENCE_S = 2.0
BATCH_BYTES = 4 << 20
SETTINGS = BY_KEY | {"lock_timeout": "500"}


class LogPump:
    """Writes what the journal's records have. It connects when there is something to write."""

    def __init__(self, dsn: str, journal: Journal, every_s: float = EVERY_S) -> None:
        self._dsn = dsn
        self._journal = journal
        self._every_s = every_s
        self._conn: AsyncConnection[Any] | None = None
        self._woken = asyncio.Event()
        self._hurry = asyncio.Event()
        self._empty = asyncio.Event()
        self._told = False
        self._next_at = 0.0
        self._after: dict[Key, Callable[[], object]] = {}

    @property
    def held(self) -> int:
        """How many outcomes wait for what their attempts have said."""
        return len(self._after)

    def before(self, key: Key, then: Callable[[], object]) -> None:
        """Call `then` once all that this attempt has said is written, or too long a time has passed."""
        if key not in self._journal.unwritten:
            then()
            return
        self._after[key] = then
        asyncio.get_running_loop().call_later(PATIENCE_S, self._go_on, key)
        self._hurry.set()

    async def finished(self) -> None:
        """Wait until everything said so far is written."""
        while self._journal.waiting() or self._after:
            self._empty.clear()
            self._hurry.set()
            self._woken.set()
            await self._empty.wait()

    async def run(self) -> None:
        """Write until cancelled. Raises nothing."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            # Whoever finds it told has put its record where the flush to come will look.
            if not self._told:
                self._told = True
                with contextlib.suppress(RuntimeError):  # a thread that was left behind outlives the loop
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
                self._told = False
                self._next_at = time.monotonic() + self._every_s
                await self._flush()
        finally:
            self._journal.on_wake = None
            await self._disconnect()

    async def _flush(self) -> None:
        """Write everything that there is now."""
        waiting = self._journal.waiting()
        while waiting:
            batch, pages, news, size = [], [], [], 0
            while waiting and size < BATCH_BYTES:
                record = waiting.pop()
                taken = record.take()
                if record.book is None:
                    record.book = Book(self._journal.tail_bytes)
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
        for key in [key for key in self._after if key not in self._journal.unwritten]:
            self._go_on(key)
        if not (self._journal.unwritten or self._after):
            self._empty.set()

    async def _write(self, batch: list[Record], pages: list[Page], news: list[tuple[Key, str]]) -> None:
        """Repeat until the database has taken it, or says that it never will."""
        failures = unforeseen = 0
        plain = False
        while pages or news:
            try:
                self._conn = self._conn or await aconnect(self._dsn, purpose="logs", settings=SETTINGS)
                if pages:
                    note_bases(batch, pages, await write(self._conn, pages))
                    pages = []
                if news:
                    tell_again(batch, news, await tell_progress(self._conn, news))
                    news = []
            except Exception as error:  # also what nobody thought of: the worker goes on without this output
                reaction = classify(error)
                unforeseen += reaction is Reaction.BUG
                what = {"error": log.redact(str(error).strip())[:500], "runs": [page.key[0] for page in pages][:10]}
                if reaction is Reaction.VALUE and pages and not plain:  # its encoding has no such character
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
        then = self._after.pop(key, None)
        if then is not None:
            then()
        if not self._after and not self._journal.unwritten:
            self._empty.set()

    async def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()


def in_ascii(page: Page) -> Page:
    """The same page with escapes for what is not ASCII."""
    return replace(page, lines=[(seq, stream, escaped(text)) for seq, stream, text in page.lines])


def note_bases(batch: list[Record], pages: Sequence[Page], bases: Sequence[int | None]) -> None:
    """Each book learns where its rows lie; one that may not write is closed for good."""
    records = {record.key: record for record in batch}
    for page, base in zip(pages, bases, strict=True):
        record = records[page.key]
        if base is None:
            logger.info("output of a former owner is dropped", run=page.key[0], attempt=page.attempt)
            record.closed = True
        else:
            record.book.base = base


def tell_again(batch: list[Record], news: Sequence[tuple[Key, str]], told: set[Key]) -> None:
    """Whose progress could not be written tells it again with the next flush; after the attempt's end once."""
    records = {record.key: record for record in batch}
    for key, _ in news:
        if key not in told:
            records[key].tell_again()


def progress_text(progress: Progress) -> str | None:
    """The JSON object of a progress; None if it has none."""
    values = in_json(progress)
    if values is None:
        return None
    named = zip(("done", "total", "note"), values, strict=True)
    return json.dumps({name: value for name, value in named if value is not None})

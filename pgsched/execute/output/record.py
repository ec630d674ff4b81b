"""The rule: what an attempt says costs its worker bounded memory and never the attempt; what is left out is counted.

A Record takes output and progress from any thread; the worker's log pump takes them from it about once a second. The
beginning is kept, then the newest: what lies between is dropped when nobody takes it in time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pgsched.core.model import Claim, Key
from pgsched.core.text import storable, text_of
from pgsched.execute.output.head_tail import Output
from pgsched.execute.output.kept_output import KeptOutput, Progress, Taken

HEAD_SHARE = 4  # a quarter of what is kept is the beginning
READ_BYTES = 65536
STREAMS = ("stdout", "stderr", "log")
ALL_BYTES = 64 << 20
LEAST_BYTES = 16 << 10
NOTE_CHARACTERS = 200
INFINITE = float("inf")


class Record:
    """What one attempt says. Thread-safe; cheap to make, because most attempts that may say something do not."""

    __slots__ = ("_journal", "_kept", "_output", "_progress", "_told", "_torn", "attempt", "book", "closed", "key",
                 "late", "queued")  # fmt: skip

    def __init__(self, journal: Journal, key: Key, attempt: int) -> None:
        self.key = key
        self.attempt = attempt
        self.closed = self.queued = self.late = False
        self.book: Any = None  # the pump's
        self._journal = journal
        self._output: Output | None = None
        self._kept: KeptOutput | None = None
        self._progress: Progress | None = None
        self._told: Progress | None = None
        self._torn = False  # may the last character be half a one?

    @property
    def output(self) -> Output:
        """The first and last few KB of it, whatever becomes of the rest."""
        if self._output is None:
            self._output = Output()
        return self._output

    @property
    def said(self) -> bool:
        """Was there any output?"""
        return self._output is not None

    def write(self, stream: str, text: str) -> None:
        """Take text that was written to a stream."""
        self.add(stream, text.encode("utf-8", "replace"))

    def add(self, stream: str, data: bytes) -> None:
        """Take what was written to a stream: stdout, stderr or log."""
        if not data:
            return
        journal = self._journal
        with journal.lock:
            if self.closed:  # a handler that was left behind goes on
                return
            self.output.add(data)
            if not journal.keeps:
                return
            kept = self._kept = self._kept or KeptOutput(journal.head_bytes)
            for start in range(0, len(data), READ_BYTES):
                kept.add(stream, data[start : start + READ_BYTES], journal.room())
            self._torn = data[-1] >= 0x80
        self._wake()

    def skip(self, n_bytes: int, n_lines: int) -> None:
        """So much is missing here: whoever sent it on had to drop it."""
        with self._journal.lock:
            self._kept = self._kept or KeptOutput(self._journal.head_bytes)
            self._kept.skip(n_bytes, n_lines)
        self._wake()

    def progress(self, done: float, total: float | None, note: str | None) -> None:
        """How far the attempt is. The last word counts, so that this may be called a million times. ValueError or
        TypeError where `done` or `total` is no number from 0 on."""
        if not (0 <= done < INFINITE and (total is None or 0 <= total < INFINITE)):
            raise ValueError(f"progress: expected finite numbers from 0 on, got {done!r} of {total!r}")
        if not self.closed:
            self._progress = (done, total, note)
            if not self.queued:
                self._wake()

    def take(self) -> Taken:
        """Everything since the last time."""
        with self._journal.lock:
            # Before the progress is read: a word that comes after that wakes the pump again.
            self.queued = False
            news = self._news()
            return Taken([], 0, 0, [], news) if self._kept is None else self._kept.take(news)

    def tell_again(self) -> None:
        """The progress taken last did not arrive. After the attempt's end it is tried once more."""
        with self._journal.lock:
            again = not self.late
            self.late = self.closed
            if again:
                self._told = None
        if again:
            self._wake()

    def close(self) -> None:
        """The attempt has ended: nothing more is taken from it."""
        with self._journal.lock:
            self.closed = True
        if self._torn:
            self._wake()

    def _news(self) -> Progress | None:
        news = None if self._progress is self._told else self._progress
        self._told = self._progress
        return news

    def _wake(self) -> None:
        if not self.queued:
            self._journal.wake(self)


class Journal:
    """The Records of one process. `on_wake(record)` is told, from any thread, when one has something to take."""

    def __init__(self, keep_bytes: int = 0, *, head_share: int = HEAD_SHARE) -> None:
        """`keep_bytes` of output are kept of an attempt: a `head_share`th of them its beginning, the rest its end."""
        self.head_bytes = keep_bytes // head_share if head_share else 0
        self.tail_bytes = keep_bytes - self.head_bytes
        self.lock = threading.Lock()
        self.unwritten: dict[Key, Record] = {}
        self.on_wake: Callable[[], object] | None = None

    @property
    def keeps(self) -> bool:
        """Is there anybody who takes what is said?"""
        return self.on_wake is not None and self.tail_bytes > 0

    def record(self, claim: Claim) -> Record:
        """The Record of an attempt."""
        return Record(self, claim.key, claim.attempt)

    def wake(self, record: Record) -> None:
        """This Record has something to take."""
        if self.on_wake is None:
            return
        with self.lock:
            if record.queued:
                return
            record.queued = True
            self.unwritten[record.key] = record
        self.on_wake()

    def waiting(self) -> list[Record]:
        """The Records that have something to take, or whose words are on their way."""
        with self.lock:
            return list(self.unwritten.values())

    def written(self, record: Record) -> bool:
        """All that was taken of it is kept. False: it has said more since."""
        with self.lock:
            if not record.queued:
                self.unwritten.pop(record.key, None)
            return not record.queued

    def room(self) -> int:
        """How many bytes may wait in one Record."""
        return min(self.tail_bytes, max(LEAST_BYTES, ALL_BYTES // max(1, len(self.unwritten))))


def in_json(progress: Progress) -> Progress | None:
    """The same in JSON's own types, whatever the handler gave: also types of its own, whose text may raise. None where
    it has no numbers."""
    done, total, note = progress
    try:
        said = None if note is None else storable(text_of(note))[:NOTE_CHARACTERS]
        return number(done), None if total is None else number(total), said
    except Exception:  # user code
        return None


def number(value: Any) -> float:
    """A number of whatever type as JSON has it. Raises ValueError where JSON has none."""
    found = float(value)
    if not -INFINITE < found < INFINITE:
        raise ValueError(f"{found} is no number in JSON")
    return int(value) if found.is_integer() else found

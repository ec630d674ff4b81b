"""Records of what attempts print, log and report as progress, and the journal of a process that holds them.

Invariant: output costs a worker bounded memory and never fails an attempt; dropped output is counted.

A Record takes output and progress from any thread. The worker's log pump takes them from the Record about once a
second. The beginning and the newest part are kept. Output between them is dropped when the pump is too slow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pgsched.app.run import check_progress
from pgsched.core.model import Claim, Key
from pgsched.core.text import replace_unstorable, text_of
from pgsched.execute.output.head_tail import HeadTail
from pgsched.execute.output.kept_output import PendingOutput, Progress, Taken

HEAD_SHARE = 4  # a quarter of the kept output is the beginning
READ_BYTES = 65536
STREAMS = ("stdout", "stderr", "log")
ALL_BYTES = 64 << 20
LEAST_BYTES = 16 << 10
NOTE_CHARACTERS = 200
INFINITE = float("inf")


class Record:
    """The output and progress of one attempt. Thread-safe.

    A Record is cheap to make, because most attempts that may print never do.
    """

    __slots__ = (
        "_ends_mid_character",
        "_journal",
        "_output",
        "_pending",
        "_progress",
        "_sent_progress",
        "attempt",
        "book",
        "closed",
        "key",
        "queued",
        "resent_after_close",
    )  # fmt: skip

    def __init__(self, journal: Journal, key: Key, attempt: int) -> None:
        self.key = key
        self.attempt = attempt
        self.closed = self.queued = self.resent_after_close = False
        self.book: Any = None  # the log pump's Book of rows for this attempt
        self._journal = journal
        self._output: HeadTail | None = None
        self._pending: PendingOutput | None = None
        self._progress: Progress | None = None
        self._sent_progress: Progress | None = None
        self._ends_mid_character = False  # the output may end in the middle of a character

    @property
    def output(self) -> HeadTail:
        """The first 8 KB and the last 24 KB of the output, also where the output between them is dropped."""
        if self._output is None:
            self._output = HeadTail()
        return self._output

    @property
    def has_output(self) -> bool:
        """Whether there was any output."""
        return self._output is not None

    def write(self, stream: str, text: str) -> None:
        """Add text that was written to a stream."""
        self.add(stream, text.encode("utf-8", "replace"))

    def add(self, stream: str, data: bytes) -> None:
        """Add bytes that were written to a stream: stdout, stderr or log."""
        if not data:
            return
        journal = self._journal
        with journal.lock:
            if self.closed:  # an abandoned handler still writes
                return
            self.output.add(data)
            if not journal.is_read:
                return
            kept = self._pending = self._pending or PendingOutput(journal.head_bytes)
            for start in range(0, len(data), READ_BYTES):
                kept.add(stream, data[start : start + READ_BYTES], journal.room())
            self._ends_mid_character = data[-1] >= 0x80
        self._wake()

    def skip(self, n_bytes: int, n_lines: int) -> None:
        """Record a gap of this size: the child process had to drop output."""
        with self._journal.lock:
            self._pending = self._pending or PendingOutput(self._journal.head_bytes)
            self._pending.skip(n_bytes, n_lines)
        self._wake()

    def progress(self, done: float, total: float | None, note: str | None) -> None:
        """Store how far the attempt is. Only the newest call counts, so a handler may call this a million times.

        Raises ValueError or TypeError where `done` or `total` is not a finite number of at least 0.
        """
        check_progress(done, total)
        if not self.closed:
            self._progress = (done, total, note)
            if not self.queued:
                self._wake()

    def take(self) -> Taken:
        """Return everything since the last call."""
        with self._journal.lock:
            # Reset before the progress is read: a call after that wakes the pump again.
            self.queued = False
            news = self._news()
            return Taken([], 0, 0, [], news) if self._pending is None else self._pending.take(news)

    def tell_again(self) -> None:
        """Resend the last progress, because it could not be written. After the attempt's end this happens once."""
        with self._journal.lock:
            again = not self.resent_after_close
            self.resent_after_close = self.closed
            if again:
                self._sent_progress = None
        if again:
            self._wake()

    def close(self) -> None:
        """End the record: output and progress after this call are ignored."""
        with self._journal.lock:
            self.closed = True
        if self._ends_mid_character:
            self._wake()

    def _news(self) -> Progress | None:
        """Return the progress if it has changed since the last call, else None."""
        news = None if self._progress is self._sent_progress else self._progress
        self._sent_progress = self._progress
        return news

    def _wake(self) -> None:
        if not self.queued:
            self._journal.wake(self)


class Journal:
    """The Records of one process. `on_wake()` is called, from any thread, when a record has something to take."""

    def __init__(self, keep_bytes: int = 0, *, head_share: int = HEAD_SHARE) -> None:
        """Keep at most `keep_bytes` of output of each attempt.

        One part in `head_share` of these bytes is for the beginning, the rest for the end. 0: all bytes are for the
        end.
        """
        self.head_bytes = keep_bytes // head_share if head_share else 0
        self.tail_bytes = keep_bytes - self.head_bytes
        self.lock = threading.Lock()
        self.unwritten: dict[Key, Record] = {}
        self.on_wake: Callable[[], object] | None = None

    @property
    def is_read(self) -> bool:
        """Whether output is kept for writing, beyond the first and last KB in `Record.output`."""
        return self.on_wake is not None and self.tail_bytes > 0

    def record(self, claim: Claim) -> Record:
        """Return a new Record for an attempt."""
        return Record(self, claim.key, claim.attempt)

    def wake(self, record: Record) -> None:
        """Put a record that has something to take among those to be written, and call `on_wake`."""
        if self.on_wake is None:
            return
        with self.lock:
            if record.queued:
                return
            record.queued = True
            self.unwritten[record.key] = record
        self.on_wake()

    def waiting(self) -> list[Record]:
        """Return the records that have something to take, or whose output is being written."""
        with self.lock:
            return list(self.unwritten.values())

    def written(self, record: Record) -> bool:
        """Note that everything taken from a record is written; return False where the record has something new."""
        with self.lock:
            if not record.queued:
                self.unwritten.pop(record.key, None)
            return not record.queued

    def room(self) -> int:
        """Return how many bytes may wait in one Record."""
        return min(self.tail_bytes, max(LEAST_BYTES, ALL_BYTES // max(1, len(self.unwritten))))


def progress_to_json(progress: Progress) -> Progress | None:
    """Convert a progress to JSON's own types, or return None where it has no numbers.

    A handler may pass types of its own, whose conversion may raise.
    """
    done, total, note = progress
    try:
        note_text = None if note is None else replace_unstorable(text_of(note))[:NOTE_CHARACTERS]
        return json_number(done), None if total is None else json_number(total), note_text
    except Exception:  # user code
        return None


def json_number(value: Any) -> float:
    """Return a number of any type as JSON has it. Raises ValueError for infinity and NaN."""
    found = float(value)
    if not -INFINITE < found < INFINITE:
        raise ValueError(f"{found} is no number in JSON")
    return int(value) if found.is_integer() else found

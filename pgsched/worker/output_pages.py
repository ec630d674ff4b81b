"""The rows of an attempt's output: its beginning, its end, and one row between them that counts what is left out.

Invariant: the rows are correct after each page, so that a worker's death leaves a readable log.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from pgsched.core.model import Key
from pgsched.core.text import replace_unstorable
from pgsched.db.queries.runs.run_output import Line, Page
from pgsched.execute.output.kept_output import Piece, Taken

CHUNK_BYTES = 65_536
ROW_CHARACTERS = 4096
CUT = "cut"


class TailRow(NamedTuple):
    """A row of the end. It is dropped when too much output follows it."""

    seq: int
    n_bytes: int
    n_lines: int


class LastRow(NamedTuple):
    """The row written last. Short output continues in it, because each row costs."""

    seq: int
    stream: str
    text: str
    is_tail: bool

    def takes(self, stream: str, text: str, is_tail: bool) -> bool:
        """Check whether this text may continue in the row."""
        return (self.stream, self.is_tail) == (stream, is_tail) and len(self.text) + len(text) <= ROW_CHARACTERS


NONE = LastRow(-1, "", "", False)


class OutputRows:
    """The rows of one attempt. `base`: the number added to each `seq`, known once the first page is written."""

    def __init__(self, tail_bytes: int) -> None:
        self.base: int | None = None
        self._tail_bytes = tail_bytes
        self._seq = 0
        self._tail: deque[TailRow] = deque()
        self._kept_bytes = 0
        self._cut_bytes = self._cut_lines = 0
        self._cut_seq: int | None = None
        self._last = NONE
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def page(self, key: Key, attempt: int, taken: Taken, *, final: bool) -> Page | None:
        """Return the page for the output taken from a record, or None without output; `final`: no more will come."""
        lines: list[Line] = []
        self._append(lines, taken.head, is_tail=False)
        lo = self._cut_seq if self._cut_seq is not None else self._tail[0].seq if self._tail else self._seq
        hi = None
        if taken.cut_bytes:
            hi = self._leave_out(taken.cut_bytes, taken.cut_lines)
        self._append(lines, taken.tail, is_tail=True)
        hi = self._shorten() or hi
        if final:
            self._end(lines)
        if hi is not None:
            self._cut_seq = hi
            lines = [line for line in lines if not lo <= line[0] <= hi]  # without rows dropped now
            lines.append((hi, CUT, f"[... {self._cut_bytes:,} bytes in {self._cut_lines:,} lines are left out ...]\n"))
        return Page(key, attempt, self.base, lo, lo if hi is None else hi, lines) if lines else None

    def _append(self, lines: list[Line], pieces: Sequence[Piece], *, is_tail: bool) -> None:
        stream, data = "", bytearray()
        for name, piece in pieces:
            if name != stream or len(data) + len(piece) > CHUNK_BYTES:
                self._add(lines, stream, data, is_tail)
                stream, data = name, bytearray()
            data += piece
        self._add(lines, stream, data, is_tail)

    def _add(self, lines: list[Line], stream: str, data: bytearray, is_tail: bool) -> None:
        if not data:
            return
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        text = replace_unstorable(decoder.decode(bytes(data)))
        seq = self._last.seq if self._last.takes(stream, text, is_tail) else self._next_seq()
        text = self._last.text + text if seq == self._last.seq else text
        if lines and lines[-1][0] == seq:
            lines.pop()
        lines.append((seq, stream, text))
        self._last = LastRow(seq, stream, text, is_tail)
        if is_tail:
            self._count(seq, len(data), data.count(b"\n"))

    def _count(self, seq: int, n_bytes: int, n_lines: int) -> None:
        if self._tail and self._tail[-1].seq == seq:
            row = self._tail.pop()
            self._tail.append(TailRow(seq, row.n_bytes + n_bytes, row.n_lines + n_lines))
        else:
            self._tail.append(TailRow(seq, n_bytes, n_lines))
        self._kept_bytes += n_bytes

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq - 1

    def _leave_out(self, n_bytes: int, n_lines: int) -> int:
        """Count output dropped here, and drop the rows of the end so far, because there is one gap only."""
        while self._tail:
            self._drop()
        self._cut_bytes += n_bytes
        self._cut_lines += n_lines
        self._decoders.clear()
        self._last = NONE
        return self._next_seq()

    def _shorten(self) -> int | None:
        """Drop rows of the end that are too much; return the seq of the last dropped row."""
        gone = None
        while self._kept_bytes > self._tail_bytes and len(self._tail) > 1:
            gone = self._drop()
        return gone

    def _drop(self) -> int:
        row = self._tail.popleft()
        self._kept_bytes -= row.n_bytes
        self._cut_bytes += row.n_bytes
        self._cut_lines += row.n_lines
        return row.seq

    def _end(self, lines: list[Line]) -> None:
        """Show half a character at the end of a stream as an unreadable one."""
        for stream, decoder in self._decoders.items():
            if remainder := decoder.decode(b"", final=True):
                lines.append((self._next_seq(), stream, remainder))

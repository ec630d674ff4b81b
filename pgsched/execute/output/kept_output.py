"""The output of one attempt that waits to be written: its beginning and its newest part; the rest is counted."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

PIECE_BYTES = 8192
Piece = tuple[str, bytearray]
Progress = tuple[float, float | None, str | None]


class Taken(NamedTuple):
    """The output taken from a Record: its beginning, then a count of what was dropped, then the newest part.

    - `head`: the beginning.
    - `cut_bytes`, `cut_lines`: the size of the gap after the beginning.
    - `tail`: the output after the gap.
    - `progress`: the newest progress, or None where it has not changed.
    """

    head: list[Piece]
    cut_bytes: int
    cut_lines: int
    tail: list[Piece]
    progress: Progress | None


class PendingOutput:
    """The waiting output of one attempt. The caller holds the journal's lock during each call."""

    __slots__ = ("cut_bytes", "cut_lines", "head", "head_left", "tail", "tail_bytes")

    def __init__(self, head_bytes: int) -> None:
        self.head: list[Piece] = []
        self.head_left = head_bytes  # bytes of the beginning that may still be added
        self.tail: deque[Piece] = deque()
        self.tail_bytes = self.cut_bytes = self.cut_lines = 0

    def add(self, stream: str, data: bytes, room: int) -> None:
        """Keep this output; at most `room` bytes may wait, and the oldest of the tail are dropped."""
        if self.head_left and sum(len(piece) for _, piece in self.head) >= room:
            self.head_left = 0
        for_head, for_tail = data[: self.head_left], data[self.head_left :]
        if for_head:
            append_piece(self.head, stream, for_head)
            self.head_left -= len(for_head)
        if for_tail:
            append_piece(self.tail, stream, for_tail)
            self.tail_bytes += len(for_tail)
            self._drop(room)

    def skip(self, n_bytes: int, n_lines: int) -> None:
        """Record a gap of this size here: a child process had to drop output."""
        self._drop(0)
        self.head_left = 0
        self.cut_bytes += n_bytes
        self.cut_lines += n_lines

    def take(self, progress: Progress | None) -> Taken:
        """Return everything since the last call, together with this progress."""
        taken = Taken(self.head, self.cut_bytes, self.cut_lines, list(self.tail), progress)
        self.head, self.tail_bytes, self.cut_bytes, self.cut_lines = [], 0, 0, 0
        self.tail.clear()
        return taken

    def _drop(self, room: int) -> None:
        """Drop the oldest output of the tail until it fits into `room` bytes, by whole lines where possible."""
        while self.tail_bytes > room:
            piece = self.tail[0][1]
            over = self.tail_bytes - room
            n_bytes = len(piece) if len(piece) <= over else piece.find(b"\n", over - 1) + 1 or over
            if n_bytes == len(piece):
                self.tail.popleft()
            self.cut_lines += piece.count(b"\n", 0, n_bytes)
            del piece[:n_bytes]
            self.tail_bytes -= n_bytes
            self.cut_bytes += n_bytes


def append_piece(pieces: list[Piece] | deque[Piece], stream: str, data: bytes) -> None:
    """Append data, joined to the last piece where both are small: each piece costs more than its bytes."""
    if pieces and pieces[-1][0] == stream and len(pieces[-1][1]) + len(data) <= PIECE_BYTES:
        pieces[-1][1].extend(data)
    else:
        pieces.append((stream, bytearray(data)))

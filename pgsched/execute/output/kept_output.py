"""What is kept of an attempt's output until it is written: its beginning, then the newest. The rest is counted."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

PIECE_BYTES = 8192
Piece = tuple[str, bytearray]
Progress = tuple[float, float | None, str | None]


class Taken(NamedTuple):
    """What a Record had: its beginning, how much was dropped after that, and what came then."""

    head: list[Piece]
    cut_bytes: int
    cut_lines: int
    tail: list[Piece]
    progress: Progress | None


class KeptOutput:
    """The output of one attempt. Its caller holds the lock."""

    __slots__ = ("cut_bytes", "cut_lines", "head", "head_left", "tail", "tail_bytes")

    def __init__(self, head_bytes: int) -> None:
        self.head: list[Piece] = []
        self.head_left = head_bytes  # so much more of the beginning is kept
        self.tail: deque[Piece] = deque()
        self.tail_bytes = self.cut_bytes = self.cut_lines = 0

    def add(self, stream: str, data: bytes, room: int) -> None:
        """Keep this; `room`: how many bytes may wait."""
        if self.head_left and sum(len(piece) for _, piece in self.head) >= room:
            self.head_left = 0
        first, rest = data[: self.head_left], data[self.head_left :]
        if first:
            push(self.head, stream, first)
            self.head_left -= len(first)
        if rest:
            push(self.tail, stream, rest)
            self.tail_bytes += len(rest)
            self._drop(room)

    def skip(self, n_bytes: int, n_lines: int) -> None:
        """So much is missing here."""
        self._drop(0)
        self.head_left = 0
        self.cut_bytes += n_bytes
        self.cut_lines += n_lines

    def take(self, progress: Progress | None) -> Taken:
        """Everything since the last time, with this progress."""
        taken = Taken(self.head, self.cut_bytes, self.cut_lines, list(self.tail), progress)
        self.head, self.tail_bytes, self.cut_bytes, self.cut_lines = [], 0, 0, 0
        self.tail.clear()
        return taken

    def _drop(self, room: int) -> None:
        """Forget the oldest of the end, by whole lines where that is possible."""
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


def push(pieces: list[Piece] | deque[Piece], stream: str, data: bytes) -> None:
    """Append, joining what is small: a piece costs more than its bytes."""
    if pieces and pieces[-1][0] == stream and len(pieces[-1][1]) + len(data) <= PIECE_BYTES:
        pieces[-1][1].extend(data)
    else:
        pieces.append((stream, bytearray(data)))

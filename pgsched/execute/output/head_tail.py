"""Bounded storage for output of any length: its first 8 KB and its last 24 KB.

Invariant: the memory is bounded, and the text says how many bytes were cut.
"""

from __future__ import annotations

from pgsched.core.text import replace_unstorable

HEAD_BYTES = 8 * 1024
TAIL_BYTES = 24 * 1024


class HeadTail:
    """The output of one process so far: the first 8 KB and the last 24 KB."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0

    def add(self, data: bytes) -> None:
        """Add bytes that the process has written."""
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 4 * TAIL_BYTES:
            self._trim()

    def text(self) -> str | None:
        """Return the output as text, or None where there was none."""
        self._trim()
        parts = [bytes(self._head), bytes(self._tail)]
        if self._cut:
            parts.insert(1, f"\n[... {self._cut:,} bytes cut ...]\n".encode())
        return replace_unstorable(b"".join(parts).decode("utf-8", "replace")) or None

    def last_line(self) -> str:
        """Return the last line that is not blank, shortened: usually a program's best one-line reason."""
        end = bytes(self._tail[-1000:]) if self._tail else bytes(self._head[-1000:])
        lines = replace_unstorable(end.decode("utf-8", "replace")).strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""

    def _trim(self) -> None:
        over = len(self._tail) - TAIL_BYTES
        if over > 0:
            self._cut += over
            del self._tail[:over]

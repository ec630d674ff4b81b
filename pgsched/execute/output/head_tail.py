"""The rule: output of any length costs the same memory; its beginning and its end are kept, and the cut is said."""

from __future__ import annotations

from pgsched.core.text import storable

HEAD_BYTES = 8 * 1024
TAIL_BYTES = 24 * 1024


class Output:
    """What a process has written so far: the first 8 KB and the last 24 KB."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0

    def add(self, data: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 4 * TAIL_BYTES:
            self._trim()

    def text(self) -> str | None:
        """The output as text; None if there was none."""
        self._trim()
        parts = [bytes(self._head), bytes(self._tail)]
        if self._cut:
            parts.insert(1, f"\n[... {self._cut:,} bytes cut ...]\n".encode())
        return storable(b"".join(parts).decode("utf-8", "replace")) or None

    def last_line(self) -> str:
        """The last line that is not blank, shortened; the best one-line reason that a program gives."""
        end = bytes(self._tail[-1000:]) if self._tail else bytes(self._head[-1000:])
        lines = storable(end.decode("utf-8", "replace")).strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""

    def _trim(self) -> None:
        over = len(self._tail) - TAIL_BYTES
        if over > 0:
            self._cut += over
            del self._tail[:over]

"""Write many parts in halves, to find those that the database refuses.

Invariant: a part that cannot be written now does not stop the others. The reason may be a locked row, an unforeseen
value, or a file that this host cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.queries.leader import ticks

T = TypeVar("T")
R = TypeVar("R")
MAX_REFUSED_AT_FIRST = 20  # parts refused alone before any was written: then the fault is not in the parts


def write_bisecting(
    conn: Connection[Any],
    parts: Sequence[T],
    write: Callable[[Sequence[T]], R],
    alone: Callable[[T, DatabaseError], R],
) -> list[R]:
    """Write these parts in savepoints: all at once, or in halves where the database refuses that.

    `alone`: called with a part that is refused alone, and its error.

    Returns the results of `write` and `alone`, in order. Raises the error of the last of MAX_REFUSED_AT_FIRST parts
    that were refused before any was written. Also raises errors that do not concern a part (a lock, a time-out).
    """
    return Bisection(conn, write, alone).write(parts)


class Bisection:
    """One write in halves: how many parts were written so far, and how many were refused alone."""

    def __init__(
        self, conn: Connection[Any], write: Callable[[Sequence[T]], R], alone: Callable[[T, DatabaseError], R]
    ) -> None:
        self._conn = conn
        self._write: Callable[[Sequence[Any]], Any] = write
        self._alone: Callable[[Any, DatabaseError], Any] = alone
        self._written = self._refused = 0

    def write(self, parts: Sequence[Any]) -> list[Any]:
        """Write the parts; see `write_bisecting`."""
        if not parts:
            return []
        try:
            with self._conn.transaction():
                done = [self._write(parts)]
            self._written += len(parts)
            return done
        except DatabaseError as error:
            if not ticks.is_fault_of_row(error):
                raise
            if len(parts) == 1:
                self._refused += 1
                if self._refused >= MAX_REFUSED_AT_FIRST and not self._written:
                    raise
                return [self._alone(parts[0], error)]
        half = len(parts) // 2
        return [*self.write(parts[:half]), *self.write(parts[half:])]

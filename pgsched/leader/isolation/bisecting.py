"""The rule: what one piece of work cannot do now (a locked row, an unforeseen value, a file that this host cannot read)
must not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.queries.leader import ticks

T = TypeVar("T")
R = TypeVar("R")
IN_VAIN = 20  # parts that are refused alone before any went through: then it is not theirs


def apart(
    conn: Connection[Any],
    parts: Sequence[T],
    write: Callable[[Sequence[T]], R],
    alone: Callable[[T, DatabaseError], R],
) -> list[R]:
    """Write these in savepoints: all at once, or, where the database refuses that, in halves, until it is known which
    part it refuses: what becomes of that one `alone` says. Returns what each of both returned, in order. Raises what
    IN_VAIN parts meet before any goes through, and what says nothing of a part (a lock, a time-out)."""
    return Halving(conn, write, alone).written(parts)


class Halving:
    """How many parts went through so far, and how many were refused alone."""

    def __init__(
        self, conn: Connection[Any], write: Callable[[Sequence[T]], R], alone: Callable[[T, DatabaseError], R]
    ) -> None:
        self._conn = conn
        self._write: Callable[[Sequence[Any]], Any] = write
        self._alone: Callable[[Any, DatabaseError], Any] = alone
        self._went = self._refused = 0

    def written(self, parts: Sequence[Any]) -> list[Any]:
        """See `apart`."""
        if not parts:
            return []
        try:
            with self._conn.transaction():
                done = [self._write(parts)]
            self._went += len(parts)
            return done
        except DatabaseError as error:
            if not ticks.refused(error):
                raise
            if len(parts) == 1:
                self._refused += 1
                if self._refused >= IN_VAIN and not self._went:
                    raise
                return [self._alone(parts[0], error)]
        half = len(parts) // 2
        return [*self.written(parts[:half]), *self.written(parts[half:])]

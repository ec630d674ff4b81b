"""The rule: what one piece of work cannot do now (a locked row, an unforeseen value, a file that this host cannot read)
must not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import Reaction, classify
from pgsched.db.queries.leader import ticks

Tell = Callable[[str], object]
T = TypeVar("T")
R = TypeVar("R")


def isolated(work: Callable[[], int], on_conflict: Tell, on_bug: Tell) -> int:
    """What `work` did, or 0 when it could not; which of the two it was is told. Raises what no other work survives."""
    try:
        return work()
    except OSError as error:
        on_bug(str(error))
        return 0
    except DatabaseError as error:
        reaction = classify(error)
        if reaction not in (Reaction.RETRY, Reaction.VALUE, Reaction.BUG):
            raise
        conflict = reaction is Reaction.RETRY or ticks.slot_taken(error)
        (on_conflict if conflict else on_bug)(str(error).strip())
        return 0


def apart(
    conn: Connection[Any],
    parts: Sequence[T],
    write: Callable[[Sequence[T]], R],
    alone: Callable[[T, DatabaseError], R],
) -> list[R]:
    """Write these in savepoints: all at once, or, where the database refuses that, in halves, until it is known which
    part it refuses: what becomes of that one `alone` says. Returns what each of both returned, in order."""
    if not parts:
        return []
    try:
        with conn.transaction():
            return [write(parts)]
    except DatabaseError as error:
        if not ticks.refused(error):
            raise
        if len(parts) == 1:
            return [alone(parts[0], error)]
    half = len(parts) // 2
    return [*apart(conn, parts[:half], write, alone), *apart(conn, parts[half:], write, alone)]

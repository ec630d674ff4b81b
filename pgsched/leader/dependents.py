"""Admission's first pass: runs that wait for others. What it lets go of stays `waiting` for the passes after it.

The rule: an edge is decided by the leader alone, in a fenced transaction, from the state that its parent has ended in.
A run that ends here is a parent that has ended, too: the pass goes on until nothing more follows.

A slot that waits for slots of other jobs (jobs.after_jobs) gets those jobs' runs of the same instant as parents. It
waits as long as one of the jobs has yet to decide that slot; it is skipped if one of them has none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import dependencies
from pgsched.db.queries.runs.dependencies import Slot
from pgsched.leader.bisecting import apart

CIRCLE = 0  # the job that a slot is said to lack when it would wait for itself
LONGEST_S = 0.3  # the rest is for the next round: the tick must have its turn, and what is locked is not claimed


@dataclass
class Turn:
    """Where a leader is among what it may have to leave as it is: the ids behind which it goes on. However many slots
    cannot be decided yet, and however many new edges' parents, or children of runs that have ended, are locked, the
    others get their turn."""

    slot: int = 0
    fresh: int = 0
    ended: int = 0


def resolve(conn: Connection[Any], n: int, turn: Turn | None = None) -> int:
    """Decide what has come to be decided, about `n` edges a step; returns how many runs were let go or ended, or 1 if
    there is more to do."""
    turn = turn or Turn()
    slots, fresh, ended_parents = dependencies.look(conn)
    changed, turn.slot = find_parents(conn, turn.slot, n) if slots else (0, 0)
    if not (fresh or ended_parents or changed):
        return 0
    ends_at = time.monotonic() + LONGEST_S
    while True:
        watched, loose, turn.fresh = dependencies.adopt(conn, turn.fresh, n)
        began = turn.ended
        more, free, turn.ended = dependencies.release(conn, began, n)
        ready, ended = dependencies.judge(conn, loose + free) if loose or free else (0, 0)
        changed += ready + ended
        from_the_start = began > 0 and turn.ended == 0
        if not (ended or watched >= n or more or from_the_start):
            return changed
        if time.monotonic() > ends_at:
            return changed + 1


class Sweep:
    """Finds runs that wait for one that somebody has deleted, some of them at a time: nothing tells of that."""

    def __init__(self) -> None:
        self._after = 0

    def work(self, conn: Connection[Any], n: int) -> None:
        """Look at the next `n` runs that wait."""
        last, run_ids = dependencies.gone(conn, self._after, n)
        self._after = last or 0
        if run_ids:
            dependencies.judge(conn, run_ids)


def find_parents(conn: Connection[Any], after: int, n: int) -> tuple[int, int]:
    """Looks at `n` slots behind the id `after`. Returns how many have got their parents or were skipped, and behind
    which id to go on."""
    slots = dependencies.slots(conn, after, n)
    skipped = {slot.run_id: slot.missing for slot in slots if slot.missing is not None}
    whole = [slot for slot in slots if slot.missing is None and not slot.undecided]
    skipped |= dict.fromkeys(attach(conn, whole), CIRCLE)
    dependencies.skip(conn, skipped)
    last = max(slot.run_id for slot in slots) if len(slots) == n else 0
    return len(skipped) + len(whole), last


def attach(conn: Connection[Any], whole: list[Slot]) -> list[int]:
    """Make the edges; returns the slots that would wait for themselves."""

    def add(some: Sequence[Slot]) -> list[int]:
        dependencies.add(conn, [(slot.run_id, parent, "cancel", False) for slot in some for parent in slot.parents])
        return []

    return [run_id for circle in apart(conn, whole, add, lambda slot, _: [slot.run_id]) for run_id in circle]

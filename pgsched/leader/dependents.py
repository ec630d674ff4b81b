"""Admission's first pass: runs that wait for others. What it lets go of stays `waiting` for the passes after it.

The rule: an edge is decided by the leader alone, in a fenced transaction, from the state that its parent has ended in.
A run that ends here is a parent that has ended, too: the pass goes on until nothing more follows.

A slot that waits for slots of other jobs (jobs.after_jobs) gets those jobs' runs of the same instant as parents. It
waits as long as one of the jobs has yet to decide that slot; it is skipped if one of them has none.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.queries.leader.ticks import CHECK_VIOLATION, Aside, nobody
from pgsched.db.queries.runs import dependencies
from pgsched.db.queries.runs.dependencies import Slot
from pgsched.leader.isolation.bisecting import apart

# under which rows are set aside
SLOTS, FRESH, ENDED, JUDGED = "dependent slots", "new dependencies", "ended parents", "dependent runs"
CIRCLE = 0  # the job that a slot is said to lack when it would wait for itself
LONGEST_S = 0.1  # the rest is for the next round: the tick must have its turn, and what is locked is not claimed
CHUNK = 1000  # runs and edges that a step looks at, however many a run has
WAITS = 12  # times that a step meets a lock: enough to find one locked slot among CHUNK


@dataclass
class Large:
    """A run with more new edges than a step looks at: how far they are marked, and parents that somebody had locked."""

    run_id: int
    after: int = 0
    whole: bool = False
    missed: list[int] = field(default_factory=list)


@dataclass
class Turn:
    """Where a leader is among what it may have to leave as it is: the ids behind which it goes on. However many slots
    cannot be decided yet, and however many new edges' parents, or children of runs that have ended, are locked, the
    others get their turn. `large`: the run that is being marked; `blocked`: those of which somebody has locked a
    parent, which are tried again in turn, one each time."""

    slot: int = 0
    fresh: int = 0
    ended: int = 0
    large: Large | None = None
    blocked: deque[Large] = field(default_factory=deque)


def resolve(
    conn: Connection[Any], n: int, turn: Turn | None = None, set_aside: Aside = nobody, longest_s: float | None = None
) -> int:
    """Decide what has come to be decided, about `n` edges a step; returns how many runs were let go or ended, or 1 if
    there is more to do. `set_aside`: the runs that are left alone, by SLOTS, FRESH and ENDED."""
    turn, n = turn or Turn(), min(n, CHUNK)
    todo = dependencies.look(conn)
    changed, turn.slot = find_parents(conn, turn.slot, n, set_aside(SLOTS)) if todo.slots else (0, 0)
    if turn.large is None and turn.blocked:
        turn.large = turn.blocked.popleft()
    elif todo.begun and turn.large is None:
        dependencies.begin_again(conn)
    if not (todo.fresh or todo.begun or todo.ended or changed):
        return 0
    ends_at = time.monotonic() + (LONGEST_S if longest_s is None else longest_s)
    while True:
        _, goes_on, loose = adopt(conn, turn, n, set_aside(FRESH))
        began = turn.ended
        more, free, turn.ended = dependencies.release(conn, began, n, set_aside(ENDED))
        ready, ended = dependencies.judge(conn, loose + free) if loose or free else (0, 0)
        changed += ready + ended
        from_the_start = began > 0 and turn.ended == 0
        if not (ended or goes_on or more or from_the_start):
            return changed
        if time.monotonic() > ends_at:
            return changed + 1


def adopt(
    conn: Connection[Any], turn: Turn, n: int, set_aside_ids: Sequence[int] = (), most: int | None = None
) -> tuple[int, bool, list[int]]:
    """Watch the parents of `n` runs whose edges are new, `most` edges of them (if not given, `n`); returns how many are
    watched now, whether more can be done at once, and the runs that may wait for nothing that is open.

    The order counts: the runs are locked, then their edges read, then the parents locked: a run is watched only when
    each of its edges, also one that is just being made, has a parent that is marked.
    """
    most = n if most is None else most
    if turn.large is not None and (done := adopt_large(conn, turn, turn.large, most)) is not None:
        return done
    ids = dependencies.fresh(conn, turn.fresh, n, set_aside_ids)
    found = dependencies.edges(conn, ids, 0, most + 1) if ids else []
    cut = found[-1].run_id if len(found) > most else None  # it may have more of them
    if cut == next(iter(ids), None) and cut is not None:
        dependencies.begin(conn, cut)
        turn.large = Large(cut)
        return adopt_large(conn, turn, turn.large, most) or (0, False, [])
    full = len(ids) == n or cut is not None
    ids = ids if cut is None else ids[: ids.index(cut)]
    unmarked = [
        (edge.run_id, edge.parent_id) for edge in found if edge.parent_id and edge.unmarked and edge.run_id != cut
    ]
    watched, _ = dependencies.watch(conn, ids, unmarked) if ids else (0, [])
    turn.fresh = ids[-1] if full else 0
    return watched, watched > 0 and turn.fresh > 0, [edge.run_id for edge in found if edge.parent_id is None]


def adopt_large(conn: Connection[Any], turn: Turn, large: Large, n: int) -> tuple[int, bool, list[int]] | None:
    """The next `n` edges of one run. When all have been looked at, the parents that were missed are tried again. None:
    as somebody has locked some of them, it is the turn of others now."""
    if large.whole:
        unmarked = large.missed[:n]
        large.missed = mark(conn, large.run_id, unmarked) + large.missed[n:]
    else:
        found = [
            edge for edge in dependencies.edges(conn, [large.run_id], large.after, n) if edge.parent_id is not None
        ]
        unmarked = [edge.parent_id for edge in found if edge.unmarked and edge.parent_id is not None]
        large.missed += mark(conn, large.run_id, unmarked)
        large.whole = len(found) < n
        large.after = found[-1].parent_id or 0 if found else large.after
        if not large.whole:
            return 0, True, []
    turn.large = None
    if large.missed:
        turn.blocked.append(large)
        return None
    # Where it is not as it was (new edges, or it has ended), it is new again, or of no interest any more.
    watched = dependencies.complete(conn, large.run_id)
    return int(watched), True, [large.run_id]


def mark(conn: Connection[Any], run_id: int, parents: Sequence[int]) -> list[int]:
    """Mark these parents of a run; returns those that somebody has locked."""
    return dependencies.watch(conn, [], [(run_id, parent) for parent in parents])[1] if parents else []


def adopt_apart(conn: Connection[Any], n: int, set_aside_ids: Sequence[int]) -> tuple[int, bool, list[int]]:
    """As `adopt`, from the first run on, and at once, however many edges it has."""
    turn = Turn()
    watched, goes_on, loose = adopt(conn, turn, n, set_aside_ids, CHUNK)
    while turn.large is not None and goes_on:
        watched, goes_on, loose = adopt(conn, turn, n, set_aside_ids, CHUNK)
    return watched, goes_on, loose


def judge_apart(conn: Connection[Any], run_ids: Sequence[int]) -> tuple[int, dict[int, DatabaseError]]:
    """Let go of runs, or end them, but for those that the database refuses; returns how many, and the others."""
    failed: dict[int, DatabaseError] = {}

    def alone(run_id: int, error: DatabaseError) -> int:
        failed[run_id] = error
        return 0

    return sum(apart(conn, run_ids, lambda some: sum(dependencies.judge(conn, list(some))), alone)), failed


class Sweep:
    """Finds runs that wait for one that somebody has deleted, some of them at a time: nothing tells of that."""

    def __init__(self) -> None:
        self._after = (0, 0)

    def work(self, conn: Connection[Any], n: int) -> None:
        """Look at the next `n` edges of runs that wait."""
        self._after, run_ids = dependencies.gone(conn, self._after, n)
        if run_ids:
            dependencies.judge(conn, run_ids)


def find_parents(conn: Connection[Any], after: int, n: int, set_aside_ids: Sequence[int] = ()) -> tuple[int, int]:
    """Looks at `n` slots behind the id `after`. Returns how many have got their parents or were skipped, and behind
    which id to go on."""
    slots = dependencies.slots(conn, after, n, set_aside_ids)
    skipped = {slot.run_id: slot.missing for slot in slots if slot.missing is not None}
    whole = [slot for slot in slots if slot.missing is None and not slot.undecided]
    attached, circle = attach_unlocked(conn, whole)
    skipped |= dict.fromkeys(circle, CIRCLE)
    dependencies.skip(conn, skipped)
    last = max(slot.run_id for slot in slots) if len(slots) == n else 0
    return len(skipped) + attached, last


def attach_unlocked(conn: Connection[Any], whole: list[Slot]) -> tuple[int, list[int]]:
    """Make the edges of those slots for which nobody's lock has to be waited for: whoever revives a run may leave his
    transaction open. Returns how many slots got them, and those that would wait for themselves."""
    parts, attached, circle, waits = [whole] if whole else [], 0, list[int](), 0
    while parts and waits < WAITS:
        some = parts.pop()
        try:
            with dependencies.hardly_waiting(conn):
                circles = attach(conn, some)
        except DatabaseError as error:
            if error.sqlstate != dependencies.LOCKED:
                raise
            waits += 1
            half = len(some) // 2
            parts += [part for part in (some[half:], some[:half]) if half]
        else:
            circle += circles
            attached += len(some) - len(circles)
    return attached, circle


def attach(conn: Connection[Any], whole: list[Slot]) -> list[int]:
    """Make the edges; returns the slots that would wait for themselves."""

    def add(some: Sequence[Slot]) -> list[int]:
        dependencies.add(conn, [(slot.run_id, parent, "cancel", False) for slot in some for parent in slot.parents])
        return []

    def alone(slot: Slot, error: DatabaseError) -> list[int]:
        if error.sqlstate != CHECK_VIOLATION:  # any other may pass
            raise error
        return [slot.run_id]

    return [run_id for circle in apart(conn, whole, add, alone) for run_id in circle]

"""Admission's first pass: decide the runs that wait for other runs.

A run that is released here stays `waiting` for the passes after this one.

Invariant: the leader alone decides an edge, in a fenced transaction, from the state in which its parent has ended. A
run that ends here is an ended parent, too. So the pass goes on until nothing more follows.

Watching a run means marking its parents, so that the end of a parent wakes the leader.

A slot that waits for slots of other jobs (jobs.after_jobs) gets those jobs' runs of the same instant as parents. It
waits while one of the jobs has not decided that slot. It is skipped if one of them has no slot at that instant. A job
in mode shadow is not waited for: its work is done elsewhere.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.queries.leader.ticks import CHECK_VIOLATION, ExcludedIdsOf, exclude_nothing
from pgsched.db.queries.runs import dependencies
from pgsched.db.queries.runs.dependencies import Slot
from pgsched.leader.isolation.bisecting import write_bisecting

# the names under which rows are set aside
SLOTS, FRESH, ENDED, JUDGED = "dependent slots", "new dependencies", "ended parents", "dependent runs"
CIRCLE = 0  # stands for the missing job where a slot would wait for itself
LONGEST_S = 0.1  # no further step after this: the tick must have its turn, and locked runs are not claimed
CHUNK = 1000  # runs and edges that a step reads at most, however many edges a run has
MAX_LOCKS_MET = 12  # locks that a step may meet: enough to find one locked slot among CHUNK by halving


@dataclass
class LargeRun:
    """A run with more new edges than one step reads.

    `after`: the parent up to which its edges were read.
    `all_read`: all edges were read.
    `missed`: parents that another transaction had locked.
    """

    run_id: int
    after: int = 0
    all_read: bool = False
    missed: list[int] = field(default_factory=list)


@dataclass
class DependencyCursor:
    """Position of a leader among rows that it may have to leave as they are.

    It goes on behind these ids. So slots that cannot be decided yet, and locked parents or children, never stop the
    others.

    `slot`, `fresh`, `ended`: the last id among waiting slots, runs with new edges, and runs that have ended.
    `large`: the run whose parents are being marked.
    `blocked`: large runs with a locked parent; they are tried again in turn, one at a time.
    """

    slot: int = 0
    fresh: int = 0
    ended: int = 0
    large: LargeRun | None = None
    blocked: deque[LargeRun] = field(default_factory=deque)


def decide_dependencies(
    conn: Connection[Any],
    n: int,
    turn: DependencyCursor | None = None,
    set_aside: ExcludedIdsOf = exclude_nothing,
    longest_s: float | None = None,
) -> int:
    """Decide the edges that can be decided, about `n` in a step; return how many runs were released or ended.

    The result is one higher if there is more to do.

    `set_aside`: the ids to skip, by SLOTS, FRESH and ENDED.
    `longest_s`: seconds after which no further step begins (None: LONGEST_S).
    """
    turn, n = turn or DependencyCursor(), min(n, CHUNK)
    todo = dependencies.look(conn)
    changed, turn.slot = attach_slot_parents(conn, turn.slot, n, set_aside(SLOTS)) if todo.slots else (0, 0)
    if turn.large is None and turn.blocked:
        turn.large = turn.blocked.popleft()
    elif todo.begun and turn.large is None:
        dependencies.begin_again(conn)
    if not (todo.fresh or todo.begun or todo.ended or changed):
        return 0
    ends_at = time.monotonic() + (LONGEST_S if longest_s is None else longest_s)
    while True:
        _, goes_on, loose = watch_new_runs(conn, turn, n, set_aside(FRESH))
        began = turn.ended
        more, free, turn.ended = dependencies.decide_ended_parents(conn, began, n, set_aside(ENDED))
        ready, ended = dependencies.admit_dependents(conn, loose + free) if loose or free else (0, 0)
        changed += ready + ended
        from_the_start = began > 0 and turn.ended == 0
        if not (ended or goes_on or more or from_the_start):
            return changed
        if time.monotonic() > ends_at:
            return changed + 1


def watch_new_runs(
    conn: Connection[Any], turn: DependencyCursor, n: int, set_aside_ids: Sequence[int] = (), most: int | None = None
) -> tuple[int, bool, list[int]]:
    """Watch the parents of up to `n` runs with new edges, reading at most `most` edges (None: `n`).

    Returns how many runs are watched now, whether more can be done at once, and the runs that may have no open edge.

    The order matters: lock the runs, read their edges, then lock the parents. A run is watched only when the parent of
    each of its edges is marked, also of an edge that is just being made.
    """
    most = n if most is None else most
    if turn.large is not None and (done := watch_large_run(conn, turn, turn.large, most)) is not None:
        return done
    ids = dependencies.lock_new_edges(conn, turn.fresh, n, set_aside_ids)
    found = dependencies.edges(conn, ids, 0, most + 1) if ids else []
    cut = found[-1].run_id if len(found) > most else None  # this run may have more edges
    if cut == next(iter(ids), None) and cut is not None:
        dependencies.begin(conn, cut)
        turn.large = LargeRun(cut)
        return watch_large_run(conn, turn, turn.large, most) or (0, False, [])
    full = len(ids) == n or cut is not None
    ids = ids if cut is None else ids[: ids.index(cut)]
    unmarked = [
        (edge.run_id, edge.parent_id) for edge in found if edge.parent_id and edge.unmarked and edge.run_id != cut
    ]
    watched, _ = dependencies.watch_parents(conn, ids, unmarked) if ids else (0, [])
    turn.fresh = ids[-1] if full else 0
    return watched, watched > 0 and turn.fresh > 0, [edge.run_id for edge in found if edge.parent_id is None]


def watch_large_run(
    conn: Connection[Any], turn: DependencyCursor, large: LargeRun, n: int
) -> tuple[int, bool, list[int]] | None:
    """Mark the parents of the next `n` edges of one run; when all were read, try the missed parents again.

    Returns the same as `watch_new_runs`, or None where some parents are locked: then it is the turn of other runs.
    """
    if large.all_read:
        unmarked = large.missed[:n]
        large.missed = mark_parents(conn, large.run_id, unmarked) + large.missed[n:]
    else:
        found = [
            edge for edge in dependencies.edges(conn, [large.run_id], large.after, n) if edge.parent_id is not None
        ]
        unmarked = [edge.parent_id for edge in found if edge.unmarked and edge.parent_id is not None]
        large.missed += mark_parents(conn, large.run_id, unmarked)
        large.all_read = len(found) < n
        large.after = found[-1].parent_id or 0 if found else large.after
        if not large.all_read:
            return 0, True, []
    turn.large = None
    if large.missed:
        turn.blocked.append(large)
        return None
    # False where the run has changed: with new edges it is new again, and if it has ended nothing is left to do.
    watched = dependencies.complete(conn, large.run_id)
    return int(watched), True, [large.run_id]


def mark_parents(conn: Connection[Any], run_id: int, parents: Sequence[int]) -> list[int]:
    """Mark these parents of a run; return those that another transaction has locked."""
    return dependencies.watch_parents(conn, [], [(run_id, parent) for parent in parents])[1] if parents else []


def watch_new_runs_whole(conn: Connection[Any], n: int, set_aside_ids: Sequence[int]) -> tuple[int, bool, list[int]]:
    """Do as `watch_new_runs`, but from the first run on, and for a large run until all its edges are read."""
    turn = DependencyCursor()
    watched, goes_on, loose = watch_new_runs(conn, turn, n, set_aside_ids, CHUNK)
    while turn.large is not None and goes_on:
        watched, goes_on, loose = watch_new_runs(conn, turn, n, set_aside_ids, CHUNK)
    return watched, goes_on, loose


def judge_bisecting(conn: Connection[Any], run_ids: Sequence[int]) -> tuple[int, dict[int, DatabaseError]]:
    """Release runs, or end them; return how many, and by id the error of each run that the database refuses."""
    failed: dict[int, DatabaseError] = {}

    def alone(run_id: int, error: DatabaseError) -> int:
        failed[run_id] = error
        return 0

    return sum(
        write_bisecting(conn, run_ids, lambda some: sum(dependencies.admit_dependents(conn, list(some))), alone)
    ), failed


class DeletedParentSweep:
    """Search, some rows at a time, for runs that wait for a deleted run: nothing reports a deletion."""

    def __init__(self) -> None:
        self._after = (0, 0)

    def work(self, conn: Connection[Any], n: int) -> None:
        """Look at the next `n` edges of waiting runs."""
        self._after, run_ids = dependencies.decide_deleted_parents(conn, self._after, n)
        if run_ids:
            dependencies.admit_dependents(conn, run_ids)


def attach_slot_parents(
    conn: Connection[Any], after: int, n: int, set_aside_ids: Sequence[int] = ()
) -> tuple[int, int]:
    """Look at `n` slots behind the id `after`; return how many got parents or were skipped, and the last id."""
    slots = dependencies.slots(conn, after, n, set_aside_ids)
    skipped = {slot.run_id: slot.missing for slot in slots if slot.missing is not None}
    whole = [slot for slot in slots if slot.missing is None and not slot.undecided]
    free = [slot.run_id for slot in whole if not slot.parents]  # all its jobs are in mode shadow
    dependencies.wait_for_none(conn, free)
    attached, circle = add_unlocked_slot_edges(conn, [slot for slot in whole if slot.parents])
    skipped |= dict.fromkeys(circle, CIRCLE)
    dependencies.skip(conn, skipped)
    last = max(slot.run_id for slot in slots) if len(slots) == n else 0
    return len(skipped) + len(free) + attached, last


def add_unlocked_slot_edges(conn: Connection[Any], whole: list[Slot]) -> tuple[int, list[int]]:
    """Make the edges of the slots that need no locked row; return how many slots got them, and those in a circle.

    A lock is not waited for, because a transaction that revives a run may stay open for long.
    """
    parts, attached, circle, waits = [whole] if whole else [], 0, list[int](), 0
    while parts and waits < MAX_LOCKS_MET:
        some = parts.pop()
        try:
            with dependencies.short_lock_timeout(conn):
                circles = add_slot_edges(conn, some)
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


def add_slot_edges(conn: Connection[Any], whole: list[Slot]) -> list[int]:
    """Make the edges of these slots; return the slots that would wait for themselves."""

    def add(some: Sequence[Slot]) -> list[int]:
        dependencies.insert_edges(
            conn, [(slot.run_id, parent, "cancel", False) for slot in some for parent in slot.parents]
        )
        return []

    def alone(slot: Slot, error: DatabaseError) -> list[int]:
        if error.sqlstate != CHECK_VIOLATION:  # any other error may pass
            raise error
        return [slot.run_id]

    return [run_id for circle in write_bisecting(conn, whole, add, alone) for run_id in circle]

"""Dependencies between runs: the leader's pass over them, and reads of parents (`new_graphs` makes graphs of runs).

Invariant: rows of `dependencies` (edges) say which run waits for which. Only the leader's pass decides what the edges
come to. A function takes the connection first and commits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from psycopg.rows import class_row

from pgsched.db.arrays import literal
from pgsched.db.connection.connect import AsyncConnection, Connection
from pgsched.db.connection.json_values import program_value
from pgsched.db.connection.transaction_pooling import cursor_on_async
from pgsched.db.rows import fetch, fetch_as
from pgsched.db.statements import sql

WAIT, LOCKED = "5ms", "55P03"  # how long to wait for a lock; SQLSTATE of a lock that was not free
Edge = tuple[int, int, str, bool]  # the run, its parent, on_failure, any_of


@dataclass(frozen=True, slots=True)
class Parent:
    """A run that another one waited for. `result`: what it returned; None unless it has succeeded."""

    id: int
    task: str
    state: str
    result: Any
    error: str | None


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that waits for slots of other jobs: `dependencies_slots` in sql/dependencies.sql.

    `parents`: the runs of those slots, as far as they exist
    `missing`: a job that will never have this slot, -1: no job
    `undecided`: how many of the jobs have yet to decide the slot
    """

    run_id: int
    parents: list[int]
    missing: int | None
    undecided: int


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Counts of some runs: `done` of `total` have ended, and `failed` of these did not succeed."""

    total: int
    done: int
    failed: int

    @property
    def finished(self) -> bool:
        """Return whether all have ended."""
        return self.done == self.total


# ---- the leader's pass


@dataclass(frozen=True, slots=True)
class Todo:
    """Whether there is work of each kind: `dependencies_look` in sql/dependencies.sql."""

    slots: bool
    fresh: bool
    begun: bool
    ended: bool


class Link(NamedTuple):
    """An edge: the run waits for the parent, while it is `open`.

    `place`: the run's place among the ids asked for, from 1; 0: it is not one of them
    """

    run_id: int
    parent_id: int
    open: bool = True
    place: int = 0


class Wait(NamedTuple):
    """An open edge, or a run without one. `unmarked`: the parent has no mark yet that a run waits for it."""

    run_id: int
    parent_id: int | None
    unmarked: bool


def look(conn: Connection[Any]) -> Todo:
    """Find out which kinds of work there are."""
    (found,) = fetch_as(conn, Todo, "dependencies_look")
    return found


def lock_new_edges(conn: Connection[Any], after: int, n: int, excluded_ids: Sequence[int] = ()) -> list[int]:
    """Lock `n` runs behind the id `after` that have new edges, except those in `excluded_ids`; return their ids."""
    values = {"after": after, "n": n, "aside": literal(excluded_ids)}
    return [row["id"] for row in fetch(conn, "dependencies_fresh", values)]


def edges(conn: Connection[Any], run_ids: Sequence[int], after: int, n: int) -> list[Wait]:
    """Return the first `n` open edges of these runs, to parents behind the id `after`."""
    return fetch_as(conn, Wait, "dependencies_edges", {"ids": literal(run_ids), "after": after, "n": n})


def watch_parents(
    conn: Connection[Any], run_ids: Sequence[int], unmarked: Sequence[tuple[int, int]]
) -> tuple[int, list[int]]:
    """Mark the parents of these edges (run, parent), and watch the runs whose parents are all marked.

    The end of a marked parent wakes the leader. A parent that another session has locked is missed. Returns how many
    runs are watched, and the missed parents.
    """
    of, parents = [edge[0] for edge in unmarked], [edge[1] for edge in unmarked]
    values = {"ids": literal(run_ids), "run_ids": literal(of), "parent_ids": literal(parents)}
    (row,) = fetch(conn, "dependencies_watch", values)
    return row["watched"], row["missed"]


def begin(conn: Connection[Any], run_id: int) -> None:
    """Record, of a locked run, that its edges are looked at in several steps."""
    conn.execute(sql("dependencies_begin"), {"id": run_id})


def begin_again(conn: Connection[Any]) -> None:
    """Start again with the runs of whose edges a former leader looked at only some: which ones is not known."""
    conn.execute(sql("dependencies_begin_again"))


def complete(conn: Connection[Any], run_id: int) -> bool:
    """Watch a run whose edges have all been looked at; return False where it has new edges, has ended or is locked."""
    return bool(fetch(conn, "dependencies_complete", {"id": run_id}))


def decide_ended_parents(
    conn: Connection[Any], after: int, n: int, excluded_ids: Sequence[int] = (), *, act: bool = True
) -> tuple[bool, list[int], int]:
    """Decide the edges to the next `n` runs behind the id `after` that have ended.

    Returns whether there is more, the runs that waited for them, and the id behind which to go on.

    `excluded_ids`: parents that are left alone
    `act`: False: change nothing
    """
    values = {"after": after, "n": n, "aside": literal(excluded_ids), "act": act}
    (row,) = fetch(conn, "dependencies_release", values)
    return row["more"], row["ids"], row["last"] or 0


def decide_deleted_parents(conn: Connection[Any], after: tuple[int, int], n: int) -> tuple[tuple[int, int], list[int]]:
    """Decide the edges to deleted runs, among `n` edges of waiting runs behind the edge `after` (run, parent).

    Returns the edge behind which to go on, and the runs that had such an edge.
    """
    (row,) = fetch(conn, "dependencies_gone", {"after": after[0], "after_parent": after[1], "n": n})
    return (row["last"] or 0, row["last_parent"]), row["ids"]


def find_backward_waits(conn: Connection[Any], after: int, n: int) -> tuple[int, list[int]]:
    """Look at `n` runs behind the id `after` that wait for a later run, to find circles.

    Returns the id behind which to go on, and those of the runs for which a later run waits.
    """
    (row,) = fetch(conn, "dependencies_backward", {"after": after, "n": n})
    return row["last"] or 0, row["ids"]


def edges_above(conn: Connection[Any], run_ids: Sequence[int], after: int, lowest: int, n: int) -> list[Link]:
    """Return up to `n` edges: first those by which these runs wait, then those of their parents, and so on.

    `lowest`: leave out edges to parents with a lower id
    `after`: of the first run, return only edges to parents behind this id
    """
    values = {"ids": literal(run_ids), "after": after, "lowest": lowest, "n": n}
    return fetch_as(conn, Link, "dependencies_above", values)


def end_circle(conn: Connection[Any], circle: Sequence[Link]) -> bool:
    """End the run to which the first edge of a circle leads.

    Returns False where an edge is not open any more, or another session has locked the run.
    """
    run_ids, parent_ids = [link.run_id for link in circle], [link.parent_id for link in circle]
    return bool(
        fetch(conn, "dependencies_end_circle", {"run_ids": literal(run_ids), "parent_ids": literal(parent_ids)})
    )


def admit_dependents(conn: Connection[Any], run_ids: list[int]) -> tuple[int, int]:
    """Release the runs whose edges are met, and end those that wait in vain; return how many of each."""
    (row,) = fetch(conn, "admit_dependents", {"ids": literal(run_ids)})
    return row["ready"], row["ended"]


def slots(conn: Connection[Any], after: int, n: int, excluded_ids: Sequence[int] = ()) -> list[Slot]:
    """Return the next `n` slots behind the id `after` that wait for slots of other jobs, without `excluded_ids`."""
    return fetch_as(conn, Slot, "dependencies_slots", {"after": after, "n": n, "aside": literal(excluded_ids)})


def skip(conn: Connection[Any], slots: dict[int, int]) -> None:
    """Skip slots because a job (the value) has no such slot; 0: the jobs wait for each other in a circle."""
    if slots:
        values = {"ids": literal(slots), "job_ids": literal(slots.values())}
        conn.execute(sql("dependencies_no_slot"), values)


def wait_for_none(conn: Connection[Any], run_ids: Sequence[int]) -> None:
    """Let slots go on that wait for no other job's slot."""
    if run_ids:
        conn.execute(sql("dependencies_none"), {"ids": literal(run_ids)})


@contextmanager
def short_lock_timeout(conn: Connection[Any]) -> Iterator[None]:
    """Open a savepoint in which a statement that waits longer than WAIT for a lock fails (LOCKED)."""
    with conn.transaction():
        (before,) = conn.execute("SELECT current_setting('lock_timeout')").fetchone()  # type: ignore[misc]
        conn.execute("SELECT set_config('lock_timeout', %s, true)", [WAIT])
        yield
        conn.execute("SELECT set_config('lock_timeout', %s, true)", [before])


def insert_edges(conn: Connection[Any], edges: Sequence[Edge]) -> None:
    """Insert edges."""
    conn.execute(sql("dependencies_add"), arrays(edges))


def arrays(edges: Sequence[Edge]) -> dict[str, str]:
    """Return edges as the parallel arrays of `dependencies_add`."""
    columns = [literal(column) for column in zip(*edges, strict=True)]
    return dict(zip(("run_ids", "parent_ids", "on_failures", "any_ofs"), columns, strict=True))


# ---- handlers and producers


def parents(conn: Connection[Any], run_id: int) -> list[Parent]:
    """Return the runs that this one waited for, the oldest first."""
    return readable(fetch_as(conn, Parent, "dependencies_parents", {"id": run_id}))


async def parents_async(conn: AsyncConnection[Any], run_id: int) -> list[Parent]:
    """Do what `parents` does, for asyncio."""
    async with cursor_on_async(conn, class_row(Parent)) as cursor:
        return readable(await (await cursor.execute(sql("dependencies_parents"), {"id": run_id})).fetchall())


def readable(found: list[Parent]) -> list[Parent]:
    """Return the parents with results that Python can work with. Raises InputError."""
    return [replace(one, result=program_value(one.result)) for one in found]


def count_runs(conn: Connection[Any], run_ids: Sequence[int]) -> RunCounts:
    """Return how many of these runs have ended, and how many of these did not succeed."""
    (found,) = fetch_as(conn, RunCounts, "dependencies_count", {"ids": literal(run_ids)})
    return found


async def count_runs_async(conn: AsyncConnection[Any], run_ids: Sequence[int]) -> RunCounts:
    """Do what `count_runs` does, for asyncio."""
    found: RunCounts
    async with cursor_on_async(conn, class_row(RunCounts)) as cursor:
        (found,) = await (await cursor.execute(sql("dependencies_count"), {"ids": literal(run_ids)})).fetchall()
    return found

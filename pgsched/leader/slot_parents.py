"""Slots that wait for slots of other jobs (jobs.after_jobs) get those jobs' runs as parents.

The rule: "the same slot" is the same instant. A slot waits as long as one of the jobs has yet to decide it; when all
have, its parents are known, or it is skipped because one of them has no such slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import dependencies
from pgsched.db.queries.runs.dependencies import Slot
from pgsched.leader.bisecting import apart

CIRCLE = 0


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
